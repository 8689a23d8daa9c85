//! What a host lacks, and the command that helps: packages of its distribution, and ranges of ids of its users.
//!
//! The one table of package names: advice of every crate comes from here. It installs and changes nothing.

pub mod ids;

use std::fmt;

/// What a host can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// QEMU for machines of x86_64.
    QemuX86,
    /// QEMU for machines of aarch64.
    QemuArm,
    /// The firmware of small machines, `qboot.rom`.
    Firmware,
    /// `mke2fs` and `debugfs`.
    Ext4,
    /// `newuidmap` and `newgidmap`.
    IdMap,
    Proot,
    Tar,
    /// `unshare` and `setpriv`.
    Namespaces,
}

/// How a host installs packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installer {
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

impl Need {
    /// Its packages by installer: apt, dnf, zypper, pacman, apk.
    fn packages(self) -> [&'static str; 5] {
        match self {
            Need::QemuX86 => [
                "qemu-system-x86",
                "qemu-system-x86-core",
                "qemu-x86",
                "qemu-system-x86",
                "qemu-system-x86_64",
            ],
            Need::QemuArm => [
                "qemu-system-arm",
                "qemu-system-aarch64-core",
                "qemu-arm",
                "qemu-system-aarch64",
                "qemu-system-aarch64",
            ],
            Need::Firmware => [
                "qemu-system-data",
                "qemu-system-x86-core",
                "qemu-microvm",
                "qemu-system-x86-firmware",
                "qemu",
            ],
            Need::Ext4 => [
                "e2fsprogs",
                "e2fsprogs",
                "e2fsprogs",
                "e2fsprogs",
                "e2fsprogs e2fsprogs-extra",
            ],
            Need::IdMap => [
                "uidmap",
                "shadow-utils",
                "shadow",
                "shadow",
                "shadow-uidmap",
            ],
            Need::Proot => ["proot"; 5],
            Need::Tar => ["tar"; 5],
            Need::Namespaces => ["util-linux"; 5],
        }
    }

    /// Whether its package recommends others that nobody here needs: a QEMU brings half a desktop.
    fn is_alone(self) -> bool {
        matches!(self, Need::QemuX86 | Need::QemuArm | Need::Firmware)
    }
}

impl Installer {
    fn package(self, need: Need) -> &'static str {
        let [apt, dnf, zypper, pacman, apk] = need.packages();
        match self {
            Installer::Apt => apt,
            Installer::Dnf => dnf,
            Installer::Zypper => zypper,
            Installer::Pacman => pacman,
            Installer::Apk => apk,
        }
    }

    /// The option that leaves recommended packages out, where they would be installed.
    fn without_recommended(self) -> &'static str {
        match self {
            Installer::Apt => " --no-install-recommends",
            Installer::Zypper => " --no-recommends",
            Installer::Dnf | Installer::Pacman | Installer::Apk => "",
        }
    }

    fn command(self, need: Need) -> String {
        let option = match need.is_alone() {
            true => self.without_recommended(),
            false => "",
        };
        format!("{self}{option} {}", self.package(need))
    }
}

impl fmt::Display for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Installer::Apt => "apt-get install",
            Installer::Dnf => "dnf install",
            Installer::Zypper => "zypper install",
            Installer::Pacman => "pacman -S",
            Installer::Apk => "apk add",
        })
    }
}

/// What a host says of itself in `/etc/os-release`.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    os_release: String,
}

impl Distribution {
    /// This host's.
    pub fn here() -> Distribution {
        let read = |path| std::fs::read_to_string(path).ok();
        let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
        Distribution::of(text.unwrap_or_default())
    }

    /// That of a host with this `/etc/os-release`.
    pub fn of(os_release: impl Into<String>) -> Distribution {
        Distribution {
            os_release: os_release.into(),
        }
    }

    fn value(&self, key: &str) -> Option<&str> {
        let mut lines = self.os_release.lines();
        let value = lines.find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
        value.map(|value| value.trim().trim_matches(['"', '\'']))
    }

