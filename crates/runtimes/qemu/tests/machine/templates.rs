//! Machines from one template are strangers to each other, and a damaged
//! template is never used.

use crate::support::{MEM_MIB, World, accel};
use motu_core::Runtime;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::Instant;

#[tokio::test]
async fn two_machines_share_no_secret() {
    let world = World::new();
    let (first, one) = world.create().await;
    let (second, two) = world.create().await;
    let script = "head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id; \
                  cat /proc/sys/kernel/random/uuid";
    let (said, other) = (one.sh(script).await, two.sh(script).await);
    for (a, b) in said.lines().zip(other.lines()) {
        assert_ne!(a, b);
    }
    assert_eq!(said.lines().count(), 3);
    one.sh("echo secret > /root/x; sync").await;
    assert_eq!(two.sh("ls /root").await, "");
    let clock: u64 = one.sh("date +%s").await.parse().unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs();
    assert!(now.abs_diff(clock) <= 2, "the clock is {clock}, not {now}");
    world.runtime.destroy(&first).await.unwrap();
    world.runtime.destroy(&second).await.unwrap();
}

#[tokio::test]
async fn a_damaged_template_is_made_again() {
    let mem_mib = 192;
    let before = World::with(mem_mib, accel()).templates();
    let world = World::with(mem_mib, accel());
    let begun = Instant::now();
    let (machine, _) = world.create().await;
    println!("create with a cold boot: {:?}", begun.elapsed());
    world.runtime.destroy(&machine).await.unwrap();
    let template = own_template(&world, mem_mib);
    drop(before);

    type Damage = fn(&std::path::Path);
    let damages: [(&str, Damage); 5] = [
        ("a bit of memory", |dir| {
            let ram = std::fs::File::options()
                .read(true)
                .write(true)
                .open(dir.join("ram"))
                .unwrap();
            let mut byte = [0];
            ram.read_exact_at(&mut byte, 0x10_0123).unwrap();
            ram.write_all_at(&[byte[0] ^ 4], 0x10_0123).unwrap();
        }),
        ("half of the memory", |dir| {
            let ram = std::fs::File::options()
                .write(true)
                .open(dir.join("ram"))
                .unwrap();
            ram.set_len(ram.metadata().unwrap().len() / 2).unwrap();
        }),
        ("a bit of a disk", |dir| {
            let path = dir.join("root-0.qcow2");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let disk = std::fs::File::options()
                .read(true)
                .write(true)
                .open(path)
                .unwrap();
            let mut byte = [0];
            disk.read_exact_at(&mut byte, 0x3_0001).unwrap();
            disk.write_all_at(&[byte[0] ^ 1], 0x3_0001).unwrap();
        }),
        ("half of the state", |dir| {
            let state = dir.join("state");
            std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o600)).unwrap();
            let state = std::fs::File::options().write(true).open(state).unwrap();
            state.set_len(state.metadata().unwrap().len() / 2).unwrap();
        }),
        ("the version", |dir| {
            let path = dir.join("manifest.json");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, text.replace("\"version\": 2", "\"version\": 99")).unwrap();
        }),
    ];
    for (what, damage) in damages {
        damage(&template);
        let manifest = std::fs::metadata(template.join("manifest.json")).unwrap();
        let before = manifest.modified().unwrap();
        // A daemon that has not loaded it yet.
        let world = World::with(mem_mib, accel());
        let (machine, guest) = world.create().await;
        guest.ping().await;
        let manifest = std::fs::metadata(template.join("manifest.json")).unwrap();
        assert!(
            manifest.modified().unwrap() > before,
            "{what} went unnoticed"
        );
        world.runtime.destroy(&machine).await.unwrap();
    }
}

#[tokio::test]
async fn a_template_of_another_version_goes() {
    let world = World::new();
    let (machine, _) = world.create().await;
    world.runtime.destroy(&machine).await.unwrap();
    let stale = world.home.join("cache/templates").join("0".repeat(32));
    std::fs::create_dir_all(&stale).unwrap();
    std::fs::write(stale.join("manifest.json"), "{\"version\": 0}").unwrap();
    let own = own_template(&world, MEM_MIB);
    let next = World::new();
    let (machine, _) = next.create().await;
    let gone = async {
        while stale.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let gone = tokio::time::timeout(std::time::Duration::from_secs(10), gone).await;
    gone.expect("what is stale is removed");
    assert!(
        own.join("manifest.json").exists(),
        "what is not stale stays"
    );
    next.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_prune_takes_nothing_from_a_machine_that_is_there() {
    // The shared cache has what this needs; a machine more costs nothing.
    let shared = World::new();
    let (machine, _) = shared.create().await;
    shared.runtime.destroy(&machine).await.unwrap();
    let place = shared.home.parent().unwrap();
    let home = tempfile::tempdir_in(place).unwrap();
    let world = World::apart(home.path());
    let (machine, guest) = world.create().await;
    let images = home.path().join("cache/images");
    std::fs::write(images.join("old-v1.ext4"), [1; 8192]).unwrap();
    let freed = world.runtime.prune().await.unwrap();
    assert!(freed >= 8192, "{freed} bytes");
    assert_eq!(world.runtime.spares(), 0);
    for shelf in [images, home.path().join("cache/templates")] {
        let left = std::fs::read_dir(shelf).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        let hidden = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b".");
        assert!(left.iter().all(hidden), "{left:?}");
    }
    // What it has not read yet of its disks is there, too.
    assert_eq!(
        guest
            .sh("cat /bin/busybox | wc -c > n; [ -s n ] && echo whole")
            .await,
        "whole"
    );
    world.runtime.destroy(&machine).await.unwrap();
}

/// The template whose memory has this size.
fn own_template(world: &World, mem_mib: u64) -> std::path::PathBuf {
    let found = world.templates().into_iter().filter(|dir| {
        std::fs::metadata(dir.join("ram")).is_ok_and(|ram| ram.len() == mem_mib << 20)
    });
    let newest = found.max_by_key(|dir| std::fs::metadata(dir).unwrap().modified().unwrap());
    newest.expect("creating a machine makes a template")
}
