//! Secrets by name, for calls: each sealed in a file, or fetched when needed.

mod ssh;

use crate::blocking::blocking;
use crate::home::Home;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use motu_core::hint;
use motu_core::hint::{host, verb};
use motu_core::secret::{SecretSummary, SetSecret};
use motu_core::{Error, Result, limits};
use motu_egress::host::Host;
use motu_workspaces::secrets::Vault;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use zeroize::Zeroizing;

pub(crate) use ssh::Ssh;

/// The scope that sealed values are bound to, besides their names.
const BOUND: &str = "secrets of calls";
/// How long a program may take to print a secret.
const COMMAND_TIME: Duration = Duration::from_secs(10);
const ENDING: &str = ".json";

/// A secret as it lies on the disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    version: u32,
    source: Source,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binding: Option<Binding>,
}

/// The hosts a secret is bound to, and how it is put into requests to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Binding {
    pub hosts: Vec<Host>,
    pub body: bool,
    pub aws: bool,
    /// Set for an SSH private key, which is never put into requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<Ssh>,
}

impl Binding {
    /// The same binding for another value.
    fn with(mut self, name: &str, value: &str) -> Result<Self> {
        match self.ssh {
            Some(ssh) => self.ssh = Some(ssh.with(name, value)?),
            None => one_line(name, value)?,
        }
        Ok(self)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// A value sealed by the vault, in base64.
    Sealed(String),
    Variable(String),
    Command(Vec<String>),
}

impl Kept {
    fn summary(&self, name: &str) -> SecretSummary {
        let ssh = self
            .binding
            .as_ref()
            .and_then(|binding| binding.ssh.as_ref());
        SecretSummary {
            name: name.to_string(),
            source_kind: match self.source {
                Source::Sealed(_) => "sealed",
                Source::Variable(_) => "variable",
                Source::Command(_) => "command",
            }
            .to_string(),
            hosts: match &self.binding {
                Some(binding) => binding.hosts.iter().map(Host::to_string).collect(),
                None => Vec::new(),
            },
            body: self.binding.as_ref().is_some_and(|binding| binding.body),
            aws: self.binding.as_ref().is_some_and(|binding| binding.aws),
            key_type: ssh.map(|ssh| ssh.key_type.clone()),
            fingerprint: ssh.map(|ssh| ssh.fingerprint.clone()),
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

/// Reads a secret's record: the source of its value, and the hosts it is bound to.
pub(crate) async fn find(home: &Home, name: &str) -> Result<Option<Kept>> {
    let (home, name) = (home.path().to_path_buf(), name.to_string());
    blocking(move || read(&home, &name)).await
}

impl Kept {
    pub(crate) fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// Reads the current value.
    pub(crate) async fn value(&self, home: &Home, name: &str) -> Result<Zeroizing<String>> {
        let value = match &self.source {
            Source::Sealed(text) => {
                let sealed = STANDARD.decode(text);
                let sealed =
                    sealed.map_err(|_| Error::internal(format!("secret {name} is damaged")))?;
                Vault::open(home.path())?.unseal(BOUND, name, &sealed)?
            }
            Source::Variable(variable) => match std::env::var(variable) {
                Ok(value) if !value.is_empty() => Zeroizing::new(value),
                _ => {
                    return Err(Error::unavailable(format!(
                        "secret {name}: the daemon has no variable {variable}"
                    ))
                    .hint(hint!["start the daemon with it: ", host("motu serve")]));
                }
            },
            Source::Command(command) => printed(name, command).await?,
        };
        match &self.binding {
            Some(binding) if binding.ssh.is_none() => one_line(name, &value).map(|()| value),
            _ => Ok(value),
        }
    }
}

/// A value that is put into a header must be one line.
fn one_line(name: &str, value: &str) -> Result<()> {
    if value.bytes().all(|byte| byte >= b' ' && byte != 0x7f) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "secret {name:?} has more than one line, or control characters: it cannot be bound to hosts"
    ))
    .hint("bind a token or a password of one line"))
}

/// Runs a program that prints a secret. Its output never reaches a message.
async fn printed(name: &str, command: &[String]) -> Result<Zeroizing<String>> {
    let failed = |why: String| {
        Error::unavailable(format!("secret {name}: its command {why}"))
            .hint("try the command by hand, as the daemon's user")
    };
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| failed("is empty".to_string()))?;
    let running = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(COMMAND_TIME, running).await {
        Err(_) => {
            return Err(failed(format!(
                "took more than {} s",
                COMMAND_TIME.as_secs()
            )));
        }
        Ok(Err(error)) => return Err(failed(format!("did not start: {error}"))),
        Ok(Ok(output)) => output,
    };
    let stdout = Zeroizing::new(output.stdout);
    if !output.status.success() {
        return Err(failed(format!("failed: {}", output.status)));
    }
    let text = std::str::from_utf8(&stdout).map_err(|_| failed("printed no UTF-8 text".into()))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    match text.len() as u64 {
        0 => Err(failed("printed nothing".to_string())),
        size if size > limits::SECRET_BYTES.max => Err(failed("printed too much".to_string())),
        _ => Ok(Zeroizing::new(text.to_string())),
    }
}

