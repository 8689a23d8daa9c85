//! Host keys by host name, from a `known_hosts` file.

use super::host_key::HostKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde::{Deserialize, Serialize};

/// The most keys of one host.
pub const HOST_KEYS: usize = 16;
/// The largest file.
pub const KNOWN_HOSTS: usize = 262_144;
/// The port of SSH.
const SSH: u16 = 22;

/// A host and all its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownHost {
    /// The normalized name.
    pub name: String,
    /// The ports in the file.
    pub ports: Vec<u16>,
    /// Public key blobs in base64.
    pub keys: Vec<String>,
}

impl KnownHost {
    /// Its lines for a `known_hosts` file.
    pub fn lines(&self) -> String {
        let name = &self.name;
        let line = |key: &String| {
            let blob = STANDARD.decode(key).unwrap_or_default();
            let kind = super::wire::Reader::new(&blob).string().unwrap_or_default();
            let kind = String::from_utf8_lossy(kind).into_owned();
            format!("{name},[{name}]:* {kind} {key}\n")
        };
        self.keys.iter().map(line).collect()
    }
}

/// Why a file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnownError {
    #[error("the file of known hosts has more than {KNOWN_HOSTS} bytes")]
    Large,
    #[error("the file of known hosts has more than {HOST_KEYS} keys of {0}")]
    Many(String),
    #[error("the file of known hosts has no key of {0} that can be verified")]
    None(String),
}

/// The keys of each of these hosts. Lines of other hosts, certificate authorities and unsupported
/// key types are skipped; revoked keys are left out.
pub fn known_hosts(text: &str, hosts: &[String]) -> Result<Vec<KnownHost>, KnownError> {
    if text.len() > KNOWN_HOSTS {
        return Err(KnownError::Large);
    }
    let lines: Vec<Line<'_>> = text.lines().filter_map(Line::read).collect();
    let revoked = |key: &str| lines.iter().any(|line| line.revoked && line.key == key);
    let mut found = Vec::new();
    for host in hosts {
        let mut known = KnownHost {
            name: host.clone(),
            ports: Vec::new(),
            keys: Vec::new(),
        };
        for line in lines
            .iter()
            .filter(|line| !line.revoked && !revoked(line.key))
        {
            let ports = line.ports(host);
            if ports.is_empty() {
                continue;
            }
            for port in ports {
                if !known.ports.contains(&port) {
                    known.ports.push(port);
                }
            }
            if !known.keys.iter().any(|key| key == line.key) {
                known.keys.push(line.key.to_owned());
            }
        }
        match known.keys.len() {
            0 => return Err(KnownError::None(host.clone())),
            many if many > HOST_KEYS => return Err(KnownError::Many(host.clone())),
            _ => found.push(known),
        }
    }
    Ok(found)
}

/// A line with a supported key.
struct Line<'a> {
    names: &'a str,
    key: &'a str,
    revoked: bool,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut names = words.next().filter(|word| !word.starts_with('#'))?;
        let mut revoked = false;
        if let Some(mark) = names.strip_prefix('@') {
            // Keys of certificate authorities are not host keys.
            revoked = mark == "revoked";
            revoked.then_some(())?;
            names = words.next()?;
        }
        let (kind, key) = (words.next()?, words.next()?);
        let blob = STANDARD.decode(key).ok()?;
        HostKey::read(&blob)?;
        let named = super::wire::Reader::new(&blob).string()?;
        (named == kind.as_bytes()).then_some(Self {
            names,
            key,
            revoked,
        })
    }

    /// The ports with which the line names a host; empty if it does not.
    fn ports(&self, host: &str) -> Vec<u16> {
        if let Some(hashed) = self.names.strip_prefix("|1|") {
            return match is_hash_of(hashed, host) {
                true => vec![SSH],
                false => Vec::new(),
            };
        }
        let mut ports = Vec::new();
        for name in self.names.split(',') {
            let (negated, name) = match name.strip_prefix('!') {
                Some(name) => (true, name),
                None => (false, name),
            };
            let Some(port) = port(name, host) else {
                continue;
            };
            if negated {
                return Vec::new();
            }
            ports.push(port);
        }
        ports
    }
}

/// The port in `HOST` or `[HOST]:PORT`, if it names this host.
fn port(name: &str, host: &str) -> Option<u16> {
    let (name, port) = match name
        .strip_prefix('[')
        .and_then(|name| name.split_once("]:"))
    {
        Some((name, port)) => (name, port.parse().ok()?),
        None => (name, SSH),
    };
    name.eq_ignore_ascii_case(host).then_some(port)
}

/// Whether `SALT|HASH` (of `ssh-keygen -H`) is the hash of a name.
fn is_hash_of(hashed: &str, host: &str) -> bool {
    let Some((salt, hash)) = hashed.split_once('|') else {
        return false;
    };
    let (Ok(salt), Ok(hash)) = (STANDARD.decode(salt), STANDARD.decode(hash)) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    hmac::verify(&key, host.as_bytes(), &hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::generate;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn lines_are_found_by_plain_and_by_hashed_names() {
        let [one, two, gone] = [(); 3].map(|()| {
            let made = generate("ed25519", "256", "");
            let words: Vec<&str> = made.public.split(' ').take(2).collect();
            words.join(" ")
        });
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("known_hosts");
        std::fs::write(&file, format!("b.example {two}\n")).unwrap();
        let hashed = motu_needs::command("ssh-keygen")
            .args(["-H", "-f"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(hashed.status.success(), "{hashed:?}");
        let hashed = std::fs::read_to_string(&file).unwrap();
        assert!(hashed.starts_with("|1|"), "{hashed}");
        let text = format!(
            "# a comment\n\n{hashed}A.example,[a.example]:2222 {one} somebody\n\
             a.example {gone}\n@revoked * {gone}\n@cert-authority a.example {two}\n\
             other.example,!a.example,a.example {two}\na.example sk-ssh-ed25519 AAAA\n"
        );
        let known = known_hosts(&text, &hosts(&["a.example", "b.example"])).unwrap();
        let key = |text: &str| vec![text.split(' ').nth(1).unwrap().to_string()];
        assert_eq!(known[0].keys, key(&one));
        assert_eq!(known[0].ports, [22, 2222]);
        assert_eq!(known[1].keys, key(&two));
        assert_eq!(known[1].ports, [22]);
        assert_eq!(
            known_hosts(&known[0].lines(), &hosts(&["a.example"])).unwrap()[0].keys,
            key(&one)
        );
        let missing = known_hosts(&text, &hosts(&["c.example"]));
        assert_eq!(missing, Err(KnownError::None("c.example".to_string())));
        let large = " ".repeat(KNOWN_HOSTS + 1);
        assert_eq!(known_hosts(&large, &[]), Err(KnownError::Large));
    }
}
