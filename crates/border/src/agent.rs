//! An SSH agent that signs for one purpose: to log in at a host that the key is bound to.
//!
//! ```text
//!   connection ──► not bound ──session-bind──► bound to a session ──sign──► a signature, or a refusal
//!                     │                            │
//!                     └── forwarded, a bad proof, a second session: nothing is signed any more
//! ```
//!
//! A session counts only if the host has signed its id, which nobody else can do. So a signature
//! that a sandbox obtains is only good for a login at that host, over that very session.
//!
//! No I/O: bytes in, bytes out. A connection holds one message at a time, of bounded length.

mod host_key;
mod key;
mod known;
mod login;
mod why;
mod wire;

pub use key::{KeyError, PrivateKey};
pub use known::{HOST_KEYS, KNOWN_HOSTS, KnownError, KnownHost, known_hosts};
pub use why::Why;

use crate::secret::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use host_key::HostKey;
use login::Session;
use serde::{Deserialize, Serialize};
use wire::{Reader, put_string};

/// The longest message, as in OpenSSH.
pub const MESSAGE: usize = 256 * 1024;

const FAILURE: u8 = 5;
const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGNATURE: u8 = 14;
const EXTENSION: u8 = 27;
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";
/// Session ids are hashes of these lengths: no other data that a host signs can pass for one.
const SESSION_ID: std::ops::RangeInclusive<usize> = 20..=64;
const RSA_SHA2_256: u32 = 2;
const RSA_SHA2_512: u32 = 4;

/// A key and the hosts it is bound to, as sent to a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The name of its secret, which is not confidential.
    pub name: String,
    /// The text of its key file.
    pub key: Value,
    pub hosts: Vec<KnownHost>,
}

/// The keys of a sandbox, ready to sign.
#[derive(Debug, Default)]
pub struct Ring(Vec<Held>);

#[derive(Debug)]
struct Held {
    name: String,
    key: PrivateKey,
    hosts: Vec<(String, Vec<Vec<u8>>)>,
}

impl Ring {
    pub fn new(keys: &[Key]) -> Result<Self, KeyError> {
        let held = keys.iter().map(|key| {
            let blobs = |host: &KnownHost| {
                let blobs = host.keys.iter().filter_map(|key| STANDARD.decode(key).ok());
                (host.name.clone(), blobs.collect())
            };
            Ok(Held {
                name: key.name.clone(),
                key: PrivateKey::read(key.key.as_str())?,
                hosts: key.hosts.iter().map(blobs).collect(),
            })
        });
        held.collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Held {
    /// The name of the bound host that has this host key.
    fn host(&self, host_key: &[u8]) -> Option<&str> {
        let has = |(_, keys): &&(String, Vec<Vec<u8>>)| keys.iter().any(|key| key == host_key);
        self.hosts.iter().find(has).map(|(name, _)| name.as_str())
    }
}

/// A decision, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub why: Why,
    /// The secret that was asked for, if known.
    pub secret: Option<String>,
    /// The host at the other end of the session, if known.
    pub host: Option<String>,
}

impl Said {
    fn no(why: Why) -> Self {
        Self {
            why,
            secret: None,
            host: None,
        }
    }

    pub fn is_allowed(&self) -> bool {
        self.why == Why::Signed
    }
}

/// The bytes cannot be a message: the connection is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message to the agent is empty or has more than {MESSAGE} bytes")]
pub struct NotAMessage;

/// An answer to one message, and the decision about it, if one was made.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub bytes: Vec<u8>,
    pub said: Option<Said>,
}

#[derive(Debug, Default)]
enum Bound {
    #[default]
    Not,
    To(Session),
    /// Nothing is ever signed on this connection.
    Never(Why),
}

/// One connection to the agent.
#[derive(Debug, Default)]
pub struct Agent {
    message: Vec<u8>,
    bound: Bound,
}

impl Agent {
    /// How many bytes the current message still needs.
    pub fn wants(&self) -> usize {
        let whole = self.length().map_or(4, |length| 4 + length.min(MESSAGE));
        whole.saturating_sub(self.message.len())
    }

    /// Takes bytes, at most as many as it [`wants`](Self::wants).
    pub fn take(&mut self, bytes: &[u8]) {
        let most = bytes.len().min(self.wants());
        self.message.extend_from_slice(&bytes[..most]);
    }

    /// Answers the message, if it is complete.
    pub fn answer(&mut self, ring: &Ring) -> Result<Option<Answer>, NotAMessage> {
        let Some(length) = self.length() else {
            return Ok(None);
        };
        if length == 0 || length > MESSAGE {
            return Err(NotAMessage);
        }
        if self.wants() > 0 {
            return Ok(None);
        }
        let message = std::mem::take(&mut self.message);
        let (reply, said) = match self.reply(&message[4..], ring) {
            Ok((reply, said)) => (reply, said),
            Err(said) => (vec![FAILURE], Some(said)),
        };
        let mut bytes = Vec::new();
        put_string(&mut bytes, &reply);
        Ok(Some(Answer { bytes, said }))
    }

