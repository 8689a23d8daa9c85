//! Faults of machines under proot, and what they can and cannot see.

use motu_conformance::life::{Life, argv, eventually, refused, shell};
use motu_conformance::subjects::{proot, with_bash};
use motu_conformance::{prove, prove_across};
use motu_core::files::{GuestPath, ReadFile};
use motu_core::sandbox::{CreateSandbox, Sandbox, State};
use motu_core::{ErrorKind, Isolation, Service as _, Size};
use std::io::Write as _;
use std::path::Path;

/// One of a machine's two processes.
#[derive(Clone, Copy)]
enum Who {
    Proot,
    Guest,
}

/// The pid of a process in a machine's record.
fn pid_of(life: &Life, sandbox: &Sandbox, who: Who) -> i32 {
    let file = life.machine_dir(&sandbox.sandbox_id).join("machine.json");
    let record = std::fs::read(file).expect("a record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
    let process = match who {
        Who::Proot => &record["process"],
        Who::Guest => &record["guest"],
    };
    process["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok())
        .expect("a pid")
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is killed");
}

/// Number of host processes with the mark of a machine.
fn marked(dir: &Path) -> usize {
    let mark = format!("MOTU_MACHINE={}", dir.display());
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let carries = |entry: &std::fs::DirEntry| {
        let env = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        env.split(|byte| *byte == 0)
            .any(|line| line == mark.as_bytes())
    };
    entries.filter(carries).count()
}

/// Temporary files that a proot with this pid has left.
fn leftovers(pid: i32) -> Vec<String> {
    let names = std::fs::read_dir("/tmp").expect("a directory").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let starts = [format!("proot-{pid}-"), format!("prooted-{pid}-")];
    names
        .filter(|name| starts.iter().any(|start| name.starts_with(start)))
        .collect()
}

async fn killed(life: Life, who: Who, reason: &str) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let dir = life.machine_dir(id);
    life.engine
        .exec_background(id, shell("trap '' TERM; sleep 600 & sleep 600"))
        .await
        .expect("started");
    let proot = pid_of(&life, &sandbox, Who::Proot);
    assert!(marked(&dir) > 2);
    kill(pid_of(&life, &sandbox, who));
    eventually("the sandbox has failed", || async {
        life.get(id).await.state == State::Failed
    })
    .await;
    let after = life.get(id).await;
    let said = after.reason.unwrap_or_default();
    assert!(said.contains(reason), "{said}");
    eventually("everything has ended", || async { marked(&dir) == 0 }).await;
    life.engine.destroy_sandbox(id).await.expect("destroyed");
    assert!(!dir.exists());
    assert_eq!(leftovers(proot), Vec::<String>::new());
}

#[test]
fn a_killed_proot_takes_everything_with_it() {
    prove(proot(), |life| {
        killed(life, Who::Proot, "proot was killed by signal 9")
    });
}

#[test]
fn a_killed_guest_takes_everything_with_it() {
    prove(proot(), |life| killed(life, Who::Guest, "the guest ended"));
}

#[test]
fn a_proot_that_dies_without_a_daemon_is_found_out() {
    prove_across(proot(), |bench| {
        let (id, dir, guest, proot) = bench.life(|life| async move {
            let sandbox = life.create().await;
            life.engine
                .exec_background(&sandbox.sandbox_id, shell("sleep 600"))
                .await
                .expect("started");
            let dir = life.machine_dir(&sandbox.sandbox_id);
            let guest = pid_of(&life, &sandbox, Who::Guest);
            let proot = pid_of(&life, &sandbox, Who::Proot);
            (sandbox.sandbox_id, dir, guest, proot)
        });
        kill(proot);
        bench.life(|life| async move {
            // The kernel has killed the guest, which would otherwise see the host's files.
            let guest = format!("/proc/{guest}/root");
            eventually("the guest is gone", || async {
                std::fs::read_link(&guest).is_err()
            })
            .await;
            eventually("the sandbox has failed", || async {
                life.get(&id).await.state == State::Failed
            })
            .await;
            eventually("everything has ended", || async { marked(&dir) == 0 }).await;
            life.engine.destroy_sandbox(&id).await.expect("destroyed");
        });
        assert_eq!(leftovers(proot), Vec::<String>::new());
    });
}

#[test]
fn what_it_is_is_said_and_has_to_be_asked_for() {
    prove(proot(), |life| async move {
        let request = |allow: bool, runtime: &str| CreateSandbox {
            allow_host_compat: allow,
            runtime: Some(runtime.to_string()),
            ..life.request()
        };
        let create = |request| life.engine.create_sandbox(request);
        refused(ErrorKind::Denied, create(request(false, "proot")).await);
        // It is the only runtime here, and allowed: `auto` still does not choose it.
        refused(ErrorKind::Unavailable, create(request(true, "auto")).await);
        let network = CreateSandbox {
            network: true,
            ..request(true, "proot")
        };
        refused(ErrorKind::Unsupported, create(network).await);
        let bounded = CreateSandbox {
            size: Size {
                mem_mib: Some(64),
                ..request(true, "proot").size
            },
            ..request(true, "proot")
        };
        let sandbox = create(bounded).await.expect("a sandbox");
        assert_eq!(sandbox.isolation, Isolation::None);
        assert_eq!(sandbox.network, "host");
        assert!(!sandbox.limits.is_empty());
        assert!(sandbox.limits.iter().all(|limit| !limit.enforced));
        let paused = life.engine.pause_sandbox(&sandbox.sandbox_id).await;
        refused(ErrorKind::Unsupported, paused);
    });
}

/// A file of the host that programs inside should not find by accident.
fn secret() -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new()
        .prefix("motu-proot-")
        .tempfile()
        .expect("a file");
    file.write_all(b"of the host").expect("written");
    file
}

