//! Disks that fail under a machine.
//!
//! ext4 is made to report an error, as for an unreadable or corrupt block. From then on it is
//! read-only. Stored files must still be readable, nothing may be acknowledged that is not stored,
//! no snapshot may be taken, and a reset repairs the workspace.

use crate::durable::{asked, works};
use crate::workspaces::{script, sh};
use motu_core::workspace::*;
use motu_core::{ErrorKind, Workspaces};
use motu_testkit::world::{World, refused};
use std::path::{Path, PathBuf};

/// The file in `/sys` that triggers an error in ext4.
const TRIGGER: &str = "trigger_fs_error";

/// The directory in `/sys` of the file system in a mounted image.
fn file_system(image: &Path) -> PathBuf {
    let image = image.canonicalize().unwrap();
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let device = devices
        .filter(|device| {
            let backing = std::fs::read_to_string(device.path().join("loop/backing_file"));
            backing.is_ok_and(|path| Path::new(path.trim_end()) == image)
        })
        .map(|device| device.file_name())
        .next()
        .unwrap_or_else(|| panic!("{} is mounted nowhere", image.display()));
    Path::new("/sys/fs/ext4").join(device)
}

/// Triggers an error on the disk of a workspace.
async fn fail(world: &World, id: &WorkspaceId, runtime: &str) {
    if runtime == "qemu" {
        let script = format!("for disk in /sys/fs/ext4/vd*; do echo test > $disk/{TRIGGER}; done");
        let said = sh(world, id, &script).await;
        assert_eq!(said.exit_code, 0, "{said:?}");
        return;
    }
    let kept = world.home().join("kept").join(id.as_str());
    let disk = file_system(&kept.join("disks-1/disk.img"));
    std::fs::write(disk.join(TRIGGER), "test").unwrap();
    let count = std::fs::read_to_string(disk.join("errors_count")).unwrap();
    assert_ne!(count.trim(), "0");
}

fn text(path: &str, text: &str) -> WriteText {
    WriteText {
        path: path.to_string(),
        text: text.to_string(),
    }
}

async fn read(world: &World, id: &WorkspaceId, path: &str) -> motu_core::Result<String> {
    let asked = ReadText::new(path, Some(1 << 16));
    let read = world.client().read_workspace_file(id, asked).await;
    read.map(|read| read.content)
}

/// A world with a daemon, where a runtime works.
fn with(runtime: &str) -> Option<World> {
    let mut world = World::bare()?;
    world.start();
    works(&world, runtime).then_some(world)
}

async fn fails_on(runtime: &str) {
    let Some(world) = with(runtime) else {
        return;
    };
    let client = world.client();
    let created = client
        .create_workspace(asked("failing", runtime, 256))
        .await;
    let id = created.unwrap().workspace_id;
    client
        .write_workspace_file(&id, text("kept", "before\n"))
        .await
        .unwrap();
    let saved = client.create_snapshot(&id, SaveAs::named("sound")).await;
    saved.unwrap();
    client
        .write_workspace_file(&id, text("later", "after\n"))
        .await
        .unwrap();

    fail(&world, &id, runtime).await;

    assert_eq!(read(&world, &id, "kept").await.as_deref(), Ok("before\n"));
    if runtime == "gvisor" {
        // runsc opens files that it wrote itself for writing, also for a read.
        refused(ErrorKind::Unavailable, read(&world, &id, "later").await);
        client.stop_workspace(&id).await.unwrap();
        client.start_workspace(&id).await.unwrap();
        assert_eq!(read(&world, &id, "later").await.as_deref(), Ok("after\n"));
        fail(&world, &id, runtime).await;
    } else {
        assert_eq!(read(&world, &id, "later").await.as_deref(), Ok("after\n"));
    }
    // The host does not see errors of a file system in a machine with its own kernel.
    let kind = match runtime {
        "qemu" => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    };
    let write = client.write_workspace_file(&id, text("kept", "lost\n"));
    refused(kind, write.await);
    assert_eq!(read(&world, &id, "kept").await.as_deref(), Ok("before\n"));
    let said = client.exec_workspace(&id, script("echo lost > kept")).await;
    assert_ne!(said.unwrap().exit_code, 0);
    let saved = client.create_snapshot(&id, SaveAs::named("broken")).await;
    let error = refused(ErrorKind::Unavailable, saved);
    assert!(error.message.contains("errors"), "{error:?}");
    assert!(error.hint.is_some(), "{error:?}");
    let names = client
        .list_snapshots(&id, Default::default())
        .await
        .unwrap();
    let names: Vec<_> = names
        .snapshots
        .iter()
        .map(|one| &one.snapshot_name)
        .collect();
    assert!(!names.iter().any(|name| *name == "broken"), "{names:?}");

    // The snapshot is not affected by the failure of the disk.
    let back = ResetTo::snapshot("sound");
    client.reset_workspace(&id, back).await.unwrap();
    assert_eq!(read(&world, &id, "kept").await.as_deref(), Ok("before\n"));
    refused(ErrorKind::NotFound, read(&world, &id, "later").await);
    client
        .write_workspace_file(&id, text("kept", "again\n"))
        .await
        .unwrap();
    let saved = client.create_snapshot(&id, SaveAs::named("healed")).await;
    saved.unwrap();
    client.delete_workspace(&id).await.unwrap();
}

