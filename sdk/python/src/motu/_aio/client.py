"""The client as people use it: every verb, and the words of the contract that are made of several."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .. import _wire as wire
from .. import errors, types
from .._fields import with_beside
from .._tasks import async_sleep
from .._verbs import AsyncVerbs
from ..network import NetworkInfo
from ..server import Profile, Server, server_of
from .transport import AsyncContent, Fields

T = TypeVar("T")

#: How often following events is tried again while nobody answers, and the longest pause between, in seconds.
FOLLOW_ATTEMPTS = 12
FOLLOW_PAUSE = 5.0


class AsyncMotu(AsyncVerbs):
    """A motu on this host.

    The daemon is started by the first call that needs it, as the command line does. An environment that is
    known and not installed is pulled by the call that asks for it (a stream is refused instead).
    """

    async def _json(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        params: Fields | None = None,
        body: Fields | None = None,
        content: AsyncContent | None = None,
    ) -> T:
        try:
            return await super()._json(kind, method, path, params=params, body=body, content=content)
        except errors.NotFoundError as error:
            missing = error.details.get("environment")
            if method == "GET" or error.details.get("installed") is not False or not isinstance(missing, str):
                raise
            await self.pull_environment(missing)
        return await super()._json(kind, method, path, params=params, body=body, content=content)

    async def events(
        self,
        *,
        after: int | None = None,
        tail: int | None = None,
        kind: str | None = None,
        id: str | None = None,
    ) -> AsyncGenerator[types.HostEvent]:
        """What happens on this host, as it happens, until you leave: all that is kept first, then what comes.

        `after` goes on after the `sequence` of an event; `tail` begins with so many of the newest. A daemon that goes
        away and comes back costs nothing: it is asked for what follows the last event. An event of the kind
        `events.gone` says that some are not kept any more.
        """
        if after is None and tail is not None:
            # Where it begins is found first, so that a daemon that goes away before the first event loses none.
            async with await self.read_events(tail=1) as newest:
                async for line in newest:
                    after = int(line["sequence"])
            if tail > 0:
                async with await self.read_events(tail=tail, kind=kind, id=id) as found:
                    async for line in found:
                        event = wire.decode(types.HostEvent, line)
                        after = max(after or 0, event.sequence)
                        yield event
        attempts, pause = FOLLOW_ATTEMPTS, 0.05
        while True:
            try:
                async with await self.read_events(after=after, kind=kind, id=id, follow=True) as lines:
                    async for line in lines:
                        attempts, pause = FOLLOW_ATTEMPTS, 0.05
                        event = wire.decode(types.HostEvent, line)
                        after = event.sequence
                        yield event
            except (errors.TransportError, errors.UnavailableError):
                attempts -= 1
                if attempts <= 0:
                    raise
            await async_sleep(pause)
            pause = min(pause * 2, FOLLOW_PAUSE)

    def create_server(
        self,
        profile: Profile = "workspace-full",
        *,
        host_dirs: Iterable[str | os.PathLike[str]] = (),
        allow_host_compat: bool = False,
    ) -> Server:
        """An MCP server on the same state directory; a model reaches of the host what is said here."""
        return server_of(self._daemon, profile, host_dirs, allow_host_compat)

    async def create_vm(
        self,
        environment: str,
        *,
        vcpu_count: int = 1,
        mem_mib: int = 1024,
        ttl_seconds: int | None = None,
        network: bool = False,
        allow_host_compat: bool = False,
        **more: Any,
    ) -> types.Sandbox:
        """Make a machine for commands that come later; its `sandbox_id` is the `vm_id`.

        `more` are other fields of `create_sandbox`.
        """
        more.setdefault("keep", True)
        return await self.create_sandbox(
            environment,
            vcpu_count=vcpu_count,
            mem_mib=mem_mib,
            ttl_seconds=ttl_seconds,
            network=network,
            allow_host_compat=allow_host_compat,
            **more,
        )

    async def delete_workspace(self, workspace_id: str) -> types.Workspace:
        """Delete a workspace and all that is in it."""
        return with_beside(await super().delete_workspace(workspace_id), deleted=True)

    async def delete_snapshot(self, workspace_id: str, snapshot_name: str) -> types.Snapshot:
        """Delete a snapshot."""
        return with_beside(await super().delete_snapshot(workspace_id, snapshot_name), deleted=True)

    async def reset_workspace(self, workspace_id: str, *, snapshot: str = "baseline") -> types.Workspace:
        """Throw the root away and restore /workspace."""
        reset = await super().reset_workspace(workspace_id, snapshot=snapshot)
        return with_beside(reset, workspace_reset={"snapshot_name": snapshot})

    async def close_shell(self, workspace_id: str, shell_id: str) -> types.Shell:
        """End a shell, and what runs in it."""
        return with_beside(await super().close_shell(workspace_id, shell_id), closed=True)

    async def start_vm(self, vm_id: str) -> types.Sandbox:
        """Start a machine that was stopped."""
        return await self.start_sandbox(vm_id)

    async def exec_vm(
        self, vm_id: str, *, command: str | Sequence[str], timeout_seconds: int = 30, **more: Any
    ) -> types.ExecResult:
        """Run one command and delete the machine, whatever became of it. `more` are other fields of `exec`."""
        try:
            return await self.exec(vm_id, command, timeout_seconds=timeout_seconds, **more)
        finally:
            await self.delete_vm(vm_id)

    async def stop_vm(self, vm_id: str) -> types.Sandbox:
        """Stop a machine and keep its disk."""
        return await self.stop_sandbox(vm_id)

    async def delete_vm(self, vm_id: str) -> types.Sandbox:
        """Delete a machine and all that is in it."""
        return await self.destroy_sandbox(vm_id)

    async def status_vm(self, vm_id: str) -> types.Sandbox:
        """What is known of a machine."""
        return await self.get_sandbox(vm_id)

    async def network_info_vm(self, vm_id: str) -> NetworkInfo:
        """What a machine may reach, and what listens in it."""
        sandbox = await self.get_sandbox(vm_id)
        ports = await self.list_ports(vm_id)
        return NetworkInfo(vm_id, sandbox.network, sandbox.network != "off", ports.ports)

    async def run_in_vm(
        self,
        environment: str,
        command: str | Sequence[str],
        *,
        vcpu_count: int = 1,
        mem_mib: int = 1024,
        timeout_seconds: int = 30,
        ttl_seconds: int | None = None,
        network: bool = False,
        allow_host_compat: bool = False,
        env: Mapping[str, str] | None = None,
        max_output_bytes: int | None = None,
        **more: Any,
    ) -> types.ExecResult:
        """Make a machine, run one command, throw the machine away. `more` are other fields of `create_sandbox`."""
        sandbox: dict[str, Any] = {
            "environment": environment,
            "vcpu_count": vcpu_count,
            "mem_mib": mem_mib,
            "ttl_seconds": ttl_seconds,
            "network": network,
            "allow_host_compat": allow_host_compat,
            **more,
        }
        if "secret_refs" in sandbox:
            sandbox["secret_refs"] = wire.secret_refs(sandbox["secret_refs"])
        limits = {"env": env, "timeout_seconds": timeout_seconds, "max_output_bytes": max_output_bytes}
        return await self.run(wire.given(sandbox), wire.request(limits, wire.command(command)))
