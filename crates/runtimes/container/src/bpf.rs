//! Compiles decisions about system calls to a BPF program.
//!
//! The kernel checks every filter when it is installed, for each system call, and a plain list of
//! some three hundred comparisons costs each machine more than a millisecond. Here adjacent numbers
//! with the same answer become one range, and the ranges a search tree of depth eight: a tenth of
//! the time.

/// The answer to a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allow,
    Errno(u16),
    /// Passed to the guest, or where the kernel has nobody to pass it to: allowed, or ENOSYS.
    Ask {
        otherwise_allowed: bool,
    },
    /// Refused with this errno if any alternative matches, otherwise allowed.
    Unless {
        alternatives: Vec<Vec<Test>>,
        errno: u16,
    },
}

/// A condition on 32 bits of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) argument: u8,
    /// The upper ones, not the lower.
    pub(crate) upper: bool,
    pub(crate) is: Is,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    Equal(u32),
    Unequal(u32),
    /// At least one of these bits is set.
    AnyBit(u32),
}

/// One BPF instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;

/// Offsets in `struct seccomp_data`, whose arguments have 64 bits, the lower ones first.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;
const UPPER: u32 = 4;

fn load(offset: u32) -> Instruction {
    jump(LOAD, offset, 0, 0)
}

fn give(value: u32) -> Instruction {
    jump(RETURN, value, 0, 0)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// Compiles decisions for one architecture. Other numbers get `other`.
pub(crate) fn compile(
    arch: u32,
    decided: &std::collections::BTreeMap<u32, Answer>,
    other: &Answer,
) -> Vec<Instruction> {
    let mut program = vec![
        load(ARCH),
        jump(JUMP_EQUAL, arch, 1, 0),
        give(RET_KILL_PROCESS),
        load(NUMBER),
    ];
    program.extend(tree(&ranges(decided, other)));
    program
}

/// The start of each run of equal answers.
fn ranges<'a>(
    decided: &'a std::collections::BTreeMap<u32, Answer>,
    other: &'a Answer,
) -> Vec<(u32, &'a Answer)> {
    let mut ranges: Vec<(u32, &Answer)> = vec![(0, other)];
    let mut push = |start: u32, answer| match ranges.last_mut() {
        Some(last) if last.1 == answer => {}
        Some(last) if last.0 == start => last.1 = answer,
        _ => ranges.push((start, answer)),
    };
    for (number, answer) in decided {
        push(*number, answer);
        if !decided.contains_key(&(number + 1)) {
            push(number + 1, other);
        }
    }
    ranges
}

fn tree(ranges: &[(u32, &Answer)]) -> Vec<Instruction> {
    if let [(_, answer)] = ranges {
        return leaf(answer);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let (left, right) = (tree(low), tree(high));
    let mut program = match u8::try_from(left.len()) {
        Ok(over) => vec![jump(JUMP_GREATER_OR_EQUAL, high[0].0, over, 0)],
        // Too far for an 8-bit jump offset.
        Err(_) => vec![
            jump(JUMP_GREATER_OR_EQUAL, high[0].0, 0, 1),
            jump(JUMP, left.len() as u32, 0, 0),
        ],
    };
    program.extend(left);
    program.extend(right);
    program
}

fn leaf(answer: &Answer) -> Vec<Instruction> {
    match answer {
        Answer::Allow => vec![give(RET_ALLOW)],
        Answer::Errno(errno) => vec![give(RET_ERRNO | u32::from(*errno))],
        // The kernel ignores the lower half; the launcher reads it where there is no listener.
        Answer::Ask { otherwise_allowed } => vec![give(match otherwise_allowed {
            true => RET_USER_NOTIF | motu_launch::OTHERWISE_ALLOWED,
            false => RET_USER_NOTIF,
        })],
        Answer::Unless {
            alternatives,
            errno,
        } => {
            let mut program = Vec::new();
            for tests in alternatives {
                for (index, test) in tests.iter().enumerate() {
                    let half = if test.upper { UPPER } else { 0 };
                    program.push(load(ARGUMENTS + 8 * u32::from(test.argument) + half));
                    // Skip two instructions per remaining test, and the refusal.
                    let out = (2 * (tests.len() - index - 1) + 1) as u8;
                    program.push(match test.is {
                        Is::Equal(value) => jump(JUMP_EQUAL, value, 0, out),
                        Is::Unequal(value) => jump(JUMP_EQUAL, value, out, 0),
                        Is::AnyBit(bits) => jump(JUMP_SET, bits, 0, out),
                    });
                }
                program.push(give(RET_ERRNO | u32::from(*errno)));
            }
            program.push(give(RET_ALLOW));
            program
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ARCH_HERE: u32 = 0xC000_003E;

    /// Interprets the program like the kernel.
    fn run(program: &[Instruction], arch: u32, number: u32, arguments: &[u64]) -> u32 {
        let (mut at, mut value) = (0usize, 0u32);
        loop {
            let step = program[at];
            at += 1;
            let taken = |is: bool| usize::from(if is { step.jt } else { step.jf });
            match step.code {
                LOAD => {
                    value = match step.k {
                        NUMBER => number,
                        ARCH => arch,
                        offset => {
                            let argument = arguments[((offset - ARGUMENTS) / 8) as usize];
                            (argument >> (8 * (offset % 8))) as u32
                        }
                    }
                }
                JUMP => at += step.k as usize,
                JUMP_EQUAL => at += taken(value == step.k),
                JUMP_GREATER_OR_EQUAL => at += taken(value >= step.k),
                JUMP_SET => at += taken(value & step.k != 0),
                RETURN => return step.k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn every_number_gets_its_own_answer() {
        let decided: BTreeMap<u32, Answer> = (0..2000)
            .filter(|n| n % 7 != 0)
            .map(|n| match n % 5 {
                0 => (n, Answer::Errno(1)),
                1 => {
                    let otherwise_allowed = n % 2 == 0;
                    (n, Answer::Ask { otherwise_allowed })
                }
                _ => (n, Answer::Allow),
            })
            .collect();
        let other = Answer::Errno(38);
        let program = compile(ARCH_HERE, &decided, &other);
        for number in (0..2100).chain([u32::MAX, 0x4000_0001]) {
            let expected = leaf(decided.get(&number).unwrap_or(&other))[0].k;
            assert_eq!(run(&program, ARCH_HERE, number, &[]), expected, "{number}");
        }
        assert_eq!(run(&program, 0x4000_0003, 1, &[]), RET_KILL_PROCESS);
    }

    #[test]
    fn arguments_decide() {
        let half = |argument, upper, is| Test {
            argument,
            upper,
            is,
        };
        let test = |argument, is| half(argument, false, is);
        let decided = BTreeMap::from([(
            41,
            Answer::Unless {
                alternatives: vec![
                    vec![test(0, Is::Unequal(1)), test(0, Is::Unequal(2))],
                    vec![test(0, Is::Equal(2)), test(1, Is::AnyBit(0x30))],
                    vec![test(0, Is::Equal(1)), half(1, true, Is::Unequal(0))],
                ],
                errno: 1,
            },
        )]);
        let program = compile(ARCH_HERE, &decided, &Answer::Allow);
        let run = |arguments: &[u64]| run(&program, ARCH_HERE, 41, arguments) == RET_ALLOW;
        assert!(run(&[1, 0x10]));
        assert!(run(&[2, 0x08]));
        assert!(!run(&[2, 0x10]));
        assert!(!run(&[3, 0]));
        assert!(!run(&[1, 0x1_0000_0010]));
        assert!(run(&[2, 0x1_0000_0008]));
    }
}