    fn length(&self) -> Option<usize> {
        let bytes = self.message.first_chunk()?;
        usize::try_from(u32::from_be_bytes(*bytes)).ok()
    }

    fn reply(&mut self, message: &[u8], ring: &Ring) -> Result<(Vec<u8>, Option<Said>), Said> {
        let mut reader = Reader::new(message);
        match reader.byte() {
            Some(REQUEST_IDENTITIES) if reader.is_done() => Ok((self.identities(ring), None)),
            Some(SIGN_REQUEST) => {
                let (reply, said) = self.sign(reader, ring)?;
                Ok((reply, Some(said)))
            }
            Some(EXTENSION) if reader.string() == Some(SESSION_BIND) => {
                self.bind(reader, ring).map(|()| (vec![SUCCESS], None))
            }
            _ => Err(Said::no(Why::Unsupported)),
        }
    }

    /// The keys to offer: all, or those of the host that the connection is bound to.
    fn identities(&self, ring: &Ring) -> Vec<u8> {
        let useful = |held: &&Held| match &self.bound {
            Bound::Not => true,
            Bound::To(session) => held.host(&session.host_key).is_some(),
            Bound::Never(_) => false,
        };
        let useful: Vec<&Held> = ring.0.iter().filter(useful).collect();
        let mut reply = vec![IDENTITIES];
        reply.extend((useful.len() as u32).to_be_bytes());
        for held in useful {
            put_string(&mut reply, held.key.blob());
            put_string(&mut reply, held.name.as_bytes());
        }
        reply
    }

    fn bind(&mut self, mut reader: Reader<'_>, ring: &Ring) -> Result<(), Said> {
        let fields = (
            reader.string(),
            reader.string(),
            reader.string(),
            reader.flag(),
        );
        let (Some(host_key), Some(id), Some(signature), Some(forwarded)) = fields else {
            return Err(Said::no(Why::Malformed));
        };
        if !reader.is_done() {
            return Err(Said::no(Why::Malformed));
        }
        let session = Session {
            host_key: host_key.to_vec(),
            id: id.to_vec(),
        };
        let known = ring.0.iter().find_map(|held| held.host(host_key));
        let proven = SESSION_ID.contains(&id.len())
            && HostKey::read(host_key).is_some_and(|key| key.has_signed(id, signature));
        let why = match &self.bound {
            Bound::Never(why) => *why,
            Bound::To(before) if *before != session => Why::BoundTwice,
            _ if forwarded => Why::Forwarded,
            // An unknown host key may be of a type that cannot be verified.
            _ if known.is_none() => Why::UnknownHostKey,
            _ if !proven => Why::BadProof,
            _ => {
                self.bound = Bound::To(session);
                return Ok(());
            }
        };
        self.bound = Bound::Never(why);
        Err(Said {
            host: known.map(str::to_owned),
            ..Said::no(why)
        })
    }

    fn sign(&self, mut reader: Reader<'_>, ring: &Ring) -> Result<(Vec<u8>, Said), Said> {
        let fields = (reader.string(), reader.string(), reader.number());
        let (Some(blob), Some(data), Some(flags)) = fields else {
            return Err(Said::no(Why::Malformed));
        };
        if !reader.is_done() {
            return Err(Said::no(Why::Malformed));
        }
        let held = ring.0.iter().find(|held| held.key.blob() == blob);
        let held = held.ok_or(Said::no(Why::UnknownKey))?;
        let mut said = Said {
            secret: Some(held.name.clone()),
            ..Said::no(Why::Signed)
        };
        let no = |why, said: &Said| Said {
            why,
            ..said.clone()
        };
        let session = match &self.bound {
            Bound::To(session) => session,
            Bound::Not => return Err(no(Why::NotBound, &said)),
            Bound::Never(why) => return Err(no(*why, &said)),
        };
        let host = held.host(&session.host_key);
        said.host = Some(host.ok_or(no(Why::UnknownHostKey, &said))?.to_owned());
        let algorithm = login::algorithm(data, session, blob).map_err(|why| no(why, &said))?;
        let wanted: Option<&[u8]> = match (held.key.kind(), flags) {
            ("ssh-rsa", RSA_SHA2_256) => Some(b"rsa-sha2-256"),
            ("ssh-rsa", RSA_SHA2_512) => Some(b"rsa-sha2-512"),
            ("ssh-rsa", _) => None,
            (kind, _) => Some(kind.as_bytes()),
        };
        let signature = wanted
            .filter(|wanted| *wanted == algorithm)
            .and_then(|wanted| held.key.sign(wanted, data))
            .ok_or(no(Why::Algorithm, &said))?;
        let mut reply = vec![SIGNATURE];
        put_string(&mut reply, &signature);
        Ok((reply, said))
    }
}

#[cfg(test)]
mod tests;
