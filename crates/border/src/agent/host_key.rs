//! Public keys of hosts, and the verification of their signatures.

use super::wire::{Reader, padded};
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, UnparsedPublicKey};

/// The public key of a host, of a supported type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostKey<'a> {
    Ed25519(&'a [u8]),
    P256(&'a [u8]),
    P384(&'a [u8]),
    Rsa { n: &'a [u8], e: &'a [u8] },
}

impl<'a> HostKey<'a> {
    /// Parses a key blob; `None` for unsupported types, certificates included.
    pub(super) fn read(blob: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(blob);
        let key = match reader.string()? {
            b"ssh-ed25519" => Self::Ed25519(reader.string().filter(|key| key.len() == 32)?),
            b"ecdsa-sha2-nistp256" => {
                let curve = reader.string()?;
                (curve == b"nistp256").then_some(())?;
                Self::P256(reader.string()?)
            }
            b"ecdsa-sha2-nistp384" => {
                let curve = reader.string()?;
                (curve == b"nistp384").then_some(())?;
                Self::P384(reader.string()?)
            }
            b"ssh-rsa" => {
                let e = reader.large()?;
                Self::Rsa {
                    n: reader.large()?,
                    e,
                }
            }
            _ => return None,
        };
        reader.is_done().then_some(key)
    }

    /// Whether a signature blob over this data was made with it.
    pub(super) fn has_signed(self, data: &[u8], signature: &[u8]) -> bool {
        let mut reader = Reader::new(signature);
        let (Some(algorithm), Some(raw)) = (reader.string(), reader.string()) else {
            return false;
        };
        if !reader.is_done() {
            return false;
        }
        match (self, algorithm) {
            (Self::Ed25519(key), b"ssh-ed25519") => {
                let key = UnparsedPublicKey::new(&signature::ED25519, key);
                key.verify(data, raw).is_ok()
            }
            (Self::P256(key), b"ecdsa-sha2-nistp256") => fixed::<32>(raw).is_some_and(|raw| {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, key);
                key.verify(data, &raw).is_ok()
            }),
            (Self::P384(key), b"ecdsa-sha2-nistp384") => fixed::<48>(raw).is_some_and(|raw| {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, key);
                key.verify(data, &raw).is_ok()
            }),
            (Self::Rsa { n, e }, b"rsa-sha2-256") => {
                let key = PublicKeyComponents { n, e };
                let how = &signature::RSA_PKCS1_2048_8192_SHA256;
                key.verify(how, data, raw).is_ok()
            }
            (Self::Rsa { n, e }, b"rsa-sha2-512") => {
                let key = PublicKeyComponents { n, e };
                let how = &signature::RSA_PKCS1_2048_8192_SHA512;
                key.verify(how, data, raw).is_ok()
            }
            // SHA-1 signatures (`ssh-rsa`) are refused.
            _ => false,
        }
    }
}

/// The two numbers of an ECDSA signature, padded and concatenated.
fn fixed<const N: usize>(raw: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(raw);
    let (r, s) = (reader.large()?, reader.large()?);
    let both = [padded::<N>(r)?, padded::<N>(s)?].concat();
    reader.is_done().then_some(both)
}
