//! The workspace `ws-a`, and what is in it.

use super::{MOMENT, exited, made, sandbox};
use motu_core::collect::Collector;
use motu_core::exec::{ExecEvent, ExecResult};
use motu_core::workspace::*;
use motu_core::{Result, SandboxId};
use serde_json::json;

pub fn workspace() -> Workspace {
    made(json!({
        "workspace_id": "ws-a", "name": "a name", "labels": {"team": "red"}, "state": "running",
        "environment": "debian:12", "digest": "sha256:00",
        "runtime": "stub", "isolation": "none", "accelerator": "tcg", "host_compat": false,
        "network_policy": "egress+published-ports", "vcpu_count": 1, "mem_mib": 1024,
        "created_at": MOMENT, "last_activity_at": MOMENT, "workspace_path": WORKSPACE,
        "workspace_seed": {
            "mode": "empty", "destination": WORKSPACE, "entry_count": 0, "bytes_written": 0,
        },
        "secrets": [{"name": "KEY", "source_kind": "literal"}],
        "reset_count": 1, "last_reset_at": MOMENT, "command_count": 2, "service_count": 3,
        "running_service_count": 1, "shell_count": 1, "snapshot_count": 4,
        "checkpoint": true, "checkpoint_count": 5,
    }))
}

/// A command that said `out` and failed.
pub fn result(id: &SandboxId) -> Result<ExecResult> {
    let mut collector = Collector::new(None)?;
    collector.add(ExecEvent::Sandbox(Box::new(sandbox(id))));
    collector.add(ExecEvent::Stdout("out".into()));
    collector.add(exited(3));
    collector.finish()
}

pub fn path_list(ask: &ListPaths) -> PathList {
    let link = json!({
        "path": format!("{}/link", ask.path), "type": "symlink", "size_bytes": 3, "mode": "0777",
        "modified_at": MOMENT, "link_target": "\u{e4}\n",
    });
    made(json!({
        "workspace_id": "ws-a", "path": ask.path, "recursive": ask.recursive, "entries": [link],
        "truncated": true,
    }))
}

pub fn file_text(ask: &ReadText) -> FileText {
    made(json!({
        "workspace_id": "ws-a", "path": ask.path, "size_bytes": 12,
        "max_bytes": ask.max_bytes.unwrap_or(65_536), "content": "line\n\u{1f30a}\u{0}",
        "truncated": false,
    }))
}

pub fn patch_report() -> PatchReport {
    let renamed = json!({"path": "/workspace/b", "status": "renamed", "from": "/workspace/a"});
    made(json!({
        "workspace_id": "ws-a", "changed": true, "added": 1, "modified": 2, "deleted": 3,
        "renamed": 4, "entries": [renamed],
    }))
}

pub fn diff_report(from: &str, to: &str) -> DiffReport {
    let changed = json!({
        "path": "/workspace/a", "status": "mode_changed", "type": "file", "size_after": 5,
        "mode_before": "0644", "mode_after": "0755", "binary": true, "omitted": false,
    });
    made(json!({
        "workspace_id": "ws-a", "from": from, "to": to, "changed": true, "added": 0,
        "modified": 0, "deleted": 0, "type_changed": 0, "mode_changed": 1, "entries": [changed],
        "patch": "--- a\n+++ b\n", "truncated": false,
    }))
}

pub fn snapshot(name: &str) -> Snapshot {
    made(json!({
        "workspace_id": "ws-a", "snapshot_name": name, "kind": "named", "created_at": MOMENT,
        "entry_count": 7, "changed_count": 1, "stored_bytes": 2, "deletable": true,
    }))
}

pub fn service_status(name: &str) -> ServiceStatus {
    made(json!({
        "workspace_id": "ws-a", "service_name": name, "state": "failed",
        "reason": "never became ready", "command": ["serve"], "cwd": WORKSPACE, "pid": 7,
        "exit_code": 1, "started_at": MOMENT, "ended_at": MOMENT,
        "readiness": {"type": "http", "port": 80, "path": "/up"},
        "restart": "on_failure", "restart_count": 2,
        "published_ports": [{"guest_port": 80, "host": "127.0.0.1", "host_port": 8080}],
    }))
}

pub fn shell(name: &str) -> Shell {
    made(json!({
        "workspace_id": "ws-a", "shell_id": name, "state": "running", "cwd": WORKSPACE,
        "size": {"cols": 120, "rows": 30}, "pid": 9, "started_at": MOMENT,
    }))
}
