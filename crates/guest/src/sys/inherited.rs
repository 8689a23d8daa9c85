//! Capabilities and signal settings that children inherit, read once.
//!
//! Clearing what is not set costs a system call each, nearly a hundred per command, and system
//! calls are slow in gVisor.

use std::sync::OnceLock;

/// The kernel's report about this process.
const STATUS: &str = "/proc/self/status";
/// Assumed for a set that the kernel does not show.
const ALL: u64 = u64::MAX;

/// Sets that fork and exec pass on. The guest never adds to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inherited {
    /// The bounding set of capabilities.
    pub(super) bounding: u64,
    /// Signals without their default action; bit 0 is signal 1. Exec resets caught ones, but before
    /// it no handler of ours may run in the child.
    altered: u64,
}

impl Inherited {
    pub(super) fn get() -> &'static Inherited {
        static KNOWN: OnceLock<Inherited> = OnceLock::new();
        KNOWN.get_or_init(|| {
            let status = std::fs::read_to_string(STATUS).unwrap_or_default();
            Inherited::parse(&status)
        })
    }

    fn parse(status: &str) -> Inherited {
        let set = |name: &str| {
            let text = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(text.trim(), 16).ok()
        };
        let altered = set("SigIgn:").zip(set("SigCgt:"));
        let altered = altered.map(|(ignored, caught)| ignored | caught);
        Inherited {
            bounding: set("CapBnd:").unwrap_or(ALL),
            altered: altered.unwrap_or_else(super::altered_signals),
        }
    }

    pub(super) fn alters(&self, signal: i32) -> bool {
        self.altered & (1 << (signal - 1)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_what_is_not_shown_is_assumed() {
        let status = "Name:\tx\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000010000\n\
                      CapBnd:\t000001ffffffffff\n";
        let found = Inherited::parse(status);
        assert_eq!(found.bounding, 0x1ff_ffff_ffff);
        assert!(found.alters(13) && found.alters(17) && !found.alters(12));
        let silent = Inherited::parse("");
        assert_eq!(silent.bounding, ALL);
        // Every Rust program ignores SIGPIPE and catches SIGSEGV.
        assert!(silent.alters(13) && silent.alters(11) && !silent.alters(10));
        assert_eq!(Inherited::parse("CapBnd:\tnonsense").bounding, ALL);
    }
}
