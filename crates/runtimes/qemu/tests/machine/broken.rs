//! A QEMU that fails as real ones do on other hosts: what is said of it, and what heals.
//!
//! It is the host's own QEMU behind a script, which fails when a file beside it says so.

use crate::support::World;
use motu_core::report::Health;
use motu_core::{ErrorKind, Runtime};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Of a machine that was saved on another host, or by another kernel.
const MSR: &str = "error: failed to set MSR 0x48f to 0x7ffffff00036dfb";
const DENIED: &str = "Could not access KVM kernel module: Permission denied";

/// A QEMU in a directory of its own.
struct Fake {
    home: tempfile::TempDir,
}

impl Fake {
    fn new() -> Fake {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/test-home");
        let home = tempfile::tempdir_in(place.canonicalize().unwrap()).unwrap();
        // QEMU is a user of its own, who has to get here.
        std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let bin = home.path().join("fake/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let real = motu_needs::find("qemu-system-x86_64");
        let script = format!(
            "#!/bin/sh\n\
             here=${{0%/bin/*}}\n\
             case \"$*\" in\n\
               *--version*) when=version ;;\n\
               *-incoming*) when=restore ;;\n\
               *-kernel*) when=boot ;;\n\
             esac\n\
             if [ -e \"$here/$when\" ]; then\n\
               read -r said < \"$here/$when\"\n\
               case $when in version) echo \"$said\"; exit 0 ;; esac\n\
               echo \"qemu-system-x86_64: $said\" >&2\n\
               exit 1\n\
             fi\n\
             exec {} \"$@\"\n",
            real.display()
        );
        let program = bin.join("qemu-system-x86_64");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Fake { home }
    }

    fn program(&self) -> PathBuf {
        self.home.path().join("fake/bin/qemu-system-x86_64")
    }

    /// From now on it says this and ends when it is to do that: `version`, `boot`, `restore`.
    fn fails(&self, when: &str, said: &str) {
        std::fs::write(self.home.path().join("fake").join(when), said).unwrap();
    }

    fn works(&self, when: &str) {
        std::fs::remove_file(self.home.path().join("fake").join(when)).unwrap();
    }

    fn world(&self) -> World {
        World::of_program(&self.home.path().join("home"), &self.program(), 176)
    }
}

#[tokio::test]
async fn a_template_that_does_not_restore_is_made_again_once() {
    let fake = Fake::new();
    let world = fake.world();
    let (machine, guest) = world.create().await;
    guest.ping().await;
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();
    let [template] = world.templates().try_into().unwrap();
    let made = |dir: &Path| std::fs::metadata(dir.join("manifest.json")).and_then(|m| m.modified());
    let before = made(&template).unwrap();

    // The template of before fails, and the one that is made in its place does not.
    fake.fails("restore", MSR);
    let spec = world.spec();
    let healing = async {
        while template.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        fake.works("restore");
    };
    let (machine, ()) = tokio::join!(world.runtime.create(&spec), healing);
    let machine = machine.unwrap();
    world.connect(&machine).await.ping().await;
    assert!(made(&template).unwrap() > before);
    world.runtime.destroy(&machine).await.unwrap();

    // A QEMU that restores nothing at all is given up after the second template.
    fake.fails("restore", MSR);
    let error = world.runtime.create(&world.spec()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("failed to set MSR"), "{error}");
    fake.works("restore");
    let (machine, guest) = world.create().await;
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_qemu_that_does_not_boot_says_why() {
    let fake = Fake::new();
    let world = fake.world();
    fake.fails("boot", DENIED);
    let spec = world.spec();
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains(DENIED), "{error}");
    assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
}

#[tokio::test]
async fn a_qemu_that_is_too_old_is_refused_before_it_is_used() {
    let fake = Fake::new();
    fake.fails(
        "version",
        "QEMU emulator version 6.2.0 (Debian 1:6.2+dfsg-2ubuntu6.22)",
    );
    let world = fake.world();
    let checks = world.runtime.check().await;
    let program = checks.iter().find(|c| c.name == "qemu-system-x86_64");
    let program = program.unwrap();
    assert_eq!(program.health, Health::Failed);
    assert!(program.detail.contains("6.2 is too old"), "{program:?}");
    assert!(program.fix.is_some());
    let error = world.runtime.create(&world.spec()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("at least 7.2"), "{error}");
    assert!(error.hint.is_some());
    // Another program under that name is asked again.
    let before = world.runtime.programs();
    fake.works("version");
    let script = std::fs::read_to_string(fake.program()).unwrap();
    std::fs::write(fake.program(), script + "\n").unwrap();
    assert_ne!(world.runtime.programs(), before);
    let (machine, guest) = world.create().await;
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
}
