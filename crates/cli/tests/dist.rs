//! What is given to other hosts: an archive, a package, and checksums that hold.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;
use std::process::Command;

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

fn pack(to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pack = motu_needs::command("bash");
    pack.arg(root.join("tools/dist"));
    pack.args([Path::new(env!("CARGO_BIN_EXE_motu")), to]);
    // A program that is not optimised is large.
    pack.arg("1");
    pack.env("SOURCE_DATE_EPOCH", "1700000000");
    done(&mut pack);
}

#[test]
fn the_archive_and_the_package_hold_the_program_and_how_to_leave() {
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("dist");
    pack(&to);
    let mut check = motu_needs::command("sha256sum");
    done(
        check
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(&to),
    );

    let version = env!("CARGO_PKG_VERSION");
    let name = format!("motu-{version}-x86_64-linux");
    let archive = to.join(format!("{name}.tar.gz"));
    let mut unpack = motu_needs::command("tar");
    done(unpack.arg("-xzf").arg(&archive).current_dir(scratch.path()));
    let tree = scratch.path().join(name);
    let said = done(Command::new(tree.join("motu")).arg("--version"));
    assert_eq!(said.trim(), format!("motu {version}"));
    let install = std::fs::read_to_string(tree.join("INSTALL")).unwrap();
    assert!(install.contains("C library 2."), "{install}");
    let uninstall = std::fs::read_to_string(tree.join("production.md")).unwrap();
    assert!(uninstall.contains("## Uninstall"));
    let unit = std::fs::read_to_string(tree.join("motu.service")).unwrap();
    assert!(unit.contains("/usr/local/bin/motu serve") && unit.contains("KillMode=process"));

    let package = to.join(format!("motu_{version}_amd64.deb"));
    let mut unpack = motu_needs::command("dpkg-deb");
    done(
        unpack
            .arg("-x")
            .arg(&package)
            .arg(scratch.path().join("deb")),
    );
    let tree = scratch.path().join("deb/usr/bin");
    let installed = done(Command::new(tree.join("motu")).arg("--version"));
    assert_eq!(installed, said);
    let mut fields = motu_needs::command("dpkg-deb");
    let depends = done(fields.arg("-f").arg(&package).arg("Depends"));
    assert!(depends.starts_with("libc6 (>= 2."), "{depends}");

    // The same program gives the same bytes.
    let again = scratch.path().join("again");
    pack(&again);
    let sums = |dir: &Path| std::fs::read_to_string(dir.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&to), sums(&again));
}
