//! What the machine's control group says, where it has one that can be seen.

use std::sync::LazyLock;

const CGROUP: &str = "/sys/fs/cgroup";
const EVENTS: &str = "memory.events";

/// How often the memory limit has killed something; 0 where that cannot be seen.
pub fn memory_kills() -> u64 {
    // It is asked around every command: where there is no such file, that is known.
    static SEEN: LazyLock<bool> =
        LazyLock::new(|| std::fs::exists(format!("{CGROUP}/{EVENTS}")).unwrap_or(false));
    match *SEEN {
        true => value(EVENTS, "oom_kill").unwrap_or(0),
        false => 0,
    }
}

pub fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(format!("{CGROUP}/{file}")).ok()
}

/// A line `key value` of a control group's file.
pub fn value(file: &str, key: &str) -> Option<u64> {
    value_of(&read(file)?, key)
}

pub fn value_of(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next()? == key).then(|| words.next()?.parse().ok())?)
}
