"""What the document does not say: names, order and defaults of arguments."""

from __future__ import annotations

import re
from typing import Any

#: What a path parameter is called, by the path it ends.
PATH_NAMES = {
    "/v1/audit/entries/{audit}": "audit_id",
    "/v1/environments/{name}": "environment",
    "/v1/keys/{key}": "key_id",
    "/v1/policies/{name}": "policy",
    "/v1/sandboxes/{id}": "sandbox_id",
    "/v1/secrets/{name}": "secret_name",
    "/v1/templates/{name}": "template",
    "/v1/terminals/{terminal}": "session_id",
    "/v1/workspaces/{id}": "workspace_id",
    "/v1/workspaces/{id}/services/{name}": "service_name",
    "/v1/workspaces/{id}/shells/{shell}": "shell_id",
    "/v1/workspaces/{id}/snapshots/{name}": "snapshot_name",
}
#: Fields that may be given without their name, after those of the path.
POSITIONAL = {
    "backup": ["output_path"],
    "check_policy": ["text"],
    "chmod": ["path", "mode"],
    "create_sandbox": ["environment"],
    "create_snapshot": ["snapshot_name"],
    "create_workspace": ["environment"],
    "dial_unix": ["path"],
    "edit_workspace": ["edits"],
    "exec": ["command"],
    "exec_background": ["command"],
    "exec_stream": ["command"],
    "expect_in_terminal": ["patterns"],
    "explain_policy": ["host", "port"],
    "export_workspace": ["path"],
    "glob": ["pattern"],
    "hash": ["path"],
    "list_files": ["path"],
    "list_workspace_disk": ["path", "recursive"],
    "list_workspace_files": ["path", "recursive"],
    "mkdir": ["path"],
    "move_file": ["from", "to"],
    "open_terminal": ["session_id"],
    "plan": ["environment"],
    "push_workspace_sync": ["source_path"],
    "put_template": ["environment"],
    "read_file": ["path"],
    "read_tree": ["path"],
    "read_workspace_disk": ["path"],
    "read_workspace_file": ["path"],
    "remove_file": ["path"],
    "resize_process": ["cols", "rows"],
    "resize_shell": ["cols", "rows"],
    "run": ["sandbox", "exec"],
    "run_in_terminal": ["command"],
    "run_stream": ["sandbox", "exec"],
    "send_terminal_password": ["password"],
    "send_to_terminal": ["text"],
    "set_policy": ["policy"],
    "signal_process": ["signal"],
    "signal_terminal": ["signal"],
    "start_service": ["service_name"],
    "stat": ["path"],
    "tag_environment": ["name"],
    "watch": ["path"],
    "write_file": ["path"],
    "write_tree": ["path"],
    "write_workspace_file": ["path"],
}
#: Fields with a default in the document that nobody means.
NEEDED = {
    "call": ["command", "state"],
    "check_policy": ["text"],
    "chmod": ["path"],
    "dial_unix": ["path"],
    "exec": ["command"],
    "exec_background": ["command"],
    "exec_stream": ["command"],
    "exec_workspace": ["command"],
    "exec_workspace_stream": ["command"],
    "expect_in_terminal": ["patterns"],
    "explain_policy": ["host"],
    "glob": ["pattern"],
    "hash": ["path"],
    "list_files": ["path"],
    "mkdir": ["path"],
    "move_file": ["from", "to"],
    "open_terminal": ["session_id"],
    "push_workspace_sync": ["source_path"],
    "put_template": ["environment"],
    "read_file": ["path"],
    "read_tree": ["path"],
    "remove_file": ["path"],
    "run": ["sandbox", "exec"],
    "run_in_terminal": ["command"],
    "run_stream": ["sandbox", "exec"],
    "send_terminal_password": ["password"],
    "set_policy": ["policy"],
    "signal_terminal": ["signal"],
    "start_service": ["service_name", "command"],
    "stat": ["path"],
    "watch": ["path"],
    "write_file": ["path"],
    "write_shell": ["input"],
    "write_tree": ["path"],
}
#: Defaults that the contract states and the document leaves to the daemon.
DEFAULTS: dict[str, dict[str, Any]] = {
    "create_sandbox": {"vcpu_count": 1, "mem_mib": 1024},
    "create_workspace": {"vcpu_count": 1, "mem_mib": 1024},
    "exec": {"timeout_seconds": 30},
    "exec_workspace": {"timeout_seconds": 30},
    "list_workspace_disk": {"path": "/workspace"},
    "list_workspace_files": {"path": "/workspace"},
    "logs_service": {"tail_lines": 200},
    "open_shell": {"cwd": "/workspace", "cols": 120, "rows": 30},
    "plan": {"vcpu_count": 1, "mem_mib": 1024},
    "push_workspace_sync": {"dest": "/workspace"},
    "read_shell": {"cursor": 0, "max_chars": 65536, "plain": False},
    "read_workspace_disk": {"max_bytes": 65536},
    "read_workspace_file": {"max_bytes": 65536},
    "start_service": {"cwd": "/workspace", "ready_timeout_seconds": 30, "ready_interval_ms": 500},
    "write_shell": {"append_newline": True},
}
#: Defaults that give way to a template.
OF_TEMPLATES = {"vcpu_count", "mem_mib"}
#: Other names for fields, from the contract.
RENAMED = {("signal_shell", "signal"): "signal_name"}
#: Fields that mean nothing in a call whose answer comes at once, or that have a method of their own.
DROPPED = {
    "exec": {"background", "stdin", "tty", "no_timeout", "output_ring_bytes"},
    "exec_stream": {"background"},
    "exec_workspace": {"stdin"},
}
#: Paths of the host: absolute before they are sent, because the daemon works elsewhere.
HOST_PATHS = {"seed_path", "source_path", "output_path"}
HOST_PATHS_OF = {("set_secret", "path")}
#: Fields that have a shorter form: the type of the argument. `_wire` has a function of the same name.
SHORT = {
    "secret_env": "Mapping[str, str | None] | Sequence[str | types.SecretEnv | Mapping[str, Any]]",
    "secrets": "Mapping[str, str] | Sequence[types.SecretSource | Mapping[str, Any]]",
    "published_ports": "Sequence[int | str | types.Publish | Mapping[str, Any]]",
}
SHORT_IN = {
    "secret_env": {"exec_workspace", "exec_workspace_stream", "open_shell", "start_service"},
    "secrets": {"create_workspace"},
    "published_ports": {"start_service"},
}
#: The wire of live streams: `_frames.py` reads it.
UNTYPED = {"Event", "Control", "ErrorBody", "EnvironmentLine", "TemplateLine", "WatchLine"}
#: What members of a union are made of: a union's members have classes of their own.
UNTYPED |= {"NextVerb", "NextField"}
#: Fields that must not show in a `repr`.
HIDDEN = re.compile(r"(.*Secret.*\.value|.*[Pp]assword\.password)$")
