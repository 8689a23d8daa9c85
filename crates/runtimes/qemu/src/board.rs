//! What kind of board machines have: that of the host's architecture.

/// What kind of board a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Board {
    /// x86_64, with a small firmware.
    Q35,
    /// aarch64, which starts its kernel itself.
    Virt,
}

impl Board {
    /// Machines have the host's architecture.
    pub(crate) const HERE: Board = match cfg!(target_arch = "aarch64") {
        true => Board::Virt,
        false => Board::Q35,
    };

    /// The program that emulates it.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Board::Q35 => "qemu-system-x86_64",
            Board::Virt => "qemu-system-aarch64",
        }
    }
}
