//! The common form of all environments.
//!
//! Decides which paths of a built system are left out (those of the host, of the build, or of the
//! runtime) and which are added (mount points, empty machine files, permission to use sudo). It
//! never runs programs.

use std::io::Write;

use crate::{
    catalog::CatalogEntry,
    error::EnvironmentError,
    store::Package,
    tree::{Captured, Meta, TreeWriter, Verdict},
};

pub(crate) const PASSWD: &str = "etc/passwd";
pub(crate) const OS_RELEASE: &str = "usr/lib/os-release";
pub(crate) const DPKG_STATUS: &str = "var/lib/dpkg/status";
/// The example of the apt package, which names Debian's mirrors.
pub(crate) const EXAMPLE_SOURCES: &str = "usr/share/doc/apt/examples/sources.list";
const SOURCES: &str = "etc/apt/sources.list";

/// Contents of these directories belong to the runtime.
const EMPTIED: [&str; 5] = ["dev/", "proc/", "sys/", "tmp/", "etc/apt/sources.list.d/"];
/// Directories below these are kept, files are not: leftovers of the build.
const WITHOUT_FILES: [&str; 5] = [
    "run/",
    "var/cache/apt/",
    "var/cache/ldconfig/",
    "var/lib/apt/lists/",
    "var/log/",
];
/// Files of the host or of the build; replaced below where a system needs them.
const LEFT_OUT: [&str; 14] = [
    "etc/.pwd.lock",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/group-",
    "etc/gshadow-",
    "etc/hostname",
    "etc/hosts",
    "etc/machine-id",
    "etc/passwd-",
    "etc/resolv.conf",
    "etc/shadow-",
    "etc/subgid-",
    "etc/subuid-",
    "var/lib/dbus/machine-id",
    SOURCES,
];

pub(crate) const HOSTS: &str =
    "127.0.0.1 localhost\n127.0.1.1 sandbox\n::1 localhost ip6-localhost ip6-loopback\n";
pub(crate) const HOSTNAME: &str = "sandbox\n";

/// Decides about one path of a built system.
pub(crate) fn judge(path: &[u8], is_directory: bool) -> Verdict {
    let below = |dirs: &[&str]| dirs.iter().any(|dir| path.starts_with(dir.as_bytes()));
    let is_one_of = |paths: &[&str]| paths.iter().any(|one| one.as_bytes() == path);
    if path == EXAMPLE_SOURCES.as_bytes() {
        return Verdict::DropAndCapture;
    }
    if below(&EMPTIED) || is_one_of(&LEFT_OUT) || (!is_directory && below(&WITHOUT_FILES)) {
        return Verdict::Drop;
    }
    if is_one_of(&[PASSWD, OS_RELEASE, DPKG_STATUS]) {
        return Verdict::KeepAndCapture;
    }
    Verdict::Keep
}

/// Adds what a machine needs and the built system lacks.
pub(crate) fn complete<W: Write>(
    tree: &mut TreeWriter<W>,
    entry: &CatalogEntry,
    captured: &Captured,
) -> Result<(), EnvironmentError> {
    for (path, mode) in [
        ("proc", 0o555),
        ("sys", 0o555),
        ("dev", 0o755),
        ("run", 0o755),
    ] {
        tree.ensure_directory(path, Meta::root(mode))?;
    }
    tree.ensure_directory("tmp", Meta::root(0o1777))?;
    tree.ensure_directory("etc", Meta::root(0o755))?;
    for (path, text) in [
        ("etc/hosts", HOSTS),
        ("etc/hostname", HOSTNAME),
        ("etc/resolv.conf", ""),
        ("etc/machine-id", ""),
    ] {
        tree.file(path, Meta::root(0o644), text.as_bytes())?;
    }
    if let Some(example) = captured.get(EXAMPLE_SOURCES.as_bytes()) {
        let text = clean_sources(&String::from_utf8_lossy(example));
        tree.file(SOURCES, Meta::root(0o644), text.as_bytes())?;
    } else if tree.contains("etc/apt") {
        tree.file(SOURCES, Meta::root(0o644), b"")?;
    }
    let passwd = captured.get(PASSWD.as_bytes()).map(Vec::as_slice);
    let (uid, gid) = ids_of(passwd.unwrap_or_default(), &entry.default_user)?;
    let owned = Meta {
        uid,
        gid,
        ..Meta::root(0o755)
    };
    tree.ensure_directory(entry.default_workdir.trim_matches('/'), owned)?;
    tree.ensure_directory("workspace", owned)?;
    if entry.wants_sudo {
        let rule = format!("{} ALL=(ALL:ALL) NOPASSWD: ALL\n", entry.default_user);
        let path = format!("etc/sudoers.d/{}", entry.default_user);
        tree.file(&path, Meta::root(0o440), rule.as_bytes())?;
    }
    Ok(())
}

