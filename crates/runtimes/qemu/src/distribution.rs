//! Which package of this host's distribution holds what is missing here: the words of this runtime for the table of
//! `motu_packages`.

use crate::board::Board;
use motu_core::hint;
use motu_core::hint::{Hint, host};
use motu_packages::Distribution;

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

    /// What that is on a host with machines of this kind.
    fn on(self, board: Board) -> motu_packages::Need {
        match (self, board) {
            (Need::Qemu, Board::Q35) => motu_packages::Need::QemuX86,
            (Need::Qemu, Board::Virt) => motu_packages::Need::QemuArm,
            (Need::Firmware, _) => motu_packages::Need::Firmware,
            (Need::Ext4, _) => motu_packages::Need::Ext4,
        }
    }
}

/// The distribution of this host.
pub(crate) fn here() -> Distribution {
    Distribution::here()
}

/// Whether packages here are Debian's own.
pub(crate) fn is_debian_here() -> bool {
    here().is_debian()
}

/// The command that installs something on a host with this distribution.
pub(crate) fn install(distribution: Distribution, need: Need) -> String {
    distribution.install(need.on(Board::HERE))
}

/// The next step of somebody whose host lacks something.
pub(crate) fn hint(need: Need) -> Hint {
    let distribution = here();
    match distribution.installer() {
        Some(_) => hint!["install it: ", host(install(distribution, need))],
        None => install(distribution, need).into(),
    }
}

/// How this host comes to a QEMU that is new enough.
pub(crate) fn upgrade_here() -> String {
    upgrade(here())
}

/// How a host with this distribution comes to a QEMU that is new enough.
fn upgrade(distribution: Distribution) -> String {
    if distribution.is_release("bullseye") {
        return "upgrade to Debian 12, whose QEMU is 7.2".to_string();
    }
    if distribution.is_release("jammy") {
        return "upgrade to Ubuntu 24.04, whose QEMU is 8.2".to_string();
    }
    format!("upgrade it: {}", install(distribution, Need::Qemu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_machines_need_depends_on_their_architecture() {
        let fedora = Distribution::of("ID=fedora\n");
        let on = |need: Need, board| fedora.install(need.on(board));
        assert_eq!(
            on(Need::Qemu, Board::Q35),
            "dnf install qemu-system-x86-core"
        );
        assert_eq!(
            on(Need::Qemu, Board::Virt),
            "dnf install qemu-system-aarch64-core"
        );
        for program in ["mke2fs", "debugfs"] {
            let said = on(Need::of(program), Board::Virt);
            assert_eq!(said, "dnf install e2fsprogs");
        }
        assert_eq!(
            install(Distribution::of("ID=nixos\n"), Need::Firmware),
            "install what Debian has in qemu-system-data"
        );
    }

    #[test]
    fn an_old_qemu_is_replaced_in_the_way_its_distribution_has() {
        let upgrade = |text: &str| upgrade(Distribution::of(text));
        assert_eq!(
            upgrade("ID=debian\nVERSION_CODENAME=bullseye\n"),
            "upgrade to Debian 12, whose QEMU is 7.2"
        );
        assert_eq!(
            upgrade("ID=ubuntu\nVERSION_CODENAME=jammy\n"),
            "upgrade to Ubuntu 24.04, whose QEMU is 8.2"
        );
        let fedora = "upgrade it: dnf install qemu-system-x86-core";
        assert_eq!(upgrade("ID=fedora\n"), fedora);
    }
}
