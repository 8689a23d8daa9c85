//! The system call filters, compiled from `seccomp.json`.
//!
//! The data says which calls are allowed, which are refused and why. Two
//! filters come out of it: one allows a list and answers everything else with
//! "no such call", so that programs fall back as on an older kernel; the other,
//! installed later and therefore heard first, refuses the dangerous ones with
//! "not permitted". Calls of another architecture end the process.

use seccompiler::{BpfProgram, TargetArch};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const DATA: &str = include_str!("../seccomp.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    allow: Vec<Group>,
    deny: Vec<Group>,
    limit: Vec<Limit>,
}

/// Calls that share a reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    group: String,
    reason: String,
    /// Only this architecture has these calls.
    arch: Option<String>,
    calls: Vec<String>,
}

/// An allowed call that is refused for some arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    call: String,
    reason: String,
    /// Any of these is enough; all conditions of one must hold.
    deny_when: Vec<Vec<Condition>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    arg: u8,
    is: Option<u64>,
    is_not: Option<u64>,
    has_bits: Option<u64>,
    meaning: String,
}

/// Why the filters could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SeccompError {
    #[error("seccomp.json: {0}")]
    Data(#[from] serde_json::Error),
    #[error("seccomp.json: {0}")]
    Compile(#[from] seccompiler::Error),
    #[error("there are no system call filters for {0}")]
    Architecture(&'static str),
}

/// The filters for this machine's architecture, in the order of installation.
pub(crate) fn filters() -> Result<Vec<Vec<u8>>, SeccompError> {
    let name = std::env::consts::ARCH;
    let arch = TargetArch::try_from(name).map_err(|_| SeccompError::Architecture(name))?;
    let data: Data = serde_json::from_str(DATA)?;
    compile(&data, name, arch)
}

fn compile(data: &Data, name: &str, arch: TargetArch) -> Result<Vec<Vec<u8>>, SeccompError> {
    let rule = |(call, group): (&String, &Group)| {
        let comment = format!("{}: {}", group.group, group.reason);
        json!({ "syscall": call, "comment": comment })
    };
    let allowed = calls(&data.allow, name).map(rule);
    let refused = calls(&data.deny, name).map(rule);
    let source = json!({
        "allow": filter("allow", json!({ "errno": libc::ENOSYS }), allowed.collect()),
        "deny": filter(
            json!({ "errno": libc::EPERM }),
            "allow",
            refused.chain(data.limit.iter().flat_map(limited)).collect(),
        ),
    });
    let mut programs = seccompiler::compile_from_json(source.to_string().as_bytes(), arch)?;
    Ok(["allow", "deny"]
        .iter()
        .filter_map(|part| programs.remove(*part))
        .map(|program| bytes(&program))
        .collect())
}

fn filter(matched: impl Serialize, other: impl Serialize, rules: Vec<Value>) -> Value {
    json!({ "match_action": matched, "mismatch_action": other, "filter": rules })
}

fn calls<'a>(groups: &'a [Group], arch: &'a str) -> impl Iterator<Item = (&'a String, &'a Group)> {
    groups
        .iter()
        .filter(move |group| group.arch.as_deref().is_none_or(|only| only == arch))
        .flat_map(|group| group.calls.iter().map(move |call| (call, group)))
}

fn limited(limit: &Limit) -> impl Iterator<Item = Value> + '_ {
    limit.deny_when.iter().map(|conditions| {
        let args: Vec<Value> = conditions.iter().filter_map(condition).collect();
        json!({ "syscall": limit.call, "comment": limit.reason, "args": args })
    })
}

/// Every limited argument is an `int` to the kernel: the upper half is not looked at.
fn condition(condition: &Condition) -> Option<Value> {
    let (op, value) = match condition {
        Condition { is: Some(v), .. } => (json!("eq"), v),
        Condition {
            is_not: Some(v), ..
        } => (json!("ne"), v),
        Condition {
            has_bits: Some(v), ..
        } => (json!({ "masked_eq": v }), v),
        _ => return None,
    };
    Some(json!({ "index": condition.arg, "type": "dword", "op": op, "val": value }))
}

fn bytes(program: &BpfProgram) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for instruction in program {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn data() -> Data {
        serde_json::from_str(DATA).unwrap()
    }

    #[test]
    fn both_architectures_compile() {
        for name in ["x86_64", "aarch64"] {
            let arch = TargetArch::try_from(name).unwrap();
            let filters = compile(&data(), name, arch).unwrap();
            assert_eq!(filters.len(), 2, "{name}");
        }
    }

    #[test]
    fn every_rule_has_a_reason_and_no_call_is_listed_twice() {
        let data = data();
        let mut seen = BTreeSet::new();
        for group in data.allow.iter().chain(&data.deny) {
            assert!(group.reason.len() > 10, "{} has no reason", group.group);
            for call in &group.calls {
                assert!(seen.insert(call), "{call} is listed twice");
            }
        }
        for limit in &data.limit {
            assert!(limit.reason.len() > 10, "{} has no reason", limit.call);
            let conditions = limit.deny_when.iter().flatten();
            for condition in conditions {
                assert!(!condition.meaning.is_empty());
                let kinds = [condition.is, condition.is_not, condition.has_bits];
                assert_eq!(kinds.iter().flatten().count(), 1, "{condition:?}");
            }
            let allowed = data.allow.iter().any(|g| g.calls.contains(&limit.call));
            assert!(allowed, "{} is limited but not allowed", limit.call);
        }
    }

    #[test]
    fn the_dangerous_are_refused() {
        let data = data();
        let refused: BTreeSet<&str> = calls(&data.deny, "x86_64")
            .map(|(call, _)| call.as_str())
            .collect();
        for call in ["mount", "unshare", "setns", "bpf", "keyctl", "kexec_load"] {
            assert!(refused.contains(call), "{call}");
        }
        // Arguments of clone3 are in memory, where no filter can look: programs must use clone.
        let allowed: BTreeSet<&str> = calls(&data.allow, "x86_64")
            .map(|(call, _)| call.as_str())
            .collect();
        assert!(!allowed.contains("clone3"));
    }
}
