//! Invalid arguments and impossible requests: each is refused with its own exit code, and nothing
//! is created.

use motu_core::exec::ExecMode;
use motu_core::workspace::{CreateWorkspace, ServiceState, StartService};
use motu_core::{ErrorKind, Workspaces, limits};
use motu_testkit::world::{ENVIRONMENT, World, eventually};

/// Calls with `--json`, and checks kind and exit code. Returns the hint.
#[track_caller]
fn refused(world: &World, kind: ErrorKind, args: &[&str]) -> String {
    let told = world.motu(args);
    let error = told.error();
    assert_eq!(
        (error.kind, told.code),
        (kind, i32::from(kind.exit_code())),
        "{args:?}: {error:?}"
    );
    let hint = error.hint.unwrap_or_default();
    format!("{} | {hint} | {}", error.message, error.details)
}

#[tokio::test]
async fn wrong_arguments_are_invalid() {
    let Some(world) = World::new() else { return };
    let invalid = |args: &[&str]| refused(&world, ErrorKind::Invalid, args);
    for args in [
        &["run", "--json", "--bogus", "busybox", "--", "true"][..],
        &[
            "run",
            "--json",
            "--mem-mib",
            "many",
            "busybox",
            "--",
            "true",
        ],
        &["run", "--json"],
        &["run", "--json", "busybox"],
        &["run", "--json", "busybox", "--", ""],
        &[
            "run",
            "--json",
            "busybox",
            "--env",
            "NOT_SET_ANYWHERE",
            "--",
            "true",
        ],
        &["run", "--json", "busybox", "--env", "=x", "--", "true"],
        &[
            "run",
            "--json",
            "busybox",
            "--workdir",
            "relative",
            "--",
            "true",
        ],
        &[
            "run",
            "--json",
            "busybox",
            "--timeout-seconds",
            "0",
            "--",
            "true",
        ],
        &[
            "run",
            "--json",
            "--isolation",
            "steel",
            "busybox",
            "--",
            "true",
        ],
        &[
            "run",
            "--json",
            "--runtime",
            "steam",
            "busybox",
            "--",
            "true",
        ],
        &["exec", "--json", "Not-An-Id", "--", "true"],
        &["exec", "--json", "../etc", "--", "true"],
        &["rm", "--json", "-"],
        &["create", "--json", "busybox", "--id", "a/b"],
        &["create", "--json", "busybox", "--id", "ends-"],
        &["create", "--json", "busybox", "--id", &"x".repeat(49)],
        &["create", "--json", ""],
        &["cp", "--json", "a", "b"],
        &["cp", "--json", "sb-a:/x", "sb-b:/y"],
    ] {
        invalid(args);
    }
    for (flag, name, values) in [
        ("--mem-mib", "mem_mib", ["1", "99999999"]),
        ("--disk-mib", "disk_mib", ["15", "99999999"]),
        ("--pids-max", "pids_max", ["0", "99999999"]),
        ("--io-mbps", "io_mbps", ["1000001", "99999999"]),
        ("--iops", "iops", ["10000001", "99999999"]),
        ("--vcpu-count", "vcpu_count", ["0", "65"]),
        ("--ttl-seconds", "ttl_seconds", ["2592001", "99999999"]),
    ] {
        for value in values {
            let said = invalid(&["create", "--json", "busybox", flag, value]);
            assert!(said.contains(name) && said.contains("min"), "{said}");
        }
    }
    assert_eq!(world.motu(&["--no-such-flag"]).code, 102);
    assert_eq!(world.motu(&["no-such-command"]).code, 102);
    assert!(world.traces.found().directories.is_empty());
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let Some(world) = World::new() else { return };
    let missing = |args: &[&str]| refused(&world, ErrorKind::NotFound, args);
    let said = missing(&["run", "--json", "busibox", "--", "true"]);
    assert!(said.contains("did you mean busybox?"), "{said}");
    missing(&["exec", "--json", "sb-nobody", "--", "true"]);
    missing(&["rm", "--json", "sb-nobody"]);
    missing(&["pause", "--json", "sb-nobody"]);
    missing(&["cp", "--json", "sb-nobody:/x", "y"]);
    // Names that look like paths are treated as names.
    for name in ["../../etc", "/etc", "a b", "busybox/../x", "\u{1b}[31m"] {
        let told = world.motu(&["create", "--json", name]);
        assert!([102, 104].contains(&told.code), "{name:?}: {told:?}");
    }
}