    /// How packages are installed there; `None` on a distribution nobody here knows.
    pub fn installer(&self) -> Option<Installer> {
        // The host's own name first, then those it calls itself alike, the nearest first.
        let names = [self.value("ID"), self.value("ID_LIKE")];
        names
            .into_iter()
            .flatten()
            .flat_map(str::split_whitespace)
            .find_map(|name| FAMILIES.iter().find(|(known, _)| *known == name))
            .map(|(_, installer)| *installer)
    }

    /// Whether its packages are Debian's own.
    pub fn is_debian(&self) -> bool {
        self.value("ID") == Some("debian")
    }

    /// Whether it is the release with this name: `bullseye`, `jammy`.
    pub fn is_release(&self, codename: &str) -> bool {
        self.value("VERSION_CODENAME") == Some(codename)
    }

    /// The command that installs something there.
    pub fn install(&self, need: Need) -> String {
        match self.installer() {
            Some(installer) => installer.command(need),
            // Debian's names are the ones most people know others by.
            None => format!(
                "install what Debian has in {}",
                Installer::Apt.package(need)
            ),
        }
    }
}

/// The command that installs something on this host.
pub fn install(need: Need) -> String {
    Distribution::here().install(need)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 5] = ["debian", "fedora", "opensuse", "arch", "alpine"];

    fn on(id: &str) -> Distribution {
        Distribution::of(format!("ID={id}\n"))
    }

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
            assert_eq!(Distribution::of(text).installer(), wanted, "{text}");
        }
    }

    #[test]
    fn only_debian_has_debians_packages() {
        for text in ["NAME=x\nID=debian\n", "ID=\"debian\"\n"] {
            assert!(Distribution::of(text).is_debian(), "{text}");
        }
        for text in ["ID=ubuntu\nID_LIKE=debian\n", "VARIANT_ID=debian\n"] {
            assert!(!Distribution::of(text).is_debian(), "{text}");
        }
        assert!(Distribution::of("VERSION_CODENAME=jammy\n").is_release("jammy"));
        assert!(!on("jammy").is_release("jammy"));
    }

    #[test]
    fn every_need_has_a_command_everywhere() {
        let needs = [
            Need::QemuX86,
            Need::QemuArm,
            Need::Firmware,
            Need::Ext4,
            Need::IdMap,
            Need::Proot,
            Need::Tar,
            Need::Namespaces,
        ];
        let table: Vec<String> = ALL
            .into_iter()
            .flat_map(|id| needs.map(|need| on(id).install(need)))
            .collect();
        let wanted = "\
apt-get install --no-install-recommends qemu-system-x86
apt-get install --no-install-recommends qemu-system-arm
apt-get install --no-install-recommends qemu-system-data
apt-get install e2fsprogs
apt-get install uidmap
apt-get install proot
apt-get install tar
apt-get install util-linux
dnf install qemu-system-x86-core
dnf install qemu-system-aarch64-core
dnf install qemu-system-x86-core
dnf install e2fsprogs
dnf install shadow-utils
dnf install proot
dnf install tar
dnf install util-linux
zypper install --no-recommends qemu-x86
zypper install --no-recommends qemu-arm
zypper install --no-recommends qemu-microvm
zypper install e2fsprogs
zypper install shadow
zypper install proot
zypper install tar
zypper install util-linux
pacman -S qemu-system-x86
pacman -S qemu-system-aarch64
pacman -S qemu-system-x86-firmware
pacman -S e2fsprogs
pacman -S shadow
pacman -S proot
pacman -S tar
pacman -S util-linux
apk add qemu-system-x86_64
apk add qemu-system-aarch64
apk add qemu
apk add e2fsprogs e2fsprogs-extra
apk add shadow-uidmap
apk add proot
apk add tar
apk add util-linux";
        assert_eq!(table.join("\n"), wanted);
    }

    #[test]
    fn who_has_another_distribution_is_told_debians_names() {
        assert_eq!(
            on("nixos").install(Need::IdMap),
            "install what Debian has in uidmap"
        );
    }
}
