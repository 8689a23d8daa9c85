//! Which releases of QEMU machines can be made with, and what must be installed with it.

use std::fmt;

/// The oldest QEMU with everything the command line uses (`-netdev dgram` came last).
pub(crate) const OLDEST: Version = Version(7, 2);
/// The small firmware that starts a kernel at once.
pub(crate) const FIRMWARE: &str = "qboot.rom";

/// A release of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The version in what `--version` prints.
pub(crate) fn version(said: &str) -> Option<Version> {
    let (_, rest) = said.lines().next()?.split_once("version ")?;
    let mut numbers = rest.split(|letter: char| !letter.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some(Version(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_distributions_are_read() {
        let table = [
            (
                "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c)",
                Some(Version(7, 2)),
            ),
            (
                "QEMU emulator version 6.2.0 (Debian 1:6.2+dfsg-2ubuntu6.22)",
                Some(Version(6, 2)),
            ),
            (
                "QEMU emulator version 9.1.3 (qemu-9.1.3-2.fc41)",
                Some(Version(9, 1)),
            ),
            (
                "QEMU emulator version 10.0.2 (openSUSE Tumbleweed)",
                Some(Version(10, 0)),
            ),
            ("QEMU emulator version 11.0.0", Some(Version(11, 0))),
            (
                "QEMU emulator version 10.1.50 (v10.1.0-1-g0)",
                Some(Version(10, 1)),
            ),
            ("QEMU emulator version unknown", None),
            ("bash: no", None),
            ("", None),
        ];
        for (said, wanted) in table {
            assert_eq!(version(said), wanted, "{said}");
        }
        let (old, new) = (Version(7, 1), Version(10, 0));
        assert!(old < OLDEST && OLDEST <= Version(7, 2) && OLDEST < new);
    }
}
