//! The MCP server with the official clients, over standard input and output.
//!
//! `tools/setup test` installs them in `target/clients`.

use motu_needs::skip;
use motu_testkit::story::Story;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The inspector needs a newer Node.js than the host may have.
const NODE: &str = "nodejs/node_modules/.bin/node";

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients")
}

/// A file of these tests.
fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/stories/mcp_clients")
        .join(name)
}

/// A program of the clients, if they are installed.
fn client(name: &str) -> Option<PathBuf> {
    let program = clients().join(name);
    if !program.exists() {
        skip("the MCP clients are not installed; run tools/setup test");
        return None;
    }
    Some(program)
}

/// The tools of each profile, as in the contract.
fn expected() -> String {
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(String::from).collect() };
    let core = "vm_run workspace_create workspace_list workspace_update workspace_status \
        workspace_sync_push workspace_exec workspace_logs workspace_file_list workspace_file_read \
        workspace_file_write workspace_patch_apply workspace_diff workspace_export workspace_reset \
        workspace_delete";
    let full = "vm_run vm_list_environments vm_create vm_start vm_exec vm_stop vm_delete vm_status \
        vm_network_info vm_reap_expired workspace_create workspace_list workspace_sync_push \
        workspace_stop workspace_start workspace_exec workspace_file_list workspace_file_read \
        workspace_file_write workspace_export workspace_patch_apply workspace_disk_export \
        workspace_disk_list workspace_disk_read workspace_diff snapshot_create snapshot_list \
        snapshot_delete workspace_reset service_start service_list service_status service_logs \
        service_stop shell_open shell_read shell_write shell_signal shell_close workspace_status \
        workspace_update workspace_undo workspace_logs workspace_delete";
    let terminal = "run send_input send_control send_password send_signal poll_output expect \
        expect_prompt get_screen get_scrollback clear_scrollback get_metadata configure_session \
        list_sessions transcript terminate create_session send_keys resize";
    serde_json::json!({
        "vm-run": ["vm_run"],
        "workspace-core": words(core),
        "workspace-full": words(full),
        "terminal": words(terminal),
        "agent-tool": ["call"],
        "all": words(&format!("{full} call {terminal}")),
    })
    .to_string()
}

/// Runs a client in a story's environment and returns its output; it must succeed.
fn run(story: &Story, program: &Path, arguments: &[&str]) -> String {
    let ours = story.command(&[]);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .current_dir(story.path());
    for (name, value) in ours.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}\n{}{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script with both generations of the Python client.
fn python(story: &Story, name: &str, arguments: &dyn Fn(&str) -> Vec<String>) {
    for generation in ["python-old", "python-new"] {
        let Some(python) = client(&format!("{generation}/bin/python")) else {
            return;
        };
        let script = here("stories.py");
        let mut all = vec![
            script.to_str().unwrap().to_string(),
            motu_testkit::program().to_string(),
            name.to_string(),
        ];
        all.extend(arguments(generation));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        run(story, &python, &all);
    }
}

/// A script that needs machines and nothing else.
fn with_machines(name: &str) {
    if let Some(story) = Story::with_machines() {
        python(&story, name, &|_| Vec::new());
    }
}

#[test]
fn each_profile_lists_exactly_its_tools_and_starts_no_daemon() {
    let story = Story::new();
    python(&story, "profiles", &|_| vec![expected()]);
}

#[test]
fn one_command_in_a_machine_of_its_own() {
    with_machines("vm");
}

#[test]
fn machines_the_long_way_round() {
    with_machines("machines");
}

#[test]
fn a_workspace_from_its_seed_to_its_end() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let root = story.path().to_str().unwrap().to_string();
    python(&story, "workspace", &|generation| {
        vec![format!("{root}/{generation}")]
    });
}

#[test]
fn services_shells_and_secrets() {
    with_machines("services");
}

#[test]
fn a_person_is_asked() {
    with_machines("approvals");
}

#[test]
fn giving_up_ends_the_command() {
    with_machines("leaving");
}

#[test]
fn clients_come_over_http() {
    with_machines("http");
}

/// A server that has answered, and how long that took.
fn started(story: &Story) -> (std::process::Child, std::time::Duration) {
    let mut command = story.command(&["mcp", "serve", "--profile", "workspace-core"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let begin = std::time::Instant::now();
    let mut server = command.spawn().unwrap();
    let hello = serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    });
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut input = server.stdin.as_ref().unwrap();
    input
        .write_all(format!("{hello}\n{ready}\n{list}\n").as_bytes())
        .unwrap();
    let mut lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
    let listed = lines.find(|line| line.as_ref().unwrap().contains("workspace_create"));
    assert!(listed.is_some());
    (server, begin.elapsed())
}

