//! The runtime for an unprivileged user.
//!
//! The test is run by root and runs itself again as an unknown user with a single id and no
//! privileges.

use crate::kept;
use crate::support::{World, guest_program};
use motu_core::report::Health;
use motu_core::{ErrorKind, Runtime};
use std::os::unix::fs::PermissionsExt;

const NOBODY_KNOWN: u32 = 987_654;

#[tokio::test]
async fn an_ordinary_user_has_machines_too() {
    if rustix::process::geteuid().is_root() {
        run_again_as_user();
    } else {
        live_as_user().await;
    }
}

fn run_again_as_user() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).unwrap();
    let (test, guest) = (place.path().join("test"), place.path().join("guest"));
    std::fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
    std::fs::copy(guest_program(), &guest).unwrap();
    let output = motu_needs::command("setpriv")
        .args([
            format!("--reuid={NOBODY_KNOWN}"),
            format!("--regid={NOBODY_KNOWN}"),
        ])
        .arg("--clear-groups")
        .arg(&test)
        .args([
            "--exact",
            "rootless::an_ordinary_user_has_machines_too",
            "--nocapture",
        ])
        .env("MOTU_GUEST_BIN", &guest)
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let erred = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{erred}");
    assert!(said.contains("1 passed"), "{said}");
}

async fn live_as_user() {
    let world = World::new();
    let report = world.runtime.report().await;
    assert!(report.works, "{report:?}");
    let (machine, guest) = world.create().await;
    let dir = std::fs::File::open(world.home.path()).unwrap();
    let attached = world
        .runtime
        .attach_directory(&machine, dir.into(), "/tmp".into());
    assert_eq!(attached.await.unwrap_err().kind, ErrorKind::Unsupported);
    assert!(!world.runtime.attaches_directories());
    let said = guest
        .sh("root", "id -u; mkdir /a; echo x > /a/b; rm -r /etc; ls /")
        .await;
    assert!(said.out.starts_with("0\n"), "{said:?}");
    assert!(!said.out.contains("etc"), "{said:?}");
    for refused in [
        "cat /proc/1/environ",
        "mount -t tmpfs none /tmp",
        "unshare -U true",
        "mknod /tmp/m c 1 1",
    ] {
        let said = guest.sh("root", refused).await;
        assert_ne!(said.code, 0, "{refused}: {said:?}");
    }
    let ids = report.checks.iter().find(|c| c.name == "subordinate ids");
    if ids.unwrap().health == Health::Ok {
        // Files that the host's user cannot remove directly.
        let said = guest
            .sh("1000:1000", "mkdir -m 700 /tmp/u && touch /tmp/u/f")
            .await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    let disk = machine
        .limits
        .iter()
        .find(|l| l.name == "disk_mib")
        .unwrap();
    assert!(!disk.enforced, "{disk:?}");

    world.runtime.destroy(&machine).await.unwrap();
    assert!(!world.runtime.alive(&machine).await);
    assert_eq!(std::fs::read_dir(&machine.dir).unwrap().count(), 0);
    keep_as_user(&world).await;
}

async fn keep_as_user(world: &World) {
    let kept = kept::baseline(world.home.path());
    let (machine, guest) = world.create_from(&kept::spec(world, &kept)).await;
    assert_eq!(guest.changes().await, [""; 0]);
    let said = guest
        .sh(
            "root",
            "mkdir -p /shut/in && chmod 0 /shut; cd /workspace && cat a && echo more >> a && rm -r gone && mkdir gone && rm mode && echo kept > /etc/kept; ls -A gone",
        )
        .await;
    assert_eq!((said.code, &*said.out), (0, "one\n"), "{said:?}");
    let expected = ["~a", "-gone/x", "-mode"];
    assert_eq!(guest.changes().await, expected);
    let error = world.runtime.create(&kept::spec(world, &kept)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, motu_core::ErrorKind::Conflict, "{error}");
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();

    let (machine, guest) = world.create_from(&kept::spec(world, &kept)).await;
    let said = guest.sh("root", "cat /workspace/a /etc/kept").await;
    assert_eq!(said.out, "one\nmore\nkept\n", "{said:?}");
    assert_eq!(guest.changes().await, expected);
    world.runtime.destroy(&machine).await.unwrap();
    assert_eq!(std::fs::read(kept.baseline.join("a")).unwrap(), b"one\n");
    world.runtime.discard(&kept.dir).await.unwrap();
    assert_eq!(std::fs::read_dir(&kept.dir).unwrap().count(), 0);
}
