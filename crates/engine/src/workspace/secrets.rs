//! Secrets of a workspace: sealed at rest, in memory here, redacted from what is shown.

use super::Workspaces;
use crate::beyond::Beyond;
use crate::shown::{self, Pace};
use crate::store::SealedSecret;
use futures_util::stream::BoxStream;
use motu_core::exec::ExecEvent;
use motu_core::workspace::{SecretEnv, SecretInfo, SecretSource, WorkspaceId};
use motu_core::{Error, Result, limits};
use motu_redaction::{Forms, Known, Patterns, Redactor};
use motu_workspaces::secrets::{self, Secret, Source, Vault};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The secrets of one workspace. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Secrets {
    all: Arc<Vec<Secret>>,
    patterns: Patterns,
    own: Redactor,
    /// Values of secrets that stay outside.
    beyond: Beyond,
}

impl Secrets {
    fn new(all: Vec<Secret>, patterns: &Patterns) -> Result<Secrets> {
        secrets::check(&all)?;
        let own = all.iter().map(|one| known(&one.name, &one.value));
        Ok(Secrets {
            own: Redactor::new(own, patterns),
            patterns: patterns.clone(),
            beyond: Beyond::default(),
            all: Arc::new(all),
        })
    }

    /// The secrets of one call, by variable.
    pub fn of_variables(
        values: Vec<(String, Zeroizing<String>)>,
        patterns: &Patterns,
    ) -> Result<Secrets> {
        let secret = |(name, value)| Secret {
            name,
            source: Source::Literal,
            value,
        };
        Secrets::new(values.into_iter().map(secret).collect(), patterns)
    }

    /// Adds the secrets that stay outside of a sandbox.
    pub fn and(self, beyond: &Beyond) -> Secrets {
        Secrets {
            beyond: beyond.clone(),
            ..self
        }
    }

    /// All secrets as variables.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let pair = |secret: &Secret| (secret.name.clone(), secret.value.to_string());
        self.all.iter().map(pair).collect()
    }

    /// All values by name, for redaction elsewhere.
    pub fn values(&self) -> Arc<Vec<(String, Zeroizing<String>)>> {
        let pair = |secret: &Secret| (secret.name.clone(), secret.value.clone());
        let beyond = self.beyond.values();
        let all = self.all.iter().map(pair).chain(beyond.iter().cloned());
        Arc::new(all.collect())
    }

    /// The secrets of a workspace that has none.
    pub fn none(patterns: &Patterns) -> Result<Secrets> {
        Secrets::new(Vec::new(), patterns)
    }

    /// A redactor for all values.
    pub fn redactor(&self) -> Redactor {
        let beyond = self.beyond.values();
        if beyond.is_empty() {
            return self.own.clone();
        }
        let own = self.all.iter().map(|one| known(&one.name, &one.value));
        let beyond = beyond.iter().map(|(name, value)| known(name, value));
        Redactor::new(own.chain(beyond), &self.patterns)
    }

    /// An error with redacted texts.
    pub fn clean_error(&self, error: Error) -> Error {
        shown::clean_error(&self.redactor(), error)
    }

    pub fn infos(&self) -> Vec<SecretInfo> {
        let info = |secret: &Secret| SecretInfo {
            name: secret.name.clone(),
            source_kind: kind(secret.source).to_string(),
        };
        self.all.iter().map(info).collect()
    }

    /// Seals the secrets for storage.
    pub fn seal(&self, home: &Path, id: &WorkspaceId) -> Result<Vec<SealedSecret>> {
        if self.all.is_empty() {
            return Ok(Vec::new());
        }
        let vault = Vault::open(home)?;
        let seal = |secret: &Secret| {
            Ok(SealedSecret {
                name: secret.name.clone(),
                source_kind: kind(secret.source).to_string(),
                sealed: vault.seal(id.as_str(), &secret.name, &secret.value)?,
            })
        };
        self.all.iter().map(seal).collect()
    }

    /// The variables a call asks for.
    pub fn environment(&self, wanted: &[SecretEnv]) -> Result<BTreeMap<String, String>> {
        let mut variables = BTreeMap::new();
        for mapping in wanted {
            let found = self.all.iter().find(|one| one.name == mapping.secret);
            // It is not quoted: it may be a value that was taken for a name.
            let secret = found.ok_or_else(|| {
                let names: Vec<&str> = self.all.iter().map(|one| one.name.as_str()).collect();
                Error::not_found("the workspace has no secret of the name that is asked for").hint(
                    match names.is_empty() {
                        true => "secrets are given when a workspace is created".to_string(),
                        false => format!("it has: {}", names.join(", ")),
                    },
                )
            })?;
            let variable = mapping.variable.as_ref().unwrap_or(&mapping.secret);
            if variables
                .insert(variable.clone(), secret.value.to_string())
                .is_some()
            {
                return Err(Error::invalid(format!(
                    "variable {variable} is given twice"
                )));
            }
        }
        Ok(variables)
    }

    /// Redacts a text.
    pub fn redact(&self, text: &str) -> String {
        self.redactor().text(text)
    }

    /// A session's output, redacted.
    pub fn redacted(
        &self,
        events: BoxStream<'static, Result<ExecEvent>>,
        pace: Pace,
    ) -> BoxStream<'static, Result<ExecEvent>> {
        shown::redacted(&self.redactor(), events, pace)
    }
}

