//! Docker logins.
//!
//! Reads the file of `docker login` and runs the credential helpers it names. Nothing is ever
//! written, and a secret never reaches a log.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::reference::DEFAULT_REGISTRY;

/// Longest time a credential helper may take.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
const MAX_HELPER_BYTES: u64 = 64 << 10;
/// Docker's key for its own registry.
const DOCKER_KEY: &str = "https://index.docker.io/v1/";
/// A user name meaning that the secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// A login for one registry.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Password {
        username: String,
        secret: String,
    },
    /// An identity token, which is exchanged for access tokens.
    Identity(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DockerConfig {
    auths: BTreeMap<String, Login>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Login {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// The answer of a credential helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// The login for a registry, if there is one. An unreadable file counts as missing: most images
/// need no login.
pub(super) fn find(config: &Path, registry: &str) -> Option<Credentials> {
    let text = fs::read(config).ok()?;
    let config: DockerConfig = match serde_json::from_slice(&text) {
        Ok(config) => config,
        Err(error) => {
            tracing::warn!(%error, path = %config.display(), "reading the registry logins failed");
            return None;
        }
    };
    let keys = keys(registry);
    let named = keys.iter().find_map(|key| config.cred_helpers.get(key));
    let stored = named.or(config.creds_store.as_ref());
    if let Some(helper) = stored
        && let Some(found) = keys.iter().find_map(|key| ask(helper, key))
    {
        return Some(found);
    }
    keys.iter()
        .find_map(|key| config.auths.get(key))
        .and_then(Login::credentials)
}

impl Login {
    fn credentials(&self) -> Option<Credentials> {
        if !self.identitytoken.is_empty() {
            return Some(Credentials::Identity(self.identitytoken.clone()));
        }
        if !self.username.is_empty() {
            return Some(password(&self.username, &self.password));
        }
        let decoded = STANDARD.decode(self.auth.trim()).ok()?;
        let decoded = String::from_utf8(decoded).ok()?;
        let (username, secret) = decoded.split_once(':')?;
        (!username.is_empty()).then(|| password(username, secret.trim_end_matches('\0')))
    }
}

fn password(username: &str, secret: &str) -> Credentials {
    if username == TOKEN_USER {
        return Credentials::Identity(secret.to_owned());
    }
    Credentials::Password {
        username: username.to_owned(),
        secret: secret.to_owned(),
    }
}

/// The spellings under which a registry may be listed, likeliest first.
fn keys(registry: &str) -> Vec<String> {
    let mut keys = Vec::new();
    if registry == DEFAULT_REGISTRY {
        keys.extend([DOCKER_KEY.to_owned(), "index.docker.io".to_owned()]);
    }
    keys.extend([
        registry.to_owned(),
        format!("https://{registry}"),
        format!("http://{registry}"),
        format!("https://{registry}/"),
        format!("https://{registry}/v1/"),
        format!("https://{registry}/v2/"),
    ]);
    keys
}

/// Runs a credential helper, which is the user's own program, in the user's environment.
fn ask(helper: &str, key: &str) -> Option<Credentials> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if helper.is_empty() || !helper.chars().all(plain) {
        return None;
    }
    let mut child = Command::new(format!("docker-credential-{helper}"))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .inspect_err(|error| tracing::warn!(%error, helper, "running the credential helper failed"))
        .ok()?;
    // A helper that does not read its input reports that by its exit.
    let _ = child.stdin.take()?.write_all(key.as_bytes());
    let stdout = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let read = stdout.take(MAX_HELPER_BYTES).read_to_end(&mut text);
        read.map(|_| text)
    });
    let deadline = Instant::now() + HELPER_TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            _ => {
                let _ = child.kill();
                break child.wait().ok()?;
            }
        }
    };
    if !status.success() {
        return None;
    }
    let text = reader.join().ok()?.ok()?;
    let answer: Answer = serde_json::from_slice(&text).ok()?;
    (!answer.username.is_empty()).then(|| password(&answer.username, &answer.secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn login(username: &str, secret: &str) -> Option<Credentials> {
        Some(Credentials::Password {
            username: username.into(),
            secret: secret.into(),
        })
    }

    #[test]
    fn logins_are_found_under_every_spelling() {
        let auth = STANDARD.encode("ann:s:ecret");
        let file = config(&format!(
            r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{auth}"}},
                "r.example":{{"username":"bob","password":"p"}},
                "https://s.example/v1/":{{"identitytoken":"t"}}, "empty.example":{{}}}}}}"#
        ));
        let find = |registry| find(file.path(), registry);
        assert_eq!(find("docker.io"), login("ann", "s:ecret"));
        assert_eq!(find("r.example"), login("bob", "p"));
        assert_eq!(find("s.example"), Some(Credentials::Identity("t".into())));
        assert_eq!(find("empty.example"), None);
        assert_eq!(find("other.example"), None);
    }

    #[test]
    fn broken_and_missing_files_are_no_login() {
        assert_eq!(find(config("{").path(), "r.example"), None);
        assert_eq!(find(Path::new("/nonexistent"), "r.example"), None);
    }

    #[test]
    fn helpers_cannot_be_paths_and_missing_ones_are_no_login() {
        for helper in ["../x", "", "a b", "motu-no-such-helper"] {
            let file = config(&format!(r#"{{"credsStore":"{helper}"}}"#));
            assert_eq!(find(file.path(), "r.example"), None, "{helper}");
        }
    }
}
