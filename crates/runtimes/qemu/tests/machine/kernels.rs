//! Kernels that the operator brings: as files, and as a package.

use crate::support::World;
use motu_core::config::QemuConfig;
use motu_core::report::Health;
use motu_core::{ErrorKind, Runtime};
use std::path::{Path, PathBuf};

/// The kernel all tests share, as a host without a package manager would have it: `vmlinuz`, and
/// `lib/modules/VERSION` with compressed modules.
fn lay_out(world: &World, tree: &Path) -> (PathBuf, PathBuf) {
    let shared = world.home.join("cache/kernels/current-v4");
    let (boot, modules) = (tree.join("boot"), tree.join("usr/lib/modules/6.1-test"));
    std::fs::create_dir_all(&boot).unwrap();
    std::fs::create_dir_all(modules.join("kernel")).unwrap();
    let kernel = boot.join("vmlinuz-6.1-test");
    std::fs::copy(shared.join("vmlinux"), &kernel).unwrap();
    for set in ["modules", "modules-kept", "modules-network"] {
        for entry in std::fs::read_dir(shared.join(set)).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            // Numbered in the order of loading, which is to be found again.
            let (_, name) = name.split_once('-').unwrap();
            let copy = modules.join("kernel").join(name);
            std::fs::copy(entry.path(), &copy).unwrap();
            let packed = motu_needs::command("xz").arg("-f").arg(&copy).status();
            assert!(packed.unwrap().success());
        }
    }
    let built_in = "kernel/fs/ext4/ext4.ko\n";
    std::fs::write(modules.join("modules.builtin"), built_in).unwrap();
    (kernel, modules)
}

async fn boots(home: &Path, config: QemuConfig) {
    let world = World::of_config(home, config, 152);
    let (machine, guest) = world.create().await;
    assert_eq!(guest.sh("uname -s; ls /workspace").await, "Linux");
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();
    let kept = tempfile::tempdir_in(&world.home).unwrap();
    let baseline = tempfile::tempdir_in(&world.home).unwrap();
    let spec = world.kept_spec(&kept.path().join("disks"), baseline.path());
    let (machine, guest) = world.start(&spec).await;
    guest.sh("echo x > /workspace/x && sync").await;
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_kernel_comes_from_files_and_from_a_package() {
    let shared = World::new();
    // The kernel is there once somebody has made a machine.
    let (machine, _) = shared.create().await;
    shared.runtime.destroy(&machine).await.unwrap();
    let scratch = tempfile::tempdir_in(shared.home.parent().unwrap()).unwrap();
    let tree = scratch.path().join("tree");
    let (kernel, modules) = lay_out(&shared, &tree);
    let files = QemuConfig {
        kernel: Some(kernel),
        modules: Some(modules),
        ..QemuConfig::default()
    };
    boots(&scratch.path().join("files"), files).await;

    std::fs::create_dir(tree.join("DEBIAN")).unwrap();
    let control = "Package: linux-image-6.1-test\nVersion: 1\nArchitecture: amd64\n\
                   Maintainer: x <x@x.x>\nDescription: a kernel\n";
    std::fs::write(tree.join("DEBIAN/control"), control).unwrap();
    let package = scratch.path().join("kernel.deb");
    let made = motu_needs::command("dpkg-deb")
        .args(["-Zxz", "-z1", "--root-owner-group", "--build"])
        .args([&tree, &package])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let packed = QemuConfig {
        kernel_package: Some(package),
        ..QemuConfig::default()
    };
    boots(&scratch.path().join("package"), packed).await;
}

/// Where this host's apt has Debian's security updates from, if that answers. Such a mirror has those of every release.
fn mirror() -> Result<String, String> {
    let format = ["--format", "$(REPO_URI) $(RELEASE)"];
    let listed = motu_needs::command("apt-get")
        .arg("indextargets")
        .args(format)
        .arg("Created-By: Packages")
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut lines = listed.lines().filter_map(|line| line.split_once(' '));
    let (mirror, _) = lines
        .find(|(_, release)| release.ends_with("-security"))
        .ok_or("this host's apt has no security updates of Debian")?;
    let host = mirror.split('/').nth(2).unwrap_or_default();
    let address = match host.contains(':') {
        true => host.to_string(),
        false => format!("{host}:80"),
    };
    std::net::TcpStream::connect(&address).map_err(|error| format!("{address}: {error}"))?;
    Ok(mirror.to_string())
}

/// The way of every host that is not Debian, with the mirror of this one.
#[tokio::test]
async fn the_pinned_kernel_is_downloaded_and_boots() {
    let mirror = match mirror() {
        Ok(mirror) => mirror,
        Err(reason) => {
            motu_needs::skip(&format!("the pinned kernel: {reason}"));
            return;
        }
    };
    let shared = World::new();
    let scratch = tempfile::tempdir_in(shared.home.parent().unwrap()).unwrap();
    let config = QemuConfig {
        mirror: Some(mirror.clone()),
        ..QemuConfig::default()
    };
    let world = World::of_config(scratch.path(), config, 152);
    let made = world.runtime.create(&world.spec()).await;
    if let Err(error) = &made
        && error.message.contains("when Debian replaces it")
    {
        panic!(
            "{mirror} has a newer kernel: pin it in src/package.rs, and a later day of the museum ({error})"
        );
    }
    let machine = made.unwrap();
    let guest = world.connect(&machine).await;
    let release = guest.sh("uname -r").await;
    assert!(release.contains("-cloud-"), "{release}");
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_kernel_that_is_not_there_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let config = QemuConfig {
        kernel_package: Some("/nowhere/kernel.deb".into()),
        ..QemuConfig::default()
    };
    let world = World::of_config(scratch.path(), config, 152);
    let checks = world.runtime.check().await;
    let kernel = checks.iter().find(|check| check.name == "kernel").unwrap();
    assert_eq!(kernel.health, Health::Failed);
    assert!(kernel.detail.contains("/nowhere/kernel.deb"), "{kernel:?}");
    let error = world.runtime.create(&world.spec()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("/nowhere/kernel.deb"), "{error}");
    assert!(error.hint.is_some());
}
