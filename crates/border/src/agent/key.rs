//! Private keys in OpenSSH's format, and signatures made with them.

use super::wire::{Reader, padded, put_large, put_string};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::digest;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPairComponents, PublicKeyComponents};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA512, RsaKeyPair,
};
use std::cmp::Ordering;
use std::fmt;
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// Accepted RSA key sizes: smaller keys are weak, larger ones not supported.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// Why a text is not a usable key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it is not a private key in OpenSSH's own format")]
    Format,
    #[error("it has a passphrase, and nobody could type it")]
    Passphrase,
    #[error("it is none of ssh-ed25519, ecdsa-sha2-nistp256 and ssh-rsa")]
    Kind,
    #[error("it is an RSA key of less than 2048 or more than 4096 bits")]
    Size,
    #[error("it is damaged")]
    Damaged,
}

/// A private key; never printed.
pub struct PrivateKey {
    pair: Pair,
    /// The public key blob.
    blob: Vec<u8>,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PrivateKey({})", self.fingerprint())
    }
}

impl PrivateKey {
    /// Reads the text of a key file.
    pub fn read(text: &str) -> Result<Self, KeyError> {
        let bytes = armoured(text).ok_or(KeyError::Format)?;
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC).ok_or(KeyError::Format)?);
        let head = (reader.string(), reader.string(), reader.string());
        let (Some(cipher), Some(kdf), Some(_)) = head else {
            return Err(KeyError::Damaged);
        };
        if cipher != b"none" || kdf != b"none" {
            return Err(KeyError::Passphrase);
        }
        let one = reader.number() == Some(1);
        let (Some(blob), Some(secret), true) = (reader.string(), reader.string(), one) else {
            return Err(KeyError::Damaged);
        };
        let mut secret = Reader::new(secret);
        let checks = (secret.number(), secret.number());
        if checks.0.is_none() || checks.0 != checks.1 {
            return Err(KeyError::Damaged);
        }
        let (pair, own) = pair(&mut secret)?;
        // The public key offered to a host must belong to the private key.
        if own != blob {
            return Err(KeyError::Damaged);
        }
        Ok(Self { pair, blob: own })
    }

    /// The public key blob.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// The key type, as in a public key.
    pub fn kind(&self) -> &'static str {
        match self.pair {
            Pair::Ed25519(_) => "ssh-ed25519",
            Pair::P256(_) => "ecdsa-sha2-nistp256",
            Pair::Rsa(_) => "ssh-rsa",
        }
    }

    /// The public key's fingerprint, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> String {
        let hash = digest::digest(&digest::SHA256, &self.blob);
        format!("SHA256:{}", STANDARD_NO_PAD.encode(hash))
    }

    /// A signature blob by an algorithm of this key.
    pub(super) fn sign(&self, algorithm: &[u8], data: &[u8]) -> Option<Vec<u8>> {
        let mut raw = Vec::new();
        match (&self.pair, algorithm) {
            (Pair::Ed25519(pair), b"ssh-ed25519") => raw.extend(pair.sign(data).as_ref()),
            (Pair::P256(pair), b"ecdsa-sha2-nistp256") => {
                let signed = pair.sign(&SystemRandom::new(), data).ok()?;
                let (r, s) = signed.as_ref().split_at_checked(32)?;
                put_large(&mut raw, r);
                put_large(&mut raw, s);
            }
            (Pair::Rsa(pair), b"rsa-sha2-256" | b"rsa-sha2-512") => {
                let how = match algorithm {
                    b"rsa-sha2-256" => &RSA_PKCS1_SHA256,
                    _ => &RSA_PKCS1_SHA512,
                };
                raw.resize(pair.public().modulus_len(), 0);
                pair.sign(how, &SystemRandom::new(), data, &mut raw).ok()?;
            }
            _ => return None,
        }
        let mut signature = Vec::new();
        put_string(&mut signature, algorithm);
        put_string(&mut signature, &raw);
        Some(signature)
    }
}

/// The decoded bytes of a key file.
fn armoured(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let inner = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let mut joined = Zeroizing::new(String::with_capacity(inner.len()));
    joined.extend(inner.split_ascii_whitespace());
    STANDARD.decode(joined.as_bytes()).ok().map(Zeroizing::new)
}

/// Parses the key pair.
fn pair(reader: &mut Reader<'_>) -> Result<(Pair, Vec<u8>), KeyError> {
    let kind = reader.string().ok_or(KeyError::Damaged)?;
    let mut blob = Vec::new();
    put_string(&mut blob, kind);
    let pair = match kind {
        b"ssh-ed25519" => ed25519(reader, &mut blob).ok_or(KeyError::Damaged)?,
        b"ecdsa-sha2-nistp256" => p256(reader, &mut blob).ok_or(KeyError::Damaged)?,
        b"ssh-rsa" => rsa(reader, &mut blob)?,
        _ => return Err(KeyError::Kind),
    };
    Ok((pair, blob))
}

fn ed25519(reader: &mut Reader<'_>, blob: &mut Vec<u8>) -> Option<Pair> {
    let (public, secret) = (reader.string()?, reader.string()?);
    let seed = secret.strip_suffix(public)?;
    put_string(blob, public);
    let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public);
    pair.ok().map(Pair::Ed25519)
}

fn p256(reader: &mut Reader<'_>, blob: &mut Vec<u8>) -> Option<Pair> {
    let (curve, public, secret) = (reader.string()?, reader.string()?, reader.large()?);
    (curve == b"nistp256").then_some(())?;
    put_string(blob, curve);
    put_string(blob, public);
    let secret = Zeroizing::new(padded::<32>(secret)?);
    let pair = EcdsaKeyPair::from_private_key_and_public_key(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        secret.as_ref(),
        public,
        &SystemRandom::new(),
    );
    pair.ok().map(Pair::P256)
}