/// Ways to reach `$F`, each a script that prints its contents.
const WAYS: [&str; 10] = [
    "cat $F",
    "cat /../../../..$F",
    "cd / && cat ../../..$F",
    "ln -sf $F /root/link && cat /root/link",
    "ln -sf /../../..$F /root/up && cat /root/up",
    "ln -sfn / /root/top && cat /root/top/../..$F",
    "cat /proc/self/root$F",
    "cat /proc/1/root$F",
    "cat /proc/$PPID/root$F",
    "cat /proc/$PPID/cwd/../../../../../..$F",
];

#[test]
fn paths_lead_nowhere_but_into_the_tree() {
    prove(proot(), |life| async move {
        let file = secret();
        let place = file.path().display().to_string();
        let sandbox = life.create().await;
        for way in WAYS {
            let script = format!("mkdir -p /root; F={place}; {way}");
            let said = life.exec(&sandbox, shell(&script)).await;
            assert_ne!(said.exit_code, 0, "{way}: {said:?}");
            assert!(!said.stdout.contains("of the host"), "{way}: {said:?}");
        }
        let names = [
            place.clone(),
            format!("/../../..{place}"),
            "/root/link".into(),
        ];
        for name in names {
            let read = ReadFile {
                path: GuestPath::new(name).expect("a path"),
                offset: 0,
                length: None,
                user: None,
            };
            let read = life.engine.read_file(&sandbox.sandbox_id, read).await;
            refused(ErrorKind::NotFound, read.map(drop));
        }
        // Written to the machine's tree, not to the host.
        let script = format!(
            "mkdir -p {0} && echo inside > {0}/x",
            "/etc/motu-proot-test"
        );
        assert_eq!(life.exec(&sandbox, shell(&script)).await.exit_code, 0);
        assert!(!Path::new("/etc/motu-proot-test").exists());
    });
}

#[test]
fn what_is_not_stopped_is_as_the_pages_say() {
    prove(proot(), |life| async move {
        let sandbox = life.create().await;
        let own = std::process::id();
        // Processes of the same user are visible and can be signalled.
        let script = format!("kill -0 {own} && cat /proc/{own}/comm");
        let said = life.exec(&sandbox, shell(&script)).await;
        assert_eq!(said.exit_code, 0, "{said:?}");
        // The network is the host's.
        let here = std::fs::read_to_string("/proc/net/dev").expect("devices");
        let there = life.exec(&sandbox, argv(&["cat", "/proc/net/dev"])).await;
        let names = |text: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.map(|(name, _)| name.trim().to_string()).collect()
        };
        assert_eq!(names(&there.stdout), names(&here));
    });
}

/// Debian programs that use calls which proot does not know.
const PROGRAMS: &str = r#"
set -e
echo inside > /etc/inside
stat -c %s /etc/inside
ls -l /etc/inside > /dev/null
test -r /etc/inside
! stat "$F" 2> /dev/null
! ls -l "$F" 2> /dev/null
! test -e "$F"
test "$(id -u)" = 0
mkdir -p /tmp/a && touch /tmp/a/f && chmod 600 /tmp/a/f && chown 5:5 /tmp/a/f
test "$(find / -xdev -name inside | head -n 1)" = /etc/inside
echo told | tee /dev/stderr 2>&1 >/dev/null | grep told
"#;

#[test]
fn debians_programs_see_the_tree_alone() {
    prove(with_bash(proot()), |life| async move {
        let file = secret();
        let request = CreateSandbox {
            user: Some("root".into()),
            ..life.request()
        };
        let sandbox = life
            .engine
            .create_sandbox(request)
            .await
            .expect("a sandbox");
        let script = format!("F={}{PROGRAMS}", file.path().display());
        let said = life.exec(&sandbox, shell(&script)).await;
        assert_eq!(said.exit_code, 0, "{said:?}");
        assert!(said.stdout.starts_with("7\n"), "{said:?}");
    });
}

#[test]
fn machines_share_nothing_with_their_environment() {
    prove(proot(), |life| async move {
        let (one, other) = (life.create().await, life.create().await);
        let script = "echo changed >> /etc/passwd && rm /usr/bin/wget && mkdir /motu-test";
        assert_eq!(life.exec(&one, shell(script)).await.exit_code, 0);
        let look = "! grep changed /etc/passwd && test -e /usr/bin/wget && test ! -e /motu-test";
        assert_eq!(life.exec(&other, shell(look)).await.exit_code, 0);
        let third = life.create().await;
        assert_eq!(life.exec(&third, shell(look)).await.exit_code, 0);
    });
}