#[tokio::test]
async fn nothing_is_acknowledged_on_a_container_whose_disk_fails() {
    fails_on("container").await;
}

#[tokio::test]
async fn nothing_is_acknowledged_on_a_gvisor_whose_disk_fails() {
    fails_on("gvisor").await;
}

#[tokio::test]
async fn nothing_is_acknowledged_on_a_qemu_whose_disk_fails() {
    fails_on("qemu").await;
}

/// Flips a bit in the middle of every pack of a workspace's snapshots.
fn damage_snapshots(world: &World, id: &WorkspaceId) {
    use std::os::unix::fs::FileExt;
    let packs = world
        .home()
        .join("kept")
        .join(id.as_str())
        .join("snapshots/packs");
    let packs: Vec<_> = std::fs::read_dir(packs).unwrap().flatten().collect();
    assert!(!packs.is_empty());
    for pack in packs {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(pack.path())
            .unwrap();
        let middle = file.metadata().unwrap().len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).unwrap();
        file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    }
}

/// A reset that fails costs nothing: the files of before are there at the next start.
async fn keeps_its_files(runtime: &str) {
    let Some(world) = with(runtime) else {
        return;
    };
    let client = world.client();
    let created = client.create_workspace(asked("unreset", runtime, 256));
    let id = created.await.unwrap().workspace_id;
    let fill = "head -c 1000000 /dev/urandom > big && echo old > kept";
    assert_eq!(sh(&world, &id, fill).await.exit_code, 0);
    let saved = client.create_snapshot(&id, SaveAs::named("hurt")).await;
    saved.unwrap();
    assert_eq!(sh(&world, &id, "echo new > kept").await.exit_code, 0);
    damage_snapshots(&world, &id);

    let reset = client.reset_workspace(&id, ResetTo::snapshot("hurt")).await;
    let error = refused(ErrorKind::Internal, reset);
    assert!(error.message.contains("damaged"), "{error:?}");
    let status = client.status_workspace(&id).await.unwrap();
    assert_eq!(status.reset_count, 0, "{status:?}");
    client.start_workspace(&id).await.unwrap();
    assert_eq!(read(&world, &id, "kept").await.as_deref(), Ok("new\n"));
    client
        .reset_workspace(&id, ResetTo::default())
        .await
        .unwrap();
    refused(ErrorKind::NotFound, read(&world, &id, "kept").await);
    client.delete_workspace(&id).await.unwrap();
}

#[tokio::test]
async fn a_reset_to_a_damaged_snapshot_leaves_a_container_its_files() {
    keeps_its_files("container").await;
}

#[tokio::test]
async fn a_reset_to_a_damaged_snapshot_leaves_a_gvisor_its_files() {
    keeps_its_files("gvisor").await;
}

#[tokio::test]
async fn a_reset_to_a_damaged_snapshot_leaves_a_qemu_its_files() {
    keeps_its_files("qemu").await;
}
