//! Name server, trusted certificates and known hosts of the machine.

use motu_link::message::Init;
use motu_link::network;
use std::io;
use std::io::Write as _;
use std::path::Path;

const RESOLVER: &str = "/etc/resolv.conf";

/// Writes `resolv.conf` with only this name server, and the files of certificates and host keys
/// that variables of every command refer to. Empty fields change nothing.
pub fn take(init: &Init) -> io::Result<()> {
    if !init.nameserver.is_empty() {
        let text = format!("nameserver {}\n", init.nameserver);
        replace(Path::new(RESOLVER), text.as_bytes())?;
    }
    for (path, content) in [
        (network::CERTIFICATES, &init.certificates),
        (network::KNOWN_HOSTS, &init.known_hosts),
    ] {
        if !content.is_empty() {
            replace(Path::new(path), content)?;
        }
    }
    Ok(())
}

/// Replaces a path by a regular file, whatever is there: an image's symbolic link would lead to a
/// service that does not run here.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let staged = path.with_extension("motu");
    match std::fs::remove_file(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::File::create_new(&staged)?;
    file.write_all(content)?;
    match std::fs::rename(&staged, path) {
        // A container engine has bind-mounted a file there, which cannot be replaced but may be
        // written.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            std::fs::remove_file(&staged)?;
            std::fs::write(path, content)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_gives_way_and_a_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("resolv.conf");
        let elsewhere = place.path().join("elsewhere");
        replace(&path, b"one\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&elsewhere, "theirs").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        replace(&path, b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
