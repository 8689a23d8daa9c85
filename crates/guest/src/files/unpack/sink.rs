//! Where the body of an entry goes.

use super::names::failed;
use crate::answer::Failed;
use crate::files::sparse::SparseSink;
use crate::files::write::Temporary;
use motu_archive::{Header, Type};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The least zeros worth a hole: what the pieces of an archive hold, about.
const HOLE: usize = 16 * 1024;

#[derive(Debug)]
pub enum Sink {
    /// Written as it comes.
    File {
        fd: OwnedFd,
        header: Box<Header>,
        staged: Option<Temporary>,
    },
    Sparse {
        sink: Box<SparseSink>,
        header: Box<Header>,
        staged: Option<Temporary>,
    },
    Meta {
        kind: Type,
        bytes: Vec<u8>,
    },
    Nothing,
}

/// Gives a file its name, if it does not have it yet.
pub fn take_place(staged: Option<Temporary>) -> Result<(), Errno> {
    match staged {
        Some(staged) => staged.commit(false),
        None => Ok(()),
    }
}

impl Sink {
    pub fn file(fd: OwnedFd, header: Header, staged: Option<Temporary>) -> Sink {
        let header = Box::new(header);
        match header.real_size {
            Some(size) => Sink::Sparse {
                sink: Box::new(SparseSink::new(fd, size)),
                header,
                staged,
            },
            None => Sink::File { fd, header, staged },
        }
    }

    /// Takes more of the body. What is only zeros need not be written.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), Failed> {
        match self {
            Sink::Nothing => Ok(()),
            Sink::Meta { bytes: known, .. } => {
                known.extend_from_slice(bytes);
                Ok(())
            }
            Sink::Sparse { sink, header, .. } => sink.take(bytes, &header.path),
            Sink::File { fd, header, .. } => {
                if bytes.len() >= HOLE && bytes.iter().all(|byte| *byte == 0) {
                    let ahead = rustix::fs::SeekFrom::Current(bytes.len() as i64);
                    return match rustix::fs::seek(&*fd, ahead) {
                        Ok(_) => Ok(()),
                        Err(errno) => Err(failed(&header.path, errno)),
                    };
                }
                while !bytes.is_empty() {
                    match rustix::io::write(&*fd, bytes) {
                        Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                        Err(Errno::INTR) => {}
                        Err(errno) => return Err(failed(&header.path, errno)),
                    }
                }
                Ok(())
            }
        }
    }
}