#[tokio::test]
async fn impossible_wishes_are_refused_and_never_weakened() {
    let Some(world) = World::new() else { return };
    let closed = ["--runtime", "container", "--policy", "nowhere"];
    let args = [&["run", "--json", "busybox"][..], &closed, &["--", "true"]].concat();
    let said = refused(&world, ErrorKind::NotFound, &args);
    assert!(said.contains("policy"), "{said}");
    let strong = ["--runtime", "container", "--isolation", "vm"];
    let args = [&["run", "--json", "busybox"][..], &strong, &["--", "true"]].concat();
    let said = refused(&world, ErrorKind::Denied, &args);
    assert!(said.contains("container"), "{said}");

    // What exceeds the size of one command is a limit error, wherever the bytes are.
    let much = "x".repeat(100_000);
    let file = world.home().join("variables");
    std::fs::write(&file, format!("A={much}\n")).unwrap();
    let file = [
        "run",
        "--json",
        "busybox",
        "--env-file",
        file.to_str().unwrap(),
    ];
    // What this program itself can be started with, and the file.
    let many = [&["--", "echo"][..], &[much.as_str(); 20]].concat();
    let said = refused(&world, ErrorKind::Limit, &[&file[..], &many].concat());
    assert!(said.contains("argv_bytes"), "{said}");
    // What fits is run.
    let told = world.motu(&["run", "busybox", "--", "echo", &much]);
    assert_eq!(
        (told.code, told.stdout.len()),
        (0, much.len() + 1),
        "{}",
        told.stderr
    );
    // The machine of what was run ends after the answer.
    eventually("no machine", async || {
        let left = world.traces.found().directories;
        (left.is_empty(), left)
    })
    .await;
}

#[tokio::test]
async fn a_full_house_is_a_limit() {
    let Some(mut world) = World::bare() else {
        return;
    };
    std::fs::write(
        world.home().join("config.toml"),
        "runtime = \"container\"\nmax_sandboxes = 1\n",
    )
    .unwrap();
    world.start();
    let id = world.create().await;
    let said = refused(&world, ErrorKind::Limit, &["create", "--json", "busybox"]);
    assert!(said.contains("max_sandboxes"), "{said}");
    refused(
        &world,
        ErrorKind::Limit,
        &["run", "--json", "busybox", "--", "true"],
    );
    let id = id.as_str();
    refused(
        &world,
        ErrorKind::Conflict,
        &["create", "--json", "busybox", "--id", id],
    );
    assert_eq!(world.motu(&["rm", id]).code, 0);
    assert_eq!(world.motu(&["run", "busybox", "--", "true"]).code, 0);
}

#[tokio::test]
async fn the_service_that_ended_first_makes_room() {
    let Some(world) = World::new() else { return };
    let client = world.client();
    let request = CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        runtime: Some("container".to_string()),
        ..CreateWorkspace::default()
    };
    let id = client.create_workspace(request).await.unwrap().workspace_id;
    let start = |number: u64| {
        let request = StartService {
            service_name: format!("s-{number}"),
            command: vec!["exec sleep 9999".to_string()],
            mode: ExecMode::Shell,
            ..StartService::default()
        };
        client.start_service(&id, request)
    };
    let most = limits::SERVICES.max;
    for number in 0..most {
        start(number).await.unwrap();
    }
    let error = start(most).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit, "{error:?}");
    assert!(error.hint.unwrap().contains("(stop_service)"));
    for number in [5, 3] {
        let name = format!("s-{number}");
        let stopped = client.stop_service(&id, &name).await.unwrap();
        assert_eq!(stopped.state, ServiceState::Stopped);
    }
    // Two starts with one name at once: exactly one succeeds.
    let (one, other) = tokio::join!(start(most), start(most));
    assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1);
    let listed = client.list_services(&id).await.unwrap();
    let names: Vec<&str> = listed.iter().map(|s| s.service_name.as_str()).collect();
    assert_eq!(listed.len() as u64, most, "{names:?}");
    assert!(
        !names.contains(&"s-5") && names.contains(&"s-3"),
        "{names:?}"
    );
}
