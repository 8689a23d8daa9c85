//! The builder for the smallest environment: one static program.
//!
//! Downloads Debian's `busybox-static` package through apt, which verifies it against signed lists,
//! and lays out a system around it. The host's own busybox is never used.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufReader, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Built, Step, debian};
use crate::{
    apt::{self, Sources},
    copying::copy_tar,
    error::{EnvironmentError, IoContext as _},
    finish,
    process::{self, Exit},
    store::{Package, private_directory},
    tree::{Captured, Meta, TreeWriter, Verdict},
};

const PACKAGE: &str = "busybox-static";
/// Its path before and after the merge of `/usr`.
const PROGRAM_PATHS: [&str; 2] = ["bin/busybox", "usr/bin/busybox"];
const COPYRIGHT: &str = "usr/share/doc/busybox-static/copyright";
const MAX_LIST_BYTES: u64 = 1 << 20;

const PASSWD: &str = "root:*:0:0:root:/root:/bin/sh\n\
                      user:*:1000:1000:user:/home/user:/bin/sh\n\
                      nobody:*:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP: &str = "root:*:0:\nuser:*:1000:\nnogroup:*:65534:\n";

/// Disables the host's apt hooks and keeps everything apt writes in one place.
const APT_CONFIGURATION: &str = "\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
APT::Sandbox::User \"root\";
Acquire::Languages \"none\";
Dir::State::status \"/dev/null\";
Dir::Cache::pkgcache \"\";
Dir::Cache::srcpkgcache \"\";
Dir::Etc::sourceparts \"/dev/null\";
Dir::Etc::preferences \"/dev/null\";
Dir::Etc::preferencesparts \"/dev/null\";
";

pub(super) fn fill<W: Write>(
    step: &Step<'_>,
    tree: &mut TreeWriter<W>,
) -> Result<Built, EnvironmentError> {
    process::require("apt-get", "install apt, or use a Debian host")?;
    process::require("dpkg-deb", "apt-get install dpkg")?;
    let mut files = fetch(step)?;
    let program = PROGRAM_PATHS
        .iter()
        .find_map(|path| files.remove(path.as_bytes()))
        .ok_or_else(|| step.failed(format!("{PACKAGE} holds no program")))?;
    step.reporter.say("configure", "linking applets");
    let path = step.staging.scratch().join("busybox");
    fs::write(&path, &program).at("writing", &path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).at("preparing", &path)?;
    let applets = ask(step, &path, &["--list-full"])?;
    let version = version_of(&ask(step, &path, &[])?);
    lay_out(tree, &program, &applets)?;
    let os = os_release(&version, &step.entry().suite);
    tree.file("etc/os-release", Meta::root(0o644), os.as_bytes())?;
    if let Some(text) = files.get(COPYRIGHT.as_bytes()) {
        tree.ensure_directory(parent_of(COPYRIGHT), Meta::root(0o755))?;
        tree.file(COPYRIGHT, Meta::root(0o644), text)?;
    }
    let passwd = Captured::from([(b"etc/passwd".to_vec(), PASSWD.into())]);
    finish::complete(tree, step.entry(), &passwd)?;
    Ok(Built {
        os: format!("BusyBox {version}"),
        packages: vec![Package {
            name: PACKAGE.to_owned(),
            version,
        }],
    })
}

/// Extracts the needed files of the package.
fn fetch(step: &Step<'_>) -> Result<Captured, EnvironmentError> {
    let scratch = step.staging.scratch();
    let suite = &step.entry().suite;
    step.reporter.say("resolve", "reading package lists");
    let sources =
        apt::host_sources(suite, &step.build.cancel, &scratch).at("asking apt in", &scratch)?;
    match sources {
        Some(sources) => fetch_with_apt(step, &sources),
        None => fetch_with_bootstrap(step),
    }
}

fn fetch_with_apt(step: &Step<'_>, sources: &Sources) -> Result<Captured, EnvironmentError> {
    let scratch = step.staging.scratch();
    let list = debian::write_sources(&scratch, &sources.text)?;
    let mut text = APT_CONFIGURATION.to_owned();
    let mut set = |key: &str, path: &Path| {
        writeln!(text, "{key} \"{}\";", path.display()).expect("writing to a string cannot fail");
    };
    set("Dir::Etc::sourcelist", &list);
    set("Dir::Cache", &scratch.join("apt"));
    if !sources.listed {
        let lists = step.build.store.package_cache().join("lists");
        private_directory(&lists.join("partial"))?;
        set("Dir::State::lists", &lists);
    }
    let config = scratch.join("apt.conf");
    fs::write(&config, text).at("writing", &config)?;
    private_directory(&scratch.join("apt/archives/partial"))?;
    if !sources.listed {
        step.reporter.say("resolve", "fetching package lists");
        apt_get(step, &config, &["update"])?;
    }
    step.reporter
        .say("download", format!("downloading {PACKAGE}"));
    apt_get(step, &config, &["download", PACKAGE])?;
    step.reporter.say("unpack", format!("unpacking {PACKAGE}"));
    unpack(step, &downloaded(&scratch)?)
}

fn apt_get(step: &Step<'_>, config: &Path, arguments: &[&str]) -> Result<(), EnvironmentError> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-c"]).arg(config).args(arguments);
    let scratch = step.staging.scratch();
    let (exit, _) = process::output(command, &step.build.cancel, &scratch, MAX_LIST_BYTES)
        .at("running apt-get in", &scratch)?;
    check(step, exit)
}

