//! What is given to other hosts: an archive, a package, and checksums that hold.

use motu_testkit::story::Story;
use std::path::Path;
use std::process::Command;

/// Runs as root on a Debian: what is there before the package, with it, and without it again.
const INSTALL: &str = r#"
set -eu
everything() { find / -xdev -path /srv -prune -o -path /tmp -prune -o -path /var/log -prune -o -path /var/lib/dpkg -prune -o -print | sort; }
dpkg --status motu >/dev/null 2>&1 && exit 90
everything >/tmp/before
dpkg --install /srv/motu.deb >/dev/null
motu --version
test -f /lib/systemd/system/motu.service
# It says what a machine may not do, and makes the state directory.
motu doctor >/tmp/doctor 2>&1 || true
grep -q 'runtime container' /tmp/doctor || { cat /tmp/doctor; exit 91; }
motu serve --stop >/dev/null 2>&1 || true
test -d /var/lib/motu
dpkg --purge motu >/dev/null
everything >/tmp/after
comm -13 /tmp/before /tmp/after | grep -v '^/var/lib/motu' || true
echo "missing: $(comm -23 /tmp/before /tmp/after | wc -l); home: $(test -d /var/lib/motu && echo there)"
"#;

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

fn pack(program: &Path, to: &Path) {
    let root = motu_testkit::root();
    let mut pack = motu_needs::command("bash");
    pack.arg(root.join("tools/dist"));
    pack.args([program, to]);
    // A program that is not optimised is large.
    pack.arg("1");
    pack.env("SOURCE_DATE_EPOCH", "1700000000");
    done(&mut pack);
}

/// Small programs stand for motu, of which the package that is installed below is made: to compress it takes a minute.
#[test]
fn the_archive_and_the_package_hold_the_program_and_how_to_leave() {
    // One asks for the host's C library, the other for nothing.
    for (program, is_static) in [("sh", false), ("busybox", true)] {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("dist");
        let program = motu_needs::find(program);
        pack(&program, &to);
        holds(&to, scratch.path(), &program, is_static);
        // The same program gives the same bytes.
        let again = scratch.path().join("again");
        pack(&program, &again);
        let sums = |dir: &Path| std::fs::read_to_string(dir.join("SHA256SUMS")).unwrap();
        assert_eq!(sums(&to), sums(&again));
    }
}

fn holds(to: &Path, scratch: &Path, program: &Path, is_static: bool) {
    let mut check = motu_needs::command("sha256sum");
    done(
        check
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(to),
    );
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("motu-{version}-x86_64-linux");
    let archive = to.join(format!("{name}.tar.gz"));
    let mut unpack = motu_needs::command("tar");
    done(unpack.arg("-xzf").arg(&archive).current_dir(scratch));
    let tree = scratch.join(name);
    let packed = std::fs::read(program).unwrap();
    assert!(std::fs::read(tree.join("motu")).unwrap() == packed);
    let install = std::fs::read_to_string(tree.join("INSTALL")).unwrap();
    let asks = install.contains("C library 2.");
    assert_eq!(asks, !is_static, "{install}");
    let uninstall = std::fs::read_to_string(tree.join("production.md")).unwrap();
    assert!(uninstall.contains("## Uninstall"));
    let unit = std::fs::read_to_string(tree.join("motu.service")).unwrap();
    assert!(unit.contains("/usr/local/bin/motu serve") && unit.contains("KillMode=process"));

    let package = to.join(format!("motu_{version}_amd64.deb"));
    let mut unpack = motu_needs::command("dpkg-deb");
    done(unpack.arg("-x").arg(&package).arg(scratch.join("deb")));
    assert!(std::fs::read(scratch.join("deb/usr/bin/motu")).unwrap() == packed);
    let mut fields = motu_needs::command("dpkg-deb");
    let depends = done(fields.arg("-f").arg(&package).arg("Depends"));
    let asks = depends.starts_with("libc6 (>= 2.");
    assert_eq!(asks, !is_static, "{depends}");
}

#[test]
fn what_is_packed_is_named_for_its_own_architecture() {
    let scratch = tempfile::tempdir().unwrap();
    // A header with the number of a processor, and nothing that runs behind it.
    let mut bytes = std::fs::read(motu_testkit::program()).unwrap();
    bytes.truncate(64);
    let pack_for = |bytes: &[u8], name: &str| {
        let program = scratch.path().join(name);
        std::fs::write(&program, bytes).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let to = scratch.path().join(format!("dist-{name}"));
        pack(&program, &to);
        to
    };
    let version = env!("CARGO_PKG_VERSION");
    for (machine, linux, debian) in [(62, "x86_64", "amd64"), (183, "aarch64", "arm64")] {
        bytes[18] = machine;
        let to = pack_for(&bytes, linux);
        let archive = to.join(format!("motu-{version}-{linux}-linux.tar.gz"));
        assert!(archive.exists(), "{}", archive.display());
        let package = to.join(format!("motu_{version}_{debian}.deb"));
        let mut fields = motu_needs::command("dpkg-deb");
        let field = done(fields.arg("-f").arg(&package).arg("Architecture"));
        assert_eq!(field.trim(), debian);
    }
}

/// In a machine of our own: a Debian on which nobody has anything to lose.
#[test]
fn a_package_that_is_removed_leaves_the_state_and_nothing_else() {
    let Some(root) = std::env::var_os("MOTU_TEST_ROOT") else {
        return motu_needs::skip("dist: MOTU_TEST_ROOT names no root");
    };
    let Some(story) = Story::with_machines() else {
        return;
    };
    let packed = story.path().join("dist");
    // Without its symbols, which are a third of what is to be compressed.
    let program = story.path().join("motu");
    let mut strip = motu_needs::command("strip");
    strip.args(["-o".as_ref(), program.as_path()]);
    done(strip.arg(motu_testkit::program()));
    pack(&program, &packed);
    let version = env!("CARGO_PKG_VERSION");
    let package = packed.join(format!("motu_{version}_amd64.deb"));
    let given = story.path().join("given");
    std::fs::create_dir(&given).unwrap();
    std::fs::rename(package, given.join("motu.deb")).unwrap();
    let environment = format!("dir:{}", Path::new(&root).display());
    let pulled = story.motu(&["env", "pull", &environment]);
    assert_eq!(pulled.code, 0, "{pulled}");
    let volume = format!("{}:/srv:ro", given.display());
    let mut words = vec!["run", &environment, "--user", "root", "-v", &volume];
    words.extend(["--disk-mib", "2048", "--", "sh", "-c", INSTALL]);
    let told = story.motu(&words);
    assert_eq!(told.code, 0, "{told}");
    let expected = format!("motu {version}\nmissing: 0; home: there\n");
    assert_eq!(told.stdout, expected, "{told}");
}
