//! Which package of this host's distribution holds what is missing here.

use crate::board::Board;
use motu_core::hint;
use motu_core::hint::{Hint, host};
use std::fmt;

/// What can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Qemu,
    Firmware,
    Ext4,
}

impl Need {
    /// What a program or file of the host is for.
    pub(crate) fn of(name: &str) -> Need {
        match name {
            "mke2fs" | "debugfs" => Need::Ext4,
            _ => Need::Qemu,
        }
    }
}

/// How a host installs packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installer {
    Apt,
    Dnf,
    Zypper,
    Pacman,
    Apk,
}

/// Names in `ID` and `ID_LIKE` of `/etc/os-release`.
const FAMILIES: [(&str, Installer); 17] = [
    ("debian", Installer::Apt),
    ("ubuntu", Installer::Apt),
    ("raspbian", Installer::Apt),
    ("linuxmint", Installer::Apt),
    ("fedora", Installer::Dnf),
    ("rhel", Installer::Dnf),
    ("centos", Installer::Dnf),
    ("rocky", Installer::Dnf),
    ("almalinux", Installer::Dnf),
    ("amzn", Installer::Dnf),
    ("opensuse", Installer::Zypper),
    ("suse", Installer::Zypper),
    ("sles", Installer::Zypper),
    ("arch", Installer::Pacman),
    ("archarm", Installer::Pacman),
    ("manjaro", Installer::Pacman),
    ("alpine", Installer::Apk),
];

/// The installer of a host with this `/etc/os-release`; `None` for one nobody here knows.
fn installer(os_release: &str) -> Option<Installer> {
    let value = |key: &str| {
        os_release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map(|value| value.trim().trim_matches(['"', '\'']))
    };
    // The host's own name first, then those it calls itself alike, the nearest first.
    let names = [value("ID"), value("ID_LIKE")].into_iter().flatten();
    names
        .flat_map(str::split_whitespace)
        .find_map(|name| FAMILIES.iter().find(|(known, _)| *known == name))
        .map(|(_, installer)| *installer)
}

/// The installer of this host.
pub(crate) fn here() -> Option<Installer> {
    installer(&os_release())
}

/// Whether packages here are Debian's own.
pub(crate) fn is_debian_here() -> bool {
    is_debian(&os_release())
}

fn is_debian(os_release: &str) -> bool {
    let mut lines = os_release.lines().map(|line| line.replace(['"', '\''], ""));
    lines.any(|line| line.trim() == "ID=debian")
}

fn os_release() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
    text.unwrap_or_default()
}

impl Installer {
    fn package(self, need: Need, board: Board) -> &'static str {
        match (self, need) {
            (_, Need::Qemu) => self.qemu(board),
            (Installer::Dnf, Need::Firmware) => "qemu-system-x86-core",
            (Installer::Apk, Need::Firmware) => "qemu",
            (Installer::Apt, Need::Firmware) => "qemu-system-data",
            (Installer::Zypper, Need::Firmware) => "qemu-microvm",
            (Installer::Pacman, Need::Firmware) => "qemu-system-x86-firmware",
            (Installer::Apk, Need::Ext4) => "e2fsprogs e2fsprogs-extra",
            (_, Need::Ext4) => "e2fsprogs",
        }
    }

    fn qemu(self, board: Board) -> &'static str {
        match (self, board) {
            (Installer::Apt | Installer::Pacman, Board::Q35) => "qemu-system-x86",
            (Installer::Apt, Board::Virt) => "qemu-system-arm",
            (Installer::Dnf, Board::Q35) => "qemu-system-x86-core",
            (Installer::Dnf, Board::Virt) => "qemu-system-aarch64-core",
            (Installer::Zypper, Board::Q35) => "qemu-x86",
            (Installer::Zypper, Board::Virt) => "qemu-arm",
            (Installer::Apk, Board::Q35) => "qemu-system-x86_64",
            (Installer::Pacman | Installer::Apk, Board::Virt) => "qemu-system-aarch64",
        }
    }
}

impl fmt::Display for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Installer::Apt => "apt-get install --no-install-recommends",
            Installer::Dnf => "dnf install",
            Installer::Zypper => "zypper install --no-recommends",
            Installer::Pacman => "pacman -S",
            Installer::Apk => "apk add",
        })
    }
}

/// The command that installs something on a host with this installer.
pub(crate) fn install(installer: Option<Installer>, need: Need) -> String {
    match installer {
        Some(installer) => format!("{installer} {}", installer.package(need, Board::HERE)),
        // Debian's names are the ones most people know others by.
        None => format!(
            "install what Debian has in {}",
            Installer::Apt.package(need, Board::HERE)
        ),
    }
}

