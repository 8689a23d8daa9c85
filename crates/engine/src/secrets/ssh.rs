//! Bindings of secrets that are SSH private keys.

use motu_border::agent::{HOST_KEYS, KNOWN_HOSTS, KeyError, KnownError, KnownHost, MESSAGE};
use motu_border::agent::{PrivateKey, known_hosts};
use motu_core::secret::SetSecret;
use motu_core::{Error, Result, limits};
use motu_egress::host::Host;
use serde::{Deserialize, Serialize};

// The table of limits must agree with the constants of the border.
const _: () = assert!(limits::SECRET_HOST_KEYS.max == HOST_KEYS as u64);
const _: () = assert!(limits::KNOWN_HOSTS_BYTES.max == KNOWN_HOSTS as u64);
const _: () = assert!(limits::AGENT_MESSAGE_BYTES.max == MESSAGE as u64);

/// Public facts about an SSH key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ssh {
    pub known: Vec<KnownHost>,
    pub key_type: String,
    pub fingerprint: String,
}

/// The host keys that an SSH key is to be bound to; `None` if the secret is no SSH key.
pub(super) fn bound(name: &str, ask: &SetSecret, hosts: &[Host]) -> Result<Option<Ssh>> {
    let wrong =
        |what: &str, hint: &str| Error::invalid(format!("secret {name:?}: {what}")).hint(hint);
    if !ask.ssh {
        return match &ask.known_hosts {
            None => Ok(None),
            Some(_) => Err(wrong(
                "known hosts are for keys of SSH",
                "say that it is one (ssh)",
            )),
        };
    }
    if ask.body || ask.aws {
        return Err(wrong(
            "a key of SSH is never sent",
            "leave out that it is put into bodies, or is a key of AWS",
        ));
    }
    if ask.variable.is_some() || ask.command.is_some() {
        return Err(wrong(
            "a key of SSH is kept sealed, not fetched whenever it is needed",
            "give the text of its file, or its path",
        ));
    }
    let named = hosts.iter().map(|host| match host {
        Host::Name(name) => Ok(name.clone()),
        _ => Err(wrong(
            "a key of SSH is bound to single hosts, whose keys are known",
            "name each host",
        )),
    });
    let named = named.collect::<Result<Vec<String>>>()?;
    let Some(text) = &ask.known_hosts else {
        return Err(wrong(
            "the keys of its hosts are missing",
            "give lines of a known_hosts file; `ssh-keyscan HOST` prints some, to be compared with what the host's owner says",
        ));
    };
    let known = known_hosts(text, &named).map_err(|error| not_known(name, &error))?;
    Ok(Some(Ssh {
        known,
        key_type: String::new(),
        fingerprint: String::new(),
    }))
}

fn not_known(name: &str, error: &KnownError) -> Error {
    let message = format!("secret {name:?}: {error}");
    match error {
        KnownError::Large | KnownError::Many(_) => {
            let limit = match error {
                KnownError::Large => limits::KNOWN_HOSTS_BYTES,
                _ => limits::SECRET_HOST_KEYS,
            };
            Error::limit(format!("{message}, which is {}", limit.name))
                .hint("give only the lines of the hosts it is bound to")
        }
        KnownError::None(_) => Error::invalid(message).hint(
            "a line of ssh-ed25519, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384 or ssh-rsa; a hashed name only for port 22",
        ),
    }
}

impl Ssh {
    /// The same binding for another key, which is parsed, so that an unusable one is refused now.
    pub(super) fn with(self, name: &str, value: &str) -> Result<Self> {
        let key = PrivateKey::read(value).map_err(|error| unfit(name, error))?;
        Ok(Self {
            key_type: key.kind().to_string(),
            fingerprint: key.fingerprint(),
            ..self
        })
    }
}

fn unfit(name: &str, error: KeyError) -> Error {
    let hint = match error {
        KeyError::Format => "`ssh-keygen -p -f FILE` writes a key in that format",
        KeyError::Passphrase => {
            "make a key for this purpose alone (`ssh-keygen -t ed25519 -N \"\"`): it is kept sealed"
        }
        KeyError::Kind | KeyError::Size => "`ssh-keygen -t ed25519` makes one that is",
        KeyError::Damaged => "give the whole file, as `ssh-keygen` has written it",
    };
    Error::invalid(format!("secret {name:?} is no key to sign with: {error}")).hint(hint)
}
