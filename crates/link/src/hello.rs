//! The handshake that starts a conversation.
//!
//! A serial port may hold bytes of an earlier conversation: the host may have died in the middle of
//! a frame, and the guest's last answers may still be in the pipe. So neither side trusts the first
//! bytes it reads. The host sends a preamble with a random nonce; the guest skips to a preamble and
//! answers with the same nonce; the host skips to its own nonce.
//!
//! ```text
//!   host  -> "MOTULINK" 'H' version(min,max) nonce
//!   guest -> "MOTULINK" 'G' version(chosen,0) nonce
//! ```
//!
//! Where both sides share a kernel, a connection may instead fetch one open file, for which the
//! guest has given out a token. The guest answers with one byte that carries the descriptor:
//!
//! ```text
//!   host  -> "MOTULINK" 'T' 0 0 token
//! ```

use crate::{LINK_VERSION, LINK_VERSION_MIN};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: &[u8; 8] = b"MOTULINK";
const LEN: usize = 8 + 1 + 4 + 4 + 16;
/// Stale bytes that a side skips before it gives up.
pub const MAX_STALE: usize = 16 * 1024 * 1024;

/// Distinguishes this conversation from all earlier ones.
pub type Nonce = [u8; 16];

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    Link,
    /// It fetches the file of this token.
    Take(Nonce),
}

/// Why a conversation did not start.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    #[error("link closed during the handshake")]
    Closed,
    #[error("no handshake in the first {MAX_STALE} bytes")]
    Noise,
    #[error(
        "the guest speaks link version {theirs}; this build speaks {LINK_VERSION_MIN} to {LINK_VERSION}"
    )]
    Version { theirs: u32 },
    #[error("link failed during the handshake: {0}")]
    Io(#[from] std::io::Error),
}

fn preamble(role: u8, low: u32, high: u32, nonce: &Nonce) -> [u8; LEN] {
    let mut out = [0u8; LEN];
    out[..8].copy_from_slice(MAGIC);
    out[8] = role;
    out[9..13].copy_from_slice(&low.to_le_bytes());
    out[13..17].copy_from_slice(&high.to_le_bytes());
    out[17..].copy_from_slice(nonce);
    out
}

struct Preamble {
    role: u8,
    low: u32,
    high: u32,
    nonce: Nonce,
}

/// Reads one byte at a time so that nothing after the preamble is consumed.
struct Scanner {
    window: Vec<u8>,
    seen: usize,
}

impl Scanner {
    fn new() -> Scanner {
        Scanner {
            window: Vec::with_capacity(LEN),
            seen: 0,
        }
    }

    /// Reads until the window is a whole preamble of one of the roles.
    async fn find<R: AsyncRead + Unpin>(
        &mut self,
        io: &mut R,
        roles: &[u8],
    ) -> Result<Preamble, HelloError> {
        loop {
            let missing = LEN - self.window.len();
            let start = self.window.len();
            self.window.resize(LEN, 0);
            let got = io.read(&mut self.window[start..start + missing]).await?;
            if got == 0 {
                return Err(HelloError::Closed);
            }
            self.window.truncate(start + got);
            self.seen += got;
            if self.seen > MAX_STALE {
                return Err(HelloError::Noise);
            }
            self.align(roles);
            if self.window.len() == LEN {
                let number = |at: usize| {
                    u32::from_le_bytes([
                        self.window[at],
                        self.window[at + 1],
                        self.window[at + 2],
                        self.window[at + 3],
                    ])
                };
                let mut found = Preamble {
                    role: self.window[8],
                    low: number(9),
                    high: number(13),
                    nonce: [0u8; 16],
                };
                found.nonce.copy_from_slice(&self.window[17..LEN]);
                self.window.clear();
                return Ok(found);
            }
        }
    }

    /// Drops bytes from the front until the window could be a preamble.
    fn align(&mut self, roles: &[u8]) {
        let start = (0..self.window.len())
            .find(|&at| {
                let rest = &self.window[at..];
                let shared = rest.len().min(MAGIC.len());
                let role = rest.get(MAGIC.len());
                rest[..shared] == MAGIC[..shared] && role.is_none_or(|role| roles.contains(role))
            })
            .unwrap_or(self.window.len());
        self.window.drain(..start);
    }
}