/// The file of a secret. The name becomes part of a path, so it must not contain separators.
fn place(home: &Path, name: &str) -> Result<PathBuf> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !first || name.len() as u64 > limits::SECRET_NAME_CHARS.max || !name.chars().all(fine) {
        // It is not quoted: it may be the value itself.
        return Err(Error::invalid("that is no name of a secret").hint(format!(
            "letters, digits, '-', '_' and '.', at most {} ({})",
            limits::SECRET_NAME_CHARS.max,
            limits::SECRET_NAME_CHARS.name
        )));
    }
    Ok(home.join("secrets").join(format!("{name}{ENDING}")))
}

/// What a variable is to stand for is no secret. It is not quoted: whoever gives the value in the
/// place of its name is told so without it.
pub(crate) fn refers_to_none(variable: &str) -> Error {
    let variable = motu_core::shown::quoted(variable, 64);
    Error::not_found(format!(
        "there is no secret of the name that {variable:?} refers to"
    ))
    .hint(hint![
        "give the name of one, not its value: ",
        verb("list_secrets"),
        " shows them, ",
        verb("set_secret"),
        " makes one"
    ])
}

pub(crate) fn unknown(name: &str) -> Error {
    Error::not_found(format!("there is no secret {name:?}"))
        .hint(hint![verb("set_secret").with("name", name), " makes one"])
}

fn read(home: &Path, name: &str) -> Result<Option<Kept>> {
    let path = place(home, name)?;
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| Error::io("a secret", &error))?,
    };
    let kept = serde_json::from_slice(&bytes);
    kept.map(Some)
        .map_err(|_| Error::internal(format!("secret {name} is damaged: {}", path.display())))
}

pub(crate) fn set(home: &Path, name: &str, ask: SetSecret) -> Result<SecretSummary> {
    let path = place(home, name)?;
    let before = read(home, name)?;
    if ask.rotate && before.is_none() {
        return Err(unknown(name));
    }
    let binding = match (&before, ask.rotate) {
        (Some(before), true) => before.binding.clone(),
        _ => bound(name, &ask)?,
    };
    if ask.rotate && binds(&ask) {
        return Err(Error::invalid(format!(
            "secret {name:?} stays bound as it is when it is rotated"
        ))
        .hint("set it again to bind it to other hosts"));
    }
    let value = match (ask.value, ask.path, ask.variable, ask.command) {
        (Some(value), None, None, None) => Ok(Zeroizing::new(value)),
        (None, Some(file), None, None) => Ok(from_file(name, &file)?),
        (None, None, Some(variable), None) => Err(Source::Variable(variable)),
        (None, None, None, Some(command)) if !command.is_empty() => Err(Source::Command(command)),
        _ => {
            return Err(Error::invalid(
                "a secret is a value, a path, a variable or a command: exactly one of them",
            ));
        }
    };
    let (source, binding) = match value {
        Ok(value) => {
            let with = |binding: Binding| binding.with(name, &value);
            let binding = binding.map(with).transpose()?;
            (seal(home, name, &value)?, binding)
        }
        Err(_) if binding.as_ref().is_some_and(|own| own.ssh.is_some()) => {
            return Err(Error::invalid(format!(
                "secret {name:?} is a key of SSH, which is kept sealed"
            ))
            .hint("give the text of its file, or its path"));
        }
        Err(elsewhere) => (elsewhere, binding),
    };
    let now = Timestamp::now();
    let kept = Kept {
        // Older daemons must refuse a secret whose binding they do not understand.
        version: match &binding {
            Some(Binding { ssh: Some(_), .. }) => 3,
            Some(_) => 2,
            None => 1,
        },
        source,
        created_at: before.map_or(now, |before| before.created_at),
        updated_at: now,
        binding,
    };
    let text = serde_json::to_vec(&kept).map_err(|error| Error::internal(error.to_string()))?;
    write(&path, &text).map_err(|error| Error::io("a secret", &error))?;
    Ok(kept.summary(name))
}