impl Workspaces {
    /// The vault's key is created with the first secret.
    fn vault(&self) -> Result<Vault> {
        Ok(Vault::open(self.sandboxes.shared.home.path())?)
    }

    /// Reads the secrets that a caller gives.
    pub(super) fn take_secrets(&self, sources: &[SecretSource]) -> Result<Secrets> {
        let mut all = Vec::new();
        for source in sources {
            let name = source.name.clone();
            let (value, kind) = match (&source.value, &source.path) {
                (Some(value), None) => (Zeroizing::new(value.clone()), Source::Literal),
                (None, Some(path)) => (read(&name, path)?, Source::File),
                _ => {
                    return Err(Error::invalid(format!(
                        "secret {name:?} needs a value or a path, and not both"
                    )));
                }
            };
            if value.is_empty() {
                return Err(Error::invalid(format!("secret {name:?} is empty")));
            }
            all.push(Secret {
                name,
                source: kind,
                value,
            });
        }
        Secrets::new(all, &self.sandboxes.patterns)
    }

    /// Unseals the stored secrets.
    pub(super) async fn open_secrets(&self, id: &WorkspaceId) -> Result<Secrets> {
        let sealed = self.sandboxes.shared.store.secrets(id).await?;
        if sealed.is_empty() {
            return Secrets::none(&self.sandboxes.patterns);
        }
        let vault = self.vault()?;
        let mut all = Vec::new();
        for secret in sealed {
            let value = vault.unseal(id.as_str(), &secret.name, &secret.sealed)?;
            let literal = secret.source_kind == kind(Source::Literal);
            all.push(Secret {
                name: secret.name,
                source: if literal {
                    Source::Literal
                } else {
                    Source::File
                },
                value,
            });
        }
        Secrets::new(all, &self.sandboxes.patterns)
    }
}

fn known<'a>(name: &'a str, value: &'a str) -> Known<'a> {
    Known {
        name: Some(name),
        value: value.as_bytes(),
        forms: Forms::All,
    }
}

fn kind(source: Source) -> &'static str {
    match source {
        Source::Literal => "literal",
        Source::File => "file",
    }
}

/// Reads a secret from a file; its content never reaches a message.
fn read(name: &str, path: &str) -> Result<Zeroizing<String>> {
    let path = super::checks::on_host(path, "the path of a secret")?;
    let failed = |error: std::io::Error| {
        Error::with_file(format!("secret {name:?}: {}", path.display()), &error)
    };
    let limit = limits::SECRET_BYTES;
    let mut bytes = Zeroizing::new(Vec::new());
    let file = std::fs::File::open(&path).map_err(failed)?;
    file.take(limit.max + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > limit.max {
        return Err(Error::limit(format!(
            "secret {name:?} has more than {} bytes, which is {}",
            limit.max, limit.name
        )));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_string())),
        Err(_) => Err(Error::invalid(format!("secret {name:?} is not UTF-8 text"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let secret = Secret {
            name: "TOKEN".to_string(),
            source: Source::Literal,
            value: Zeroizing::new("hunter2-hunter2".to_string()),
        };
        Secrets::new(vec![secret], &Patterns::none()).unwrap()
    }

    #[test]
    fn only_known_secrets_become_variables() {
        let ask = |text: &str| secrets().environment(&[text.parse().unwrap()]);
        assert_eq!(ask("TOKEN").unwrap()["TOKEN"], "hunter2-hunter2");
        assert_eq!(ask("TOKEN=API").unwrap()["API"], "hunter2-hunter2");
        let error = ask("OTHER").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_shown_has_no_value_in_it() {
        assert_eq!(secrets().redact("a hunter2-hunter2"), "a [redacted TOKEN]");
    }
}
