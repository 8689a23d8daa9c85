//! An archive for a workspace may hold anything: what is handed out is a path that
//! stays inside, below directories handed out before; or there is a refusal; never
//! a panic, and never more than the limits.

use motu_workspaces::archive::{self, Item, Limits};
use std::{collections::HashMap, io};

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    entries: 64,
};

pub fn workspace_archive(data: &[u8]) {
    let Ok(source) = archive::unzip(data) else {
        return;
    };
    let mut directories: HashMap<Vec<u8>, bool> = HashMap::new();
    let totals = archive::read(source, LIMITS, |about, item| {
        let path = about.path.as_bytes();
        for part in path.split(|byte| *byte == b'/') {
            assert!(!matches!(part, b"" | b"." | b".."));
        }
        if let Some(at) = path.iter().rposition(|byte| *byte == b'/') {
            assert_eq!(directories.get(&path[..at]), Some(&true));
        }
        assert_eq!(directories.contains_key(path), about.replaces);
        let is_directory = matches!(item, Item::Directory);
        if let Item::File { contents, .. } = item {
            io::copy(contents, &mut io::sink())?;
        }
        directories.insert(path.to_vec(), is_directory);
        Ok(())
    });
    if let Ok(totals) = totals {
        assert!(totals.entries <= LIMITS.entries && totals.bytes <= LIMITS.bytes);
    }
}