/// The packages of a built system.
pub(crate) fn packages(captured: &Captured) -> Vec<Package> {
    let status = captured.get(DPKG_STATUS.as_bytes());
    let text = String::from_utf8_lossy(status.map(Vec::as_slice).unwrap_or_default());
    let mut packages: Vec<Package> = text
        .split("\n\n")
        .filter_map(|stanza| {
            let field = |key: &str| {
                let line = stanza.lines().find(|line| line.starts_with(key))?;
                Some(line[key.len()..].trim().to_owned())
            };
            let installed = field("Status:")?.ends_with(" installed");
            installed.then_some(Package {
                name: field("Package:")?,
                version: field("Version:")?,
            })
        })
        .collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    packages
}

/// The name of the built system.
pub(crate) fn os_name(captured: &Captured) -> Option<String> {
    let text = String::from_utf8_lossy(captured.get(OS_RELEASE.as_bytes())?);
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// Keeps active lines, with the component `main` only.
fn clean_sources(example: &str) -> String {
    example
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().take(3).collect();
            (words.first() == Some(&"deb") && words.len() == 3)
                .then(|| format!("{} main\n", words.join(" ")))
        })
        .collect()
}

pub(crate) fn ids_of(passwd: &[u8], user: &str) -> Result<(u64, u64), EnvironmentError> {
    let text = String::from_utf8_lossy(passwd);
    let ids = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.first() == Some(&user)).then_some(())?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    });
    ids.ok_or(EnvironmentError::Refused {
        path: PASSWD.to_owned(),
        reason: "the default user is missing from it",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_host_and_build_are_left_out() {
        for path in [
            "dev/null",
            "etc/resolv.conf",
            "etc/apt/sources.list.d/0000host.sources",
            "etc/apt/apt.conf.d/99mmdebstrap",
            "var/log/dpkg.log",
            "tmp/x",
        ] {
            assert_eq!(judge(path.as_bytes(), false), Verdict::Drop, "{path}");
        }
        assert_eq!(judge(b"var/log/apt", true), Verdict::Keep);
        assert_eq!(judge(b"dev", true), Verdict::Keep);
        assert_eq!(judge(b"etc/hosts.allow", false), Verdict::Keep);
        assert_eq!(judge(b"etc/passwd", false), Verdict::KeepAndCapture);
    }

    #[test]
    fn sources_come_from_the_example_of_apt() {
        let example =
            "# hi\ndeb http://m/debian x main contrib non-free\n#deb-src http://m x main\n";
        assert_eq!(clean_sources(example), "deb http://m/debian x main\n");
    }

    #[test]
    fn ids_are_those_of_the_exact_user() {
        let passwd = b"root:x:0:0::/root:/bin/sh\nuser2:x:5:6::/:\nuser:x:1000:1001::/:\n";
        assert_eq!(ids_of(passwd, "user").unwrap(), (1000, 1001));
        assert!(ids_of(passwd, "use").is_err());
    }

    #[test]
    fn only_installed_packages_are_listed() {
        let status = "Package: b\nStatus: install ok installed\nVersion: 2\n\n\
                      Package: c\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                      Package: a\nStatus: install ok installed\nVersion: 1:1\n";
        let captured = Captured::from([(DPKG_STATUS.into(), status.into())]);
        let names: Vec<_> = packages(&captured).into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