fn downloaded(scratch: &Path) -> Result<PathBuf, EnvironmentError> {
    let mut entries = fs::read_dir(scratch).at("listing", scratch)?.flatten();
    entries
        .find_map(|entry| {
            let path = entry.path();
            (path.extension()? == "deb").then_some(path)
        })
        .ok_or(io::Error::from(io::ErrorKind::NotFound))
        .at("finding the package in", scratch)
}

fn unpack(step: &Step<'_>, package: &Path) -> Result<Captured, EnvironmentError> {
    let mut command = Command::new("dpkg-deb");
    command.arg("--fsys-tarfile").arg(package);
    let scratch = step.staging.scratch();
    let mut running =
        process::start(command, &step.build.cancel, &scratch, |_| {}).at("unpacking", package)?;
    drop(running.take_stdin());
    let copied = copy_tar(
        BufReader::new(running.take_stdout()),
        &mut TreeWriter::new(io::sink())?,
        judge,
    );
    check(step, running.finish().at("unpacking", package)?)?;
    copied
}

/// For hosts whose apt has no Debian mirror: mmdebstrap has a default.
fn fetch_with_bootstrap(step: &Step<'_>) -> Result<Captured, EnvironmentError> {
    let mut command = debian::bootstrap_command(step, "extract")?;
    debian::add_sources(step, &mut command)?;
    debian::run_bootstrap(step, command, &mut TreeWriter::new(io::sink())?, judge)
}

/// Keeps the program and its licence only.
fn judge(path: &[u8], _is_directory: bool) -> Verdict {
    let mut wanted = PROGRAM_PATHS.iter().chain([&COPYRIGHT]);
    if wanted.any(|one| one.as_bytes() == path) {
        Verdict::DropAndCapture
    } else {
        Verdict::Drop
    }
}

/// Runs the downloaded program, which comes from a verified package.
fn ask(step: &Step<'_>, program: &Path, arguments: &[&str]) -> Result<String, EnvironmentError> {
    let mut command = Command::new(program);
    command.args(arguments);
    let scratch = step.staging.scratch();
    let (exit, out) = process::output(command, &step.build.cancel, &scratch, MAX_LIST_BYTES)
        .at("running", program)?;
    check(step, exit)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn check(step: &Step<'_>, exit: Exit) -> Result<(), EnvironmentError> {
    if exit.status.success() {
        return Ok(());
    }
    Err(step.failed(exit.tail))
}

fn lay_out<W: Write>(
    tree: &mut TreeWriter<W>,
    program: &[u8],
    applets: &str,
) -> Result<(), EnvironmentError> {
    let common = Meta::root(0o755);
    let own = Meta {
        uid: 1000,
        gid: 1000,
        ..common
    };
    for dir in [
        "bin",
        "sbin",
        "usr/bin",
        "usr/sbin",
        "usr/local/bin",
        "etc",
        "var/log",
    ] {
        tree.ensure_directory(dir, common)?;
    }
    tree.ensure_directory("root", Meta::root(0o700))?;
    tree.ensure_directory("home/user", own)?;
    tree.ensure_directory("var/tmp", Meta::root(0o1777))?;
    tree.file("bin/busybox", common, program)?;
    for applet in applets.lines().map(str::trim) {
        // `linuxrc` belongs to initial RAM disks and has no directory.
        if applet.contains('/') && !applet.starts_with('/') && !tree.contains(applet) {
            tree.ensure_directory(parent_of(applet), common)?;
            tree.symlink(applet.as_bytes(), common, b"/bin/busybox")?;
        }
    }
    tree.file("etc/passwd", Meta::root(0o644), PASSWD.as_bytes())?;
    tree.file("etc/group", Meta::root(0o644), GROUP.as_bytes())
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// "BusyBox v1.35.0 (Debian 1:1.35.0-4+b1) multi-call binary."
fn version_of(banner: &str) -> String {
    let first = banner.lines().next().unwrap_or_default();
    let package = first
        .split_once("(Debian ")
        .and_then(|(_, rest)| rest.split_once(')'));
    match package {
        Some((version, _)) => version.to_owned(),
        None => first.split(' ').nth(1).unwrap_or("unknown").to_owned(),
    }
}

fn os_release(version: &str, suite: &str) -> String {
    format!(
        "PRETTY_NAME=\"BusyBox {version} (Debian {suite})\"\nNAME=\"BusyBox\"\nID=busybox\n\
         ID_LIKE=debian\nVERSION_ID=\"{version}\"\nVERSION_CODENAME={suite}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package() {
        let banner = "BusyBox v1.35.0 (Debian 1:1.35.0-4+b1) multi-call binary.\nmore";
        assert_eq!(version_of(banner), "1:1.35.0-4+b1");
        assert_eq!(version_of("BusyBox v1.36.0 (x) multi"), "v1.36.0");
        assert_eq!(version_of(""), "unknown");
    }

    #[test]
    fn applets_become_links_to_the_program() {
        let mut tree = TreeWriter::new(Vec::new()).unwrap();
        let applets = "bin/sh\nusr/sbin/chroot\nlinuxrc\nbin/busybox\n";
        lay_out(&mut tree, b"program", applets).unwrap();
        assert!(tree.contains("bin/sh") && tree.contains("usr/sbin/chroot"));
        assert!(!tree.contains("linuxrc"));
    }
}
