//! A Dockerfile may be anybody's: it is understood, or refused with a line; never a panic.

use motu_dockerfile::{Bounds, Ignore, expand, glob, parse};

const BOUNDS: Bounds = Bounds {
    file_bytes: 64 << 10,
    line_bytes: 16 << 10,
    instructions: 200,
};

pub fn dockerfile(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = parse(&text, &BOUNDS);
    let _ = expand(&text, '\\', 1, &|name| {
        (name.len() < 3).then(|| name.to_owned())
    });
    if let Ok(ignore) = Ignore::parse(&text) {
        let _ = ignore.excludes(b"a/b/c");
    }
    if let Some((pattern, path)) = text.split_once('\n') {
        let _ = glob::matches(pattern.as_bytes(), path.as_bytes());
    }
}
