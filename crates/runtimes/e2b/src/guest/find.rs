//! Listings: pages of a directory or tree, and glob matches.

use super::Guest;
use super::files::{below, text};
use bytes::Bytes;
use globset::{GlobBuilder, GlobMatcher};
use motu_core::limits;
use motu_link::Stream;
use motu_link::message::{Entries, Entry, Failure, FileType, Glob, List, Said};
use motu_peer::answer::{Failed, fitting, note};

/// Default page size.
const PAGE: usize = 1000;
/// The deepest listing.
const MAX_DEPTH: u32 = 64;
/// Directories that one search may list.
const MAX_LOOKED: usize = 10_000;

fn is_directory(entry: &Entry) -> bool {
    entry.kind == FileType::Directory as i32
}

impl Guest {
    /// The entries of one directory, sorted.
    async fn directory(&self, path: &str) -> Result<Vec<Entry>, Failed> {
        let listed = match self.told(self.envd.list(path).await).await {
            Ok(listed) => listed,
            Err(failed) if matches!(failed.kind, Failure::Io | Failure::Invalid) => {
                let meant = self.meant(path).await?;
                return Err(match meant {
                    Some((_, info)) if !info.is_directory() => {
                        Failed::invalid(format!("{path:?} is not a directory"))
                    }
                    _ => failed,
                });
            }
            Err(failed) => return Err(failed),
        };
        if listed.len() as u64 > limits::PROVIDER_ENTRIES.max {
            let most = limits::PROVIDER_ENTRIES.max;
            let message = format!("{path:?} has more entries than provider_entries ({most})");
            return Err(Failed::new(Failure::Limit, message));
        }
        let named = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('/');
        let mut entries: Vec<Entry> = listed
            .iter()
            .filter(|info| named(&info.name))
            .map(|info| info.entry(&below(path, &info.name)))
            .collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    pub(super) async fn list(&self, list: List, stream: &mut Stream) -> Result<(), Failed> {
        let depth = list.depth.max(1);
        if depth > MAX_DEPTH {
            let message = format!("depth {depth} is more than {MAX_DEPTH}");
            return Err(Failed::invalid(message));
        }
        let limit = match list.limit as usize {
            0 => PAGE,
            limit => limit,
        };
        // In tree order: a directory, then its contents. The next entry to visit is last.
        let mut waiting: Vec<(Entry, u32)> = Vec::new();
        let push = |waiting: &mut Vec<(Entry, u32)>, entries: Vec<Entry>, level: u32| {
            waiting.extend(entries.into_iter().rev().map(|entry| (entry, level)));
        };
        push(&mut waiting, self.directory(text(&list.path)?).await?, 1);
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((entry, level)) = waiting.pop() {
            if is_directory(&entry) && level < depth && entries.len() <= limit {
                let inside = self.directory(text(&entry.path)?).await?;
                push(&mut waiting, inside, level + 1);
            }
            if list.after.is_empty() || later(&entry.path, &list.after) {
                entries.push(entry);
            }
            if entries.len() > limit {
                break;
            }
        }
        let fit = fitting(&entries, limit);
        let more = entries.len() > fit;
        entries.truncate(fit);
        let last = entries.last().map(|entry| entry.path.clone());
        let next = last.filter(|_| more).unwrap_or_default();
        Ok(note(&stream.tx, Said::Entries(Entries { entries, next })).await?)
    }

    /// Walks below the fixed prefix of the pattern, no deeper than it can match.
    pub(super) async fn glob(&self, glob: Glob, stream: &mut Stream) -> Result<(), Failed> {
        let limit = match glob.limit as usize {
            0 => PAGE,
            limit => limit,
        };
        let pattern = text(&glob.pattern)?;
        let matcher = matcher(pattern)?;
        let (root, depth) = beginning(pattern);
        let mut found: Vec<Entry> = Vec::new();
        let mut waiting = vec![(root.to_string(), 1)];
        let mut looked = 0;
        while let Some((directory, level)) = waiting.pop() {
            looked += 1;
            if looked > MAX_LOOKED {
                let message =
                    format!("{pattern:?} needs a look into more than {MAX_LOOKED} directories");
                return Err(Failed::new(Failure::Limit, message));
            }
            let entries = match self.directory(&directory).await {
                Ok(entries) => entries,
                // A directory that is gone or unreadable has no matches.
                Err(failed) if failed.kind == Failure::Cancelled => return Err(failed),
                Err(_) => continue,
            };
            for entry in entries {
                let path = text(&entry.path)?.to_string();
                if is_directory(&entry) && level < depth {
                    waiting.push((path.clone(), level + 1));
                }
                if matcher.is_match(&path) {
                    found.push(entry);
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        pages(found, limit, stream).await
    }
}

/// Sends the entries in as many notes as needed.
async fn pages(mut entries: Vec<Entry>, limit: usize, stream: &Stream) -> Result<(), Failed> {
    let more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().map(|entry| entry.path.clone());
    let last = last.filter(|_| more).unwrap_or_default();
    loop {
        let rest = entries.split_off(fitting(&entries, entries.len()));
        let next = match rest.is_empty() {
            true => last.clone(),
            false => Bytes::new(),
        };
        note(&stream.tx, Said::Entries(Entries { entries, next })).await?;
        if rest.is_empty() {
            return Ok(());
        }
        entries = rest;
    }
}

fn matcher(pattern: &str) -> Result<GlobMatcher, Failed> {
    if !pattern.starts_with('/') {
        return Err(Failed::invalid("a pattern is an absolute path"));
    }
    let built = GlobBuilder::new(pattern).literal_separator(true).build();
    let wrong = |error: globset::Error| Failed::invalid(format!("{pattern:?}: {}", error.kind()));
    Ok(built.map_err(wrong)?.compile_matcher())
}

/// The directory above all matches, and the depth of a match below it.
fn beginning(pattern: &str) -> (&str, u32) {
    let special = pattern
        .find(['*', '?', '[', '{', '\\'])
        .unwrap_or(pattern.len());
    let end = pattern[..special].rfind('/').unwrap_or(0);
    let rest = &pattern[end..];
    // Braces may contain slashes.
    let depth = match rest.contains("**") || rest.contains('{') {
        true => MAX_DEPTH,
        false => rest.matches('/').count() as u32,
    };
    match end {
        0 => ("/", depth),
        end => (&pattern[..end], depth),
    }
}

/// Whether a path comes after another in tree order.
fn later(path: &[u8], other: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .gt(other.split(|byte| *byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_begins_where_the_pattern_does() {
        assert_eq!(beginning("/a/b/*.txt"), ("/a/b", 1));
        assert_eq!(beginning("/a/b*/c"), ("/a", 2));
        assert_eq!(beginning("/*"), ("/", 1));
        assert_eq!(beginning("/a/**/x"), ("/a", MAX_DEPTH));
        assert_eq!(beginning("/a/b"), ("/a", 1));
        assert_eq!(beginning("/a/{b,c/d}"), ("/a", MAX_DEPTH));
    }

    #[test]
    fn patterns_mean_what_they_mean_elsewhere() {
        let hit = |pattern: &str, path: &str| matcher(pattern).unwrap().is_match(path);
        assert!(hit("/g/*.txt", "/g/one.txt"));
        assert!(!hit("/g/*.txt", "/g/deep/one.txt"));
        assert!(hit("/g/**/*.txt", "/g/one.txt"));
        assert!(hit("/g/{one,two}.*", "/g/two.rs"));
        assert!(matcher("*.txt").is_err());
        assert!(matcher("/[").is_err());
    }
}