/// The host's side: sends a preamble and waits for the guest's answer.
pub async fn host<T: AsyncRead + AsyncWrite + Unpin>(
    io: &mut T,
    nonce: Nonce,
) -> Result<u32, HelloError> {
    io.write_all(&preamble(b'H', LINK_VERSION_MIN, LINK_VERSION, &nonce))
        .await?;
    io.flush().await?;
    let mut scanner = Scanner::new();
    loop {
        let answer = scanner.find(io, b"G").await?;
        if answer.nonce != nonce {
            continue;
        }
        let version = answer.low;
        if !(LINK_VERSION_MIN..=LINK_VERSION).contains(&version) {
            return Err(HelloError::Version { theirs: version });
        }
        return Ok(version);
    }
}

/// What the host sends on a connection that fetches a file.
pub fn take(token: &Nonce) -> [u8; LEN] {
    preamble(b'T', 0, 0, token)
}

/// The guest's side: waits for a preamble of a link and answers it.
pub async fn guest<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T) -> Result<u32, HelloError> {
    let hello = Scanner::new().find(io, b"H").await?;
    answer(io, hello).await
}

/// The guest's side of a connection that may carry descriptors: waits for a preamble, and answers
/// that of a link.
pub async fn greeting<T: AsyncRead + AsyncWrite + Unpin>(
    io: &mut T,
) -> Result<Greeting, HelloError> {
    let hello = Scanner::new().find(io, b"HT").await?;
    if hello.role == b'T' {
        return Ok(Greeting::Take(hello.nonce));
    }
    answer(io, hello).await?;
    Ok(Greeting::Link)
}

async fn answer<T: AsyncWrite + Unpin>(io: &mut T, hello: Preamble) -> Result<u32, HelloError> {
    let Preamble {
        low, high, nonce, ..
    } = hello;
    let version = high.min(LINK_VERSION);
    // Answer even without a common version: the host must learn which one we have.
    io.write_all(&preamble(b'G', version, 0, &nonce)).await?;
    io.flush().await?;
    if version < low || version < LINK_VERSION_MIN {
        return Err(HelloError::Version { theirs: high });
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stale_bytes_before_either_hello_are_skipped() {
        let (mut host_io, mut guest_io) = tokio::io::duplex(1 << 16);
        // Half a frame, a false start, and an answer to an older preamble.
        host_io.write_all(b"\x10\0\0\0MOTULIMOTU").await.unwrap();
        guest_io.write_all(b"MOTULINKGjunk").await.unwrap();
        guest_io
            .write_all(&preamble(b'G', 1, 0, &[9; 16]))
            .await
            .unwrap();
        let guest_side = tokio::spawn(async move {
            let version = guest(&mut guest_io).await;
            (version, guest_io)
        });
        assert_eq!(host(&mut host_io, [7; 16]).await.unwrap(), LINK_VERSION);
        let (version, mut guest_io) = guest_side.await.unwrap();
        assert_eq!(version.unwrap(), LINK_VERSION);
        // Nothing after the handshake was consumed.
        host_io.write_all(b"next").await.unwrap();
        let mut next = [0; 4];
        guest_io.read_exact(&mut next).await.unwrap();
        assert_eq!(&next, b"next");
    }

    #[tokio::test]
    async fn a_connection_that_fetches_a_file_is_known_by_its_token() {
        let (mut host_io, mut guest_io) = tokio::io::duplex(1 << 16);
        host_io.write_all(b"noise").await.unwrap();
        host_io.write_all(&take(&[5; 16])).await.unwrap();
        let found = greeting(&mut guest_io).await.unwrap();
        assert_eq!(found, Greeting::Take([5; 16]));
        host_io
            .write_all(&preamble(b'H', LINK_VERSION_MIN, LINK_VERSION, &[6; 16]))
            .await
            .unwrap();
        assert_eq!(greeting(&mut guest_io).await.unwrap(), Greeting::Link);
        // A serial line carries no descriptors: there it is noise.
        host_io.write_all(&take(&[5; 16])).await.unwrap();
        drop(host_io);
        assert!(matches!(
            guest(&mut guest_io).await,
            Err(HelloError::Closed)
        ));
    }

    #[tokio::test]
    async fn a_version_from_the_future_is_named() {
        let (mut host_io, mut guest_io) = tokio::io::duplex(1 << 16);
        guest_io
            .write_all(&preamble(b'G', 99, 0, &[1; 16]))
            .await
            .unwrap();
        assert!(matches!(
            host(&mut host_io, [1; 16]).await,
            Err(HelloError::Version { theirs: 99 })
        ));
    }
}
