//! The system call filter, compiled from `seccomp.json`.
//!
//! The data has every call of the kernel, with a reason: allowed, refused (EPERM), absent (ENOSYS, so
//! that programs fall back as on an older kernel), or asked: the guest answers it. Calls of kernels
//! newer than the data are absent. Calls of another architecture kill the process.

use crate::bpf::{self, Answer, Is, Test};
use seccompiler::{BpfProgram, TargetArch};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// The errno of refused calls.
const REFUSED: u16 = libc::EPERM as u16;
/// The errno of absent calls.
const ABSENT: u16 = libc::ENOSYS as u16;

const DATA: &str = include_str!("../seccomp.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    allow: Vec<Group>,
    deny: Vec<Group>,
    ask: Vec<Asked>,
    absent: Vec<Group>,
    /// Numbers that the library does not know; new calls have the same on every architecture.
    newer: BTreeMap<String, u32>,
    limit: Vec<Limit>,
}

/// Calls that the guest answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader of the data"))]
    group: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader of the data"))]
    reason: String,
    /// What they get on a host whose kernel has nobody to ask.
    otherwise: Otherwise,
    calls: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Otherwise {
    Allow,
    Absent,
}

/// Calls that share a reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader of the data"))]
    group: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader of the data"))]
    reason: String,
    /// These calls exist only on this architecture.
    arch: Option<String>,
    calls: Vec<String>,
}

/// An allowed call that is refused with some arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    call: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader of the data"))]
    reason: String,
    /// Refused if all conditions of any one list match.
    deny_when: Vec<Vec<Condition>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    arg: u8,
    /// The upper half of the argument: pointers have 64 bits.
    #[serde(default)]
    upper: bool,
    is: Option<u32>,
    is_not: Option<u32>,
    any_bit: Option<u32>,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader of the data"))]
    meaning: String,
}

