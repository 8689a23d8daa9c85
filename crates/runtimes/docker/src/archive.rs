//! Streams an environment's root as a tar archive.
//!
//! Uses `tar`: as an unprivileged user it has to run in a user namespace with the user's
//! subordinate ids, which needs a separate program.

use bytes::Bytes;
use motu_core::hint::host;
use motu_core::{Error, hint};
use motu_packages::ids;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Buffered pieces: a slow engine blocks `tar`, and memory stays bounded.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 256 * 1024;
/// How much of an error message is read.
const SAID_MOST: u64 = 4096;

/// Starts reading. An incomplete archive ends with an error, so that the engine does not accept it.
pub(crate) fn of(root: &Path) -> Result<mpsc::Receiver<io::Result<Bytes>>, Error> {
    let user = rustix::process::geteuid();
    if !user.is_root() {
        ids::check(user.as_raw()).map_err(|lacking| {
            let message = format!("reading the environment: {lacking}");
            Error::unavailable(message).hint(hint![host(lacking.fix())])
        })?;
    }
    start(root).map_err(|error| Error::io("reading the environment", &error))
}

fn start(root: &Path) -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    let mut child = command(root).spawn()?;
    let complaints = child.stderr.take().map(listen);
    let (send, receive) = mpsc::channel(PIECES);
    std::thread::Builder::new()
        .name("motu-tar".into())
        .spawn(move || {
            let read = pump(&mut child, &send);
            if !matches!(read, Ok(Taken::All)) {
                // It may be blocked in a write.
                let _ = child.kill();
            }
            let ended = end(child, complaints);
            if let Err(error) = read.and(ended) {
                let _ = send.blocking_send(Err(error));
            }
        })?;
    Ok(receive)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    All,
    /// The receiver is gone.
    Part,
}

fn command(root: &Path) -> Command {
    let mut command = match rustix::process::geteuid().is_root() {
        true => Command::new("tar"),
        false => {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--map-auto", "--", "tar"]);
            command
        }
    };
    command
        .args(["--create", "--file=-", "--format=posix", "--numeric-owner"])
        // File capabilities are stored here.
        .args(["--xattrs", "--xattrs-include=security.capability"])
        .args(["--one-file-system", "--directory"])
        .arg(root)
        .arg(".")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn pump(child: &mut Child, send: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<Taken> {
    let mut out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        out.by_ref()
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut piece)?;
        if piece.is_empty() {
            return Ok(Taken::All);
        }
        if send.blocking_send(Ok(piece.into())).is_err() {
            return Ok(Taken::Part);
        }
    }
}

/// Drains standard error in a thread, so that `tar` does not block on a full pipe.
fn listen(mut errors: ChildStderr) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = errors.by_ref().take(SAID_MOST).read_to_end(&mut said);
        let _ = io::copy(&mut errors, &mut io::sink());
        said
    })
}

fn end(mut child: Child, complaints: Option<JoinHandle<Vec<u8>>>) -> io::Result<()> {
    let status = child.wait()?;
    let said = complaints.and_then(|heard| heard.join().ok());
    let said = said.unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    match status.success() || only_linked(status.code(), &said) {
        true => Ok(()),
        false => {
            let said = ids::plainly(&said);
            Err(io::Error::other(format!("tar ({status}): {said}")))
        }
    }
}

/// Whether all that `tar` complains of is that files changed while it read them. The tree of an environment is never
/// written to, but another tree that gets links to the same files changes the times of their inodes.
fn only_linked(code: Option<i32>, said: &str) -> bool {
    let changed = |line: &str| line.ends_with(": file changed as we read it");
    code == Some(1) && !said.is_empty() && said.lines().all(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(mut pieces: mpsc::Receiver<io::Result<Bytes>>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(piece) = pieces.blocking_recv() {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }

    #[test]
    fn a_tree_is_read_whole_and_a_missing_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), vec![7u8; 3 * PIECE_BYTES]).unwrap();
        let archive = whole(of(dir.path()).unwrap()).unwrap();
        assert!(archive.len() > 3 * PIECE_BYTES);
        assert_eq!(archive.len() % 512, 0);
        let error = whole(of(&dir.path().join("missing")).unwrap()).unwrap_err();
        assert!(error.to_string().contains("tar"), "{error}");
    }

    #[test]
    fn links_made_meanwhile_are_no_failure_and_anything_else_is() {
        let linked = "tar: ./usr/bin/perl: file changed as we read it\n";
        assert!(only_linked(Some(1), linked));
        assert!(only_linked(Some(1), &linked.repeat(2)));
        assert!(!only_linked(Some(2), linked));
        assert!(!only_linked(None, linked));
        assert!(!only_linked(Some(1), ""));
        let gone = "tar: ./x: File removed before we read it\n";
        assert!(!only_linked(Some(1), &format!("{linked}{gone}")));
    }

    #[test]
    fn nobody_has_to_take_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), vec![7u8; 64 * PIECE_BYTES]).unwrap();
        let mut pieces = of(dir.path()).unwrap();
        assert!(pieces.blocking_recv().unwrap().is_ok());
        drop(pieces);
    }
}
