//! The guest program as a file, for runtimes that mount it into machines (`runsc`, container
//! engines).

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes it atomically; programs of older daemons are removed.
pub fn place_program(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = place.parent().unwrap_or(place);
    std::fs::create_dir_all(dir)?;
    let staged = dir.join(format!("staged-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o555)
        .open(&staged)?;
    io::Write::write_all(&mut file, bytes)?;
    drop(file);
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("guest-") {
            // Running machines keep it open.
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::rename(staged, place)
}
