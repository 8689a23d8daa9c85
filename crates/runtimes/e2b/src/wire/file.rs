//! The agent's description of a file.

use super::event::number;
use bytes::Bytes;
use jiff::Timestamp;
use motu_link::message::{Entry, FileType};
use serde::Deserialize;
use serde_json::Value;

/// Empty values may be omitted; the size is text, because it has 64 bits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FileInfo {
    pub(crate) name: String,
    #[serde(rename = "type")]
    kind: String,
    size: Value,
    mode: Value,
    permissions: String,
    owner: String,
    group: String,
    modified_time: String,
    symlink_target: Option<String>,
    is_symlink: bool,
}

impl FileInfo {
    /// The target of a symbolic link, existing or not; `None` for anything else.
    pub(crate) fn target(&self) -> Option<&str> {
        match &self.symlink_target {
            Some(target) if !target.is_empty() => Some(target),
            _ if self.is_link() => Some(""),
            _ => None,
        }
    }

    fn is_link(&self) -> bool {
        let shown = self.permissions.starts_with(['L', 'l']);
        self.is_symlink || shown || self.kind == "FILE_TYPE_SYMLINK"
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == "FILE_TYPE_DIRECTORY" && self.target().is_none()
    }

    pub(crate) fn mode(&self) -> u32 {
        number(&self.mode).map_or(0, |mode| (mode & 0o7777) as u32)
    }

    /// Converts to the link's entry, for the requested path. The agent reports owners by name
    /// without ids: only root's is known.
    pub(crate) fn entry(&self, path: &str) -> Entry {
        let kind = match (self.target(), self.kind.as_str()) {
            (Some(_), _) => FileType::Symlink,
            (None, "FILE_TYPE_DIRECTORY") => FileType::Directory,
            (None, "FILE_TYPE_FILE") => FileType::File,
            _ => FileType::Other,
        };
        let time: Option<Timestamp> = self.modified_time.parse().ok();
        let target = self.target().unwrap_or_default();
        let id = |name: &str| match name {
            "root" => 0,
            // A numeric name is an id; other names stand for a user that is not root.
            name => name.parse().unwrap_or(u32::MAX),
        };
        Entry {
            path: Bytes::copy_from_slice(path.as_bytes()),
            kind: kind as i32,
            size: number(&self.size).unwrap_or(0),
            mode: self.mode(),
            uid: id(&self.owner),
            gid: id(&self.group),
            owner: self.owner.clone(),
            group: self.group.clone(),
            modified_unix_ms: time.map_or(0, |time| time.as_millisecond()),
            symlink_target: Bytes::copy_from_slice(target.as_bytes()),
            revision: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> FileInfo {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn files_directories_and_links_are_told_apart() {
        let file = info(
            r#"{"name":"b","type":"FILE_TYPE_FILE","path":"/a/b","size":"3","mode":384,
                "permissions":"-rw-------","owner":"root","group":"1000",
                "modifiedTime":"2026-01-02T03:04:05.5Z"}"#,
        );
        let entry = file.entry("/a/b");
        assert_eq!(
            (entry.kind, entry.size, entry.mode),
            (FileType::File as i32, 3, 0o600)
        );
        assert_eq!((entry.uid, entry.gid), (0, 1000));
        assert_eq!(entry.modified_unix_ms, 1_767_323_045_500);
        // A symbolic link is reported with the type of its target.
        let link = info(r#"{"name":"l","type":"FILE_TYPE_DIRECTORY","symlinkTarget":"/a"}"#);
        assert!(!link.is_directory());
        assert_eq!(link.entry("/l").kind, FileType::Symlink as i32);
        let empty = info(r#"{"type":"FILE_TYPE_DIRECTORY","size":0}"#);
        assert!(empty.is_directory());
        assert_eq!(info("{}").entry("/x").kind, FileType::Other as i32);
    }
}
