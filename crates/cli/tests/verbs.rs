//! Every verb is whole: an address, an entry in the document, a permission, a command.

use motu_core::verb::{self, Info, Shape};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Verbs and the command that a person reaches them by.
const COMMANDS: &[(&str, &str)] = &[
    ("version", "version"),
    ("doctor", "doctor"),
    ("backup", "backup"),
    ("list_audit", "audit list"),
    ("get_audit", "audit show"),
    ("audit_receipt", "audit receipt"),
    ("verify_audit", "audit verify"),
    ("audit_key", "audit key"),
    ("follow_audit", "audit tail"),
    ("export_audit", "audit export"),
    ("list_environments", "env list"),
    ("inspect_environment", "env inspect"),
    ("pull_environment", "env pull"),
    ("remove_environment", "env rm"),
    ("tag_environment", "env tag"),
    ("send_build_context", "env build"),
    ("build_environment", "env build"),
    ("export_environment", "env export"),
    ("import_environment", "env import"),
    ("prune_environments", "env prune"),
    ("put_template", "template create"),
    ("list_templates", "template list"),
    ("get_template", "template show"),
    ("build_template", "template build"),
    ("remove_template", "template rm"),
    ("create_sandbox", "create"),
    ("list_sandboxes", "ps"),
    ("destroy_sandbox", "rm"),
    ("pause_sandbox", "pause"),
    ("resume_sandbox", "resume"),
    ("stop_sandbox", "stop"),
    ("start_sandbox", "start"),
    ("fork_sandbox", "fork"),
    ("plan", "create"),
    ("list_policies", "policy list"),
    ("get_policy", "policy show"),
    ("check_policy", "policy check"),
    ("explain_policy", "policy explain"),
    ("set_policy", "policy set"),
    ("read_decisions", "policy log"),
    ("set_secret", "secret set"),
    ("list_secrets", "secret list"),
    ("remove_secret", "secret rm"),
    ("call", "call"),
    ("dry_run_call", "call"),
    ("run", "run"),
    ("exec_stream", "exec"),
    ("exec_background", "exec"),
    ("attach", "attach"),
    ("list_processes", "top"),
    ("signal_process", "kill"),
    ("stat", "cp"),
    ("mkdir", "cp"),
    ("read_file", "cp"),
    ("write_file", "cp"),
    ("read_tree", "cp"),
    ("write_tree", "cp"),
    ("metrics", "top"),
    ("create_workspace", "workspace create"),
    ("list_workspaces", "workspace list"),
    ("status_workspace", "workspace status"),
    ("update_workspace", "workspace update"),
    ("stop_workspace", "workspace stop"),
    ("start_workspace", "workspace start"),
    ("reset_workspace", "workspace reset"),
    ("undo_workspace", "workspace undo"),
    ("delete_workspace", "workspace delete"),
    ("fork_workspace", "workspace fork"),
    ("exec_workspace_stream", "workspace exec"),
    ("logs_workspace", "workspace logs"),
    ("push_workspace_sync", "workspace sync push"),
    ("list_workspace_files", "workspace file list"),
    ("read_workspace_file", "workspace file read"),
    ("write_workspace_file", "workspace file write"),
    ("export_workspace", "workspace export"),
    ("apply_workspace_patch", "workspace patch apply"),
    ("edit_workspace", "workspace edit"),
    ("diff_workspace", "workspace diff"),
    ("create_snapshot", "workspace snapshot create"),
    ("list_snapshots", "workspace snapshot list"),
    ("delete_snapshot", "workspace snapshot delete"),
    ("diff_snapshots", "workspace snapshot diff"),
    ("export_workspace_disk", "workspace disk export"),
    ("list_workspace_disk", "workspace disk list"),
    ("read_workspace_disk", "workspace disk read"),
    ("start_service", "workspace service start"),
    ("list_services", "workspace service list"),
    ("status_service", "workspace service status"),
    ("logs_service", "workspace service logs"),
    ("follow_service", "workspace service logs"),
    ("stop_service", "workspace service stop"),
    ("open_shell", "workspace shell open"),
    ("list_shells", "workspace shell list"),
    ("read_shell", "workspace shell read"),
    ("write_shell", "workspace shell write"),
    ("signal_shell", "workspace shell signal"),
    ("resize_shell", "workspace shell resize"),
    ("attach_shell", "workspace attach"),
    ("close_shell", "workspace shell close"),
    ("open_terminal", "terminal open"),
    ("list_terminals", "terminal list"),
    ("get_terminal", "terminal status"),
    ("configure_terminal", "terminal configure"),
    ("terminate_terminal", "terminal terminate"),
    ("run_in_terminal", "terminal run"),
    ("send_to_terminal", "terminal send"),
    ("send_terminal_password", "terminal password"),
    ("signal_terminal", "terminal signal"),
    ("poll_terminal", "terminal poll"),
    ("expect_in_terminal", "terminal expect"),
    ("expect_terminal_prompt", "terminal expect"),
    ("terminal_screen", "terminal screen"),
    ("terminal_scrollback", "terminal scrollback"),
    ("clear_terminal_scrollback", "terminal scrollback"),
    ("terminal_transcript", "terminal transcript"),
    ("terminal_recording", "terminal record"),
    ("attach_terminal", "terminal attach"),
];