fn rsa(reader: &mut Reader<'_>, blob: &mut Vec<u8>) -> Result<Pair, KeyError> {
    let mut next = || reader.large().ok_or(KeyError::Damaged);
    let (n, e, d) = (next()?, next()?, next()?);
    let (inverse, p, q) = (next()?, next()?, next()?);
    let front = n.first().map_or(8, |first| first.leading_zeros()) as usize;
    if !RSA_BITS.contains(&(n.len() * 8 - front.min(n.len() * 8))) {
        return Err(KeyError::Size);
    }
    put_large(blob, e);
    put_large(blob, n);
    let (d_p, d_q) = (modulo_less_one(d, p), modulo_less_one(d, q));
    let components = KeyPairComponents {
        public_key: PublicKeyComponents { n, e },
        d,
        p,
        q,
        dP: d_p.as_slice(),
        dQ: d_q.as_slice(),
        qInv: inverse,
    };
    let pair = RsaKeyPair::from_components(&components);
    pair.map(Pair::Rsa).map_err(|_| KeyError::Damaged)
}

/// `number` modulo (`prime` − 1), which key files leave out. Not constant-time: a key is read where
/// no attacker can measure it.
fn modulo_less_one(number: &[u8], prime: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut modulus = Zeroizing::new(prime.to_vec());
    // A prime of this size is odd; anything else is later refused as damaged.
    if let Some(last) = modulus.last_mut() {
        *last &= 0xfe;
    }
    // One extra byte, so that doubling cannot overflow.
    let mut rest = Zeroizing::new(vec![0_u8; modulus.len() + 1]);
    modulus.insert(0, 0);
    if modulus.iter().all(|byte| *byte == 0) {
        return rest;
    }
    for bit in number
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
    {
        let mut carry = bit;
        for byte in rest.iter_mut().rev() {
            let next = *byte >> 7;
            *byte = *byte << 1 | carry;
            carry = next;
        }
        if rest.as_slice().cmp(&modulus) != Ordering::Less {
            subtract(&mut rest, &modulus);
        }
    }
    let zeros = rest.iter().take_while(|byte| **byte == 0).count();
    rest.drain(..zeros);
    rest
}

fn subtract(from: &mut [u8], less: &[u8]) {
    let mut borrow = false;
    for (byte, less) in from.iter_mut().zip(less).rev() {
        let (once, first) = byte.overflowing_sub(*less);
        let (twice, second) = once.overflowing_sub(u8::from(borrow));
        (*byte, borrow) = (twice, first || second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::host_key::HostKey;
    use crate::agent::tests::generate;

    #[test]
    fn keys_of_ssh_keygen_are_read_and_signed_with() {
        let kinds: [(&str, &str, &[&[u8]]); 4] = [
            ("ed25519", "256", &[b"ssh-ed25519"]),
            ("ecdsa", "256", &[b"ecdsa-sha2-nistp256"]),
            ("rsa", "2048", &[b"rsa-sha2-256", b"rsa-sha2-512"]),
            ("rsa", "3072", &[b"rsa-sha2-512"]),
        ];
        for (kind, bits, algorithms) in kinds {
            let made = generate(kind, bits, "");
            let key = PrivateKey::read(&made.private).unwrap();
            let public = made.public.split(' ').collect::<Vec<_>>();
            assert_eq!(key.kind(), public[0]);
            assert_eq!(STANDARD.encode(key.blob()), public[1]);
            assert!(made.listed.contains(&key.fingerprint()), "{}", made.listed);
            let host = HostKey::read(key.blob()).unwrap();
            for algorithm in algorithms {
                let signature = key.sign(algorithm, b"data").unwrap();
                assert!(host.has_signed(b"data", &signature), "{kind} {bits}");
                assert!(!host.has_signed(b"date", &signature), "{kind} {bits}");
            }
            assert_eq!(key.sign(b"ssh-rsa", b"data"), None);
            let printed = format!("{key:?}");
            assert!(printed.starts_with("PrivateKey(SHA256:"), "{printed}");
        }
    }

    #[test]
    fn other_keys_are_refused_by_their_reason() {
        let read = |text: &str| PrivateKey::read(text).unwrap_err();
        assert_eq!(read("x"), KeyError::Format);
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----";
        assert_eq!(read(pem), KeyError::Format);
        let locked = generate("ed25519", "256", "a phrase").private;
        assert_eq!(read(&locked), KeyError::Passphrase);
        assert_eq!(read(&generate("ecdsa", "384", "").private), KeyError::Kind);
        assert_eq!(read(&generate("rsa", "1024", "").private), KeyError::Size);
        let fine = generate("ed25519", "256", "").private;
        let bytes = armoured(&fine).unwrap();
        for cut in MAGIC.len()..bytes.len() - 40 {
            let text = format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(&bytes[..cut]));
            assert_eq!(read(&text), KeyError::Damaged, "{cut}");
        }
    }

    #[test]
    fn remainders_are_those_of_arithmetic() {
        for (number, prime) in [
            (1_000_003_u64, 257_u64),
            (5, 65_537),
            (u64::MAX, 4_294_967_291),
        ] {
            let short = |value: u64| {
                let bytes = value.to_be_bytes();
                let zeros = value.leading_zeros() as usize / 8;
                bytes[zeros..].to_vec()
            };
            let rest = modulo_less_one(&short(number), &short(prime));
            assert_eq!(*rest, short(number % (prime - 1)), "{number} {prime}");
        }
    }
}
