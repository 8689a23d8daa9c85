//! Telling whoever started a daemon that it is ready, or why it is not.

use super::Origin;
use crate::connect::READY;
use motu_core::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Write;

/// The other end is read by the command that waits for this daemon.
#[derive(Debug)]
pub struct Ready(Option<File>);

impl Ready {
    /// Takes standard input, which is the pipe, and leaves nothing in its place. Also leaves the
    /// session of the terminal, whose signals are not meant for a daemon.
    pub fn new(origin: Origin) -> Result<Ready> {
        if origin == Origin::Foreground {
            return Ok(Ready(None));
        }
        let take = || -> rustix::io::Result<File> {
            let pipe = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
            let null =
                rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::stdio::dup2_stdin(&null)?;
            Ok(File::from(pipe))
        };
        let pipe = take().map_err(|error| Error::io("take standard input", &error.into()))?;
        // Fails only for a session leader, which needs no new session.
        let _ = rustix::process::setsid();
        Ok(Ready(Some(pipe)))
    }

    pub fn done(&mut self) {
        self.tell(READY.as_bytes());
    }

    pub fn failed(&mut self, error: &Error) {
        self.tell(&motu_api::event::json(error));
    }

    fn tell(&mut self, text: &[u8]) {
        if let Some(mut pipe) = self.0.take() {
            // The starter may be gone.
            let _ = pipe.write_all(text);
        }
    }
}
