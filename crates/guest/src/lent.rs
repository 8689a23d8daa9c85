//! Open files that the host fetches, where both share a kernel.
//!
//! The host's bytes then go straight from file to file. Only files of the machine go over, and only
//! this way: a file of the host, once open in here, could be opened again for writing.

use crate::answer::Failed;
use crate::lock::locked;
use motu_launch::report::send_packet;
use motu_link::hello::Nonce;
use motu_link::message::Failure;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// Files that wait to be fetched.
const MOST: usize = 32;

#[derive(Debug)]
struct Offer {
    token: Nonce,
    file: OwnedFd,
    /// Dropped when the file was fetched.
    _taken: oneshot::Sender<()>,
}

/// Files that wait, by token.
#[derive(Debug, Default)]
pub struct Lent(Mutex<Vec<Offer>>);

/// A file that waits; withdrawn when this is dropped.
#[derive(Debug)]
pub struct Offered<'a> {
    lent: &'a Lent,
    pub token: Nonce,
    taken: oneshot::Receiver<()>,
}

impl Offered<'_> {
    /// Waits until the file was fetched.
    pub async fn taken(&mut self) {
        // The sender sends nothing: it goes with the file.
        let _ = (&mut self.taken).await;
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        drop(self.lent.take(&self.token));
    }
}

impl Lent {
    pub fn offer(&self, file: OwnedFd) -> Result<Offered<'_>, Failed> {
        let mut token = Nonce::default();
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Failed::errno("no random numbers", errno))?;
        let (taken, receiver) = oneshot::channel();
        let mut waiting = locked(&self.0);
        if waiting.len() >= MOST {
            let message = format!("{MOST} files wait to be fetched");
            return Err(Failed::new(Failure::Limit, message));
        }
        waiting.push(Offer {
            token,
            file,
            _taken: taken,
        });
        Ok(Offered {
            lent: self,
            token,
            taken: receiver,
        })
    }

    fn take(&self, token: &Nonce) -> Option<Offer> {
        let mut waiting = locked(&self.0);
        let at = waiting.iter().position(|offer| offer.token == *token)?;
        Some(waiting.remove(at))
    }

    /// Gives a file to whoever is at the other end. Without one the connection just closes.
    pub async fn hand_over(&self, token: &Nonce, to: &UnixStream) {
        let Some(offer) = self.take(token) else {
            return;
        };
        while to.writable().await.is_ok() {
            let file = offer.file.as_fd();
            let sent = to.try_io(Interest::WRITABLE, || {
                send_packet(to.as_fd(), b"+", &[file])
            });
            match sent {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> OwnedFd {
        tempfile::tempfile().unwrap().into()
    }

    #[tokio::test]
    async fn a_file_is_fetched_once_and_withdrawn_when_nobody_waits_any_more() {
        let lent = Lent::default();
        let mut offered = lent.offer(file()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        lent.hand_over(&[0; 16], &ours).await;
        assert_eq!(locked(&lent.0).len(), 1, "it was another's token");
        let token = offered.token;
        lent.hand_over(&token, &ours).await;
        offered.taken().await;
        theirs.readable().await.unwrap();
        assert!(lent.take(&token).is_none());
        let second = lent.offer(file()).unwrap();
        drop(second);
        assert!(locked(&lent.0).is_empty());
    }

    #[test]
    fn files_that_wait_are_bounded() {
        let lent = Lent::default();
        let waiting: Vec<_> = (0..MOST).map(|_| lent.offer(file()).unwrap()).collect();
        assert!(lent.offer(file()).is_err());
        drop(waiting);
        assert!(lent.offer(file()).is_ok());
    }
}