/// Why the filters could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SeccompError {
    #[error("seccomp.json: {0}")]
    Data(#[from] serde_json::Error),
    #[error("seccomp.json: {0}")]
    Name(#[from] seccompiler::Error),
    #[error("there are no system call filters for {0}")]
    Architecture(&'static str),
}

/// The filter for this machine's architecture, ready to be installed.
pub(crate) fn filter() -> Result<Vec<u8>, SeccompError> {
    let data: Data = serde_json::from_str(DATA)?;
    compile(&data, std::env::consts::ARCH)
}

fn compile(data: &Data, arch: &'static str) -> Result<Vec<u8>, SeccompError> {
    let audit = match arch {
        "x86_64" => 0xC000_003E,
        "aarch64" => 0xC000_00B7,
        _ => return Err(SeccompError::Architecture(arch)),
    };
    let program = bpf::compile(audit, &answers(data, arch)?, &Answer::Errno(ABSENT));
    Ok(bytes(&program))
}

/// The decision about each call, by number.
fn answers(data: &Data, arch: &'static str) -> Result<BTreeMap<u32, Answer>, SeccompError> {
    let mut named: BTreeMap<&str, Answer> = BTreeMap::new();
    named.extend(calls(&data.allow, arch).map(|call| (call, Answer::Allow)));
    named.extend(calls(&data.deny, arch).map(|call| (call, Answer::Errno(REFUSED))));
    named.extend(calls(&data.absent, arch).map(|call| (call, Answer::Errno(ABSENT))));
    for asked in &data.ask {
        let otherwise_allowed = asked.otherwise == Otherwise::Allow;
        let group = asked.calls.iter().map(String::as_str);
        named.extend(group.map(|call| (call, Answer::Ask { otherwise_allowed })));
    }
    named.extend(data.limit.iter().map(|limit| {
        let alternatives = limit.deny_when.iter();
        let answer = Answer::Unless {
            alternatives: alternatives.map(|all| tests(all)).collect(),
            errno: REFUSED,
        };
        (limit.call.as_str(), answer)
    }));
    let known = named.keys().copied();
    let mut numbers = numbers(known.filter(|call| !data.newer.contains_key(*call)), arch)?;
    numbers.extend(data.newer.clone());
    Ok(named
        .into_iter()
        .filter_map(|(call, answer)| Some((*numbers.get(call)?, answer)))
        .collect())
}

fn calls<'a>(groups: &'a [Group], arch: &'a str) -> impl Iterator<Item = &'a str> {
    groups
        .iter()
        .filter(move |group| group.arch.as_deref().is_none_or(|only| only == arch))
        .flat_map(|group| group.calls.iter().map(String::as_str))
}

/// Limited arguments are `int` in the kernel, which ignores the upper half; of pointers both halves
/// are asked for.
fn tests(conditions: &[Condition]) -> Vec<Test> {
    let test = |condition: &Condition| {
        let is = match condition {
            Condition { is: Some(v), .. } => Is::Equal(*v),
            Condition {
                is_not: Some(v), ..
            } => Is::Unequal(*v),
            Condition {
                any_bit: Some(v), ..
            } => Is::AnyBit(*v),
            _ => return None,
        };
        Some(Test {
            argument: condition.arg,
            upper: condition.upper,
            is,
        })
    };
    conditions.iter().filter_map(test).collect()
}

/// The numbers of calls. `seccompiler` knows them for every architecture but does not expose them,
/// so a filter of one call is compiled for each name, and the number is read from its only
/// comparison.
fn numbers<'a>(
    names: impl Iterator<Item = &'a str>,
    arch: &'static str,
) -> Result<HashMap<String, u32>, SeccompError> {
    let target = TargetArch::try_from(arch).map_err(|_| SeccompError::Architecture(arch))?;
    let filters: HashMap<&str, Value> = names
        .map(|name| {
            let rules = json!([{ "syscall": name }]);
            let filter =
                json!({ "match_action": "allow", "mismatch_action": "log", "filter": rules });
            (name, filter)
        })
        .collect();
    let source = serde_json::to_vec(&filters)?;
    let programs = seccompiler::compile_from_json(source.as_slice(), target)?;
    Ok(programs
        .into_iter()
        .filter_map(|(name, program)| Some((name, compared(&program)?)))
        .collect())
}

/// The second comparison of a program: the call's number, after the architecture.
fn compared(program: &BpfProgram) -> Option<u32> {
    const JUMP_EQUAL: u16 = 0x15;
    let mut compared = program.iter().filter(|step| step.code == JUMP_EQUAL);
    compared.nth(1).map(|step| step.k)
}

fn bytes(program: &[bpf::Instruction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for step in program {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use std::collections::BTreeSet;

    fn data() -> Data {
        serde_json::from_str(DATA).unwrap()
    }

    #[test]
    fn both_architectures_compile() {
        for name in ["x86_64", "aarch64"] {
            let data = data();
            let answers = answers(&data, name).unwrap();
            let asked = data.ask.iter().flat_map(|asked| &asked.calls);
            let named = calls(&data.allow, name)
                .chain(calls(&data.deny, name))
                .chain(calls(&data.absent, name));
            assert_eq!(answers.len(), named.count() + asked.count(), "{name}");
            assert!(compile(&data, name).unwrap().len() / 8 < 400, "{name}");
        }
    }

    #[test]
    fn every_rule_has_a_reason_and_no_call_is_listed_twice() {
        let data = data();
        let mut seen = BTreeSet::new();
        let groups = data.allow.iter().chain(&data.deny).chain(&data.absent);
        let groups = groups.map(|group| (&group.group, &group.reason, &group.calls));
        let asked = data.ask.iter();
        let asked = asked.map(|asked| (&asked.group, &asked.reason, &asked.calls));
        for (group, reason, calls) in groups.chain(asked) {
            assert!(reason.len() > 10, "{group} has no reason");
            for call in calls {
                assert!(seen.insert(call), "{call} is listed twice");
            }
        }
        for limit in &data.limit {
            assert!(limit.reason.len() > 10, "{} has no reason", limit.call);
            let conditions = limit.deny_when.iter().flatten();
            for condition in conditions {
                assert!(!condition.meaning.is_empty());
                let kinds = [condition.is, condition.is_not, condition.any_bit];
                assert_eq!(kinds.iter().flatten().count(), 1, "{condition:?}");
            }
            let allowed = data.allow.iter().any(|g| g.calls.contains(&limit.call));
            assert!(allowed, "{} is limited but not allowed", limit.call);
        }
    }

    #[test]
    fn limits_of_other_processes_are_refused_wherever_the_new_ones_lie() {
        let data = data();
        let limit = data.limit.iter().find(|limit| limit.call == "prlimit64");
        let refusals = &limit.unwrap().deny_when;
        let of_other =
            |all: &&Vec<Condition>| all.iter().any(|c| (c.arg, c.is_not) == (0, Some(0)));
        let halves: BTreeSet<bool> = refusals
            .iter()
            .filter(of_other)
            .flat_map(|all| all.iter().filter(|c| c.arg == 2).map(|c| c.upper))
            .collect();
        assert_eq!(halves, BTreeSet::from([false, true]));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn numbers_are_the_kernel_headers_own() {
        let numbers = numbers(["read", "clone", "seccomp"].into_iter(), "x86_64").unwrap();
        assert_eq!(i64::from(numbers["read"]), libc::SYS_read);
        assert_eq!(i64::from(numbers["clone"]), libc::SYS_clone);
        assert_eq!(i64::from(numbers["seccomp"]), libc::SYS_seccomp);
    }

    /// The names and numbers in the headers of the kernel that this host was installed with.
    fn of_headers() -> Vec<(String, u32)> {
        let file = format!(
            "/usr/include/{}-linux-gnu/asm/unistd_64.h",
            std::env::consts::ARCH
        );
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
            Some((name.to_string(), number.trim().parse().ok()?))
        });
        lines.collect()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_call_of_the_kernel_is_decided() {
        const BEYOND: u32 = 64;
        let decided = answers(&data(), "x86_64").unwrap();
        let headers = of_headers();
        assert!(headers.len() > 350, "linux-libc-dev is not installed");
        for (name, number) in &headers {
            assert!(decided.contains_key(number), "{name} ({number})");
        }
        let last = decided.keys().last().unwrap();
        let undecided = (0..last + BEYOND).filter(|number| !decided.contains_key(number));
        let there: Vec<u32> = undecided.filter(|number| sys::has_call(*number)).collect();
        assert!(
            there.is_empty(),
            "in this kernel and not in the data: {there:?}"
        );
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn newer_calls_have_the_numbers_of_the_headers() {
        let headers: BTreeMap<String, u32> = of_headers().into_iter().collect();
        for (name, number) in &data().newer {
            assert!(headers.get(name).is_none_or(|own| own == number), "{name}");
            assert!(!headers.values().any(|other| other == number) || headers.contains_key(name));
        }
    }

    #[test]
    fn the_dangerous_are_refused() {
        let data = data();
        let refused: BTreeSet<&str> = calls(&data.deny, "x86_64").collect();
        for call in ["mount", "unshare", "setns", "bpf", "keyctl", "kexec_load"] {
            assert!(refused.contains(call), "{call}");
        }
        // The arguments of clone3 are in memory, where a filter cannot look: programs must use
        // clone.
        let allowed: BTreeSet<&str> = calls(&data.allow, "x86_64").collect();
        assert!(!allowed.contains("clone3"));
    }
}
