//! A seccomp filter that makes `runsc` start faster.
//!
//! Every `runsc` process registers for `MEMBARRIER_CMD_PRIVATE_EXPEDITED` before anything else. A
//! process with several threads, as every Go program is, waits for an RCU grace period of the
//! kernel for that: five to fifteen milliseconds, three times in a row until a sandbox runs. Only
//! platforms whose programs run in gVisor's own address space use it; systrap does not, and newer
//! versions register only where it is used. A filter that refuses this one call gives every version
//! that benefit, and takes nothing from the machine: gVisor itself answers the calls of programs,
//! with the global barrier.

use libc::sock_filter;

/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`.
const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;

/// The kernel's number of the target architecture.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

const RET_ERRNO: u32 = 0x0005_0000;
const RET_ALLOW: u32 = 0x7fff_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH_AT: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// Refuses the registration, allows everything else. gVisor's own filters are added on top.
pub(crate) const UNREGISTERED: &[sock_filter] = &[
    step(LOAD, ARCH_AT, 0, 0),
    step(JUMP_EQUAL, ARCH, 0, 5),
    step(LOAD, NUMBER, 0, 0),
    step(JUMP_EQUAL, libc::SYS_membarrier as u32, 0, 3),
    step(LOAD, FIRST_ARGUMENT, 0, 0),
    step(JUMP_EQUAL, REGISTER_PRIVATE_EXPEDITED, 0, 1),
    step(RETURN, RET_ERRNO | libc::EINVAL as u32, 0, 0),
    step(RETURN, RET_ALLOW, 0, 0),
];

const fn step(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program like the kernel.
    fn answer(arch: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = UNREGISTERED[at];
            at += 1;
            match (step.code, step.k) {
                (LOAD, NUMBER) => value = number,
                (LOAD, ARCH_AT) => value = arch,
                (LOAD, FIRST_ARGUMENT) => value = argument,
                (JUMP_EQUAL, k) if value == k => at += usize::from(step.jt),
                (JUMP_EQUAL, _) => at += usize::from(step.jf),
                (RETURN, k) => return k,
                other => panic!("unknown instruction {other:?}"),
            }
        }
    }

    #[test]
    fn one_call_is_refused_and_no_other() {
        let membarrier = libc::SYS_membarrier as u32;
        let refused = RET_ERRNO | libc::EINVAL as u32;
        assert_eq!(answer(ARCH, membarrier, 16), refused);
        for argument in [0, 1, 2, 4, 8, 32, 64, 128] {
            assert_eq!(answer(ARCH, membarrier, argument), RET_ALLOW);
        }
        for number in (0..600).filter(|number| *number != membarrier) {
            assert_eq!(answer(ARCH, number, 16), RET_ALLOW);
        }
        assert_eq!(answer(0x4000_0003, membarrier, 16), RET_ALLOW);
    }
}
