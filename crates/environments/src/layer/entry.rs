//! What one entry of a layer means.
//!
//! Owns the spelling rules: which paths are accepted, which names are
//! whiteouts, which kinds of files an environment may hold. It is a pure
//! function of one entry and knows nothing about the tree it goes into.

/// Longest path and longest link target, as the kernel has it.
const MAX_PATH_BYTES: usize = 4095;
/// Longest name of one file.
const MAX_NAME_BYTES: usize = 255;

const WHITEOUT: &[u8] = b".wh.";
/// Bookkeeping of the file system whiteouts come from.
const WHITEOUT_META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What an archive says an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    HardLink,
    Device,
    Pipe,
    Other,
}

/// What is done with an entry. Paths are relative, without `.`, `..`, empty
/// parts or a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// A file, directory or symbolic link for this path.
    Keep(Vec<u8>),
    /// A second name for another path.
    Link { path: Vec<u8>, target: Vec<u8> },
    /// Hides this path of the layers below.
    Whiteout(Vec<u8>),
    /// Hides everything the layers below have in this directory.
    Opaque(Vec<u8>),
    /// Left out without harm.
    Skip,
    /// Fails the import.
    Refuse(&'static str),
}

/// Decides about one entry by its path, kind and link target alone.
pub fn decide(path: &[u8], kind: EntryKind, link: &[u8]) -> Decision {
    let clean = match normalise(path) {
        Ok(clean) => clean,
        Err(reason) => return Decision::Refuse(reason),
    };
    let (parent, name) = split(&clean);
    let above = parent.split(|b| *b == b'/');
    if above.clone().any(|part| part.starts_with(WHITEOUT_META)) {
        return Decision::Skip;
    }
    if above.clone().any(|part| part.starts_with(WHITEOUT)) {
        return Decision::Refuse("path below a whiteout");
    }
    if name.starts_with(WHITEOUT) {
        return whiteout(parent, name);
    }
    if clean.is_empty() {
        return match kind {
            // The root's own permissions are motu's choice.
            EntryKind::Directory => Decision::Skip,
            _ => Decision::Refuse("root that is not a directory"),
        };
    }
    match kind {
        EntryKind::File | EntryKind::Directory => Decision::Keep(clean),
        EntryKind::Symlink => match link {
            b"" => Decision::Refuse("symbolic link to nowhere"),
            link if link.len() > MAX_PATH_BYTES => Decision::Refuse("link target too long"),
            link if link.contains(&0) => Decision::Refuse("link target with a zero byte"),
            _ => Decision::Keep(clean),
        },
        EntryKind::HardLink => match normalise(link) {
            Ok(target) if !target.is_empty() => Decision::Link {
                path: clean,
                target,
            },
            Ok(_) => Decision::Refuse("hard link to the root"),
            Err(reason) => Decision::Refuse(reason),
        },
        // The runtime brings the devices of a machine.
        EntryKind::Device if clean.starts_with(b"dev/") => Decision::Skip,
        EntryKind::Device => Decision::Refuse("device outside /dev"),
        // A pipe holds nothing, and who needs one makes it.
        EntryKind::Pipe => Decision::Skip,
        EntryKind::Other => Decision::Refuse("neither file, directory nor link"),
    }
}

fn whiteout(parent: &[u8], name: &[u8]) -> Decision {
    if name == OPAQUE {
        return Decision::Opaque(parent.to_vec());
    }
    if name.starts_with(WHITEOUT_META) {
        return Decision::Skip;
    }
    match &name[WHITEOUT.len()..] {
        b"" | b"." | b".." => Decision::Refuse("whiteout of nothing"),
        hidden => Decision::Whiteout(join(parent, hidden)),
    }
}

/// The path inside the root that `path` spells. A leading slash means the root,
/// as it does for every unpacker of images.
fn normalise(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut clean: Vec<u8> = Vec::with_capacity(path.len().min(MAX_PATH_BYTES));
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err("path with .."),
            part if part.contains(&0) => return Err("path with a zero byte"),
            part if part.len() > MAX_NAME_BYTES => return Err("name too long"),
            part => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend_from_slice(part);
                if clean.len() > MAX_PATH_BYTES {
                    return Err("path too long");
                }
            }
        }
    }
    Ok(clean)
}

/// Parent and name; the parent of a top-level name is empty.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

pub(super) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() {
        return name.to_vec();
    }
    [parent, b"/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Decision {
        decide(path.as_bytes(), EntryKind::File, b"")
    }

    fn keep(path: &str) -> Decision {
        Decision::Keep(path.into())
    }

    #[test]
    fn spellings_of_a_path_are_one_path() {
        for path in ["a/b", "./a/b", "/a/b", "a//b/", "a/./b"] {
            assert_eq!(file(path), keep("a/b"), "{path}");
        }
        let long = "n".repeat(256);
        for path in ["../a", "a/../b", "a\0b", "", &long, &"d/".repeat(3000)] {
            assert!(matches!(file(path), Decision::Refuse(_)), "{path}");
        }
    }

    #[test]
    fn whiteouts_are_told_from_names() {
        assert_eq!(file("d/.wh.x"), Decision::Whiteout("d/x".into()));
        assert_eq!(file(".wh.x"), Decision::Whiteout("x".into()));
        assert_eq!(file("d/.wh..wh..opq"), Decision::Opaque("d".into()));
        assert_eq!(file(".wh..wh..opq"), Decision::Opaque("".into()));
        assert_eq!(file(".wh..wh.plnk/1.2"), Decision::Skip);
        assert_eq!(file(".whx"), keep(".whx"));
        for path in [".wh.", "a/.wh..", "a/.wh...", ".wh.a/b"] {
            assert!(matches!(file(path), Decision::Refuse(_)), "{path}");
        }
    }

    #[test]
    fn links_devices_and_pipes() {
        let link = |kind, target: &str| decide(b"a", kind, target.as_bytes());
        assert_eq!(link(EntryKind::Symlink, "../../etc"), keep("a"));
        assert!(matches!(link(EntryKind::Symlink, ""), Decision::Refuse(_)));
        assert_eq!(
            link(EntryKind::HardLink, "/b"),
            Decision::Link {
                path: b"a".to_vec(),
                target: b"b".to_vec()
            }
        );
        assert!(matches!(
            link(EntryKind::HardLink, "../b"),
            Decision::Refuse(_)
        ));
        assert_eq!(decide(b"dev/null", EntryKind::Device, b""), Decision::Skip);
        assert!(matches!(
            decide(b"null", EntryKind::Device, b""),
            Decision::Refuse(_)
        ));
        assert_eq!(decide(b"run/p", EntryKind::Pipe, b""), Decision::Skip);
        assert_eq!(decide(b"./", EntryKind::Directory, b""), Decision::Skip);
    }
}
