//! Handles what a caller sends to a process it follows.

use super::Guest;
use super::table::Running;
use motu_link::message::{Control, Do};
use motu_link::{Event, LinkError, Receiver};
use motu_peer::answer::Failed;
use prost::Message as _;

/// Bytes of input per call.
const PIECE: usize = 64 * 1024;

impl Guest {
    /// Handles input and controls until the caller is gone.
    pub(super) async fn listen(&self, process: &Running, rx: &mut Receiver) -> LinkError {
        loop {
            let done = match rx.recv().await {
                Ok(Event::Data { bytes, .. }) => self.typed(process, &bytes).await,
                Ok(Event::Eof) => self.told(self.envd.close_stdin(process.pid).await).await,
                Ok(Event::Message(bytes)) => {
                    let control = Control::decode(bytes).ok().and_then(|found| found.what);
                    match control {
                        Some(Do::Signal(signal)) => {
                            self.send(process, signal.signal, signal.tree).await
                        }
                        Some(Do::Resize(size)) => {
                            let size = (size.cols, size.rows);
                            self.told(self.envd.resize(process.pid, size).await).await
                        }
                        None => Ok(()),
                    }
                }
                Ok(Event::Reset | Event::End(_)) => return LinkError::Reset,
                Err(error) => return error,
            };
            // A process that has just ended accepts no input: its end follows.
            if let Err(failed) = done {
                let reason = failed.message;
                tracing::debug!(
                    id = self.id,
                    pid = process.pid,
                    reason,
                    "passing input to a process failed"
                );
            }
        }
    }

    /// Sends input to a process, in order.
    pub(super) async fn typed(&self, process: &Running, bytes: &[u8]) -> Result<(), Failed> {
        for piece in bytes.chunks(PIECE) {
            let sent = self.envd.input(process.pid, process.about.pty, piece).await;
            self.told(sent).await?;
        }
        Ok(())
    }
}