/// The next step of somebody whose host lacks something.
pub(crate) fn hint(need: Need) -> Hint {
    match here() {
        Some(installer) => hint!["install it: ", host(install(Some(installer), need))],
        None => install(None, need).into(),
    }
}

/// How this host comes to a QEMU that is new enough.
pub(crate) fn upgrade_here() -> String {
    let text = os_release();
    upgrade(installer(&text), &text)
}

/// How a host with this installer comes to a QEMU that is new enough.
fn upgrade(installer: Option<Installer>, os_release: &str) -> String {
    let old = |name: &str| os_release.contains(name);
    match installer {
        Some(Installer::Apt) if old("VERSION_CODENAME=bullseye") => {
            "upgrade to Debian 12, whose QEMU is 7.2".to_string()
        }
        Some(Installer::Apt) if old("VERSION_CODENAME=jammy") => {
            "upgrade to Ubuntu 24.04, whose QEMU is 8.2".to_string()
        }
        other => format!("upgrade it: {}", install(other, Need::Qemu)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_known_by_their_own_words() {
        let table = [
            ("ID=debian\nVERSION_ID=\"12\"\n", Some(Installer::Apt)),
            ("NAME=x\nID=ubuntu\nID_LIKE=debian\n", Some(Installer::Apt)),
            ("ID=pop\nID_LIKE=\"ubuntu debian\"\n", Some(Installer::Apt)),
            ("ID=fedora\n", Some(Installer::Dnf)),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                Some(Installer::Dnf),
            ),
            (
                "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n",
                Some(Installer::Zypper),
            ),
            ("ID=arch\n", Some(Installer::Pacman)),
            ("ID=endeavouros\nID_LIKE='arch'\n", Some(Installer::Pacman)),
            ("ID=alpine\n", Some(Installer::Apk)),
            ("ID=nixos\n", None),
            ("", None),
            // A name inside another one is not it.
            ("ID=notdebian\nVARIANT_ID=debian\n", None),
        ];
        for (text, wanted) in table {
            assert_eq!(installer(text), wanted, "{text}");
        }
    }

    #[test]
    fn only_debian_has_debians_packages() {
        assert!(is_debian("NAME=x\nID=debian\n") && is_debian("ID=\"debian\"\n"));
        assert!(!is_debian("ID=ubuntu\nID_LIKE=debian\n"));
        assert!(!is_debian("VARIANT_ID=debian\n"));
    }

    #[test]
    fn every_need_has_a_command_everywhere() {
        let all = [
            Installer::Apt,
            Installer::Dnf,
            Installer::Zypper,
            Installer::Pacman,
            Installer::Apk,
        ];
        let needs = [Need::Qemu, Need::Firmware, Need::Ext4];
        let table: Vec<String> = all
            .into_iter()
            .flat_map(|one| needs.map(|need| install(Some(one), need)))
            .collect();
        let wanted = "\
apt-get install --no-install-recommends qemu-system-x86
apt-get install --no-install-recommends qemu-system-data
apt-get install --no-install-recommends e2fsprogs
dnf install qemu-system-x86-core
dnf install qemu-system-x86-core
dnf install e2fsprogs
zypper install --no-recommends qemu-x86
zypper install --no-recommends qemu-microvm
zypper install --no-recommends e2fsprogs
pacman -S qemu-system-x86
pacman -S qemu-system-x86-firmware
pacman -S e2fsprogs
apk add qemu-system-x86_64
apk add qemu
apk add e2fsprogs e2fsprogs-extra";
        assert_eq!(table.join("\n"), wanted);
        let arm = all.map(|one| one.package(Need::Qemu, Board::Virt));
        let wanted = [
            "qemu-system-arm",
            "qemu-system-aarch64-core",
            "qemu-arm",
            "qemu-system-aarch64",
            "qemu-system-aarch64",
        ];
        assert_eq!(arm, wanted);
        assert_eq!(
            install(None, Need::Firmware),
            "install what Debian has in qemu-system-data"
        );
    }

    #[test]
    fn an_old_qemu_is_replaced_in_the_way_its_distribution_has() {
        let upgrade = |text: &str| upgrade(installer(text), text);
        assert_eq!(
            upgrade("ID=debian\nVERSION_CODENAME=bullseye\n"),
            "upgrade to Debian 12, whose QEMU is 7.2"
        );
        assert_eq!(
            upgrade("ID=ubuntu\nVERSION_CODENAME=jammy\n"),
            "upgrade to Ubuntu 24.04, whose QEMU is 8.2"
        );
        assert_eq!(
            upgrade("ID=fedora\n"),
            "upgrade it: dnf install qemu-system-x86-core"
        );
    }
}
