//! How far verbs reach for callers who see one project only.
//!
//! Every verb stands here once; a test sees to that. One that does not is refused to them.

use motu_core::verb::Info;
use motu_core::{Error, ErrorKind, Result};

/// What a verb is about, for a caller who sees one project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What it names, makes or lists is the project's.
    Project,
    /// The same for everybody: it shows what is nobody's, or keeps nothing.
    Everyone,
    /// The whole host: not for callers with a key.
    Host,
}

/// What verbs of a key name, make or list.
const PROJECT: &[&str] = &[
    // Their own calls.
    "list_audit",
    "get_audit",
    "audit_receipt",
    "read_events",
    // Their own, and those of the host.
    "list_environments",
    "inspect_environment",
    "pull_environment",
    "remove_environment",
    "tag_environment",
    "export_environment",
    "import_environment",
    "send_build_context",
    "build_environment",
    "put_template",
    "list_templates",
    "get_template",
    "build_template",
    "remove_template",
    "create_sandbox",
    "list_sandboxes",
    "get_sandbox",
    "destroy_sandbox",
    "pause_sandbox",
    "resume_sandbox",
    "stop_sandbox",
    "start_sandbox",
    "fork_sandbox",
    "commit_sandbox",
    "save_template",
    "keepalive",
    "set_policy",
    "read_decisions",
    "set_secret",
    "list_secrets",
    "remove_secret",
    "call",
    "dry_run_call",
    "run",
    "exec",
    "exec_stream",
    "exec_background",
    "attach",
    "list_processes",
    "signal_process",
    "write_process",
    "resize_process",
    "stat",
    "list_files",
    "read_file",
    "write_file",
    "mkdir",
    "remove_file",
    "move_file",
    "chmod",
    "glob",
    "hash",
    "watch",
    "read_tree",
    "write_tree",
    "list_ports",
    "dial",
    "dial_unix",
    "metrics",
    "metrics_history",
    "flush_metrics",
    "create_workspace",
    "list_workspaces",
    "status_workspace",
    "update_workspace",
    "stop_workspace",
    "start_workspace",
    "reset_workspace",
    "undo_workspace",
    "delete_workspace",
    "fork_workspace",
    "exec_workspace",
    "exec_workspace_stream",
    "logs_workspace",
    "push_workspace_sync",
    "list_workspace_files",
    "read_workspace_file",
    "write_workspace_file",
    "export_workspace",
    "apply_workspace_patch",
    "edit_workspace",
    "diff_workspace",
    "create_snapshot",
    "list_snapshots",
    "delete_snapshot",
    "diff_snapshots",
    "export_workspace_disk",
    "list_workspace_disk",
    "read_workspace_disk",
    "start_service",
    "list_services",
    "status_service",
    "logs_service",
    "follow_service",
    "stop_service",
    "open_terminal",
    "list_terminals",
    "get_terminal",
    "configure_terminal",
    "terminate_terminal",
    "run_in_terminal",
    "send_to_terminal",
    "send_terminal_password",
    "signal_terminal",
    "poll_terminal",
    "expect_in_terminal",
    "expect_terminal_prompt",
    "terminal_screen",
    "terminal_scrollback",
    "clear_terminal_scrollback",
    "terminal_transcript",
    "terminal_recording",
    "attach_terminal",
    "open_shell",
    "list_shells",
    "read_shell",
    "write_shell",
    "signal_shell",
    "resize_shell",
    "attach_shell",
    "close_shell",
];

const EVERYONE: &[&str] = &[
    "version",
    "audit_key",
    // Policies are files of the operator's.
    "list_policies",
    "get_policy",
    "check_policy",
    "explain_policy",
];

const HOST: &[&str] = &[
    "doctor",
    "backup",
    "create_key",
    "list_keys",
    "revoke_key",
    "verify_audit",
    "follow_audit",
    "export_audit",
    "prune_environments",
    "reap_expired",
    // Descriptors go over the daemon's own socket only.
    "lend_file",
    "lend_directory",
    // It prints paths of the host.
    "plan",
];

pub fn of(verb: &Info) -> Reach {
    let stands = |list: &[&str]| list.contains(&verb.name);
    match () {
        () if stands(PROJECT) => Reach::Project,
        () if stands(EVERYONE) => Reach::Everyone,
        () => {
            debug_assert!(stands(HOST), "{} stands nowhere", verb.name);
            Reach::Host
        }
    }
}

/// Refuses to take an environment of the host away.
pub fn check_own(verb: &Info, name: &str, own: bool) -> Result<()> {
    if verb.name != "remove_environment" || own {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Denied,
        format!("the environment {name} is the host's, not the project's"),
    )
    .hint("environments that the project has built or pulled can be removed")
    .details(serde_json::json!({"permission": verb.permission()})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_stands_here_once() {
        let mut rows: Vec<&str> = [PROJECT, EVERYONE, HOST].concat();
        rows.sort_unstable();
        let mut verbs: Vec<&str> = motu_core::verb::all().map(|verb| verb.name).collect();
        verbs.sort_unstable();
        assert_eq!(rows, verbs);
    }
}
