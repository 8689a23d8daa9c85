//! A service's description of a file.

use bytes::Bytes;
use jiff::Timestamp;
use motu_link::message::{Entry, FileType};
use serde::Deserialize;

/// The protocol does not fix the case of these fields; some services use underscores.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FileInfo {
    #[serde(alias = "Path")]
    pub(crate) path: String,
    #[serde(alias = "Size")]
    pub(crate) size: u64,
    #[serde(alias = "Mode")]
    pub(crate) mode: String,
    #[serde(alias = "IsDir", alias = "isDir", alias = "isdir")]
    pub(crate) is_dir: bool,
    #[serde(alias = "ModTime", alias = "modTime", alias = "modtime")]
    pub(crate) mod_time: String,
    /// Extensions of the protocol.
    #[serde(alias = "Kind")]
    pub(crate) kind: Option<String>,
    #[serde(alias = "LinkTarget")]
    pub(crate) link_target: String,
    #[serde(alias = "Uid")]
    pub(crate) uid: u32,
    #[serde(alias = "Gid")]
    pub(crate) gid: u32,
    #[serde(alias = "Owner")]
    pub(crate) owner: String,
    #[serde(alias = "Group")]
    pub(crate) group: String,
}

impl FileInfo {
    /// Its name alone.
    pub(crate) fn name(&self) -> &str {
        let path = self.path.trim_end_matches('/');
        path.rsplit('/').next().unwrap_or_default()
    }

    /// Converts to the link's entry, for the requested path.
    pub(crate) fn entry(&self, path: &str) -> Entry {
        let kind = match (self.kind.as_deref(), self.is_dir) {
            (Some("symlink"), _) => FileType::Symlink,
            (Some("other"), _) => FileType::Other,
            (_, true) => FileType::Directory,
            (_, false) => FileType::File,
        };
        let time: Option<Timestamp> = self.mod_time.parse().ok();
        Entry {
            path: Bytes::copy_from_slice(path.as_bytes()),
            kind: kind as i32,
            size: self.size,
            mode: mode(&self.mode).unwrap_or(0),
            uid: self.uid,
            gid: self.gid,
            owner: self.owner.clone(),
            group: self.group.clone(),
            modified_unix_ms: time.map_or(0, |time| time.as_millisecond()),
            symlink_target: Bytes::copy_from_slice(self.link_target.as_bytes()),
            revision: 0,
        }
    }
}

/// Parses permission bits, in octal or as `ls` shows them.
fn mode(text: &str) -> Option<u32> {
    if let Ok(mode) = motu_core::files::parse_mode(text) {
        return Some(mode);
    }
    let bits = text.get(text.len().checked_sub(9)?..)?;
    let mut mode = 0;
    for (at, letter) in bits.bytes().enumerate() {
        let (place, wanted) = (8 - at, b"rwx"[at % 3]);
        match letter {
            b'-' => {}
            letter if letter == wanted => mode |= 1 << place,
            b's' | b't' if wanted == b'x' => mode |= (1 << place) | (1 << (9 + place / 3)),
            b'S' | b'T' if wanted == b'x' => mode |= 1 << (9 + place / 3),
            _ => return None,
        }
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_in_both_ways() {
        for (text, expected) in [
            ("0644", Some(0o644)),
            ("755", Some(0o755)),
            ("-rw-r--r--", Some(0o644)),
            ("drwxr-xr-x", Some(0o755)),
            ("-rwsr-x--T", Some(0o5750)),
            ("drwxrwxrwt", Some(0o1777)),
            ("", None),
            ("rwx", None),
            ("-rw-q--r--", None),
        ] {
            assert_eq!(mode(text), expected, "{text}");
        }
    }

    #[test]
    fn names_of_fields_have_any_case() {
        for text in [
            r#"{"Path":"/a/b","Size":3,"Mode":"0600","IsDir":false,"ModTime":"2026-01-02T03:04:05Z"}"#,
            r#"{"path":"/a/b","size":3,"mode":"-rw-------","is_dir":false,"mod_time":"2026-01-02T03:04:05Z"}"#,
        ] {
            let info: FileInfo = serde_json::from_str(text).unwrap();
            assert_eq!(info.name(), "b");
            let entry = info.entry("/a/b");
            assert_eq!((entry.size, entry.mode), (3, 0o600));
            assert_eq!(entry.modified_unix_ms, 1_767_323_045_000);
        }
    }
}
