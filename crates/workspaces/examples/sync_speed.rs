//! Measures a push of an unchanged tree: `cargo run --release --example sync_speed -- SOURCE`.
#![expect(clippy::unwrap_used, reason = "a failure ends the measurement")]

use std::{
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
    time::Instant,
};

use motu_workspaces::sync::{Listed, Options, plan};

fn main() {
    let source = std::env::args().nth(1).unwrap();
    let source = Path::new(&source);
    let first = plan(source, &[], Options::default()).unwrap();
    let listing: Vec<Listed> = first
        .paths()
        .map(|path| {
            let full = source.join(std::ffi::OsStr::from_bytes(path));
            let meta = full.symlink_metadata().unwrap();
            Listed {
                path: path.to_vec(),
                mode: meta.mode(),
                size: meta.len(),
                modified_unix_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
                symlink_target: Vec::new(),
            }
        })
        .collect();
    for gitignore in [false, true] {
        let start = Instant::now();
        let options = Options {
            gitignore,
            ..Options::default()
        };
        let plan = plan(source, &listing, options).unwrap();
        let elapsed = start.elapsed();
        println!(
            "gitignore {gitignore}: {} unchanged, {} to send, {elapsed:?}",
            plan.unchanged,
            plan.paths().count()
        );
    }
}
