//! Paths below `/workspace`.
//!
//! Owns the syntax: a [`WorkspacePath`] is relative, made of plain names, and cannot leave the
//! workspace by itself. Code that opens it must deal with symbolic links.

use std::fmt;

/// Longest path, as the kernel has it.
pub const MAX_PATH_BYTES: usize = 4095;
/// Longest name of one file.
pub const MAX_NAME_BYTES: usize = 255;

const ROOT: &[u8] = b"/workspace";

/// A path relative to `/workspace`: no `.`, `..`, empty part or zero byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspacePath(Vec<u8>);

/// Why bytes are no path below `/workspace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("it is empty")]
    Empty,
    #[error("it is absolute and not below /workspace")]
    Absolute,
    #[error("it has a `..` in it")]
    Parent,
    #[error("it has a zero byte in it")]
    Zero,
    #[error("it is longer than {MAX_PATH_BYTES} bytes, or a name in it than {MAX_NAME_BYTES}")]
    TooLong,
}

impl WorkspacePath {
    /// Parses a relative path, or an absolute one below `/workspace`.
    ///
    /// `workspace/a` without the slash means a directory named `workspace` inside the workspace.
    pub fn parse(path: &[u8]) -> Result<Self, PathError> {
        let relative = match path {
            [b'/', ..] => match path.strip_prefix(ROOT) {
                Some(rest @ ([] | [b'/', ..])) => rest,
                _ => return Err(PathError::Absolute),
            },
            relative => relative,
        };
        let mut clean = Vec::with_capacity(relative.len().min(MAX_PATH_BYTES));
        for part in relative.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err(PathError::Parent),
                part if part.contains(&0) => return Err(PathError::Zero),
                part if part.len() > MAX_NAME_BYTES => return Err(PathError::TooLong),
                part => {
                    if !clean.is_empty() {
                        clean.push(b'/');
                    }
                    clean.extend_from_slice(part);
                }
            }
            if clean.len() > MAX_PATH_BYTES {
                return Err(PathError::TooLong);
            }
        }
        if clean.is_empty() {
            return Err(PathError::Empty);
        }
        Ok(Self(clean))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_a_path_are_one_path() {
        for path in [
            "a/b",
            "./a/b",
            "a//b/",
            "/workspace/a/b",
            "/workspace//a/./b",
        ] {
            assert_eq!(WorkspacePath::parse(path.as_bytes()).unwrap().0, b"a/b");
        }
        let inner = WorkspacePath::parse(b"workspace/a").unwrap();
        assert_eq!(inner.as_bytes(), b"workspace/a");
    }

    #[test]
    fn what_leaves_the_workspace_is_refused() {
        for (path, error) in [
            ("", PathError::Empty),
            ("/workspace", PathError::Empty),
            ("/etc/passwd", PathError::Absolute),
            ("/workspaces/a", PathError::Absolute),
            ("a/../../b", PathError::Parent),
            ("a\0b", PathError::Zero),
        ] {
            assert_eq!(WorkspacePath::parse(path.as_bytes()), Err(error), "{path}");
        }
        let long = vec![b'n'; 256];
        assert_eq!(WorkspacePath::parse(&long), Err(PathError::TooLong));
    }

    proptest! {
        #[test]
        fn a_parsed_path_is_made_of_names(path in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..40)
        ) {
            if let Ok(path) = WorkspacePath::parse(&path) {
                for part in path.as_bytes().split(|byte| *byte == b'/') {
                    prop_assert!(!matches!(part, b"" | b"." | b".."));
                    prop_assert!(!part.contains(&0));
                }
                prop_assert_eq!(&WorkspacePath::parse(path.as_bytes()).unwrap(), &path);
            }
        }
    }
}