#[test]
fn a_server_is_there_at_once() {
    let story = Story::new();
    let mut times = Vec::new();
    let mut resident = 0;
    for _ in 0..9 {
        let (mut server, took) = started(&story);
        times.push(took);
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        // Private memory only: the pages of the program file are shared, and many in a debug build.
        let line = status
            .lines()
            .find(|line| line.starts_with("RssAnon"))
            .unwrap();
        resident = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success());
    }
    times.sort();
    println!(
        "start to tools/list: {:?} in the middle, {:?} at most; {resident} kB of its own",
        times[4], times[8]
    );
    assert!(times[4].as_millis() <= 200, "{times:?}");
    assert!(resident < 20_000_u64, "{resident} kB");
    assert!(!story.home().exists(), "it started a daemon");
}

#[test]
fn both_generations_of_the_typescript_sdk() {
    let (Some(node), Some(story)) = (client(NODE), Story::with_machines()) else {
        return;
    };
    let modules = clients().join("sdk").canonicalize().unwrap();
    let script = here("sdk.mjs");
    for generation in ["sdk-old", "sdk-new"] {
        let arguments = [
            script.to_str().unwrap(),
            generation,
            modules.to_str().unwrap(),
            motu_testkit::program(),
            &expected(),
        ];
        run(&story, &node, &arguments);
    }
}

/// Whether the host's Go can build a program of today: since 1.21 it gets the version that a module
/// asks for.
fn has_go() -> bool {
    let asked = motu_needs::command("go").arg("version").output();
    let said = asked.map_or(String::new(), |asked| {
        String::from_utf8_lossy(&asked.stdout).into_owned()
    });
    let minor = said.split_once("go1.").map(|(_, rest)| rest);
    let minor = minor.and_then(|rest| rest.split(['.', ' ']).next()?.parse::<u32>().ok());
    let fits = minor.is_some_and(|minor| minor >= 21);
    if !fits {
        skip("the Go SDK of MCP needs Go 1.21 or newer");
    }
    fits
}

#[test]
fn the_go_sdk() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    if !has_go() {
        return;
    }
    let program = story.path().join("client");
    let built = motu_needs::command("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(here("go"))
        .env("GOTOOLCHAIN", "auto")
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    run(&story, &program, &[motu_testkit::program(), &expected()]);
}

#[test]
fn the_inspector_lists_and_calls() {
    let (Some(node), Some(story)) = (client(NODE), Story::with_machines()) else {
        return;
    };
    let inspector = clients()
        .join("inspector/node_modules/.bin/mcp-inspector")
        .canonicalize()
        .unwrap();
    let motu = motu_testkit::program();
    // The inspector passes only the listed variables to the server.
    let home = format!("MOTU_HOME={}", story.home().display());
    let serve = [
        inspector.to_str().unwrap(),
        "--cli",
        "-e",
        &home,
        motu,
        "mcp",
        "serve",
        "--profile",
        "vm-run",
    ];
    run(
        &story,
        &node,
        &[&serve[..], &["--method", "tools/list"]].concat(),
    );
    let call = [
        "--method",
        "tools/call",
        "--tool-name",
        "vm_run",
        "--tool-arg",
        "command=echo hi",
        "--tool-arg",
        "environment=busybox",
    ];
    let called = run(&story, &node, &[&serve[..], &call].concat());
    // The story's own daemon ran it.
    assert!(called.contains("\"isolation\": \"container\""), "{called}");
}

/// A story with the environments that all tests share, because sessions start from debian:12.
fn with_debian() -> Option<Story> {
    Story::with_debian("container")
}

/// A script about sessions, with both generations of the Python client.
fn with_sessions(name: &str) {
    // A terminated session is never reused, so each generation has its own state directory.
    for generation in ["python-old", "python-new"] {
        if let (Some(python), Some(story)) =
            (client(&format!("{generation}/bin/python")), with_debian())
        {
            let script = here("stories.py");
            let script = script.to_str().unwrap();
            let arguments = [script, motu_testkit::program(), name];
            run(&story, &python, &arguments);
        }
    }
}

#[test]
fn terminals_are_driven() {
    with_sessions("terminal");
}

#[test]
fn what_a_session_prints_is_followed() {
    with_sessions("live");
}

#[test]
fn sessions_on_the_host_need_the_owners_word() {
    for allowed in ["no", "yes"] {
        let story = Story::new();
        if allowed == "yes" {
            story.configure("[terminal]\nhost = true\n");
        }
        let Some(python) = client("python-new/bin/python") else {
            return;
        };
        let script = here("stories.py");
        let script = script.to_str().unwrap();
        run(
            &story,
            &python,
            &[script, motu_testkit::program(), "host", allowed],
        );
    }
}
