//! Secrets of a workspace: sealed at rest, in memory here, redacted from what is shown.

use crate::engine::Engine;
use crate::store::SealedSecret;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use motu_core::exec::ExecEvent;
use motu_core::workspace::{SecretEnv, SecretInfo, SecretSource, WorkspaceId};
use motu_core::{Error, Result, limits};
use motu_workspaces::secrets::{self, Redactor, Secret, Source, Vault};
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The secrets of one workspace. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Secrets {
    all: Arc<Vec<Secret>>,
    redactor: Redactor,
}

impl Secrets {
    fn new(all: Vec<Secret>) -> Result<Secrets> {
        secrets::check(&all)?;
        Ok(Secrets {
            redactor: Redactor::new(&all)?,
            all: Arc::new(all),
        })
    }

    /// The variables of one call, by name.
    pub fn of_variables(values: Vec<(String, Zeroizing<String>)>) -> Result<Secrets> {
        let secret = |(name, value)| Secret {
            name,
            source: Source::Literal,
            value,
        };
        Secrets::new(values.into_iter().map(secret).collect())
    }

    /// All of them, as variables of their own names.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let pair = |secret: &Secret| (secret.name.clone(), secret.value.to_string());
        self.all.iter().map(pair).collect()
    }

    /// The secrets of a workspace that has none.
    pub fn none() -> Result<Secrets> {
        Secrets::new(Vec::new())
    }

    pub fn infos(&self) -> Vec<SecretInfo> {
        let info = |secret: &Secret| SecretInfo {
            name: secret.name.clone(),
            source_kind: kind(secret.source).to_string(),
        };
        self.all.iter().map(info).collect()
    }

    /// The secrets as they are kept for one workspace.
    pub fn seal(&self, engine: &Engine, id: &WorkspaceId) -> Result<Vec<SealedSecret>> {
        if self.all.is_empty() {
            return Ok(Vec::new());
        }
        let vault = engine.vault()?;
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
            let secret = found.ok_or_else(|| {
                let name: String = mapping.secret.chars().take(64).collect();
                Error::not_found(format!("the workspace has no secret {name:?}"))
                    .hint("secrets are given when a workspace is created")
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

    /// Text without values of secrets.
    pub fn redact(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.redact_bytes(text.as_bytes())).into_owned()
    }

    /// Bytes without values of secrets.
    pub fn redact_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        match self.all.is_empty() {
            true => bytes.to_vec(),
            false => self.redactor.redact(bytes),
        }
    }

    /// A session's output without values of secrets.
    pub fn redacted(
        &self,
        events: BoxStream<'static, Result<ExecEvent>>,
    ) -> BoxStream<'static, Result<ExecEvent>> {
        if self.all.is_empty() {
            return events;
        }
        let clean = Clean {
            events,
            redactor: self.redactor.clone(),
            stdout: Some(self.redactor.stream()),
            stderr: Some(self.redactor.stream()),
            ready: VecDeque::new(),
        };
        unfold(clean, |mut clean| async move {
            let event = clean.next().await?;
            Some((event, clean))
        })
        .boxed()
    }
}

/// A session being redacted. What may be the beginning of a value is held back.
struct Clean {
    events: BoxStream<'static, Result<ExecEvent>>,
    redactor: Redactor,
    stdout: Option<secrets::Stream>,
    stderr: Option<secrets::Stream>,
    ready: VecDeque<ExecEvent>,
}

impl Clean {
    async fn next(&mut self) -> Option<Result<ExecEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.events.next().await {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.flush();
                    return self.ready.pop_front().map(Ok);
                }
            }
        }
    }

    fn take(&mut self, event: ExecEvent) {
        let (stream, shown): (_, fn(Bytes) -> ExecEvent) = match &event {
            ExecEvent::Stdout(_) => (&mut self.stdout, ExecEvent::Stdout),
            ExecEvent::Stderr(_) => (&mut self.stderr, ExecEvent::Stderr),
            ExecEvent::Gap(_) | ExecEvent::Exited(_) => {
                self.flush();
                return self.ready.push_back(event);
            }
            ExecEvent::Sandbox(_) | ExecEvent::Started(_) => return self.ready.push_back(event),
        };
        let (ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes)) = &event else {
            return;
        };
        let stream = stream.get_or_insert_with(|| self.redactor.stream());
        let clean = stream.push(bytes);
        if !clean.is_empty() {
            self.ready.push_back(shown(clean.into()));
        }
    }

    /// Gives out what was held back: nothing can complete it any more.
    fn flush(&mut self) {
        for (stream, shown) in [
            (
                self.stdout.take(),
                ExecEvent::Stdout as fn(Bytes) -> ExecEvent,
            ),
            (self.stderr.take(), ExecEvent::Stderr),
        ] {
            let held = stream.map(secrets::Stream::finish).unwrap_or_default();
            if !held.is_empty() {
                self.ready.push_back(shown(held.into()));
            }
        }
    }
}

impl Engine {
    /// The key is made when the first secret is.
    fn vault(&self) -> Result<Vault> {
        Ok(Vault::open(self.shared.home.path())?)
    }

    /// Reads what a caller hands over.
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
        Secrets::new(all)
    }

    /// The secrets a former daemon kept.
    pub(super) async fn open_secrets(&self, id: &WorkspaceId) -> Result<Secrets> {
        let sealed = self.shared.store.secrets(id).await?;
        if sealed.is_empty() {
            return Secrets::new(Vec::new());
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
        Secrets::new(all)
    }
}

fn kind(source: Source) -> &'static str {
    match source {
        Source::Literal => "literal",
        Source::File => "file",
    }
}

/// A secret from a file, whose content never reaches a message.
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
    use futures_util::stream;
    use motu_core::exec::Exited;

    fn secrets() -> Secrets {
        let secret = Secret {
            name: "TOKEN".to_string(),
            source: Source::Literal,
            value: Zeroizing::new("hunter2-hunter2".to_string()),
        };
        Secrets::new(vec![secret]).unwrap()
    }

    #[tokio::test]
    async fn a_value_in_two_pieces_is_not_shown() {
        let events = stream::iter(
            ["say hunter2", "-hunter2 and hunt"]
                .map(|text| Ok(ExecEvent::Stdout(Bytes::from_static(text.as_bytes()))))
                .into_iter()
                .chain([Ok(ExecEvent::Exited(Exited::default()))]),
        );
        let clean: Vec<_> = secrets().redacted(events.boxed()).collect().await;
        let mut text = Vec::new();
        for event in &clean {
            if let Ok(ExecEvent::Stdout(bytes)) = event {
                text.extend_from_slice(bytes);
            }
        }
        assert_eq!(text, b"say [redacted TOKEN] and hunt");
        assert!(matches!(clean.last(), Some(Ok(ExecEvent::Exited(_)))));
    }

    #[test]
    fn only_known_secrets_become_variables() {
        let ask = |text: &str| secrets().environment(&[text.parse().unwrap()]);
        assert_eq!(ask("TOKEN").unwrap()["TOKEN"], "hunter2-hunter2");
        assert_eq!(ask("TOKEN=API").unwrap()["API"], "hunter2-hunter2");
        let error = ask("OTHER").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}