/// Verbs that no command needs, and why.
const WITHOUT: &[(&str, &str)] = &[
    ("get_sandbox", "`ps --json` says the same of every sandbox"),
    (
        "keepalive",
        "for programs: a person's command keeps a sandbox alive by using it",
    ),
    ("reap_expired", "the daemon does it by itself"),
    (
        "exec",
        "`exec` follows its command live and collects by itself",
    ),
    (
        "exec_workspace",
        "`workspace exec` follows its command live",
    ),
    ("list_files", "`exec ID -- ls` says it better to a person"),
    ("remove_file", "`exec ID -- rm`"),
    ("move_file", "`exec ID -- mv`"),
    ("chmod", "`exec ID -- chmod`"),
    ("glob", "`exec ID -- find`"),
    ("hash", "`exec ID -- sha256sum`"),
    ("watch", "for programs"),
    ("list_ports", "`exec ID -- ss -tln`"),
    ("dial", "for programs"),
    ("dial_unix", "for programs"),
];

#[test]
fn every_verb_has_a_command_or_a_reason() {
    let page = motu_cli::docs::cli();
    let commands: HashSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## motu "))
        .collect();
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (verb, command) in COMMANDS {
        assert!(
            commands.contains(command),
            "{verb}: there is no `motu {command}`"
        );
        assert!(
            known.insert(verb, command).is_none(),
            "{verb} stands here twice"
        );
    }
    for (verb, reason) in WITHOUT {
        assert!(
            known.insert(verb, reason).is_none(),
            "{verb} stands here twice"
        );
    }
    for verb in verb::all() {
        let said = known.remove(verb.name);
        assert!(
            said.is_some(),
            "{} has neither a command nor a reason",
            verb.name
        );
    }
    assert!(known.is_empty(), "these are no verbs: {known:?}");
}

/// Where the document describes a verb.
fn entry<'a>(document: &'a Value, verb: &Info) -> &'a Value {
    match verb.shape {
        Shape::Open => &document["paths"][format!("{}/ws", verb.path)]["get"],
        _ => {
            let method = verb.method.as_str().to_ascii_lowercase();
            &document["paths"][verb.path][method]
        }
    }
}

#[test]
fn every_verb_has_an_address_an_entry_and_a_permission() {
    let document = motu_server::openapi();
    let mut permissions = HashSet::new();
    for verb in verb::all() {
        let entry = entry(&document, verb);
        assert!(entry.is_object(), "{} is not in the document", verb.name);
        let summary = verb.about.lines().next().unwrap_or_default().trim();
        if verb.shape != Shape::Open {
            assert_eq!(entry["summary"], summary, "{}", verb.name);
            assert_eq!(entry["operationId"], verb.name);
        }
        assert!(permissions.insert(verb.permission()), "{}", verb.name);
    }
}
