//! `motu workspace` and a recorder in the place of its daemon.

mod attach;
mod checkpoints;
mod content;
mod images;
mod people;

use crate::stubbed::World;
use insta::assert_snapshot;
use motu_core::lists::{ServiceList, ShellList, SnapshotList, WorkspaceCopies, WorkspaceList};
use motu_core::verb;
use motu_core::workspace::{BASELINE, ShellOutput, WorkspaceSummary};
use motu_testkit::answers::{self, made, workspace};
use motu_testkit::story::filters;
use serde_json::{Value, json};

macro_rules! told {
    ($told:expr, @$text:literal) => {{
        let told = $told.to_string();
        let mut filters = filters();
        filters.push((r"\d+d ago", "N days ago"));
        insta::with_settings!({filters => filters}, { assert_snapshot!(told, @$text); });
    }};
}
pub(crate) use told;

#[test]
fn creating_says_everything_that_was_asked_for() {
    let world = World::new("workspace");
    let it = &world.recorder;
    it.always::<verb::CreateWorkspace>(workspace());
    let home = world.story.path().display().to_string();
    let (verb, request) = world.sends("create debian:12 --id ws-a --seed-path project --name fix-login --label team=web --label x=a=b --network-policy egress+published-ports --secret KEY=v=w --secret-file CERT=cert.pem --vcpu-count 2 --mem-mib 256 --disk-mib 512 --ttl-seconds 60 --runtime qemu --isolation vm --accel tcg --allow-host-compat");
    assert_eq!(verb, "create_workspace");
    assert_eq!(
        request,
        json!([{
            "environment": "debian:12", "workspace_id": "ws-a",
            "seed_path": format!("{home}/project"), "name": "fix-login",
            "labels": {"team": "web", "x": "a=b"},
            "network_policy": "egress+published-ports",
            "secrets": [
                {"name": "KEY", "value": "v=w"},
                {"name": "CERT", "path": format!("{home}/cert.pem")},
            ],
            "runtime": "qemu", "isolation": "vm", "accel": "tcg", "vcpu_count": 2,
            "mem_mib": 256, "disk_mib": 512, "ttl_seconds": 60, "allow_host_compat": true,
        }])
    );
    told!(world.motu("create debian:12 --id ws-a --id-only"), @r#"
    ws-a
    ------- stderr -------
    motu: not isolated: stub runs on the host itself, with its files and its network
    "#);
    told!(world.motu("create debian:12 --id ws-a"), @r#"
    workspace     ws-a
    name          a name
    labels        team=red
    state         running
    environment   debian:12
    runtime       stub (none, tcg)
    network       egress+published-ports
    size          1 CPU, 1024 MiB
    seed          empty
    secrets       KEY
    created       2023-11-14T22:13:20Z
    active        2023-11-14T22:13:20Z
    resets        1
    commands      2
    services      3, 1 running
    shells        1
    snapshots     4
    checkpoints   5, one before each command
    ------- stderr -------
    motu: not isolated: stub runs on the host itself, with its files and its network
    "#);
    // A secret's value from standard input is sent, and never printed.
    let create = "create debian:12 --id ws-a --id-only --secret-file KEY=-";
    let told = world.fed(create, "hunter2");
    told!(told, @r#"
    ws-a
    ------- stderr -------
    motu: not isolated: stub runs on the host itself, with its files and its network
    "#);
    let secrets = json!([{"name": "KEY", "value": "hunter2"}]);
    assert_eq!(world.called().1[0]["secrets"], secrets);
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let world = World::new("workspace");
    told!(world.motu("create x --secret hunter2"), @r#"
    ------- stderr -------
    error: --secret takes NAME=VALUE
    [exit code: 102]
    "#);
    told!(world.motu("create x --label a"), @r#"
    ------- stderr -------
    error: --label takes KEY=VALUE
    [exit code: 102]
    "#);
    told!(world.motu("create x --network-policy all"), @r#"
    ------- stderr -------
    error: invalid value 'all' for '--network-policy <POLICY>': there is no network policy "all" (one of: off, egress, egress+published-ports)

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu("create x --id-only --json"), @r#"
    {
      "error": {
        "kind": "invalid",
        "message": "the argument '--id-only' cannot be used with '--json'"
      }
    }
    [exit code: 102]
    "#);
    told!(world.motu("update ws-a"), @r#"
    ------- stderr -------
    error: nothing is to be changed
    hint: give --name, --clear-name, --label or --clear-label
    [exit code: 102]
    "#);
    told!(world.motu("edit ws-a /workspace/f --old x"), @r#"
    ------- stderr -------
    error: an edit needs --old and --new
    [exit code: 102]
    "#);
    told!(world.motu("file write ws-a f --text-file missing"), @r#"
    ------- stderr -------
    error: read missing: no such file
    [exit code: 104]
    "#);
    told!(world.motu("exec ws-a"), @r#"
    ------- stderr -------
    error: the following required arguments were not provided:
      <COMMAND>...

    Usage: motu workspace exec --home <DIR> <ID> -- <COMMAND>...

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu("attach ws-a"), @r#"
    ------- stderr -------
    error: attach needs a terminal
    hint: programs use `motu workspace shell`
    [exit code: 102]
    "#);
    told!(world.motu("attach ws-a --detach-keys ctrl-"), @r#"
    ------- stderr -------
    error: invalid value 'ctrl-' for '--detach-keys <KEYS>': "ctrl-" are not keys to leave by (up to 8, separated by commas: ctrl-a to ctrl-z, ctrl-], or characters)

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu("service start ws-a web --publish x -- true"), @r#"
    ------- stderr -------
    error: invalid value 'x' for '--publish <[HOST:]GUEST>': "x" is not a port to publish (write GUEST_PORT or HOST_PORT:GUEST_PORT; guest ports are 1 to 65535, host ports 1024 to 65535)

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu("service start ws-a web --ready-tcp 1 --ready-file /x -- true"), @r#"
    ------- stderr -------
    error: the argument '--ready-tcp <PORT>' cannot be used with '--ready-file <PATH>'

    Usage: motu workspace service start --ready-tcp <PORT> --home <DIR> <ID> <SERVICE> -- <COMMAND>...

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu("service logs ws-a web --follow --json"), @r#"
    {
      "error": {
        "kind": "invalid",
        "message": "the argument '--follow' cannot be used with '--json'"
      }
    }
    [exit code: 102]
    "#);
    assert_eq!(world.recorder.written(), []);
}

#[test]
fn the_life_of_a_workspace() {
    let world = World::new("workspace");
    let it = &world.recorder;
    let one = WorkspaceSummary::from(&workspace());
    it.always::<verb::ListWorkspaces>(WorkspaceList::new(vec![one]));
    it.always::<verb::StatusWorkspace>(workspace());
    it.always::<verb::UpdateWorkspace>(workspace());
    it.always::<verb::StopWorkspace>(workspace());
    it.always::<verb::StartWorkspace>(workspace());
    it.always::<verb::ResetWorkspace>(workspace());
    it.on(|call: verb::ForkWorkspace| {
        let count = call.ask.count.unwrap_or(1) as usize;
        Ok(WorkspaceCopies::new(vec![workspace(); count]))
    });
    it.always::<verb::DeleteWorkspace>(workspace());
    told!(world.motu("list"), @r#"
    ID    NAME    STATE    ENVIRONMENT  RUNTIME      COMMANDS  SERVICES  ACTIVE     LABELS
    ws-a  a name  running  debian:12    stub (none)  2         1/3       N days ago  team=red
    "#);
    let listed: Value = serde_json::from_str(&world.motu("list --json").stdout).unwrap();
    assert_eq!(listed["count"], 1, "{listed}");
    assert_eq!(listed["workspaces"][0]["workspace_id"], "ws-a", "{listed}");
    assert_eq!(
        listed["workspaces"][0]["expires_at"],
        Value::Null,
        "{listed}"
    );
    assert_eq!(world.sends("status ws-a").0, "status_workspace");
    let update = "update ws-a --clear-name --label a=b --clear-label c";
    let changes = json!(["ws-a", {
        "clear_name": true, "labels": {"a": "b"}, "clear_labels": ["c"],
    }]);
    assert_eq!(world.sends(update), ("update_workspace", changes));
    told!(world.motu("stop ws-a"), @"ws-a is running");
    told!(world.motu("start ws-a"), @"ws-a is running");
    told!(world.motu("reset ws-a"), @"ws-a is running, reset to baseline");
    assert_eq!(
        world.sends("reset ws-a --snapshot s"),
        ("reset_workspace", json!(["ws-a", {"snapshot": "s"}]))
    );
    told!(world.motu("fork ws-a -n 2 --name try"), @r#"
    ws-a
    ws-a
    "#);
    told!(world.motu("delete ws-a"), @"ws-a");
}

#[test]
fn commands_pass_output_and_exit_codes_on() {
    let world = World::new("workspace");
    let it = &world.recorder;
    it.on(|call: verb::ExecWorkspace| answers::result(&call.id));
    let log = json!({"workspace_id": "ws-a", "count": 0, "entries": []});
    it.always::<verb::LogsWorkspace>(made(log));
    told!(world.motu("exec ws-a -- both"), @r#"
    out------- stderr -------
    err�[exit code: 3]
    "#);
    let exec = "exec ws-a --timeout-seconds 7 --secret-env KEY=TOKEN --env A=b --cwd / -- echo hi";
    let request = json!(["ws-a", {
        "command": ["echo", "hi"], "mode": "argv", "workdir": "/", "env": {"A": "b"},
        "secret_env": [{"secret": "KEY", "variable": "TOKEN"}], "timeout_seconds": 7,
        "stdin": false,
    }]);
    assert_eq!(world.sends(exec), ("exec_workspace_stream", request));
    told!(world.fed("exec -i ws-a -- cat", "from here\n"), @"from here");
    told!(world.motu("exec --json ws-a -- true"), @r#"
    {
      "sandbox_id": "ws-a",
      "environment": "debian:12",
      "exit_code": 3,
      "stdout": "out",
      "stderr": "",
      "truncated": false,
      "stdout_bytes": 0,
      "stderr_bytes": 0,
      "timed_out": false,
      "out_of_memory": false,
      "duration_ms": "N",
      "runtime": "stub",
      "isolation": "none",
      "network": "off"
    }
    [exit code: 3]
    "#);
    told!(world.motu("logs ws-a"), @"no commands yet");
}

#[test]
fn snapshots_and_the_disk() {
    let world = World::new("workspace");
    let it = &world.recorder;
    it.on(|call: verb::CreateSnapshot| Ok(answers::snapshot(&call.ask.snapshot_name)));
    it.on(|call: verb::ListSnapshots| {
        let all = [BASELINE, "before"].map(answers::snapshot);
        Ok(SnapshotList::new(call.id, all.to_vec()))
    });
    it.on(|call: verb::DeleteSnapshot| Ok(answers::snapshot(&call.name)));
    it.on(|call: verb::DiffSnapshots| Ok(answers::diff_report(&call.name, &call.ask.to)));
    it.on(|call: verb::ExportWorkspaceDisk| {
        Ok(made(json!({
            "workspace_id": call.id, "output_path": call.ask.output_path,
            "disk_format": "ext4", "bytes_written": 1_u64 << 40,
        })))
    });
    it.on(|call: verb::ListWorkspaceDisk| Ok(answers::path_list(&call.ask)));
    it.on(|call: verb::ReadWorkspaceDisk| Ok(answers::file_text(&call.ask)));
    let home = world.story.path().display().to_string();
    told!(world.motu("snapshot create ws-a before"), @"before");
    told!(world.motu("snapshot list ws-a"), @r#"
    NAME      KIND   CREATED    ENTRIES  CHANGES  SIZE
    baseline  named  N days ago  7        1        2 B
    before    named  N days ago  7        1        2 B
    "#);
    told!(world.motu("snapshot delete ws-a before"), @"before");
    assert_eq!(
        world.sends("snapshot diff ws-a baseline s --max-bytes 9"),
        (
            "diff_snapshots",
            json!(["ws-a", "baseline", {"to": "s", "max_bytes": 9}])
        )
    );
    assert_eq!(
        world.sends("disk export ws-a --output d.ext4 --force --max-bytes 9"),
        (
            "export_workspace_disk",
            json!(["ws-a", {"output_path": format!("{home}/d.ext4"), "force": true, "max_bytes": 9}])
        )
    );
    assert_eq!(
        world.sends("disk list ws-a /etc --recursive"),
        (
            "list_workspace_disk",
            json!(["ws-a", {"path": "/etc", "recursive": true}])
        )
    );
    assert_eq!(
        world.sends("disk read ws-a /etc/hosts --max-bytes 9"),
        (
            "read_workspace_disk",
            json!(["ws-a", {"path": "/etc/hosts", "max_bytes": 9}])
        )
    );
}

#[test]
fn services_have_names() {
    let world = World::new("workspace");
    let it = &world.recorder;
    let web = answers::service_status("web");
    it.always::<verb::StartService>(web.clone());
    it.always::<verb::StatusService>(web.clone());
    it.always::<verb::StopService>(web.clone());
    it.on(move |call: verb::ListServices| Ok(ServiceList::new(call.id, vec![web.clone()])));
    let logs = json!({
        "workspace_id": "ws-a", "service_name": "web", "stdout": "out\n", "stderr": "err\n",
        "truncated": true,
    });
    it.always::<verb::LogsService>(made(logs));
    // This service never becomes ready.
    told!(world.motu("service start ws-a web -- serve"), @r#"
    service       web
    state         failed
    reason        never became ready
    command       serve
    directory     /workspace
    pid           7
    exit code     1
    ports         127.0.0.1:8080 -> 80
    started       2023-11-14T22:13:20Z
    ended         2023-11-14T22:13:20Z
    restarts      2
    [exit code: 1]
    "#);
    let start = "service start ws-a web --ready-http 80/up --ready-timeout-seconds 9 --ready-interval-ms 50 --restart on-failure --publish 8080:80 --publish 81 --cwd / --secret-env KEY -- serve --fast";
    let _ = world.motu(start);
    let request = json!(["ws-a", {
        "service_name": "web", "command": ["serve", "--fast"], "mode": "argv", "cwd": "/",
        "env": {}, "secret_env": [{"secret": "KEY"}],
        "readiness": {"type": "http", "port": 80, "path": "/up"},
        "ready_timeout_seconds": 9, "ready_interval_ms": 50, "restart": "on_failure",
        "published_ports": [{"guest_port": 80, "host_port": 8080}, {"guest_port": 81}],
    }]);
    assert_eq!(world.called(), ("start_service", request));
    told!(world.motu("service list ws-a"), @r#"
    SERVICE  STATE   PID  EXIT  SINCE      RESTARTS  PORTS                 COMMAND
    web      failed  7    1     N days ago  2         127.0.0.1:8080 -> 80  serve
    "#);
    assert_eq!(
        world.sends("service status ws-a web"),
        ("status_service", json!(["ws-a", "web", null]))
    );
    told!(world.motu("service logs ws-a web"), @r#"
    out
    ------- stderr -------
    (older output is not shown; --all shows all that is kept)
    err
    "#);
    assert_eq!(
        world.sends("service logs ws-a web --tail-lines 5"),
        (
            "logs_service",
            json!(["ws-a", "web", {"tail_lines": 5, "all": false}])
        )
    );
    told!(world.motu("service logs ws-a web --all --follow"), @r#"
    out
    ------- stderr -------
    (older output is no longer kept)
    err
    a line
    "#);
    told!(world.motu("service stop ws-a web"), @"web is failed");
}

#[test]
fn shells_are_driven_by_programs() {
    let world = World::new("workspace");
    let it = &world.recorder;
    let shell = answers::shell("sh-1");
    it.always::<verb::OpenShell>(shell.clone());
    it.always::<verb::WriteShell>(shell.clone());
    it.always::<verb::SignalShell>(shell.clone());
    it.always::<verb::ResizeShell>(shell.clone());
    it.always::<verb::CloseShell>(shell.clone());
    it.on(move |call: verb::ListShells| Ok(ShellList::new(call.id, vec![shell.clone()])));
    it.on(|call: verb::ReadShell| {
        Ok(ShellOutput {
            workspace_id: call.id,
            shell_id: call.shell,
            state: "running".to_string(),
            cursor: call.ask.cursor,
            next_cursor: call.ask.cursor + 4,
            output: "\u{1b}[1m$ ".to_string(),
            truncated: false,
            lost: true,
            plain: call.ask.plain,
        })
    });
    told!(world.motu("shell open ws-a --id-only"), @"sh-1");
    told!(world.motu("shell open ws-a"), @r#"
    shell         sh-1
    state         running
    directory     /workspace
    size          120 x 30
    pid           9
    started       2023-11-14T22:13:20Z
    "#);
    let open = "shell open ws-a --cwd / --cols 80 --rows 24 --user nobody --env A=b --secret-env K";
    let request = json!(["ws-a", {
        "cwd": "/", "cols": 80, "rows": 24, "user": "nobody", "env": {"A": "b"},
        "secret_env": [{"secret": "K"}],
    }]);
    assert_eq!(world.sends(open), ("open_shell", request));
    told!(world.motu("shell list ws-a"), @r#"
    SHELL  STATE    PID  SIZE    DIRECTORY
    sh-1   running  9    120x30  /workspace
    "#);
    let told = world.motu("shell read ws-a sh-1");
    assert_eq!(told.stdout, "\u{1b}[1m$ ", "byte for byte");
    assert_snapshot!(told.stderr, @r#"
    (older output is no longer kept)

    running; next cursor: 4
    "#);
    let read = "shell read ws-a sh-1 --plain --wait-for-idle-ms 300 --cursor 7 --max-chars 99";
    let request = json!(["ws-a", "sh-1", {
        "cursor": 7, "max_chars": 99, "plain": true, "wait_for_idle_ms": 300,
    }]);
    assert_eq!(world.sends(read), ("read_shell", request));
    let write = |newline| json!(["ws-a", "sh-1", {"input": "-x", "append_newline": newline}]);
    let base = "shell write ws-a sh-1 --input -x";
    assert_eq!(world.sends(base), ("write_shell", write(true)));
    let without = format!("{base} --no-newline");
    assert_eq!(world.sends(&without), ("write_shell", write(false)));
    assert_eq!(
        world.sends("shell signal ws-a sh-1"),
        ("signal_shell", json!(["ws-a", "sh-1", {"signal": "INT"}]))
    );
    assert_eq!(
        world.sends("shell signal ws-a sh-1 --signal TERM"),
        ("signal_shell", json!(["ws-a", "sh-1", {"signal": "TERM"}]))
    );
    assert_eq!(
        world.sends("shell resize ws-a sh-1 --cols 9 --rows 8"),
        (
            "resize_shell",
            json!(["ws-a", "sh-1", {"cols": 9, "rows": 8}])
        )
    );
    told!(world.motu("shell close ws-a sh-1"), @"sh-1 is running");
}
