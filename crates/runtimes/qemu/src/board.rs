//! What kind of board machines have: one that runs the guest inside them.

/// What kind of board a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Board {
    /// x86_64, with a small firmware.
    Q35,
    /// aarch64, which starts its kernel itself.
    Virt,
}

impl Board {
    /// The host's own architecture, which is also that of the guest a motu carries.
    pub(crate) const HERE: Board = match cfg!(target_arch = "aarch64") {
        true => Board::Virt,
        false => Board::Q35,
    };

    /// The board on which a guest runs, if there is one. Tests bring guests of another architecture.
    pub(crate) fn of(guest: &[u8]) -> Option<Board> {
        // The header of an ELF file, and at byte 18 of it the processor.
        match guest.starts_with(b"\x7fELF").then(|| guest.get(18..20))?? {
            [62, 0] => Some(Board::Q35),
            [183, 0] => Some(Board::Virt),
            _ => None,
        }
    }

    /// The program that emulates it.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Board::Q35 => "qemu-system-x86_64",
            Board::Virt => "qemu-system-aarch64",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_says_which_board_it_needs() {
        let header = |machine: u8| {
            let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
            bytes.resize(18, 0);
            bytes.extend([machine, 0, 1, 0]);
            bytes
        };
        assert_eq!(Board::of(&header(62)), Some(Board::Q35));
        assert_eq!(Board::of(&header(183)), Some(Board::Virt));
        for other in [&header(243)[..], &header(62)[..19], b"#!/bin/sh", b""] {
            assert_eq!(Board::of(other), None);
        }
        // What runs this test is itself such a program.
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(Board::of(&own), Some(Board::HERE));
    }
}
