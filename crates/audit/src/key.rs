//! The keys of a log: one signs it, one hides requests behind a keyed hash.
//!
//! ```text
//!   MOTU_HOME/audit.key     0600, text:
//!     motu audit key 1
//!     <32 bytes, hex>       seed of the Ed25519 key
//!     <32 bytes, hex>       key of the HMAC-SHA-256 over requests
//!     <8 bytes, hex>        the beginning of the SHA-256 of the lines above
//! ```

use crate::disk::sync_dir;
use crate::hex::{hex, unhex};
use motu_core::{Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use ring::{hmac, signature};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const TITLE: &str = "motu audit key 1";

/// The public key, with which anyone can check the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Parses 64 lower-case digits.
    pub fn parse(text: &str) -> Result<PublicKey> {
        unhex(text)
            .map(PublicKey)
            .ok_or_else(|| Error::invalid("a public key is 64 characters of 0-9 and a-f"))
    }

    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(message, signature)
            .is_ok()
    }

    /// A short form of the key, to compare by eye.
    pub fn fingerprint(&self) -> String {
        format!("sha256:{}", hex(digest(&SHA256, &self.0).as_ref()))
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The private key.
pub struct Key {
    pair: Ed25519KeyPair,
    requests: hmac::Key,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

impl Key {
    /// Reads the key. A missing one is `None`; a damaged one is an error.
    pub fn read(path: &Path) -> Result<Option<Key>> {
        let mut text = String::new();
        match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened
                .and_then(|file| file.take(4096).read_to_string(&mut text))
                .map_err(|error| Error::io("read audit.key", &error))?,
        };
        let lines: Vec<&str> = text.lines().collect();
        let key = match lines[..] {
            [TITLE, seed, requests, sum] if sum == checksum(seed, requests) => {
                Key::new(seed, requests)
            }
            _ => None,
        };
        key.map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "audit.key is damaged").hint(
                "bring it back from a backup, or move it and `audit/` away to begin a new log",
            )
        })
    }

    /// Makes a key and stores it durably beside its place: a key that has its name has a log.
    pub fn draft(path: &Path) -> Result<Key> {
        let failed = |error| Error::io("make audit.key", &error);
        let mut bytes = [[0u8; 32]; 2];
        for half in &mut bytes {
            SystemRandom::new()
                .fill(half)
                .map_err(|_| Error::internal("there is no randomness"))?;
        }
        let (seed, requests) = (hex(&bytes[0]), hex(&bytes[1]));
        let sum = checksum(&seed, &requests);
        let staged = drafted(path);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&staged)
            .map_err(failed)?;
        write!(file, "{TITLE}\n{seed}\n{requests}\n{sum}\n").map_err(failed)?;
        file.sync_all().map_err(failed)?;
        sync_dir(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        Key::new(&seed, &requests).ok_or_else(|| Error::internal("a new key is none"))
    }

    /// The key that was drafted, if one was.
    pub fn drafted(path: &Path) -> Option<Key> {
        Key::read(&drafted(path)).ok().flatten()
    }

    /// Gives a drafted key its name.
    pub fn keep(path: &Path) -> Result<()> {
        let failed = |error| Error::io("keep audit.key", &error);
        std::fs::rename(drafted(path), path).map_err(failed)?;
        sync_dir(path.parent().unwrap_or(Path::new("/"))).map_err(failed)
    }

    fn new(seed: &str, requests: &str) -> Option<Key> {
        let seed: [u8; 32] = unhex(seed)?;
        let requests: [u8; 32] = unhex(requests)?;
        Some(Key {
            pair: Ed25519KeyPair::from_seed_unchecked(&seed).ok()?,
            requests: hmac::Key::new(hmac::HMAC_SHA256, &requests),
        })
    }

    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    pub fn sign(&self, message: &[u8]) -> [u8; signature::ED25519_PUBLIC_KEY_LEN * 2] {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.pair.sign(message).as_ref());
        bytes
    }

    /// The keyed hash of a request: without the key, guesses cannot be tested against it.
    pub fn hide(&self, canonical: &[u8]) -> String {
        hex(hmac::sign(&self.requests, canonical).as_ref())
    }
}

fn drafted(path: &Path) -> PathBuf {
    path.with_extension("key.new")
}

fn checksum(seed: &str, requests: &str) -> String {
    let text = format!("{TITLE}\n{seed}\n{requests}\n");
    hex(&digest(&SHA256, text.as_bytes()).as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_private_stays_the_same_and_is_never_taken_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.key");
        assert!(Key::read(&path).unwrap().is_none());
        let made = Key::draft(&path).unwrap();
        assert!(Key::read(&path).unwrap().is_none(), "it has no log yet");
        assert_eq!(Key::drafted(&path).unwrap().public(), made.public());
        Key::keep(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Key::read(&path).unwrap().unwrap();
        assert_eq!(read.public(), made.public());
        assert!(made.public().verifies(b"x", &read.sign(b"x")));
        assert!(!made.public().verifies(b"y", &read.sign(b"x")));
        let text = std::fs::read_to_string(&path).unwrap();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(Key::read(&path).is_err(), "byte {at}");
        }
        assert!(!format!("{made:?}").contains(text.lines().nth(1).unwrap()));
    }
}
