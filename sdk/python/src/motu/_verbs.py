# Written by generate.py; change that, or what it reads.
"""One method per operation of the API."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _wire as wire
from . import types
from ._aio.streams import AsyncConnection, AsyncLines, AsyncStream
from ._aio.transport import AsyncContent, AsyncTransport
from ._sync.streams import Connection, Lines, Stream
from ._sync.transport import Content, Transport

#: The method of each operation of the document.
OPERATIONS = {
    "apply_workspace_patch": "apply_workspace_patch",
    "attach": "attach",
    "attach_output": "attach_output",
    "attach_shell": "attach_shell",
    "attach_shell_output": "attach_shell_output",
    "attach_shell_ws": "attach_shell",
    "attach_terminal": "attach_terminal",
    "attach_terminal_output": "attach_terminal_output",
    "attach_terminal_ws": "attach_terminal",
    "attach_ws": "attach",
    "audit_key": "audit_key",
    "audit_receipt": "audit_receipt",
    "backup": "backup",
    "build_environment": "build_environment",
    "build_template": "build_template",
    "call": "call",
    "check_policy": "check_policy",
    "chmod": "chmod",
    "clear_terminal_scrollback": "clear_terminal_scrollback",
    "close_shell": "close_shell",
    "commit_sandbox": "commit_sandbox",
    "configure_terminal": "configure_terminal",
    "create_key": "create_key",
    "create_sandbox": "create_sandbox",
    "create_snapshot": "create_snapshot",
    "create_workspace": "create_workspace",
    "delete_snapshot": "delete_snapshot",
    "delete_workspace": "delete_workspace",
    "destroy_sandbox": "destroy_sandbox",
    "dial": "dial",
    "dial_unix": "dial_unix",
    "diff_snapshots": "diff_snapshots",
    "diff_workspace": "diff_workspace",
    "doctor": "doctor",
    "dry_run_call": "dry_run_call",
    "edit_workspace": "edit_workspace",
    "exec": "exec",
    "exec_background": "exec_background",
    "exec_workspace": "exec_workspace",
    "exec_workspace_ws": "exec_workspace_stream",
    "exec_ws": "exec_stream",
    "expect_in_terminal": "expect_in_terminal",
    "expect_terminal_prompt": "expect_terminal_prompt",
    "explain_policy": "explain_policy",
    "export_audit": "export_audit",
    "export_environment": "export_environment",
    "export_workspace": "export_workspace",
    "export_workspace_disk": "export_workspace_disk",
    "flush_metrics": "flush_metrics",
    "follow_audit": "follow_audit",
    "follow_service": "follow_service",
    "follow_service_output": "follow_service_output",
    "follow_service_ws": "follow_service",
    "fork_sandbox": "fork_sandbox",
    "fork_workspace": "fork_workspace",
    "get_audit": "get_audit",
    "get_policy": "get_policy",
    "get_sandbox": "get_sandbox",
    "get_template": "get_template",
    "get_terminal": "get_terminal",
    "glob": "glob",
    "hash": "hash",
    "import_environment": "import_environment",
    "inspect_environment": "inspect_environment",
    "keepalive": "keepalive",
    "kill_process": "kill_process",
    "list_audit": "list_audit",
    "list_environments": "list_environments",
    "list_files": "list_files",
    "list_keys": "list_keys",
    "list_policies": "list_policies",
    "list_ports": "list_ports",
    "list_processes": "list_processes",
    "list_sandboxes": "list_sandboxes",
    "list_secrets": "list_secrets",
    "list_services": "list_services",
    "list_shells": "list_shells",
    "list_snapshots": "list_snapshots",
    "list_templates": "list_templates",
    "list_terminals": "list_terminals",
    "list_workspace_disk": "list_workspace_disk",
    "list_workspace_files": "list_workspace_files",
    "list_workspaces": "list_workspaces",
    "logs_service": "logs_service",
    "logs_workspace": "logs_workspace",
    "metrics": "metrics",
    "metrics_history": "metrics_history",
    "mkdir": "mkdir",
    "move_file": "move_file",
    "open_shell": "open_shell",
    "open_terminal": "open_terminal",
    "openapi": "openapi",
    "pause_sandbox": "pause_sandbox",
    "plan": "plan",
    "poll_terminal": "poll_terminal",
    "prune_environments": "prune_environments",
    "pull_environment": "pull_environment",
    "push_workspace_sync": "push_workspace_sync",
    "put_template": "put_template",
    "read_decisions": "read_decisions",
    "read_events": "read_events",
    "read_file": "read_file",
    "read_shell": "read_shell",
    "read_tree": "read_tree",
    "read_workspace_disk": "read_workspace_disk",
    "read_workspace_file": "read_workspace_file",
    "reap_expired": "reap_expired",
    "remove_environment": "remove_environment",
    "remove_file": "remove_file",
    "remove_secret": "remove_secret",
    "remove_template": "remove_template",
    "reset_workspace": "reset_workspace",
    "resize_process": "resize_process",
    "resize_shell": "resize_shell",
    "resume_sandbox": "resume_sandbox",
    "revoke_key": "revoke_key",
    "run": "run",
    "run_in_terminal": "run_in_terminal",
    "run_ws": "run_stream",
    "save_template": "save_template",
    "send_build_context": "send_build_context",
    "send_terminal_password": "send_terminal_password",
    "send_to_terminal": "send_to_terminal",
    "set_policy": "set_policy",
    "set_secret": "set_secret",
    "signal_process": "signal_process",
    "signal_shell": "signal_shell",
    "signal_terminal": "signal_terminal",
    "start_sandbox": "start_sandbox",
    "start_service": "start_service",
    "start_workspace": "start_workspace",
    "stat": "stat",
    "status_service": "status_service",
    "status_workspace": "status_workspace",
    "stop_sandbox": "stop_sandbox",
    "stop_service": "stop_service",
    "stop_workspace": "stop_workspace",
    "tag_environment": "tag_environment",
    "terminal_recording": "terminal_recording",
    "terminal_screen": "terminal_screen",
    "terminal_scrollback": "terminal_scrollback",
    "terminal_transcript": "terminal_transcript",
    "terminate_terminal": "terminate_terminal",
    "undo_workspace": "undo_workspace",
    "update_workspace": "update_workspace",
    "verify_audit": "verify_audit",
    "version": "version",
    "watch": "watch",
    "write_file": "write_file",
    "write_process": "write_process",
    "write_shell": "write_shell",
    "write_tree": "write_tree",
    "write_workspace_file": "write_workspace_file",
}

class AsyncVerbs(AsyncTransport):
    """Every verb of the API."""

    async def list_audit(
        self,
        *,
        before_seq: int | None = None,
        changes: bool = False,
        cursor: str | None = None,
        failed: bool = False,
        limit: int | None = None,
        sandbox_id: types.SandboxId | None = None,
        verb: str | None = None,
    ) -> types.AuditList:
        """The newest calls in the audit log, oldest first."""
        return await self._json(types.AuditList, "GET", "/v1/audit", params={"before_seq": before_seq, "changes": changes, "cursor": cursor, "failed": failed, "limit": limit, "sandbox_id": sandbox_id, "verb": verb})

    async def get_audit(self, audit_id: str) -> types.AuditList:
        """What is recorded of one call: one entry, or two of a live session."""
        return await self._json(types.AuditList, "GET", f"/v1/audit/entries/{wire.segment(audit_id)}")

    async def audit_receipt(self, audit_id: str) -> types.Receipt:
        """One call as a receipt that can be checked without the log."""
        return await self._json(types.Receipt, "GET", f"/v1/audit/entries/{wire.segment(audit_id)}/receipt")

    async def export_audit(self) -> AsyncLines[dict[str, Any]]:
        """The whole audit log as it is stored, one record per line."""
        return await self._lines("GET", "/v1/audit/export")

    async def follow_audit(self, *, tail: int | None = None) -> AsyncLines[dict[str, Any]]:
        """Calls as they are recorded, one per line."""
        return await self._lines("GET", "/v1/audit/follow", params={"tail": tail})

    async def audit_key(self) -> types.AuditKey:
        """The public key that signs the audit log."""
        return await self._json(types.AuditKey, "GET", "/v1/audit/key")

    async def verify_audit(
        self,
        *,
        expect: str | None = None,
        public_key: str | None = None,
    ) -> types.AuditVerified:
        """Check the whole audit log: chain, signatures, its end."""
        return await self._json(types.AuditVerified, "POST", "/v1/audit/verify", body=wire.request({
            "expect": expect,
            "public_key": public_key,
        }))

    async def backup(self, output_path: str | os.PathLike[str]) -> types.Backup:
        """Copy everything that is kept to a directory on the host."""
        return await self._json(types.Backup, "POST", "/v1/backup", body=wire.request({
            "output_path": wire.host_path(output_path),
        }))

    async def send_build_context(self, content: AsyncContent) -> types.BuildContext:
        """Send the files of a build, as an archive."""
        return await self._json(types.BuildContext, "PUT", "/v1/build-contexts", content=content)

    async def call(
        self,
        *,
        command: Sequence[str],
        state: Any,
        files: Sequence[types.CallFile | Mapping[str, Any]] | None = None,
        files_out: Sequence[str] | None = None,
        image: str | None = None,
        language: str | None = None,
        limits: types.CallLimits | Mapping[str, Any] | None = None,
        max_output_bytes: int | None = None,
        network: types.CallNetwork | Mapping[str, Any] | None = None,
        policy: str | None = None,
        secrets: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        timeout_seconds: int | None = None,
    ) -> types.CallResult:
        """One typed call: files in, one command, a bounded answer."""
        return await self._json(types.CallResult, "POST", "/v1/calls", body=wire.request({
            "command": command,
            "files": files,
            "files_out": files_out,
            "image": image,
            "language": language,
            "limits": limits,
            "max_output_bytes": max_output_bytes,
            "network": network,
            "policy": policy,
            "secrets": wire.secret_refs(secrets),
            "state": state,
            "timeout_seconds": timeout_seconds,
        }))

    async def dry_run_call(
        self,
        *,
        command: Sequence[str],
        state: Any,
        files: Sequence[types.CallFile | Mapping[str, Any]] | None = None,
        files_out: Sequence[str] | None = None,
        image: str | None = None,
        language: str | None = None,
        limits: types.CallLimits | Mapping[str, Any] | None = None,
        max_output_bytes: int | None = None,
        network: types.CallNetwork | Mapping[str, Any] | None = None,
        policy: str | None = None,
        secrets: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        timeout_seconds: int | None = None,
    ) -> types.CallPlan:
        """What would become of a typed call."""
        return await self._json(types.CallPlan, "POST", "/v1/calls/dry-run", body=wire.request({
            "command": command,
            "files": files,
            "files_out": files_out,
            "image": image,
            "language": language,
            "limits": limits,
            "max_output_bytes": max_output_bytes,
            "network": network,
            "policy": policy,
            "secrets": wire.secret_refs(secrets),
            "state": state,
            "timeout_seconds": timeout_seconds,
        }))

    async def doctor(self, *, deep: bool = False) -> types.Doctor:
        """What works on this host, and what would help."""
        return await self._json(types.Doctor, "GET", "/v1/doctor", params={"deep": deep})

    async def list_environments(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> types.EnvironmentList:
        """Every environment, installed or known by name."""
        return await self._json(types.EnvironmentList, "GET", "/v1/environments", params={"cursor": cursor, "limit": limit})

    async def build_environment(
        self,
        *,
        build_args: Mapping[str, str] | None = None,
        context_id: str | None = None,
        disk_mib: int | None = None,
        dockerfile: str | None = None,
        dockerfile_name: str | None = None,
        from_: str | None = None,
        mem_mib: int | None = None,
        name: str | None = None,
        no_cache: bool = False,
        policy: str | None = None,
        run: Sequence[str] | None = None,
        runtime: str | None = None,
        secrets: Mapping[str, str] | None = None,
        target: str | None = None,
        timeout_seconds: int | None = None,
        vcpu_count: int | None = None,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Environment:
        """Build an environment from another one."""
        return await self._last(types.Environment, types.ProgressEvent, progress, "POST", "/v1/environments/build", body=wire.request({
            "build_args": build_args,
            "context_id": context_id,
            "disk_mib": disk_mib,
            "dockerfile": dockerfile,
            "dockerfile_name": dockerfile_name,
            "from": from_,
            "mem_mib": mem_mib,
            "name": name,
            "no_cache": no_cache,
            "policy": policy,
            "run": run,
            "runtime": runtime,
            "secrets": secrets,
            "target": target,
            "timeout_seconds": timeout_seconds,
            "vcpu_count": vcpu_count,
        }))

    async def import_environment(self, content: AsyncContent, *, name: str | None = None) -> types.Environment:
        """Make an environment of an archive: an OCI image layout, or what `docker save` writes."""
        return await self._json(types.Environment, "PUT", "/v1/environments/import", params={"name": name}, content=content)

    async def prune_environments(self, *, all: bool = False) -> types.Pruned:
        """Remove environments nobody uses."""
        return await self._json(types.Pruned, "POST", "/v1/environments/prune", body=wire.request({
            "all": all,
        }))

    async def remove_environment(self, environment: str) -> types.Pruned:
        """Remove one installed environment."""
        return await self._json(types.Pruned, "DELETE", f"/v1/environments/{wire.segment(environment)}")

    async def inspect_environment(self, environment: str) -> types.Environment:
        """One environment."""
        return await self._json(types.Environment, "GET", f"/v1/environments/{wire.segment(environment)}")

    async def export_environment(self, environment: str) -> bytes:
        """An installed environment as an archive in the OCI image layout."""
        return await self._bytes("GET", f"/v1/environments/{wire.segment(environment)}/export")

    async def pull_environment(
        self,
        environment: str,
        *,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Environment:
        """Install an environment."""
        return await self._last(types.Environment, types.ProgressEvent, progress, "POST", f"/v1/environments/{wire.segment(environment)}/pull")

    async def tag_environment(self, environment: str, name: str) -> types.Environment:
        """Give an installed environment another name."""
        return await self._json(types.Environment, "POST", f"/v1/environments/{wire.segment(environment)}/tag", body=wire.request({
            "name": name,
        }))

    async def read_events(
        self,
        *,
        after: int | None = None,
        follow: bool = False,
        id: str | None = None,
        kind: str | None = None,
        tail: int | None = None,
    ) -> AsyncLines[dict[str, Any]]:
        """What happened on this host, one event per line."""
        return await self._lines("GET", "/v1/events", params={"after": after, "follow": follow, "id": id, "kind": kind, "tail": tail})

    async def list_keys(self, *, cursor: str | None = None, limit: int | None = None) -> types.KeyList:
        """Every key, without what callers send."""
        return await self._json(types.KeyList, "GET", "/v1/keys", params={"cursor": cursor, "limit": limit})

    async def create_key(
        self,
        *,
        bounds: types.Bounds | Mapping[str, Any] | None = None,
        calls_per_minute: int | None = None,
        expires_seconds: int | None = None,
        name: str | None = None,
        project: str | None = None,
        scopes: Sequence[str] | None = None,
    ) -> types.KeyCreated:
        """Make a key for callers of other hosts."""
        return await self._json(types.KeyCreated, "POST", "/v1/keys", body=wire.request({
            "bounds": bounds,
            "calls_per_minute": calls_per_minute,
            "expires_seconds": expires_seconds,
            "name": name,
            "project": project,
            "scopes": scopes,
        }))

    async def revoke_key(self, key_id: str) -> types.Key:
        """Make a key good for nothing, from now on and for ever."""
        return await self._json(types.Key, "DELETE", f"/v1/keys/{wire.segment(key_id)}")

    async def openapi(self) -> dict[str, Any]:
        """This document."""
        value: dict[str, Any] = await self._value("GET", "/v1/openapi.json")
        return value

    async def plan(
        self,
        environment: str = "",
        *,
        accel: types.Accel = "auto",
        allow_host_compat: bool = False,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        idle_seconds: int | None = None,
        io_mbps: int | None = None,
        iops: int | None = None,
        isolation: types.Isolation | None = None,
        keep: bool = False,
        labels: Mapping[str, str] | None = None,
        mem_mib: int = 1024,
        network: bool = False,
        nofile: int | None = None,
        on_idle: types.OnIdle = "destroy",
        pids_max: int | None = None,
        policy: str | None = None,
        runtime: str | None = None,
        sandbox_id: types.SandboxId | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        template: str | None = None,
        ttl_seconds: int | None = None,
        user: str | None = None,
        vcpu_count: int = 1,
        workdir: str | None = None,
    ) -> str:
        """The steps that making this sandbox would take, for people."""
        return await self._text("POST", "/v1/plan", body=wire.request({
            "accel": accel,
            "allow_host_compat": allow_host_compat,
            "disk_mib": disk_mib,
            "env": env,
            "environment": environment,
            "idle_seconds": idle_seconds,
            "io_mbps": io_mbps,
            "iops": iops,
            "isolation": isolation,
            "keep": keep,
            "labels": labels,
            "mem_mib": wire.unless_template(template, mem_mib, 1024),
            "network": network,
            "nofile": nofile,
            "on_idle": on_idle,
            "pids_max": pids_max,
            "policy": policy,
            "runtime": runtime,
            "sandbox_id": sandbox_id,
            "secret_refs": wire.secret_refs(secret_refs),
            "template": template,
            "ttl_seconds": ttl_seconds,
            "user": user,
            "vcpu_count": wire.unless_template(template, vcpu_count, 1),
            "workdir": workdir,
        }))

    async def list_policies(self) -> types.PolicyList:
        """Every policy: shipped, or a file."""
        return await self._json(types.PolicyList, "GET", "/v1/policies")

    async def check_policy(self, text: str) -> types.Policy:
        """Read the text of a policy that is not in force."""
        return await self._json(types.Policy, "POST", "/v1/policies/check", body=wire.request({
            "text": text,
        }))

    async def get_policy(self, policy: str) -> types.Policy:
        """One policy, as it is understood."""
        return await self._json(types.Policy, "GET", f"/v1/policies/{wire.segment(policy)}")

    async def explain_policy(
        self,
        policy: str,
        host: str,
        port: int = 443,
        *,
        protocol: str = "tcp",
    ) -> types.Explained:
        """Whether a destination may be reached under a policy, by which rule, and why."""
        return await self._json(types.Explained, "GET", f"/v1/policies/{wire.segment(policy)}/explain", params={"host": host, "port": port, "protocol": protocol})

    async def run(
        self,
        sandbox: types.CreateSandbox | Mapping[str, Any],
        exec: types.ExecRequest | Mapping[str, Any],
    ) -> types.ExecResult:
        """Make a sandbox, run one command, throw the sandbox away."""
        return await self._json(types.ExecResult, "POST", "/v1/run", body=wire.request({
            "exec": exec,
            "sandbox": sandbox,
        }))

    async def run_stream(
        self,
        sandbox: types.CreateSandbox | Mapping[str, Any],
        exec: types.ExecRequest | Mapping[str, Any],
    ) -> AsyncStream:
        """Make a sandbox, run one command, throw the sandbox away."""
        return await self._live("/v1/run/ws", first=wire.request({
            "exec": exec,
            "sandbox": sandbox,
        }))

    async def list_sandboxes(
        self,
        *,
        all: bool = False,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> types.SandboxList:
        """Every sandbox."""
        return await self._json(types.SandboxList, "GET", "/v1/sandboxes", params={"all": all, "cursor": cursor, "limit": limit})

    async def create_sandbox(
        self,
        environment: str = "",
        *,
        accel: types.Accel = "auto",
        allow_host_compat: bool = False,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        idle_seconds: int | None = None,
        io_mbps: int | None = None,
        iops: int | None = None,
        isolation: types.Isolation | None = None,
        keep: bool = False,
        labels: Mapping[str, str] | None = None,
        mem_mib: int = 1024,
        network: bool = False,
        nofile: int | None = None,
        on_idle: types.OnIdle = "destroy",
        pids_max: int | None = None,
        policy: str | None = None,
        runtime: str | None = None,
        sandbox_id: types.SandboxId | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        template: str | None = None,
        ttl_seconds: int | None = None,
        user: str | None = None,
        vcpu_count: int = 1,
        workdir: str | None = None,
    ) -> types.Sandbox:
        """Make a sandbox."""
        return await self._json(types.Sandbox, "POST", "/v1/sandboxes", body=wire.request({
            "accel": accel,
            "allow_host_compat": allow_host_compat,
            "disk_mib": disk_mib,
            "env": env,
            "environment": environment,
            "idle_seconds": idle_seconds,
            "io_mbps": io_mbps,
            "iops": iops,
            "isolation": isolation,
            "keep": keep,
            "labels": labels,
            "mem_mib": wire.unless_template(template, mem_mib, 1024),
            "network": network,
            "nofile": nofile,
            "on_idle": on_idle,
            "pids_max": pids_max,
            "policy": policy,
            "runtime": runtime,
            "sandbox_id": sandbox_id,
            "secret_refs": wire.secret_refs(secret_refs),
            "template": template,
            "ttl_seconds": ttl_seconds,
            "user": user,
            "vcpu_count": wire.unless_template(template, vcpu_count, 1),
            "workdir": workdir,
        }))

    async def reap_expired(self) -> types.Reaped:
        """Destroy every sandbox that has outlived its time."""
        return await self._json(types.Reaped, "POST", "/v1/sandboxes/reap")

    async def destroy_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Destroy a sandbox and everything in it."""
        return await self._json(types.Sandbox, "DELETE", f"/v1/sandboxes/{wire.segment(sandbox_id)}")

    async def get_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """One sandbox."""
        return await self._json(types.Sandbox, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}")

    async def commit_sandbox(
        self,
        sandbox_id: str,
        *,
        name: str,
        then: types.AfterCommit | None = None,
    ) -> types.Environment:
        """Make an environment of what is on the disks of a kept sandbox."""
        return await self._json(types.Environment, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/commit", body=wire.request({
            "name": name,
            "then": then,
        }))

    async def read_decisions(
        self,
        sandbox_id: str,
        *,
        follow: bool = False,
        from_: int = 0,
    ) -> AsyncLines[dict[str, Any]]:
        """Every decision about a sandbox's traffic."""
        return await self._lines("GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/decisions", params={"follow": follow, "from": from_})

    async def exec(
        self,
        sandbox_id: str,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        tag: str | None = None,
        timeout_seconds: int = 30,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.ExecResult:
        """Run one command in a sandbox."""
        return await self._json(types.ExecResult, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/exec", body=wire.request({
            "env": env,
            "max_output_bytes": max_output_bytes,
            "tag": tag,
            "timeout_seconds": timeout_seconds,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    async def exec_stream(
        self,
        sandbox_id: str,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        no_timeout: bool = False,
        output_ring_bytes: int | None = None,
        stdin: bool = False,
        tag: str | None = None,
        timeout_seconds: int | None = None,
        tty: types.TtySize | Mapping[str, Any] | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> AsyncStream:
        """Run one command in a sandbox."""
        return await self._command(f"/v1/sandboxes/{wire.segment(sandbox_id)}/exec/ws", sandbox_id=wire.segment(sandbox_id), first=wire.request({
            "env": env,
            "max_output_bytes": max_output_bytes,
            "no_timeout": no_timeout,
            "output_ring_bytes": output_ring_bytes,
            "stdin": stdin,
            "tag": tag,
            "timeout_seconds": timeout_seconds,
            "tty": tty,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    async def remove_file(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        recursive: bool | None = None,
        user: str | None = None,
    ) -> None:
        """Remove a file or directory."""
        await self._nothing("DELETE", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files", params=wire.request({
            "recursive": recursive,
            "user": user,
        }, wire.path("path", path)))

    async def stat(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        follow: bool | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """One file, directory or link."""
        return await self._json(types.FileEntry, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files", params=wire.request({
            "follow": follow,
            "user": user,
        }, wire.path("path", path)))

    async def chmod(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        mode: str,
        *,
        user: str | None = None,
    ) -> types.FileEntry:
        """Set permission bits."""
        return await self._json(types.FileEntry, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/chmod", body=wire.request({
            "mode": mode,
            "user": user,
        }, wire.path("path", path)))

    async def read_file(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        length: int | None = None,
        offset: int | None = None,
        user: str | None = None,
    ) -> bytes:
        """The contents of a file."""
        return await self._bytes("GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/content", params=wire.request({
            "length": length,
            "offset": offset,
            "user": user,
        }, wire.path("path", path)))

    async def write_file(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        content: AsyncContent,
        *,
        append: bool | None = None,
        create_new: bool | None = None,
        mode: str | None = None,
        no_parents: bool | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Write a file; the body is its contents."""
        return await self._json(types.FileEntry, "PUT", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/content", params=wire.request({
            "append": append,
            "create_new": create_new,
            "mode": mode,
            "no_parents": no_parents,
            "user": user,
        }, wire.path("path", path)), content=content)

    async def glob(
        self,
        sandbox_id: str,
        pattern: str,
        *,
        limit: int | None = None,
        user: str | None = None,
    ) -> types.FilePage:
        """Files whose path matches a pattern."""
        return await self._json(types.FilePage, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/glob", params={"limit": limit, "pattern": pattern, "user": user})

    async def hash(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        user: str | None = None,
    ) -> types.FileHash:
        """The SHA-256 of a file."""
        return await self._json(types.FileHash, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/hash", params=wire.request({
            "user": user,
        }, wire.path("path", path)))

    async def list_files(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        after: str | None = None,
        depth: int | None = None,
        limit: int | None = None,
        user: str | None = None,
    ) -> types.FilePage:
        """One page of a directory."""
        return await self._json(types.FilePage, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/list", params=wire.request({
            "after": after,
            "depth": depth,
            "limit": limit,
            "user": user,
        }, wire.path("path", path)))

    async def mkdir(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        mode: str | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Make a directory, and those above it."""
        return await self._json(types.FileEntry, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/mkdir", body=wire.request({
            "mode": mode,
            "user": user,
        }, wire.path("path", path)))

    async def move_file(
        self,
        sandbox_id: str,
        from_: str | bytes | os.PathLike[str],
        to: str | bytes | os.PathLike[str],
        *,
        overwrite: bool | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Move or rename."""
        return await self._json(types.FileEntry, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/move", body=wire.request({
            "overwrite": overwrite,
            "user": user,
        }, wire.path("from", from_), wire.path("to", to)))

    async def read_tree(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        user: str | None = None,
    ) -> bytes:
        """A tree as a tar archive."""
        return await self._bytes("GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/tree", params=wire.request({
            "user": user,
        }, wire.path("path", path)))

    async def write_tree(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        content: AsyncContent,
        *,
        user: str | None = None,
    ) -> types.TreeWritten:
        """Unpack a tar archive into a directory."""
        return await self._json(types.TreeWritten, "PUT", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/tree", params=wire.request({
            "user": user,
        }, wire.path("path", path)), content=content)

    async def watch(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        recursive: bool | None = None,
        user: str | None = None,
    ) -> AsyncLines[types.FileChange]:
        """Changes to a file or directory as they happen."""
        return await self._items(types.FileChange, "change", "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/watch", params=wire.request({
            "recursive": recursive,
            "user": user,
        }, wire.path("path", path)))

    async def fork_sandbox(self, sandbox_id: str, *, count: int = 1) -> types.SandboxList:
        """Live copies of a running or paused sandbox."""
        return await self._json(types.SandboxList, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/fork", body=wire.request({
            "count": count,
        }))

    async def keepalive(
        self,
        sandbox_id: str,
        *,
        env: Mapping[str, str] | None = None,
        idle_seconds: int | None = None,
        on_idle: types.OnIdle | None = None,
        ttl_seconds: int | None = None,
        user: str | None = None,
    ) -> types.Sandbox:
        """Start the time to live again."""
        return await self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/keepalive", body=wire.request({
            "env": env,
            "idle_seconds": idle_seconds,
            "on_idle": on_idle,
            "ttl_seconds": ttl_seconds,
            "user": user,
        }))

    async def metrics(self, sandbox_id: str) -> types.Metrics:
        """What a sandbox uses right now."""
        return await self._json(types.Metrics, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/metrics")

    async def flush_metrics(self, sandbox_id: str) -> types.MetricsFlushed:
        """What a sandbox used, over time, for somebody who keeps it: it is told once."""
        return await self._json(types.MetricsFlushed, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/metrics/flush")

    async def metrics_history(self, sandbox_id: str, *, range: types.MetricsRange = "10m") -> types.MetricsHistory:
        """What a sandbox used, over time."""
        return await self._json(types.MetricsHistory, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/metrics/history", params={"range": range})

    async def pause_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Stop the clock of a sandbox."""
        return await self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/pause")

    async def set_policy(self, sandbox_id: str, policy: str) -> types.Sandbox:
        """Give a running sandbox another policy."""
        return await self._json(types.Sandbox, "PUT", f"/v1/sandboxes/{wire.segment(sandbox_id)}/policy", body=wire.request({
            "policy": policy,
        }))

    async def list_ports(self, sandbox_id: str) -> types.PortList:
        """TCP ports something listens on."""
        return await self._json(types.PortList, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/ports")

    async def dial(self, sandbox_id: str, port: int | str) -> AsyncConnection:
        """Connect to a TCP port."""
        return await self._dial(f"/v1/sandboxes/{wire.segment(sandbox_id)}/ports/{wire.segment(port)}/dial")

    async def list_processes(self, sandbox_id: str) -> types.ProcessList:
        """Processes that were started here."""
        return await self._json(types.ProcessList, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes")

    async def exec_background(
        self,
        sandbox_id: str,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        no_timeout: bool = False,
        output_ring_bytes: int | None = None,
        stdin: bool = False,
        tag: str | None = None,
        timeout_seconds: int | None = None,
        tty: types.TtySize | Mapping[str, Any] | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.Background:
        """Start a process that runs on after the answer."""
        return await self._json(types.Background, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes", body=wire.request({
            "env": env,
            "max_output_bytes": max_output_bytes,
            "no_timeout": no_timeout,
            "output_ring_bytes": output_ring_bytes,
            "stdin": stdin,
            "tag": tag,
            "timeout_seconds": timeout_seconds,
            "tty": tty,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    async def kill_process(
        self,
        sandbox_id: str,
        selector: int | str,
        *,
        signal: types.Signal | None = None,
        tree: bool | None = None,
    ) -> None:
        """End a process."""
        await self._nothing("DELETE", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}", params={"signal": signal, "tree": tree})

    async def write_process(
        self,
        sandbox_id: str,
        selector: int | str,
        content: AsyncContent,
        *,
        close: bool = False,
    ) -> None:
        """Type into a process; the body is what is typed."""
        await self._nothing("POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/input", params={"close": close}, content=content)

    async def resize_process(self, sandbox_id: str, selector: int | str, cols: int, rows: int) -> None:
        """Give the terminal of a process another size."""
        await self._nothing("POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/resize", body=wire.request({
            "cols": cols,
            "rows": rows,
        }))

    async def signal_process(
        self,
        sandbox_id: str,
        selector: int | str,
        signal: types.Signal,
        *,
        tree: bool | None = None,
    ) -> None:
        """Send a signal to a process."""
        await self._nothing("POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/signal", body=wire.request({
            "signal": signal,
            "tree": tree,
        }))

    async def attach_output(
        self,
        sandbox_id: str,
        selector: int | str,
        *,
        from_: str | None = None,
        stderr_from: int | None = None,
        stdout_from: int | None = None,
    ) -> AsyncStream:
        """What it writes, without input."""
        return await self._output(f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/stream", resume=True, params={"from": from_, "stderr_from": stderr_from, "stdout_from": stdout_from})

    async def attach(
        self,
        sandbox_id: str,
        selector: int | str,
        *,
        from_: str | None = None,
        stderr_from: int | None = None,
        stdout_from: int | None = None,
    ) -> AsyncStream:
        """Follow a process, with input."""
        return await self._live(f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/stream/ws", resume=True, params={"from": from_, "stderr_from": stderr_from, "stdout_from": stdout_from})

    async def resume_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Let a paused sandbox go on."""
        return await self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/resume")

    async def dial_unix(self, sandbox_id: str, path: str | bytes | os.PathLike[str]) -> AsyncConnection:
        """Connect to a Unix socket."""
        return await self._dial(f"/v1/sandboxes/{wire.segment(sandbox_id)}/sockets/dial", params=wire.request({}, wire.path("path", path)))

    async def start_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Make a machine for a stopped sandbox, with the disks it had."""
        return await self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/start")

    async def stop_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """End the machine of a kept sandbox; its disks stay."""
        return await self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/stop")

    async def save_template(
        self,
        sandbox_id: str,
        *,
        name: str,
        memory: bool | None = None,
        then: types.AfterCommit | None = None,
    ) -> types.Template:
        """Make a template of a sandbox as it is."""
        return await self._json(types.Template, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/template", body=wire.request({
            "memory": memory,
            "name": name,
            "then": then,
        }))

    async def list_secrets(self, *, cursor: str | None = None, limit: int | None = None) -> types.SecretList:
        """The secrets of typed calls, without their values."""
        return await self._json(types.SecretList, "GET", "/v1/secrets", params={"cursor": cursor, "limit": limit})

    async def remove_secret(self, secret_name: str) -> types.SecretSummary:
        """Forget a secret."""
        return await self._json(types.SecretSummary, "DELETE", f"/v1/secrets/{wire.segment(secret_name)}")

    async def set_secret(
        self,
        secret_name: str,
        *,
        aws: bool = False,
        body: bool = False,
        command: Sequence[str] | None = None,
        hosts: Sequence[str] | None = None,
        known_hosts: str | None = None,
        path: str | os.PathLike[str] | None = None,
        rotate: bool = False,
        ssh: bool = False,
        value: str | None = None,
        variable: str | None = None,
    ) -> types.SecretSummary:
        """Keep a secret for typed calls, or say where it is found."""
        return await self._json(types.SecretSummary, "PUT", f"/v1/secrets/{wire.segment(secret_name)}", body=wire.request({
            "aws": aws,
            "body": body,
            "command": command,
            "hosts": hosts,
            "known_hosts": known_hosts,
            "path": wire.host_path(path),
            "rotate": rotate,
            "ssh": ssh,
            "value": value,
            "variable": variable,
        }))

    async def list_templates(self, *, cursor: str | None = None, limit: int | None = None) -> types.TemplateList:
        """Every template."""
        return await self._json(types.TemplateList, "GET", "/v1/templates", params={"cursor": cursor, "limit": limit})

    async def remove_template(self, template: str) -> types.Template:
        """Remove a template and the machines that wait for it."""
        return await self._json(types.Template, "DELETE", f"/v1/templates/{wire.segment(template)}")

    async def get_template(self, template: str) -> types.Template:
        """One template, and the machines that wait for it."""
        return await self._json(types.Template, "GET", f"/v1/templates/{wire.segment(template)}")

    async def put_template(
        self,
        template: str,
        environment: str,
        *,
        allowed_hosts: Sequence[str] | None = None,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        isolation: types.Isolation | None = None,
        labels: Mapping[str, str] | None = None,
        mem_mib: int | None = None,
        policy: str | None = None,
        pool_size: int = 0,
        runtime: str | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        setup: Sequence[str] | None = None,
        setup_policy: str | None = None,
        ttl_seconds: int | None = None,
        vcpu_count: int | None = None,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Template:
        """Make a template, or change it."""
        return await self._last(types.Template, types.ProgressEvent, progress, "PUT", f"/v1/templates/{wire.segment(template)}", body=wire.request({
            "allowed_hosts": allowed_hosts,
            "disk_mib": disk_mib,
            "env": env,
            "environment": environment,
            "isolation": isolation,
            "labels": labels,
            "mem_mib": mem_mib,
            "policy": policy,
            "pool_size": pool_size,
            "runtime": runtime,
            "secret_refs": wire.secret_refs(secret_refs),
            "setup": setup,
            "setup_policy": setup_policy,
            "ttl_seconds": ttl_seconds,
            "vcpu_count": vcpu_count,
        }))

    async def build_template(
        self,
        template: str,
        *,
        no_cache: bool = False,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Template:
        """Run the setup of a template again, on its environment as it is now."""
        return await self._last(types.Template, types.ProgressEvent, progress, "POST", f"/v1/templates/{wire.segment(template)}/build", body=wire.request({
            "no_cache": no_cache,
        }))

    async def list_terminals(self, *, cursor: str | None = None, limit: int | None = None) -> types.TerminalList:
        """Every session: the living ones first, the most recently active first among them."""
        return await self._json(types.TerminalList, "GET", "/v1/terminals", params={"cursor": cursor, "limit": limit})

    async def open_terminal(
        self,
        session_id: str,
        *,
        command: Sequence[str] | None = None,
        cwd: str | None = None,
        description: str | None = None,
        env: Mapping[str, str] | None = None,
        host: bool = False,
        prompt_regex: str | None = None,
        quiescence_ms: int | None = None,
        sandbox_id: types.SandboxId | None = None,
        size: types.TtySize | Mapping[str, Any] | None = None,
        user: str | None = None,
        user_files: bool = False,
    ) -> types.TerminalOpened:
        """Open a session, or find it."""
        return await self._json(types.TerminalOpened, "POST", "/v1/terminals", body=wire.request({
            "command": command,
            "cwd": cwd,
            "description": description,
            "env": env,
            "host": host,
            "prompt_regex": prompt_regex,
            "quiescence_ms": quiescence_ms,
            "sandbox_id": sandbox_id,
            "session_id": session_id,
            "size": size,
            "user": user,
            "user_files": user_files,
        }))

    async def terminate_terminal(self, session_id: str) -> types.Terminal:
        """End a session and everything on its terminal, for good."""
        return await self._json(types.Terminal, "DELETE", f"/v1/terminals/{wire.segment(session_id)}")

    async def get_terminal(self, session_id: str) -> types.Terminal:
        """One session, and what it waits for."""
        return await self._json(types.Terminal, "GET", f"/v1/terminals/{wire.segment(session_id)}")

    async def configure_terminal(
        self,
        session_id: str,
        *,
        description: str | None = None,
        prompt_regex: str | None = None,
        quiescence_ms: int | None = None,
        size: types.TtySize | Mapping[str, Any] | None = None,
    ) -> types.Terminal:
        """Change the description, the prompt, the silence or the size of a session."""
        return await self._json(types.Terminal, "PATCH", f"/v1/terminals/{wire.segment(session_id)}", body=wire.request({
            "description": description,
            "prompt_regex": prompt_regex,
            "quiescence_ms": quiescence_ms,
            "size": size,
        }))

    async def expect_in_terminal(
        self,
        session_id: str,
        patterns: Sequence[str],
        *,
        echo: bool = False,
        from_: str | None = None,
        literal: bool = False,
        max_output_bytes: int | None = None,
        raw: bool = False,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Wait until one of several patterns is printed."""
        return await self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/expect", body=wire.request({
            "echo": echo,
            "from": from_,
            "literal": literal,
            "max_output_bytes": max_output_bytes,
            "patterns": patterns,
            "raw": raw,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    async def expect_terminal_prompt(
        self,
        session_id: str,
        *,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Wait until a shell waits for a command."""
        return await self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/expect-prompt", body=wire.request({
            "max_output_bytes": max_output_bytes,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    async def send_to_terminal(
        self,
        session_id: str,
        text: str | None = None,
        *,
        control: str | None = None,
        keys: Sequence[str] | None = None,
        max_output_bytes: int | None = None,
        paste: str | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Type text, paste it, or press keys."""
        return await self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/input", body=wire.request({
            "control": control,
            "keys": keys,
            "max_output_bytes": max_output_bytes,
            "paste": paste,
            "strip_ansi": strip_ansi,
            "text": text,
            "timeout": timeout,
        }))

    async def send_terminal_password(
        self,
        session_id: str,
        password: str,
        *,
        force: bool = False,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Type a secret where the program does not show it."""
        return await self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/password", body=wire.request({
            "force": force,
            "max_output_bytes": max_output_bytes,
            "password": password,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    async def poll_terminal(
        self,
        session_id: str,
        *,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Wait for output without typing anything."""
        return await self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/poll", body=wire.request({
            "max_output_bytes": max_output_bytes,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    async def terminal_recording(self, session_id: str) -> bytes:
        """The recording so far, in asciicast v3."""
        return await self._bytes("GET", f"/v1/terminals/{wire.segment(session_id)}/recording")

    async def run_in_terminal(
        self,
        session_id: str,
        command: str,
        *,
        force: bool = False,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Run a command line, and wait until it has ended or wants something."""
        return await self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/run", body=wire.request({
            "command": command,
            "force": force,
            "max_output_bytes": max_output_bytes,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    async def terminal_screen(
        self,
        session_id: str,
        *,
        format: types.ScreenFormat = "text",
    ) -> types.TerminalScreen:
        """The screen as it is now."""
        return await self._json(types.TerminalScreen, "GET", f"/v1/terminals/{wire.segment(session_id)}/screen", params={"format": format})

    async def clear_terminal_scrollback(self, session_id: str) -> types.Terminal:
        """Forget what is above the screen, without typing anything."""
        return await self._json(types.Terminal, "DELETE", f"/v1/terminals/{wire.segment(session_id)}/scrollback")

    async def terminal_scrollback(
        self,
        session_id: str,
        *,
        lines: int = 200,
        strip_ansi: bool = True,
    ) -> types.TerminalScrollback:
        """The screen and what is above it."""
        return await self._json(types.TerminalScrollback, "GET", f"/v1/terminals/{wire.segment(session_id)}/scrollback", params={"lines": lines, "strip_ansi": strip_ansi})

    async def signal_terminal(
        self,
        session_id: str,
        signal: str,
        *,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Send a signal to what runs in the foreground."""
        return await self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/signal", body=wire.request({
            "max_output_bytes": max_output_bytes,
            "signal": signal,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    async def attach_terminal_output(
        self,
        session_id: str,
        *,
        cols: int | None = None,
        rows: int | None = None,
    ) -> AsyncStream:
        """What it writes, without input."""
        return await self._output(f"/v1/terminals/{wire.segment(session_id)}/stream", params={"cols": cols, "rows": rows})

    async def attach_terminal(
        self,
        session_id: str,
        *,
        cols: int | None = None,
        rows: int | None = None,
    ) -> AsyncStream:
        """A session, live."""
        return await self._live(f"/v1/terminals/{wire.segment(session_id)}/stream/ws", params={"cols": cols, "rows": rows})

    async def terminal_transcript(
        self,
        session_id: str,
        *,
        from_: int | None = None,
        max_bytes: int | None = None,
        strip_ansi: bool | None = None,
    ) -> types.TerminalTranscript:
        """What was printed, from a place on, and where it is kept."""
        return await self._json(types.TerminalTranscript, "GET", f"/v1/terminals/{wire.segment(session_id)}/transcript", params={"from": from_, "max_bytes": max_bytes, "strip_ansi": strip_ansi})

    async def version(self) -> types.Version:
        """What this daemon is."""
        return await self._json(types.Version, "GET", "/v1/version")

    async def list_workspaces(self, *, cursor: str | None = None, limit: int | None = None) -> types.WorkspaceList:
        """Every workspace, the most recently active first."""
        return await self._json(types.WorkspaceList, "GET", "/v1/workspaces", params={"cursor": cursor, "limit": limit})

    async def create_workspace(
        self,
        environment: str = "",
        *,
        accel: types.Accel = "auto",
        allow_host_compat: bool = False,
        checkpoint: bool = False,
        disk_mib: int | None = None,
        io_mbps: int | None = None,
        iops: int | None = None,
        isolation: types.Isolation | None = None,
        labels: Mapping[str, str] | None = None,
        mem_mib: int = 1024,
        name: str | None = None,
        network_policy: types.NetworkPolicy = "off",
        policy: str | None = None,
        runtime: str | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        secrets: Mapping[str, str] | Sequence[types.SecretSource | Mapping[str, Any]] | None = None,
        seed_path: str | os.PathLike[str] | None = None,
        template: str | None = None,
        ttl_seconds: int | None = None,
        vcpu_count: int = 1,
        workspace_id: types.SandboxId | None = None,
    ) -> types.Workspace:
        """Make a workspace, and start it."""
        return await self._json(types.Workspace, "POST", "/v1/workspaces", body=wire.request({
            "accel": accel,
            "allow_host_compat": allow_host_compat,
            "checkpoint": checkpoint,
            "disk_mib": disk_mib,
            "environment": environment,
            "io_mbps": io_mbps,
            "iops": iops,
            "isolation": isolation,
            "labels": labels,
            "mem_mib": wire.unless_template(template, mem_mib, 1024),
            "name": name,
            "network_policy": network_policy,
            "policy": policy,
            "runtime": runtime,
            "secret_refs": wire.secret_refs(secret_refs),
            "secrets": wire.secrets(secrets),
            "seed_path": wire.host_path(seed_path),
            "template": template,
            "ttl_seconds": ttl_seconds,
            "vcpu_count": wire.unless_template(template, vcpu_count, 1),
            "workspace_id": workspace_id,
        }))

    async def delete_workspace(self, workspace_id: str) -> types.Workspace:
        """Delete a workspace, with its snapshots, secrets and history."""
        return await self._json(types.Workspace, "DELETE", f"/v1/workspaces/{wire.segment(workspace_id)}")

    async def status_workspace(self, workspace_id: str) -> types.Workspace:
        """One workspace."""
        return await self._json(types.Workspace, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}")

    async def update_workspace(
        self,
        workspace_id: str,
        *,
        clear_labels: Sequence[str] | None = None,
        clear_name: bool = False,
        labels: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> types.Workspace:
        """Change the name and the labels of a workspace, and nothing else."""
        return await self._json(types.Workspace, "PATCH", f"/v1/workspaces/{wire.segment(workspace_id)}", body=wire.request({
            "clear_labels": clear_labels,
            "clear_name": clear_name,
            "labels": labels,
            "name": name,
        }))

    async def diff_workspace(self, workspace_id: str, *, max_bytes: int | None = None) -> types.DiffReport:
        """What changed since the baseline."""
        return await self._json(types.DiffReport, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/diff", params={"max_bytes": max_bytes})

    async def export_workspace_disk(
        self,
        workspace_id: str,
        *,
        output_path: str | os.PathLike[str],
        force: bool | None = None,
        max_bytes: int | None = None,
    ) -> types.DiskExported:
        """Write the root of a stopped workspace to the host as a file system in a file."""
        return await self._json(types.DiskExported, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/disk/export", body=wire.request({
            "force": force,
            "max_bytes": max_bytes,
            "output_path": wire.host_path(output_path),
        }))

    async def list_workspace_disk(
        self,
        workspace_id: str,
        path: str = "/workspace",
        recursive: bool = False,
    ) -> types.PathList:
        """What is at a path of the root of a stopped workspace."""
        return await self._json(types.PathList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/disk/files", params={"path": path, "recursive": recursive})

    async def read_workspace_disk(self, workspace_id: str, path: str, *, max_bytes: int = 65536) -> types.FileText:
        """A text file of the root of a stopped workspace, up to a budget."""
        return await self._json(types.FileText, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/disk/files/text", params={"max_bytes": max_bytes, "path": path})

    async def edit_workspace(
        self,
        workspace_id: str,
        edits: Sequence[types.Edit | Mapping[str, Any]],
    ) -> types.PatchReport:
        """Replace exact texts in files: all of them, or none."""
        return await self._json(types.PatchReport, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/edit", body=wire.request({
            "edits": edits,
        }))

    async def exec_workspace(
        self,
        workspace_id: str,
        *,
        command: str | Sequence[str],
        checkpoint: bool | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        timeout_seconds: int = 30,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.ExecResult:
        """Run one command in a workspace, in `/workspace`."""
        return await self._json(types.ExecResult, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/exec", body=wire.request({
            "checkpoint": checkpoint,
            "env": env,
            "max_output_bytes": max_output_bytes,
            "secret_env": wire.secret_env(secret_env),
            "timeout_seconds": timeout_seconds,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    async def exec_workspace_stream(
        self,
        workspace_id: str,
        *,
        command: str | Sequence[str],
        checkpoint: bool | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        stdin: bool = False,
        timeout_seconds: int | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> AsyncStream:
        """Run one command in a workspace, in `/workspace`."""
        return await self._command(f"/v1/workspaces/{wire.segment(workspace_id)}/exec/ws", sandbox_id=wire.segment(workspace_id), first=wire.request({
            "checkpoint": checkpoint,
            "env": env,
            "max_output_bytes": max_output_bytes,
            "secret_env": wire.secret_env(secret_env),
            "stdin": stdin,
            "timeout_seconds": timeout_seconds,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    async def export_workspace(
        self,
        workspace_id: str,
        path: str,
        *,
        output_path: str | os.PathLike[str],
        force: bool | None = None,
        max_bytes: int | None = None,
    ) -> types.Exported:
        """Copy a file or a tree to the host."""
        return await self._json(types.Exported, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/export", body=wire.request({
            "force": force,
            "max_bytes": max_bytes,
            "output_path": wire.host_path(output_path),
            "path": path,
        }))

    async def list_workspace_files(
        self,
        workspace_id: str,
        path: str = "/workspace",
        recursive: bool = False,
    ) -> types.PathList:
        """What is at a path, without what is in the files."""
        return await self._json(types.PathList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/files", params={"path": path, "recursive": recursive})

    async def read_workspace_file(self, workspace_id: str, path: str, *, max_bytes: int = 65536) -> types.FileText:
        """A text file, up to a budget."""
        return await self._json(types.FileText, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/files/text", params={"max_bytes": max_bytes, "path": path})

    async def write_workspace_file(self, workspace_id: str, path: str, *, text: str) -> types.FileWritten:
        """Create or replace a text file, and the directories above it."""
        return await self._json(types.FileWritten, "PUT", f"/v1/workspaces/{wire.segment(workspace_id)}/files/text", body=wire.request({
            "path": path,
            "text": text,
        }))

    async def fork_workspace(
        self,
        workspace_id: str,
        *,
        count: int | None = None,
        name: str | None = None,
    ) -> types.WorkspaceCopies:
        """Copies of a workspace, all or none."""
        return await self._json(types.WorkspaceCopies, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/fork", body=wire.request({
            "count": count,
            "name": name,
        }))

    async def logs_workspace(self, workspace_id: str) -> types.CommandLog:
        """The commands a workspace has run, oldest first."""
        return await self._json(types.CommandLog, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/logs")

    async def apply_workspace_patch(self, workspace_id: str, *, patch: str) -> types.PatchReport:
        """Apply one unified patch: all of it, or none."""
        return await self._json(types.PatchReport, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/patch", body=wire.request({
            "patch": patch,
        }))

    async def reset_workspace(self, workspace_id: str, *, snapshot: str = "baseline") -> types.Workspace:
        """Make the whole machine anew, with `/workspace` as a snapshot has it."""
        return await self._json(types.Workspace, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/reset", body=wire.request({
            "snapshot": snapshot,
        }))

    async def list_services(self, workspace_id: str) -> types.ServiceList:
        """Every service of a workspace, ended ones included."""
        return await self._json(types.ServiceList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/services")

    async def start_service(
        self,
        workspace_id: str,
        service_name: str,
        *,
        command: str | Sequence[str],
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        published_ports: Sequence[int | str | types.Publish | Mapping[str, Any]] | None = None,
        readiness: types.Readiness | Mapping[str, Any] | None = None,
        ready_interval_ms: int = 500,
        ready_timeout_seconds: int = 30,
        restart: types.Restart = "never",
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        user: str | None = None,
    ) -> types.ServiceStatus:
        """Start a service, and wait until it is ready."""
        return await self._json(types.ServiceStatus, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/services", body=wire.request({
            "cwd": cwd,
            "env": env,
            "published_ports": wire.published_ports(published_ports),
            "readiness": readiness,
            "ready_interval_ms": ready_interval_ms,
            "ready_timeout_seconds": ready_timeout_seconds,
            "restart": restart,
            "secret_env": wire.secret_env(secret_env),
            "service_name": service_name,
            "user": user,
        }, wire.command(command)))

    async def status_service(self, workspace_id: str, service_name: str) -> types.ServiceStatus:
        """One service."""
        return await self._json(types.ServiceStatus, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}")

    async def logs_service(
        self,
        workspace_id: str,
        service_name: str,
        *,
        all: bool = False,
        tail_lines: int = 200,
    ) -> types.ServiceLogs:
        """The output of a service."""
        return await self._json(types.ServiceLogs, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/logs", params={"all": all, "tail_lines": tail_lines})

    async def stop_service(self, workspace_id: str, service_name: str) -> types.ServiceStatus:
        """End a service."""
        return await self._json(types.ServiceStatus, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/stop")

    async def follow_service_output(self, workspace_id: str, service_name: str) -> AsyncStream:
        """What it writes, without input."""
        return await self._output(f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/stream")

    async def follow_service(self, workspace_id: str, service_name: str) -> AsyncStream:
        """Follow the output of a service from now on."""
        return await self._live(f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/stream/ws")

    async def list_shells(self, workspace_id: str) -> types.ShellList:
        """The shells of a workspace."""
        return await self._json(types.ShellList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/shells")

    async def open_shell(
        self,
        workspace_id: str,
        *,
        cols: int = 120,
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        rows: int = 30,
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        user: str | None = None,
    ) -> types.Shell:
        """Open a shell on a terminal of its own."""
        return await self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells", body=wire.request({
            "cols": cols,
            "cwd": cwd,
            "env": env,
            "rows": rows,
            "secret_env": wire.secret_env(secret_env),
            "user": user,
        }))

    async def close_shell(self, workspace_id: str, shell_id: str) -> types.Shell:
        """End a shell and what runs in it."""
        return await self._json(types.Shell, "DELETE", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}")

    async def write_shell(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        input: str,
        append_newline: bool = True,
    ) -> types.Shell:
        """Type into a shell."""
        return await self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/input", body=wire.request({
            "append_newline": append_newline,
            "input": input,
        }))

    async def read_shell(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        cursor: int = 0,
        max_chars: int = 65536,
        plain: bool = False,
        wait_for_idle_ms: int | None = None,
    ) -> types.ShellOutput:
        """Read what a shell has said, from a cursor on."""
        return await self._json(types.ShellOutput, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/output", params={"cursor": cursor, "max_chars": max_chars, "plain": plain, "wait_for_idle_ms": wait_for_idle_ms})

    async def resize_shell(self, workspace_id: str, shell_id: str, cols: int, rows: int) -> types.Shell:
        """Give a shell's terminal another size."""
        return await self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/resize", body=wire.request({
            "cols": cols,
            "rows": rows,
        }))

    async def signal_shell(self, workspace_id: str, shell_id: str, *, signal_name: str = "INT") -> types.Shell:
        """Send a signal to what runs in the foreground of a shell."""
        return await self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/signal", body=wire.request({
            "signal": signal_name,
        }))

    async def attach_shell_output(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        cols: int = 120,
        rows: int = 30,
    ) -> AsyncStream:
        """What it writes, without input."""
        return await self._output(f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/stream", params={"cols": cols, "rows": rows})

    async def attach_shell(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        cols: int = 120,
        rows: int = 30,
    ) -> AsyncStream:
        """A shell, live."""
        return await self._live(f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/stream/ws", params={"cols": cols, "rows": rows})

    async def list_snapshots(
        self,
        workspace_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> types.SnapshotList:
        """The baseline and every named snapshot."""
        return await self._json(types.SnapshotList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots", params={"cursor": cursor, "limit": limit})

    async def create_snapshot(self, workspace_id: str, snapshot_name: str) -> types.Snapshot:
        """Save `/workspace` as it is now under a name."""
        return await self._json(types.Snapshot, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots", body=wire.request({
            "snapshot_name": snapshot_name,
        }))

    async def delete_snapshot(self, workspace_id: str, snapshot_name: str) -> types.Snapshot:
        """Delete a named snapshot."""
        return await self._json(types.Snapshot, "DELETE", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots/{wire.segment(snapshot_name)}")

    async def diff_snapshots(
        self,
        workspace_id: str,
        snapshot_name: str,
        *,
        to: str,
        max_bytes: int | None = None,
    ) -> types.DiffReport:
        """What changed between two snapshots."""
        return await self._json(types.DiffReport, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots/{wire.segment(snapshot_name)}/diff", params={"max_bytes": max_bytes, "to": to})

    async def start_workspace(self, workspace_id: str) -> types.Workspace:
        """Start a stopped workspace with the disks it had."""
        return await self._json(types.Workspace, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/start")

    async def stop_workspace(self, workspace_id: str) -> types.Workspace:
        """End the machine of a workspace; everything it keeps stays."""
        return await self._json(types.Workspace, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/stop")

    async def push_workspace_sync(
        self,
        workspace_id: str,
        source_path: str | os.PathLike[str],
        *,
        dest: str = "/workspace",
        gitignore: bool = False,
    ) -> types.SyncReport:
        """Bring later content of the host into a running workspace."""
        return await self._json(types.SyncReport, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/sync/push", body=wire.request({
            "dest": dest,
            "gitignore": gitignore,
            "source_path": wire.host_path(source_path),
        }))

    async def undo_workspace(self, workspace_id: str, *, steps: int = 1) -> types.Undone:
        """Take the last commands back, in place."""
        return await self._json(types.Undone, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/undo", body=wire.request({
            "steps": steps,
        }))


class Verbs(Transport):
    """Every verb of the API."""

    def list_audit(
        self,
        *,
        before_seq: int | None = None,
        changes: bool = False,
        cursor: str | None = None,
        failed: bool = False,
        limit: int | None = None,
        sandbox_id: types.SandboxId | None = None,
        verb: str | None = None,
    ) -> types.AuditList:
        """The newest calls in the audit log, oldest first."""
        return self._json(types.AuditList, "GET", "/v1/audit", params={"before_seq": before_seq, "changes": changes, "cursor": cursor, "failed": failed, "limit": limit, "sandbox_id": sandbox_id, "verb": verb})

    def get_audit(self, audit_id: str) -> types.AuditList:
        """What is recorded of one call: one entry, or two of a live session."""
        return self._json(types.AuditList, "GET", f"/v1/audit/entries/{wire.segment(audit_id)}")

    def audit_receipt(self, audit_id: str) -> types.Receipt:
        """One call as a receipt that can be checked without the log."""
        return self._json(types.Receipt, "GET", f"/v1/audit/entries/{wire.segment(audit_id)}/receipt")

    def export_audit(self) -> Lines[dict[str, Any]]:
        """The whole audit log as it is stored, one record per line."""
        return self._lines("GET", "/v1/audit/export")

    def follow_audit(self, *, tail: int | None = None) -> Lines[dict[str, Any]]:
        """Calls as they are recorded, one per line."""
        return self._lines("GET", "/v1/audit/follow", params={"tail": tail})

    def audit_key(self) -> types.AuditKey:
        """The public key that signs the audit log."""
        return self._json(types.AuditKey, "GET", "/v1/audit/key")

    def verify_audit(
        self,
        *,
        expect: str | None = None,
        public_key: str | None = None,
    ) -> types.AuditVerified:
        """Check the whole audit log: chain, signatures, its end."""
        return self._json(types.AuditVerified, "POST", "/v1/audit/verify", body=wire.request({
            "expect": expect,
            "public_key": public_key,
        }))

    def backup(self, output_path: str | os.PathLike[str]) -> types.Backup:
        """Copy everything that is kept to a directory on the host."""
        return self._json(types.Backup, "POST", "/v1/backup", body=wire.request({
            "output_path": wire.host_path(output_path),
        }))

    def send_build_context(self, content: Content) -> types.BuildContext:
        """Send the files of a build, as an archive."""
        return self._json(types.BuildContext, "PUT", "/v1/build-contexts", content=content)

    def call(
        self,
        *,
        command: Sequence[str],
        state: Any,
        files: Sequence[types.CallFile | Mapping[str, Any]] | None = None,
        files_out: Sequence[str] | None = None,
        image: str | None = None,
        language: str | None = None,
        limits: types.CallLimits | Mapping[str, Any] | None = None,
        max_output_bytes: int | None = None,
        network: types.CallNetwork | Mapping[str, Any] | None = None,
        policy: str | None = None,
        secrets: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        timeout_seconds: int | None = None,
    ) -> types.CallResult:
        """One typed call: files in, one command, a bounded answer."""
        return self._json(types.CallResult, "POST", "/v1/calls", body=wire.request({
            "command": command,
            "files": files,
            "files_out": files_out,
            "image": image,
            "language": language,
            "limits": limits,
            "max_output_bytes": max_output_bytes,
            "network": network,
            "policy": policy,
            "secrets": wire.secret_refs(secrets),
            "state": state,
            "timeout_seconds": timeout_seconds,
        }))

    def dry_run_call(
        self,
        *,
        command: Sequence[str],
        state: Any,
        files: Sequence[types.CallFile | Mapping[str, Any]] | None = None,
        files_out: Sequence[str] | None = None,
        image: str | None = None,
        language: str | None = None,
        limits: types.CallLimits | Mapping[str, Any] | None = None,
        max_output_bytes: int | None = None,
        network: types.CallNetwork | Mapping[str, Any] | None = None,
        policy: str | None = None,
        secrets: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        timeout_seconds: int | None = None,
    ) -> types.CallPlan:
        """What would become of a typed call."""
        return self._json(types.CallPlan, "POST", "/v1/calls/dry-run", body=wire.request({
            "command": command,
            "files": files,
            "files_out": files_out,
            "image": image,
            "language": language,
            "limits": limits,
            "max_output_bytes": max_output_bytes,
            "network": network,
            "policy": policy,
            "secrets": wire.secret_refs(secrets),
            "state": state,
            "timeout_seconds": timeout_seconds,
        }))

    def doctor(self, *, deep: bool = False) -> types.Doctor:
        """What works on this host, and what would help."""
        return self._json(types.Doctor, "GET", "/v1/doctor", params={"deep": deep})

    def list_environments(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> types.EnvironmentList:
        """Every environment, installed or known by name."""
        return self._json(types.EnvironmentList, "GET", "/v1/environments", params={"cursor": cursor, "limit": limit})

    def build_environment(
        self,
        *,
        build_args: Mapping[str, str] | None = None,
        context_id: str | None = None,
        disk_mib: int | None = None,
        dockerfile: str | None = None,
        dockerfile_name: str | None = None,
        from_: str | None = None,
        mem_mib: int | None = None,
        name: str | None = None,
        no_cache: bool = False,
        policy: str | None = None,
        run: Sequence[str] | None = None,
        runtime: str | None = None,
        secrets: Mapping[str, str] | None = None,
        target: str | None = None,
        timeout_seconds: int | None = None,
        vcpu_count: int | None = None,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Environment:
        """Build an environment from another one."""
        return self._last(types.Environment, types.ProgressEvent, progress, "POST", "/v1/environments/build", body=wire.request({
            "build_args": build_args,
            "context_id": context_id,
            "disk_mib": disk_mib,
            "dockerfile": dockerfile,
            "dockerfile_name": dockerfile_name,
            "from": from_,
            "mem_mib": mem_mib,
            "name": name,
            "no_cache": no_cache,
            "policy": policy,
            "run": run,
            "runtime": runtime,
            "secrets": secrets,
            "target": target,
            "timeout_seconds": timeout_seconds,
            "vcpu_count": vcpu_count,
        }))

    def import_environment(self, content: Content, *, name: str | None = None) -> types.Environment:
        """Make an environment of an archive: an OCI image layout, or what `docker save` writes."""
        return self._json(types.Environment, "PUT", "/v1/environments/import", params={"name": name}, content=content)

    def prune_environments(self, *, all: bool = False) -> types.Pruned:
        """Remove environments nobody uses."""
        return self._json(types.Pruned, "POST", "/v1/environments/prune", body=wire.request({
            "all": all,
        }))

    def remove_environment(self, environment: str) -> types.Pruned:
        """Remove one installed environment."""
        return self._json(types.Pruned, "DELETE", f"/v1/environments/{wire.segment(environment)}")

    def inspect_environment(self, environment: str) -> types.Environment:
        """One environment."""
        return self._json(types.Environment, "GET", f"/v1/environments/{wire.segment(environment)}")

    def export_environment(self, environment: str) -> bytes:
        """An installed environment as an archive in the OCI image layout."""
        return self._bytes("GET", f"/v1/environments/{wire.segment(environment)}/export")

    def pull_environment(
        self,
        environment: str,
        *,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Environment:
        """Install an environment."""
        return self._last(types.Environment, types.ProgressEvent, progress, "POST", f"/v1/environments/{wire.segment(environment)}/pull")

    def tag_environment(self, environment: str, name: str) -> types.Environment:
        """Give an installed environment another name."""
        return self._json(types.Environment, "POST", f"/v1/environments/{wire.segment(environment)}/tag", body=wire.request({
            "name": name,
        }))

    def read_events(
        self,
        *,
        after: int | None = None,
        follow: bool = False,
        id: str | None = None,
        kind: str | None = None,
        tail: int | None = None,
    ) -> Lines[dict[str, Any]]:
        """What happened on this host, one event per line."""
        return self._lines("GET", "/v1/events", params={"after": after, "follow": follow, "id": id, "kind": kind, "tail": tail})

    def list_keys(self, *, cursor: str | None = None, limit: int | None = None) -> types.KeyList:
        """Every key, without what callers send."""
        return self._json(types.KeyList, "GET", "/v1/keys", params={"cursor": cursor, "limit": limit})

    def create_key(
        self,
        *,
        bounds: types.Bounds | Mapping[str, Any] | None = None,
        calls_per_minute: int | None = None,
        expires_seconds: int | None = None,
        name: str | None = None,
        project: str | None = None,
        scopes: Sequence[str] | None = None,
    ) -> types.KeyCreated:
        """Make a key for callers of other hosts."""
        return self._json(types.KeyCreated, "POST", "/v1/keys", body=wire.request({
            "bounds": bounds,
            "calls_per_minute": calls_per_minute,
            "expires_seconds": expires_seconds,
            "name": name,
            "project": project,
            "scopes": scopes,
        }))

    def revoke_key(self, key_id: str) -> types.Key:
        """Make a key good for nothing, from now on and for ever."""
        return self._json(types.Key, "DELETE", f"/v1/keys/{wire.segment(key_id)}")

    def openapi(self) -> dict[str, Any]:
        """This document."""
        value: dict[str, Any] = self._value("GET", "/v1/openapi.json")
        return value

    def plan(
        self,
        environment: str = "",
        *,
        accel: types.Accel = "auto",
        allow_host_compat: bool = False,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        idle_seconds: int | None = None,
        io_mbps: int | None = None,
        iops: int | None = None,
        isolation: types.Isolation | None = None,
        keep: bool = False,
        labels: Mapping[str, str] | None = None,
        mem_mib: int = 1024,
        network: bool = False,
        nofile: int | None = None,
        on_idle: types.OnIdle = "destroy",
        pids_max: int | None = None,
        policy: str | None = None,
        runtime: str | None = None,
        sandbox_id: types.SandboxId | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        template: str | None = None,
        ttl_seconds: int | None = None,
        user: str | None = None,
        vcpu_count: int = 1,
        workdir: str | None = None,
    ) -> str:
        """The steps that making this sandbox would take, for people."""
        return self._text("POST", "/v1/plan", body=wire.request({
            "accel": accel,
            "allow_host_compat": allow_host_compat,
            "disk_mib": disk_mib,
            "env": env,
            "environment": environment,
            "idle_seconds": idle_seconds,
            "io_mbps": io_mbps,
            "iops": iops,
            "isolation": isolation,
            "keep": keep,
            "labels": labels,
            "mem_mib": wire.unless_template(template, mem_mib, 1024),
            "network": network,
            "nofile": nofile,
            "on_idle": on_idle,
            "pids_max": pids_max,
            "policy": policy,
            "runtime": runtime,
            "sandbox_id": sandbox_id,
            "secret_refs": wire.secret_refs(secret_refs),
            "template": template,
            "ttl_seconds": ttl_seconds,
            "user": user,
            "vcpu_count": wire.unless_template(template, vcpu_count, 1),
            "workdir": workdir,
        }))

    def list_policies(self) -> types.PolicyList:
        """Every policy: shipped, or a file."""
        return self._json(types.PolicyList, "GET", "/v1/policies")

    def check_policy(self, text: str) -> types.Policy:
        """Read the text of a policy that is not in force."""
        return self._json(types.Policy, "POST", "/v1/policies/check", body=wire.request({
            "text": text,
        }))

    def get_policy(self, policy: str) -> types.Policy:
        """One policy, as it is understood."""
        return self._json(types.Policy, "GET", f"/v1/policies/{wire.segment(policy)}")

    def explain_policy(
        self,
        policy: str,
        host: str,
        port: int = 443,
        *,
        protocol: str = "tcp",
    ) -> types.Explained:
        """Whether a destination may be reached under a policy, by which rule, and why."""
        return self._json(types.Explained, "GET", f"/v1/policies/{wire.segment(policy)}/explain", params={"host": host, "port": port, "protocol": protocol})

    def run(
        self,
        sandbox: types.CreateSandbox | Mapping[str, Any],
        exec: types.ExecRequest | Mapping[str, Any],
    ) -> types.ExecResult:
        """Make a sandbox, run one command, throw the sandbox away."""
        return self._json(types.ExecResult, "POST", "/v1/run", body=wire.request({
            "exec": exec,
            "sandbox": sandbox,
        }))

    def run_stream(
        self,
        sandbox: types.CreateSandbox | Mapping[str, Any],
        exec: types.ExecRequest | Mapping[str, Any],
    ) -> Stream:
        """Make a sandbox, run one command, throw the sandbox away."""
        return self._live("/v1/run/ws", first=wire.request({
            "exec": exec,
            "sandbox": sandbox,
        }))

    def list_sandboxes(
        self,
        *,
        all: bool = False,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> types.SandboxList:
        """Every sandbox."""
        return self._json(types.SandboxList, "GET", "/v1/sandboxes", params={"all": all, "cursor": cursor, "limit": limit})

    def create_sandbox(
        self,
        environment: str = "",
        *,
        accel: types.Accel = "auto",
        allow_host_compat: bool = False,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        idle_seconds: int | None = None,
        io_mbps: int | None = None,
        iops: int | None = None,
        isolation: types.Isolation | None = None,
        keep: bool = False,
        labels: Mapping[str, str] | None = None,
        mem_mib: int = 1024,
        network: bool = False,
        nofile: int | None = None,
        on_idle: types.OnIdle = "destroy",
        pids_max: int | None = None,
        policy: str | None = None,
        runtime: str | None = None,
        sandbox_id: types.SandboxId | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        template: str | None = None,
        ttl_seconds: int | None = None,
        user: str | None = None,
        vcpu_count: int = 1,
        workdir: str | None = None,
    ) -> types.Sandbox:
        """Make a sandbox."""
        return self._json(types.Sandbox, "POST", "/v1/sandboxes", body=wire.request({
            "accel": accel,
            "allow_host_compat": allow_host_compat,
            "disk_mib": disk_mib,
            "env": env,
            "environment": environment,
            "idle_seconds": idle_seconds,
            "io_mbps": io_mbps,
            "iops": iops,
            "isolation": isolation,
            "keep": keep,
            "labels": labels,
            "mem_mib": wire.unless_template(template, mem_mib, 1024),
            "network": network,
            "nofile": nofile,
            "on_idle": on_idle,
            "pids_max": pids_max,
            "policy": policy,
            "runtime": runtime,
            "sandbox_id": sandbox_id,
            "secret_refs": wire.secret_refs(secret_refs),
            "template": template,
            "ttl_seconds": ttl_seconds,
            "user": user,
            "vcpu_count": wire.unless_template(template, vcpu_count, 1),
            "workdir": workdir,
        }))

    def reap_expired(self) -> types.Reaped:
        """Destroy every sandbox that has outlived its time."""
        return self._json(types.Reaped, "POST", "/v1/sandboxes/reap")

    def destroy_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Destroy a sandbox and everything in it."""
        return self._json(types.Sandbox, "DELETE", f"/v1/sandboxes/{wire.segment(sandbox_id)}")

    def get_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """One sandbox."""
        return self._json(types.Sandbox, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}")

    def commit_sandbox(
        self,
        sandbox_id: str,
        *,
        name: str,
        then: types.AfterCommit | None = None,
    ) -> types.Environment:
        """Make an environment of what is on the disks of a kept sandbox."""
        return self._json(types.Environment, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/commit", body=wire.request({
            "name": name,
            "then": then,
        }))

    def read_decisions(
        self,
        sandbox_id: str,
        *,
        follow: bool = False,
        from_: int = 0,
    ) -> Lines[dict[str, Any]]:
        """Every decision about a sandbox's traffic."""
        return self._lines("GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/decisions", params={"follow": follow, "from": from_})

    def exec(
        self,
        sandbox_id: str,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        tag: str | None = None,
        timeout_seconds: int = 30,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.ExecResult:
        """Run one command in a sandbox."""
        return self._json(types.ExecResult, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/exec", body=wire.request({
            "env": env,
            "max_output_bytes": max_output_bytes,
            "tag": tag,
            "timeout_seconds": timeout_seconds,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    def exec_stream(
        self,
        sandbox_id: str,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        no_timeout: bool = False,
        output_ring_bytes: int | None = None,
        stdin: bool = False,
        tag: str | None = None,
        timeout_seconds: int | None = None,
        tty: types.TtySize | Mapping[str, Any] | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> Stream:
        """Run one command in a sandbox."""
        return self._command(f"/v1/sandboxes/{wire.segment(sandbox_id)}/exec/ws", sandbox_id=wire.segment(sandbox_id), first=wire.request({
            "env": env,
            "max_output_bytes": max_output_bytes,
            "no_timeout": no_timeout,
            "output_ring_bytes": output_ring_bytes,
            "stdin": stdin,
            "tag": tag,
            "timeout_seconds": timeout_seconds,
            "tty": tty,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    def remove_file(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        recursive: bool | None = None,
        user: str | None = None,
    ) -> None:
        """Remove a file or directory."""
        self._nothing("DELETE", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files", params=wire.request({
            "recursive": recursive,
            "user": user,
        }, wire.path("path", path)))

    def stat(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        follow: bool | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """One file, directory or link."""
        return self._json(types.FileEntry, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files", params=wire.request({
            "follow": follow,
            "user": user,
        }, wire.path("path", path)))

    def chmod(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        mode: str,
        *,
        user: str | None = None,
    ) -> types.FileEntry:
        """Set permission bits."""
        return self._json(types.FileEntry, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/chmod", body=wire.request({
            "mode": mode,
            "user": user,
        }, wire.path("path", path)))

    def read_file(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        length: int | None = None,
        offset: int | None = None,
        user: str | None = None,
    ) -> bytes:
        """The contents of a file."""
        return self._bytes("GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/content", params=wire.request({
            "length": length,
            "offset": offset,
            "user": user,
        }, wire.path("path", path)))

    def write_file(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        content: Content,
        *,
        append: bool | None = None,
        create_new: bool | None = None,
        mode: str | None = None,
        no_parents: bool | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Write a file; the body is its contents."""
        return self._json(types.FileEntry, "PUT", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/content", params=wire.request({
            "append": append,
            "create_new": create_new,
            "mode": mode,
            "no_parents": no_parents,
            "user": user,
        }, wire.path("path", path)), content=content)

    def glob(
        self,
        sandbox_id: str,
        pattern: str,
        *,
        limit: int | None = None,
        user: str | None = None,
    ) -> types.FilePage:
        """Files whose path matches a pattern."""
        return self._json(types.FilePage, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/glob", params={"limit": limit, "pattern": pattern, "user": user})

    def hash(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        user: str | None = None,
    ) -> types.FileHash:
        """The SHA-256 of a file."""
        return self._json(types.FileHash, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/hash", params=wire.request({
            "user": user,
        }, wire.path("path", path)))

    def list_files(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        after: str | None = None,
        depth: int | None = None,
        limit: int | None = None,
        user: str | None = None,
    ) -> types.FilePage:
        """One page of a directory."""
        return self._json(types.FilePage, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/list", params=wire.request({
            "after": after,
            "depth": depth,
            "limit": limit,
            "user": user,
        }, wire.path("path", path)))

    def mkdir(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        mode: str | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Make a directory, and those above it."""
        return self._json(types.FileEntry, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/mkdir", body=wire.request({
            "mode": mode,
            "user": user,
        }, wire.path("path", path)))

    def move_file(
        self,
        sandbox_id: str,
        from_: str | bytes | os.PathLike[str],
        to: str | bytes | os.PathLike[str],
        *,
        overwrite: bool | None = None,
        user: str | None = None,
    ) -> types.FileEntry:
        """Move or rename."""
        return self._json(types.FileEntry, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/move", body=wire.request({
            "overwrite": overwrite,
            "user": user,
        }, wire.path("from", from_), wire.path("to", to)))

    def read_tree(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        user: str | None = None,
    ) -> bytes:
        """A tree as a tar archive."""
        return self._bytes("GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/tree", params=wire.request({
            "user": user,
        }, wire.path("path", path)))

    def write_tree(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        content: Content,
        *,
        user: str | None = None,
    ) -> types.TreeWritten:
        """Unpack a tar archive into a directory."""
        return self._json(types.TreeWritten, "PUT", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/tree", params=wire.request({
            "user": user,
        }, wire.path("path", path)), content=content)

    def watch(
        self,
        sandbox_id: str,
        path: str | bytes | os.PathLike[str],
        *,
        recursive: bool | None = None,
        user: str | None = None,
    ) -> Lines[types.FileChange]:
        """Changes to a file or directory as they happen."""
        return self._items(types.FileChange, "change", "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/files/watch", params=wire.request({
            "recursive": recursive,
            "user": user,
        }, wire.path("path", path)))

    def fork_sandbox(self, sandbox_id: str, *, count: int = 1) -> types.SandboxList:
        """Live copies of a running or paused sandbox."""
        return self._json(types.SandboxList, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/fork", body=wire.request({
            "count": count,
        }))

    def keepalive(
        self,
        sandbox_id: str,
        *,
        env: Mapping[str, str] | None = None,
        idle_seconds: int | None = None,
        on_idle: types.OnIdle | None = None,
        ttl_seconds: int | None = None,
        user: str | None = None,
    ) -> types.Sandbox:
        """Start the time to live again."""
        return self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/keepalive", body=wire.request({
            "env": env,
            "idle_seconds": idle_seconds,
            "on_idle": on_idle,
            "ttl_seconds": ttl_seconds,
            "user": user,
        }))

    def metrics(self, sandbox_id: str) -> types.Metrics:
        """What a sandbox uses right now."""
        return self._json(types.Metrics, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/metrics")

    def flush_metrics(self, sandbox_id: str) -> types.MetricsFlushed:
        """What a sandbox used, over time, for somebody who keeps it: it is told once."""
        return self._json(types.MetricsFlushed, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/metrics/flush")

    def metrics_history(self, sandbox_id: str, *, range: types.MetricsRange = "10m") -> types.MetricsHistory:
        """What a sandbox used, over time."""
        return self._json(types.MetricsHistory, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/metrics/history", params={"range": range})

    def pause_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Stop the clock of a sandbox."""
        return self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/pause")

    def set_policy(self, sandbox_id: str, policy: str) -> types.Sandbox:
        """Give a running sandbox another policy."""
        return self._json(types.Sandbox, "PUT", f"/v1/sandboxes/{wire.segment(sandbox_id)}/policy", body=wire.request({
            "policy": policy,
        }))

    def list_ports(self, sandbox_id: str) -> types.PortList:
        """TCP ports something listens on."""
        return self._json(types.PortList, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/ports")

    def dial(self, sandbox_id: str, port: int | str) -> Connection:
        """Connect to a TCP port."""
        return self._dial(f"/v1/sandboxes/{wire.segment(sandbox_id)}/ports/{wire.segment(port)}/dial")

    def list_processes(self, sandbox_id: str) -> types.ProcessList:
        """Processes that were started here."""
        return self._json(types.ProcessList, "GET", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes")

    def exec_background(
        self,
        sandbox_id: str,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        no_timeout: bool = False,
        output_ring_bytes: int | None = None,
        stdin: bool = False,
        tag: str | None = None,
        timeout_seconds: int | None = None,
        tty: types.TtySize | Mapping[str, Any] | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.Background:
        """Start a process that runs on after the answer."""
        return self._json(types.Background, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes", body=wire.request({
            "env": env,
            "max_output_bytes": max_output_bytes,
            "no_timeout": no_timeout,
            "output_ring_bytes": output_ring_bytes,
            "stdin": stdin,
            "tag": tag,
            "timeout_seconds": timeout_seconds,
            "tty": tty,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    def kill_process(
        self,
        sandbox_id: str,
        selector: int | str,
        *,
        signal: types.Signal | None = None,
        tree: bool | None = None,
    ) -> None:
        """End a process."""
        self._nothing("DELETE", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}", params={"signal": signal, "tree": tree})

    def write_process(
        self,
        sandbox_id: str,
        selector: int | str,
        content: Content,
        *,
        close: bool = False,
    ) -> None:
        """Type into a process; the body is what is typed."""
        self._nothing("POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/input", params={"close": close}, content=content)

    def resize_process(self, sandbox_id: str, selector: int | str, cols: int, rows: int) -> None:
        """Give the terminal of a process another size."""
        self._nothing("POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/resize", body=wire.request({
            "cols": cols,
            "rows": rows,
        }))

    def signal_process(
        self,
        sandbox_id: str,
        selector: int | str,
        signal: types.Signal,
        *,
        tree: bool | None = None,
    ) -> None:
        """Send a signal to a process."""
        self._nothing("POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/signal", body=wire.request({
            "signal": signal,
            "tree": tree,
        }))

    def attach_output(
        self,
        sandbox_id: str,
        selector: int | str,
        *,
        from_: str | None = None,
        stderr_from: int | None = None,
        stdout_from: int | None = None,
    ) -> Stream:
        """What it writes, without input."""
        return self._output(f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/stream", resume=True, params={"from": from_, "stderr_from": stderr_from, "stdout_from": stdout_from})

    def attach(
        self,
        sandbox_id: str,
        selector: int | str,
        *,
        from_: str | None = None,
        stderr_from: int | None = None,
        stdout_from: int | None = None,
    ) -> Stream:
        """Follow a process, with input."""
        return self._live(f"/v1/sandboxes/{wire.segment(sandbox_id)}/processes/{wire.segment(selector)}/stream/ws", resume=True, params={"from": from_, "stderr_from": stderr_from, "stdout_from": stdout_from})

    def resume_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Let a paused sandbox go on."""
        return self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/resume")

    def dial_unix(self, sandbox_id: str, path: str | bytes | os.PathLike[str]) -> Connection:
        """Connect to a Unix socket."""
        return self._dial(f"/v1/sandboxes/{wire.segment(sandbox_id)}/sockets/dial", params=wire.request({}, wire.path("path", path)))

    def start_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """Make a machine for a stopped sandbox, with the disks it had."""
        return self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/start")

    def stop_sandbox(self, sandbox_id: str) -> types.Sandbox:
        """End the machine of a kept sandbox; its disks stay."""
        return self._json(types.Sandbox, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/stop")

    def save_template(
        self,
        sandbox_id: str,
        *,
        name: str,
        memory: bool | None = None,
        then: types.AfterCommit | None = None,
    ) -> types.Template:
        """Make a template of a sandbox as it is."""
        return self._json(types.Template, "POST", f"/v1/sandboxes/{wire.segment(sandbox_id)}/template", body=wire.request({
            "memory": memory,
            "name": name,
            "then": then,
        }))

    def list_secrets(self, *, cursor: str | None = None, limit: int | None = None) -> types.SecretList:
        """The secrets of typed calls, without their values."""
        return self._json(types.SecretList, "GET", "/v1/secrets", params={"cursor": cursor, "limit": limit})

    def remove_secret(self, secret_name: str) -> types.SecretSummary:
        """Forget a secret."""
        return self._json(types.SecretSummary, "DELETE", f"/v1/secrets/{wire.segment(secret_name)}")

    def set_secret(
        self,
        secret_name: str,
        *,
        aws: bool = False,
        body: bool = False,
        command: Sequence[str] | None = None,
        hosts: Sequence[str] | None = None,
        known_hosts: str | None = None,
        path: str | os.PathLike[str] | None = None,
        rotate: bool = False,
        ssh: bool = False,
        value: str | None = None,
        variable: str | None = None,
    ) -> types.SecretSummary:
        """Keep a secret for typed calls, or say where it is found."""
        return self._json(types.SecretSummary, "PUT", f"/v1/secrets/{wire.segment(secret_name)}", body=wire.request({
            "aws": aws,
            "body": body,
            "command": command,
            "hosts": hosts,
            "known_hosts": known_hosts,
            "path": wire.host_path(path),
            "rotate": rotate,
            "ssh": ssh,
            "value": value,
            "variable": variable,
        }))

    def list_templates(self, *, cursor: str | None = None, limit: int | None = None) -> types.TemplateList:
        """Every template."""
        return self._json(types.TemplateList, "GET", "/v1/templates", params={"cursor": cursor, "limit": limit})

    def remove_template(self, template: str) -> types.Template:
        """Remove a template and the machines that wait for it."""
        return self._json(types.Template, "DELETE", f"/v1/templates/{wire.segment(template)}")

    def get_template(self, template: str) -> types.Template:
        """One template, and the machines that wait for it."""
        return self._json(types.Template, "GET", f"/v1/templates/{wire.segment(template)}")

    def put_template(
        self,
        template: str,
        environment: str,
        *,
        allowed_hosts: Sequence[str] | None = None,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        isolation: types.Isolation | None = None,
        labels: Mapping[str, str] | None = None,
        mem_mib: int | None = None,
        policy: str | None = None,
        pool_size: int = 0,
        runtime: str | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        setup: Sequence[str] | None = None,
        setup_policy: str | None = None,
        ttl_seconds: int | None = None,
        vcpu_count: int | None = None,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Template:
        """Make a template, or change it."""
        return self._last(types.Template, types.ProgressEvent, progress, "PUT", f"/v1/templates/{wire.segment(template)}", body=wire.request({
            "allowed_hosts": allowed_hosts,
            "disk_mib": disk_mib,
            "env": env,
            "environment": environment,
            "isolation": isolation,
            "labels": labels,
            "mem_mib": mem_mib,
            "policy": policy,
            "pool_size": pool_size,
            "runtime": runtime,
            "secret_refs": wire.secret_refs(secret_refs),
            "setup": setup,
            "setup_policy": setup_policy,
            "ttl_seconds": ttl_seconds,
            "vcpu_count": vcpu_count,
        }))

    def build_template(
        self,
        template: str,
        *,
        no_cache: bool = False,
        progress: Callable[[types.ProgressEvent], object] | None = None,
    ) -> types.Template:
        """Run the setup of a template again, on its environment as it is now."""
        return self._last(types.Template, types.ProgressEvent, progress, "POST", f"/v1/templates/{wire.segment(template)}/build", body=wire.request({
            "no_cache": no_cache,
        }))

    def list_terminals(self, *, cursor: str | None = None, limit: int | None = None) -> types.TerminalList:
        """Every session: the living ones first, the most recently active first among them."""
        return self._json(types.TerminalList, "GET", "/v1/terminals", params={"cursor": cursor, "limit": limit})

    def open_terminal(
        self,
        session_id: str,
        *,
        command: Sequence[str] | None = None,
        cwd: str | None = None,
        description: str | None = None,
        env: Mapping[str, str] | None = None,
        host: bool = False,
        prompt_regex: str | None = None,
        quiescence_ms: int | None = None,
        sandbox_id: types.SandboxId | None = None,
        size: types.TtySize | Mapping[str, Any] | None = None,
        user: str | None = None,
        user_files: bool = False,
    ) -> types.TerminalOpened:
        """Open a session, or find it."""
        return self._json(types.TerminalOpened, "POST", "/v1/terminals", body=wire.request({
            "command": command,
            "cwd": cwd,
            "description": description,
            "env": env,
            "host": host,
            "prompt_regex": prompt_regex,
            "quiescence_ms": quiescence_ms,
            "sandbox_id": sandbox_id,
            "session_id": session_id,
            "size": size,
            "user": user,
            "user_files": user_files,
        }))

    def terminate_terminal(self, session_id: str) -> types.Terminal:
        """End a session and everything on its terminal, for good."""
        return self._json(types.Terminal, "DELETE", f"/v1/terminals/{wire.segment(session_id)}")

    def get_terminal(self, session_id: str) -> types.Terminal:
        """One session, and what it waits for."""
        return self._json(types.Terminal, "GET", f"/v1/terminals/{wire.segment(session_id)}")

    def configure_terminal(
        self,
        session_id: str,
        *,
        description: str | None = None,
        prompt_regex: str | None = None,
        quiescence_ms: int | None = None,
        size: types.TtySize | Mapping[str, Any] | None = None,
    ) -> types.Terminal:
        """Change the description, the prompt, the silence or the size of a session."""
        return self._json(types.Terminal, "PATCH", f"/v1/terminals/{wire.segment(session_id)}", body=wire.request({
            "description": description,
            "prompt_regex": prompt_regex,
            "quiescence_ms": quiescence_ms,
            "size": size,
        }))

    def expect_in_terminal(
        self,
        session_id: str,
        patterns: Sequence[str],
        *,
        echo: bool = False,
        from_: str | None = None,
        literal: bool = False,
        max_output_bytes: int | None = None,
        raw: bool = False,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Wait until one of several patterns is printed."""
        return self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/expect", body=wire.request({
            "echo": echo,
            "from": from_,
            "literal": literal,
            "max_output_bytes": max_output_bytes,
            "patterns": patterns,
            "raw": raw,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    def expect_terminal_prompt(
        self,
        session_id: str,
        *,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Wait until a shell waits for a command."""
        return self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/expect-prompt", body=wire.request({
            "max_output_bytes": max_output_bytes,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    def send_to_terminal(
        self,
        session_id: str,
        text: str | None = None,
        *,
        control: str | None = None,
        keys: Sequence[str] | None = None,
        max_output_bytes: int | None = None,
        paste: str | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Type text, paste it, or press keys."""
        return self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/input", body=wire.request({
            "control": control,
            "keys": keys,
            "max_output_bytes": max_output_bytes,
            "paste": paste,
            "strip_ansi": strip_ansi,
            "text": text,
            "timeout": timeout,
        }))

    def send_terminal_password(
        self,
        session_id: str,
        password: str,
        *,
        force: bool = False,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Type a secret where the program does not show it."""
        return self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/password", body=wire.request({
            "force": force,
            "max_output_bytes": max_output_bytes,
            "password": password,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    def poll_terminal(
        self,
        session_id: str,
        *,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Wait for output without typing anything."""
        return self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/poll", body=wire.request({
            "max_output_bytes": max_output_bytes,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    def terminal_recording(self, session_id: str) -> bytes:
        """The recording so far, in asciicast v3."""
        return self._bytes("GET", f"/v1/terminals/{wire.segment(session_id)}/recording")

    def run_in_terminal(
        self,
        session_id: str,
        command: str,
        *,
        force: bool = False,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Run a command line, and wait until it has ended or wants something."""
        return self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/run", body=wire.request({
            "command": command,
            "force": force,
            "max_output_bytes": max_output_bytes,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    def terminal_screen(
        self,
        session_id: str,
        *,
        format: types.ScreenFormat = "text",
    ) -> types.TerminalScreen:
        """The screen as it is now."""
        return self._json(types.TerminalScreen, "GET", f"/v1/terminals/{wire.segment(session_id)}/screen", params={"format": format})

    def clear_terminal_scrollback(self, session_id: str) -> types.Terminal:
        """Forget what is above the screen, without typing anything."""
        return self._json(types.Terminal, "DELETE", f"/v1/terminals/{wire.segment(session_id)}/scrollback")

    def terminal_scrollback(
        self,
        session_id: str,
        *,
        lines: int = 200,
        strip_ansi: bool = True,
    ) -> types.TerminalScrollback:
        """The screen and what is above it."""
        return self._json(types.TerminalScrollback, "GET", f"/v1/terminals/{wire.segment(session_id)}/scrollback", params={"lines": lines, "strip_ansi": strip_ansi})

    def signal_terminal(
        self,
        session_id: str,
        signal: str,
        *,
        max_output_bytes: int | None = None,
        strip_ansi: bool | None = None,
        timeout: float | None = None,
    ) -> types.TerminalAnswer:
        """Send a signal to what runs in the foreground."""
        return self._json(types.TerminalAnswer, "POST", f"/v1/terminals/{wire.segment(session_id)}/signal", body=wire.request({
            "max_output_bytes": max_output_bytes,
            "signal": signal,
            "strip_ansi": strip_ansi,
            "timeout": timeout,
        }))

    def attach_terminal_output(
        self,
        session_id: str,
        *,
        cols: int | None = None,
        rows: int | None = None,
    ) -> Stream:
        """What it writes, without input."""
        return self._output(f"/v1/terminals/{wire.segment(session_id)}/stream", params={"cols": cols, "rows": rows})

    def attach_terminal(
        self,
        session_id: str,
        *,
        cols: int | None = None,
        rows: int | None = None,
    ) -> Stream:
        """A session, live."""
        return self._live(f"/v1/terminals/{wire.segment(session_id)}/stream/ws", params={"cols": cols, "rows": rows})

    def terminal_transcript(
        self,
        session_id: str,
        *,
        from_: int | None = None,
        max_bytes: int | None = None,
        strip_ansi: bool | None = None,
    ) -> types.TerminalTranscript:
        """What was printed, from a place on, and where it is kept."""
        return self._json(types.TerminalTranscript, "GET", f"/v1/terminals/{wire.segment(session_id)}/transcript", params={"from": from_, "max_bytes": max_bytes, "strip_ansi": strip_ansi})

    def version(self) -> types.Version:
        """What this daemon is."""
        return self._json(types.Version, "GET", "/v1/version")

    def list_workspaces(self, *, cursor: str | None = None, limit: int | None = None) -> types.WorkspaceList:
        """Every workspace, the most recently active first."""
        return self._json(types.WorkspaceList, "GET", "/v1/workspaces", params={"cursor": cursor, "limit": limit})

    def create_workspace(
        self,
        environment: str = "",
        *,
        accel: types.Accel = "auto",
        allow_host_compat: bool = False,
        checkpoint: bool = False,
        disk_mib: int | None = None,
        io_mbps: int | None = None,
        iops: int | None = None,
        isolation: types.Isolation | None = None,
        labels: Mapping[str, str] | None = None,
        mem_mib: int = 1024,
        name: str | None = None,
        network_policy: types.NetworkPolicy = "off",
        policy: str | None = None,
        runtime: str | None = None,
        secret_refs: Mapping[str, str | types.SecretRef | Mapping[str, Any]] | None = None,
        secrets: Mapping[str, str] | Sequence[types.SecretSource | Mapping[str, Any]] | None = None,
        seed_path: str | os.PathLike[str] | None = None,
        template: str | None = None,
        ttl_seconds: int | None = None,
        vcpu_count: int = 1,
        workspace_id: types.SandboxId | None = None,
    ) -> types.Workspace:
        """Make a workspace, and start it."""
        return self._json(types.Workspace, "POST", "/v1/workspaces", body=wire.request({
            "accel": accel,
            "allow_host_compat": allow_host_compat,
            "checkpoint": checkpoint,
            "disk_mib": disk_mib,
            "environment": environment,
            "io_mbps": io_mbps,
            "iops": iops,
            "isolation": isolation,
            "labels": labels,
            "mem_mib": wire.unless_template(template, mem_mib, 1024),
            "name": name,
            "network_policy": network_policy,
            "policy": policy,
            "runtime": runtime,
            "secret_refs": wire.secret_refs(secret_refs),
            "secrets": wire.secrets(secrets),
            "seed_path": wire.host_path(seed_path),
            "template": template,
            "ttl_seconds": ttl_seconds,
            "vcpu_count": wire.unless_template(template, vcpu_count, 1),
            "workspace_id": workspace_id,
        }))

    def delete_workspace(self, workspace_id: str) -> types.Workspace:
        """Delete a workspace, with its snapshots, secrets and history."""
        return self._json(types.Workspace, "DELETE", f"/v1/workspaces/{wire.segment(workspace_id)}")

    def status_workspace(self, workspace_id: str) -> types.Workspace:
        """One workspace."""
        return self._json(types.Workspace, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}")

    def update_workspace(
        self,
        workspace_id: str,
        *,
        clear_labels: Sequence[str] | None = None,
        clear_name: bool = False,
        labels: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> types.Workspace:
        """Change the name and the labels of a workspace, and nothing else."""
        return self._json(types.Workspace, "PATCH", f"/v1/workspaces/{wire.segment(workspace_id)}", body=wire.request({
            "clear_labels": clear_labels,
            "clear_name": clear_name,
            "labels": labels,
            "name": name,
        }))

    def diff_workspace(self, workspace_id: str, *, max_bytes: int | None = None) -> types.DiffReport:
        """What changed since the baseline."""
        return self._json(types.DiffReport, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/diff", params={"max_bytes": max_bytes})

    def export_workspace_disk(
        self,
        workspace_id: str,
        *,
        output_path: str | os.PathLike[str],
        force: bool | None = None,
        max_bytes: int | None = None,
    ) -> types.DiskExported:
        """Write the root of a stopped workspace to the host as a file system in a file."""
        return self._json(types.DiskExported, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/disk/export", body=wire.request({
            "force": force,
            "max_bytes": max_bytes,
            "output_path": wire.host_path(output_path),
        }))

    def list_workspace_disk(
        self,
        workspace_id: str,
        path: str = "/workspace",
        recursive: bool = False,
    ) -> types.PathList:
        """What is at a path of the root of a stopped workspace."""
        return self._json(types.PathList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/disk/files", params={"path": path, "recursive": recursive})

    def read_workspace_disk(self, workspace_id: str, path: str, *, max_bytes: int = 65536) -> types.FileText:
        """A text file of the root of a stopped workspace, up to a budget."""
        return self._json(types.FileText, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/disk/files/text", params={"max_bytes": max_bytes, "path": path})

    def edit_workspace(
        self,
        workspace_id: str,
        edits: Sequence[types.Edit | Mapping[str, Any]],
    ) -> types.PatchReport:
        """Replace exact texts in files: all of them, or none."""
        return self._json(types.PatchReport, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/edit", body=wire.request({
            "edits": edits,
        }))

    def exec_workspace(
        self,
        workspace_id: str,
        *,
        command: str | Sequence[str],
        checkpoint: bool | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        timeout_seconds: int = 30,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.ExecResult:
        """Run one command in a workspace, in `/workspace`."""
        return self._json(types.ExecResult, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/exec", body=wire.request({
            "checkpoint": checkpoint,
            "env": env,
            "max_output_bytes": max_output_bytes,
            "secret_env": wire.secret_env(secret_env),
            "timeout_seconds": timeout_seconds,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    def exec_workspace_stream(
        self,
        workspace_id: str,
        *,
        command: str | Sequence[str],
        checkpoint: bool | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        max_output_bytes: int | None = None,
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        stdin: bool = False,
        timeout_seconds: int | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> Stream:
        """Run one command in a workspace, in `/workspace`."""
        return self._command(f"/v1/workspaces/{wire.segment(workspace_id)}/exec/ws", sandbox_id=wire.segment(workspace_id), first=wire.request({
            "checkpoint": checkpoint,
            "env": env,
            "max_output_bytes": max_output_bytes,
            "secret_env": wire.secret_env(secret_env),
            "stdin": stdin,
            "timeout_seconds": timeout_seconds,
            "user": user,
            "workdir": workdir,
        }, wire.command(command), wire.path("input", input)))

    def export_workspace(
        self,
        workspace_id: str,
        path: str,
        *,
        output_path: str | os.PathLike[str],
        force: bool | None = None,
        max_bytes: int | None = None,
    ) -> types.Exported:
        """Copy a file or a tree to the host."""
        return self._json(types.Exported, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/export", body=wire.request({
            "force": force,
            "max_bytes": max_bytes,
            "output_path": wire.host_path(output_path),
            "path": path,
        }))

    def list_workspace_files(
        self,
        workspace_id: str,
        path: str = "/workspace",
        recursive: bool = False,
    ) -> types.PathList:
        """What is at a path, without what is in the files."""
        return self._json(types.PathList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/files", params={"path": path, "recursive": recursive})

    def read_workspace_file(self, workspace_id: str, path: str, *, max_bytes: int = 65536) -> types.FileText:
        """A text file, up to a budget."""
        return self._json(types.FileText, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/files/text", params={"max_bytes": max_bytes, "path": path})

    def write_workspace_file(self, workspace_id: str, path: str, *, text: str) -> types.FileWritten:
        """Create or replace a text file, and the directories above it."""
        return self._json(types.FileWritten, "PUT", f"/v1/workspaces/{wire.segment(workspace_id)}/files/text", body=wire.request({
            "path": path,
            "text": text,
        }))

    def fork_workspace(
        self,
        workspace_id: str,
        *,
        count: int | None = None,
        name: str | None = None,
    ) -> types.WorkspaceCopies:
        """Copies of a workspace, all or none."""
        return self._json(types.WorkspaceCopies, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/fork", body=wire.request({
            "count": count,
            "name": name,
        }))

    def logs_workspace(self, workspace_id: str) -> types.CommandLog:
        """The commands a workspace has run, oldest first."""
        return self._json(types.CommandLog, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/logs")

    def apply_workspace_patch(self, workspace_id: str, *, patch: str) -> types.PatchReport:
        """Apply one unified patch: all of it, or none."""
        return self._json(types.PatchReport, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/patch", body=wire.request({
            "patch": patch,
        }))

    def reset_workspace(self, workspace_id: str, *, snapshot: str = "baseline") -> types.Workspace:
        """Make the whole machine anew, with `/workspace` as a snapshot has it."""
        return self._json(types.Workspace, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/reset", body=wire.request({
            "snapshot": snapshot,
        }))

    def list_services(self, workspace_id: str) -> types.ServiceList:
        """Every service of a workspace, ended ones included."""
        return self._json(types.ServiceList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/services")

    def start_service(
        self,
        workspace_id: str,
        service_name: str,
        *,
        command: str | Sequence[str],
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        published_ports: Sequence[int | str | types.Publish | Mapping[str, Any]] | None = None,
        readiness: types.Readiness | Mapping[str, Any] | None = None,
        ready_interval_ms: int = 500,
        ready_timeout_seconds: int = 30,
        restart: types.Restart = "never",
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        user: str | None = None,
    ) -> types.ServiceStatus:
        """Start a service, and wait until it is ready."""
        return self._json(types.ServiceStatus, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/services", body=wire.request({
            "cwd": cwd,
            "env": env,
            "published_ports": wire.published_ports(published_ports),
            "readiness": readiness,
            "ready_interval_ms": ready_interval_ms,
            "ready_timeout_seconds": ready_timeout_seconds,
            "restart": restart,
            "secret_env": wire.secret_env(secret_env),
            "service_name": service_name,
            "user": user,
        }, wire.command(command)))

    def status_service(self, workspace_id: str, service_name: str) -> types.ServiceStatus:
        """One service."""
        return self._json(types.ServiceStatus, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}")

    def logs_service(
        self,
        workspace_id: str,
        service_name: str,
        *,
        all: bool = False,
        tail_lines: int = 200,
    ) -> types.ServiceLogs:
        """The output of a service."""
        return self._json(types.ServiceLogs, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/logs", params={"all": all, "tail_lines": tail_lines})

    def stop_service(self, workspace_id: str, service_name: str) -> types.ServiceStatus:
        """End a service."""
        return self._json(types.ServiceStatus, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/stop")

    def follow_service_output(self, workspace_id: str, service_name: str) -> Stream:
        """What it writes, without input."""
        return self._output(f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/stream")

    def follow_service(self, workspace_id: str, service_name: str) -> Stream:
        """Follow the output of a service from now on."""
        return self._live(f"/v1/workspaces/{wire.segment(workspace_id)}/services/{wire.segment(service_name)}/stream/ws")

    def list_shells(self, workspace_id: str) -> types.ShellList:
        """The shells of a workspace."""
        return self._json(types.ShellList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/shells")

    def open_shell(
        self,
        workspace_id: str,
        *,
        cols: int = 120,
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        rows: int = 30,
        secret_env: Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]] | None = None,
        user: str | None = None,
    ) -> types.Shell:
        """Open a shell on a terminal of its own."""
        return self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells", body=wire.request({
            "cols": cols,
            "cwd": cwd,
            "env": env,
            "rows": rows,
            "secret_env": wire.secret_env(secret_env),
            "user": user,
        }))

    def close_shell(self, workspace_id: str, shell_id: str) -> types.Shell:
        """End a shell and what runs in it."""
        return self._json(types.Shell, "DELETE", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}")

    def write_shell(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        input: str,
        append_newline: bool = True,
    ) -> types.Shell:
        """Type into a shell."""
        return self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/input", body=wire.request({
            "append_newline": append_newline,
            "input": input,
        }))

    def read_shell(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        cursor: int = 0,
        max_chars: int = 65536,
        plain: bool = False,
        wait_for_idle_ms: int | None = None,
    ) -> types.ShellOutput:
        """Read what a shell has said, from a cursor on."""
        return self._json(types.ShellOutput, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/output", params={"cursor": cursor, "max_chars": max_chars, "plain": plain, "wait_for_idle_ms": wait_for_idle_ms})

    def resize_shell(self, workspace_id: str, shell_id: str, cols: int, rows: int) -> types.Shell:
        """Give a shell's terminal another size."""
        return self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/resize", body=wire.request({
            "cols": cols,
            "rows": rows,
        }))

    def signal_shell(self, workspace_id: str, shell_id: str, *, signal_name: str = "INT") -> types.Shell:
        """Send a signal to what runs in the foreground of a shell."""
        return self._json(types.Shell, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/signal", body=wire.request({
            "signal": signal_name,
        }))

    def attach_shell_output(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        cols: int = 120,
        rows: int = 30,
    ) -> Stream:
        """What it writes, without input."""
        return self._output(f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/stream", params={"cols": cols, "rows": rows})

    def attach_shell(
        self,
        workspace_id: str,
        shell_id: str,
        *,
        cols: int = 120,
        rows: int = 30,
    ) -> Stream:
        """A shell, live."""
        return self._live(f"/v1/workspaces/{wire.segment(workspace_id)}/shells/{wire.segment(shell_id)}/stream/ws", params={"cols": cols, "rows": rows})

    def list_snapshots(
        self,
        workspace_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> types.SnapshotList:
        """The baseline and every named snapshot."""
        return self._json(types.SnapshotList, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots", params={"cursor": cursor, "limit": limit})

    def create_snapshot(self, workspace_id: str, snapshot_name: str) -> types.Snapshot:
        """Save `/workspace` as it is now under a name."""
        return self._json(types.Snapshot, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots", body=wire.request({
            "snapshot_name": snapshot_name,
        }))

    def delete_snapshot(self, workspace_id: str, snapshot_name: str) -> types.Snapshot:
        """Delete a named snapshot."""
        return self._json(types.Snapshot, "DELETE", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots/{wire.segment(snapshot_name)}")

    def diff_snapshots(
        self,
        workspace_id: str,
        snapshot_name: str,
        *,
        to: str,
        max_bytes: int | None = None,
    ) -> types.DiffReport:
        """What changed between two snapshots."""
        return self._json(types.DiffReport, "GET", f"/v1/workspaces/{wire.segment(workspace_id)}/snapshots/{wire.segment(snapshot_name)}/diff", params={"max_bytes": max_bytes, "to": to})

    def start_workspace(self, workspace_id: str) -> types.Workspace:
        """Start a stopped workspace with the disks it had."""
        return self._json(types.Workspace, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/start")

    def stop_workspace(self, workspace_id: str) -> types.Workspace:
        """End the machine of a workspace; everything it keeps stays."""
        return self._json(types.Workspace, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/stop")

    def push_workspace_sync(
        self,
        workspace_id: str,
        source_path: str | os.PathLike[str],
        *,
        dest: str = "/workspace",
        gitignore: bool = False,
    ) -> types.SyncReport:
        """Bring later content of the host into a running workspace."""
        return self._json(types.SyncReport, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/sync/push", body=wire.request({
            "dest": dest,
            "gitignore": gitignore,
            "source_path": wire.host_path(source_path),
        }))

    def undo_workspace(self, workspace_id: str, *, steps: int = 1) -> types.Undone:
        """Take the last commands back, in place."""
        return self._json(types.Undone, "POST", f"/v1/workspaces/{wire.segment(workspace_id)}/undo", body=wire.request({
            "steps": steps,
        }))