/// Whether a request binds the secret to anything.
fn binds(ask: &SetSecret) -> bool {
    !ask.hosts.is_empty() || ask.body || ask.aws || ask.ssh || ask.known_hosts.is_some()
}

/// The binding of a request, if it has one.
fn bound(name: &str, ask: &SetSecret) -> Result<Option<Binding>> {
    if ask.hosts.is_empty() {
        return match binds(ask) {
            false => Ok(None),
            true => Err(
                Error::invalid(format!("secret {name:?} is bound to no host"))
                    .hint("name the hosts whose requests it is put into, or where it logs in"),
            ),
        };
    }
    let limit = limits::SECRET_HOSTS;
    if ask.hosts.len() as u64 > limit.max {
        return Err(Error::limit(format!(
            "secret {name:?} has more than {} hosts, which is {}",
            limit.max, limit.name
        )));
    }
    if ask.body && ask.aws {
        return Err(Error::invalid(format!(
            "secret {name:?}: a key of AWS is never sent, in a body neither"
        )));
    }
    let hosts = ask.hosts.iter().map(|text| match text.parse() {
        Ok(host @ (Host::Name(_) | Host::Below(_))) => Ok(host),
        _ => {
            let text: String = text.chars().take(100).collect();
            let message = format!("secret {name:?}: {text:?} is no host to bind it to");
            Err(Error::invalid(message).hint("a name such as api.example.com, or *.example.com"))
        }
    });
    let hosts = hosts.collect::<Result<Vec<Host>>>()?;
    let ssh = ssh::bound(name, ask, &hosts)?;
    Ok(Some(Binding {
        hosts,
        body: ask.body,
        aws: ask.aws,
        ssh,
    }))
}

fn from_file(name: &str, path: &str) -> Result<Zeroizing<String>> {
    let failed = |error: io::Error| Error::with_file(format!("secret {name:?}: {path}"), &error);
    let mut text = Zeroizing::new(String::new());
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(limits::SECRET_BYTES.max + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

fn seal(home: &Path, name: &str, value: &str) -> Result<Source> {
    if value.is_empty() || value.contains('\0') {
        return Err(Error::invalid(format!(
            "secret {name:?} is empty or has a NUL byte"
        )));
    }
    if value.len() as u64 > limits::SECRET_BYTES.max {
        let limit = limits::SECRET_BYTES;
        return Err(Error::limit(format!(
            "secret {name:?} has more than {} bytes, which is {}",
            limit.max, limit.name
        )));
    }
    let sealed = Vault::open(home)?.seal(BOUND, name, value)?;
    Ok(Source::Sealed(STANDARD.encode(sealed)))
}

/// Replaces a file atomically; it is on disk when this returns.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700).create(dir)?;
    let staged = path.with_extension(format!("{}.new", motu_core::id::random_name(8)));
    let mut options = std::fs::File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&staged)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(staged, path)?;
    std::fs::File::open(dir)?.sync_all()
}

/// The names of all secrets, in their order.
pub(crate) fn names(home: &Path) -> Result<Vec<String>> {
    let dir = home.join("secrets");
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| Error::io("secrets", &error))?,
    };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_suffix(ENDING)?.to_string())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

pub(crate) fn list(home: &Path) -> Result<Vec<SecretSummary>> {
    let mut found = Vec::new();
    for name in names(home)? {
        if let Some(kept) = read(home, &name)? {
            found.push(kept.summary(&name));
        }
    }
    Ok(found)
}

pub(crate) fn remove(home: &Path, name: &str) -> Result<SecretSummary> {
    let kept = read(home, name)?.ok_or_else(|| unknown(name))?;
    let path = place(home, name)?;
    std::fs::remove_file(&path).map_err(|error| Error::io("a secret", &error))?;
    Ok(kept.summary(name))
}

#[cfg(test)]
mod tests;
