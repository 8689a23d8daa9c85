//! The identity of a state directory, for labels of containers.
//!
//! Several daemons may share one engine. Everything a daemon makes carries the identity of its
//! state directory: a random number, unique to it.

use motu_core::Error;
use std::io::{self, Write as _};
use std::path::Path;

/// The file in the state directory.
const FILE: &str = "docker.id";
const BYTES: usize = 16;

/// The identity of a state directory, created if it has none.
pub(crate) fn of(home: &Path) -> Result<String, Error> {
    let failed = |error: io::Error| Error::io("the state directory's identity", &error);
    if let Some(known) = read(home).map_err(failed)? {
        return Ok(known);
    }
    draw(home).map_err(failed)?;
    let drawn = read(home).map_err(failed)?;
    drawn.ok_or_else(|| Error::internal("the state directory's identity cannot be read"))
}

/// The identity, if there is one; an invalid file is an error, and never replaced.
pub(crate) fn read(home: &Path) -> io::Result<Option<String>> {
    let text = match std::fs::read_to_string(home.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let text = text.trim();
    let right = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match right {
        true => Ok(Some(text.to_ascii_lowercase())),
        false => Err(io::Error::other(format!("{FILE} is damaged"))),
    }
}

/// Written atomically with a hard link: of two concurrent attempts, the first counts.
fn draw(home: &Path) -> io::Result<()> {
    let mut random = [0u8; BYTES];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let staged = home.join(format!("{FILE}.{text}"));
    let mut file = std::fs::File::create_new(&staged)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&staged, home.join(FILE));
    std::fs::remove_file(&staged)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_drawn_once_and_never_replaced() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(read(one.path()).unwrap(), None);
        let first = of(one.path()).unwrap();
        assert_eq!(of(one.path()).unwrap(), first);
        draw(one.path()).unwrap();
        assert_eq!(of(one.path()).unwrap(), first);
        assert_ne!(of(two.path()).unwrap(), first);
        assert_eq!(std::fs::read_dir(one.path()).unwrap().count(), 1);
        std::fs::write(one.path().join(FILE), "../x").unwrap();
        assert!(of(one.path()).is_err());
    }
}
