//! The machine's control group, if it is visible.

use std::sync::LazyLock;

const CGROUP: &str = "/sys/fs/cgroup";
const EVENTS: &str = "memory.events";

/// How many processes the memory limit has killed; 0 if the file is not visible.
pub fn memory_kills() -> u64 {
    // Called around every command, so the existence of the file is cached.
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

/// The value of a `key value` line in a control group's file.
pub fn value(file: &str, key: &str) -> Option<u64> {
    value_of(&read(file)?, key)
}

pub fn value_of(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next()? == key).then(|| words.next()?.parse().ok())?)
}
