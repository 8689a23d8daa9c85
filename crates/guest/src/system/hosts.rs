//! Adds the machine's own name to `/etc/hosts`: without it `sudo` prints a warning.
//!
//! Adds one line and later changes only that one. The line has the same length for every name, so
//! that a forked machine overwrites it in place.

use std::os::unix::fs::{FileExt as _, MetadataExt as _};

const HOSTS: &str = "/etc/hosts";
/// The comment at the end of our line.
const MARK: &str = "# this machine (motu)";
/// The longest host name of the kernel.
const NAME_BYTES: usize = 64;
/// A longer file is not changed.
const MAX_BYTES: u64 = 1 << 20;

/// Best effort: an unresolvable host name is no reason to fail.
pub fn add(name: &str) {
    let _ = add_to(HOSTS, name);
}

fn add_to(path: &str, name: &str) -> std::io::Result<()> {
    let text = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.size() <= MAX_BYTES => std::fs::read_to_string(path)?,
        // Not a regular file, such as a symbolic link of the image: leave it alone.
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "127.0.0.1 localhost\n".to_string()
        }
        Err(error) => return Err(error),
    };
    let Some((at, line)) = change(&text, name) else {
        return Ok(());
    };
    let mut options = std::fs::File::options();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    if file.metadata()?.len() == 0 {
        return file.write_all_at(format!("{text}{line}").as_bytes(), 0);
    }
    file.write_all_at(line.as_bytes(), at)
}

/// The line to write and its offset; `None` if the file has the name already.
fn change(text: &str, name: &str) -> Option<(u64, String)> {
    let ours = format!("127.0.1.1 {name:<NAME_BYTES$} {MARK}\n");
    let mut at = 0;
    let mut place = None;
    for line in text.split_inclusive('\n') {
        let words = line.split('#').next().unwrap_or_default();
        if words
            .split_ascii_whitespace()
            .skip(1)
            .any(|word| word == name)
        {
            return None;
        }
        if line.len() == ours.len() && line.trim_end().ends_with(MARK) {
            place = Some(at);
        }
        at += line.len() as u64;
    }
    match place {
        Some(place) => Some((place, ours)),
        None if text.is_empty() || text.ends_with('\n') => Some((at, ours)),
        None => Some((at, format!("\n{ours}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_added_and_later_only_that_one_changes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("hosts");
        let path = path.to_str().unwrap();
        std::fs::write(path, "127.0.0.1 localhost\n10.0.0.1 db").unwrap();
        for name in ["one", "a-much-longer-name", "x"] {
            add_to(path, name).unwrap();
            let text = std::fs::read_to_string(path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[..2], ["127.0.0.1 localhost", "10.0.0.1 db"]);
            assert_eq!(lines.len(), 3, "{text}");
            let words: Vec<&str> = lines[2].split_whitespace().take(3).collect();
            assert_eq!(words, ["127.0.1.1", name, "#"]);
        }
    }

    #[test]
    fn a_name_that_the_image_knows_is_left_alone() {
        let text = "127.0.0.1 localhost box # x\n";
        assert_eq!(change(text, "box"), None);
        assert!(change(text, "bo").is_some());
        assert!(change(text, "x").is_some());
    }

    #[test]
    fn a_missing_file_is_made_and_a_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("hosts");
        add_to(path.to_str().unwrap(), "box").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("127.0.0.1 localhost\n127.0.1.1 box "),
            "{text}"
        );
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path().join("elsewhere"), &link).unwrap();
        add_to(link.to_str().unwrap(), "box").unwrap();
        assert!(!place.path().join("elsewhere").exists());
    }
}
