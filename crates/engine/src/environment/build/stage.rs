//! The instructions of a stage, one after the other.

use super::Builder;
use super::copy::{self, Copying};
use super::run::{Running, argv};
use super::source::clean;
use super::state::{Stage, failed_at};
use crate::admission::environment_error;
use crate::blocking::{Caller, while_waited};
use motu_core::hint;
use motu_core::hint::field;
use motu_core::{Error, Result};
use motu_dockerfile::{Copy, Instruction, Mount, Run, Step, StepNetwork, expand};
use motu_environments::{StepRecord, Workplace};
use std::collections::BTreeMap;

/// Build arguments that need no `ARG`.
const PREDEFINED: [&str; 8] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

impl Builder<'_> {
    /// Executes one instruction.
    pub(super) async fn step(&mut self, stage: &mut Stage, step: &Step) -> Result<()> {
        let done = self.instruction(stage, step).await;
        done.map_err(|error| match error.details["line"].is_null() {
            true => failed_at(&self.file, step, error),
            false => error,
        })
    }

    /// Expands the variables in a word of the Dockerfile.
    pub(super) fn word(&self, stage: &Stage, word: &str, line: usize) -> Result<String> {
        let lookup = |name: &str| {
            let known = stage.image.env.get(name).or(stage.args.get(name));
            known.cloned()
        };
        expand(word, self.escape, line, &lookup).map_err(|error| super::unparsed(&self.file, error))
    }

    async fn instruction(&mut self, stage: &mut Stage, step: &Step) -> Result<()> {
        let line = step.line;
        match &step.instruction {
            Instruction::Run(run) => return self.run_step(stage, step, run).await,
            Instruction::Copy(copy) => return self.copy_step(stage, copy, line).await,
            Instruction::Workdir(path) => {
                let path = stage.absolute(&self.word(stage, path, line)?);
                let clean = clean(path.as_bytes())
                    .ok_or_else(|| Error::invalid(format!("{path} leads out of the root")))?;
                let path = format!("/{}", String::from_utf8_lossy(&clean));
                stage.image.default_workdir = path.clone();
                return self.directory_step(stage, path).await;
            }
            Instruction::Arg(all) => {
                for (name, default) in all {
                    self.argument(stage, name, default.as_deref(), line)?;
                }
                return Ok(());
            }
            Instruction::Env(pairs) => {
                // All pairs of one `ENV` see the variables as they were before it.
                let mut new = Vec::new();
                for (key, value) in pairs {
                    new.push((self.word(stage, key, line)?, self.word(stage, value, line)?));
                }
                for (key, value) in new {
                    stage.key = stage.key.next(&[b"ENV", key.as_bytes(), value.as_bytes()]);
                    stage.image.env.insert(key, value);
                }
            }
            Instruction::User(user) => {
                let user = self.word(stage, user, line)?;
                stage.key = stage.key.next(&[b"USER", user.as_bytes()]);
                stage.image.default_user = user;
            }
            Instruction::Shell(words) => {
                stage.key = stage.key.next(&[b"SHELL", words.join("\0").as_bytes()]);
                stage.image.shell = words.clone();
            }
            other => self.setting(stage, other, line)?,
        }
        Ok(())
    }

    /// Instructions that only change image settings.
    fn setting(&self, stage: &mut Stage, instruction: &Instruction, line: usize) -> Result<()> {
        match instruction {
            Instruction::Label(pairs) => {
                for (key, value) in pairs {
                    let (key, value) =
                        (self.word(stage, key, line)?, self.word(stage, value, line)?);
                    stage.image.labels.insert(key, value);
                }
            }
            Instruction::Maintainer(name) => {
                stage.image.labels.insert("maintainer".into(), name.clone());
            }
            Instruction::Entrypoint(command) => {
                stage.image.entrypoint = stage.words(command);
                // An inherited `CMD` was meant for the inherited entrypoint, so a new entrypoint
                // clears it.
                if !stage.has_cmd {
                    stage.image.cmd.clear();
                }
            }
            Instruction::Cmd(command) => {
                stage.image.cmd = stage.words(command);
                stage.has_cmd = true;
            }
            Instruction::Expose(ports) => {
                for port in ports {
                    let words = self.word(stage, port, line)?;
                    for port in words.split_whitespace() {
                        let port = match port.contains('/') {
                            true => port.to_string(),
                            false => format!("{port}/tcp"),
                        };
                        if !stage.image.exposed_ports.contains(&port) {
                            stage.image.exposed_ports.push(port);
                        }
                    }
                }
            }
            Instruction::StopSignal(signal) => {
                stage.image.stop_signal = Some(self.word(stage, signal, line)?);
            }
            Instruction::Volume(paths) => {
                for path in paths {
                    let path = self.word(stage, path, line)?;
                    if !stage.image.volumes.contains(&path) {
                        stage.image.volumes.push(path);
                    }
                }
            }
            Instruction::Healthcheck(check) => stage.image.healthcheck = Some(check.clone()),
            Instruction::Onbuild(text) => stage.image.on_build.push(text.clone()),
            _ => {}
        }
        Ok(())
    }

    fn argument(
        &self,
        stage: &mut Stage,
        name: &str,
        default: Option<&str>,
        line: usize,
    ) -> Result<()> {
        let given = self.ask.build_args.get(name).cloned();
        let value = match (given, default) {
            (Some(value), _) => Some(value),
            (None, Some(word)) => Some(self.word(stage, word, line)?),
            (None, None) => self.global.get(name).cloned(),
        };
        if let Some(value) = value {
            stage.key = stage.key.next(&[b"ARG", name.as_bytes(), value.as_bytes()]);
            stage.args.insert(name.to_string(), value);
        }
        Ok(())
    }

    async fn run_step(&mut self, stage: &mut Stage, step: &Step, run: &Run) -> Result<()> {
        let argv = argv(run, &stage.shell(), step.line)?;
        for mount in &run.mounts {
            if let Mount::Secret(secret) = mount
                && secret.required
                && !self.ask.secrets.contains_key(&secret.id)
            {
                return Err(
                    Error::invalid(format!("the secret {} is not given", secret.id))
                        .hint(hint!["give it a value with ", field("secrets")]),
                );
            }
        }
        let mounts = format!("{:?} {:?}", run.mounts, run.network);
        let words = serde_json::json!(argv).to_string();
        let mut env: BTreeMap<String, String> = PREDEFINED
            .iter()
            .filter_map(|name| Some((name.to_string(), self.ask.build_args.get(*name)?.clone())))
            .collect();
        let seen = self.seen(run, &env).await?;
        let parts: [&[u8]; 4] = [b"RUN", words.as_bytes(), mounts.as_bytes(), seen.as_bytes()];
        stage.key = stage.key.next(&parts);
        if self.reuse(stage).await {
            return Ok(());
        }
        env.extend(stage.args.clone());
        env.extend(stage.image.env.clone());
        env.extend(self.ask.env.clone());
        let running = Running {
            step,
            run,
            argv,
            env,
        };
        let made = self.run(stage, running).await?;
        self.keep(stage, made).await
    }

    /// The values of all that a step can see beside the tree, the instructions before it and its own
    /// words. What is in a cache mount is left out: a cache must not change results, and only builds
    /// of the same owner have written to it.
    async fn seen(&self, run: &Run, proxies: &BTreeMap<String, String>) -> Result<String> {
        let secrets = run.mounts.iter().filter_map(|mount| match mount {
            Mount::Secret(secret) => Some((&secret.id, self.ask.secrets.get(&secret.id))),
            Mount::Cache(_) => None,
        });
        let secrets: Vec<_> = secrets.collect();
        let policy = self.ask.policy.as_deref();
        let rules = match policy.filter(|_| run.network == StepNetwork::Policy) {
            Some(name) => Some(self.sandboxes.policy(name).await?.rules),
            None => None,
        };
        let (given, hosts) = (&self.ask.env, &self.ask.allowed_hosts);
        Ok(serde_json::json!([proxies, secrets, given, hosts, policy, rules]).to_string())
    }

    /// Creates a directory (`WORKDIR`).
    async fn directory_step(&mut self, stage: &mut Stage, path: String) -> Result<()> {
        stage.key = stage.key.next(&[b"WORKDIR", path.as_bytes()]);
        if self.reuse(stage).await {
            return Ok(());
        }
        let destination = format!("{path}/");
        self.lay_out(stage).await?;
        let made = self
            .layer(stage, move |place, layer, _| {
                copy::make_directory(&destination, place, layer)
            })
            .await?;
        self.keep(stage, made).await
    }

    async fn copy_step(&mut self, stage: &mut Stage, copy: &Copy, line: usize) -> Result<()> {
        let mut sources = Vec::new();
        for source in &copy.sources {
            sources.push(self.word(stage, source, line)?);
        }
        let mut texts = Vec::new();
        for document in &copy.heredocs {
            let text = match document.expand {
                true => self.word(stage, &quoted(&document.body), line)?,
                false => document.body.clone(),
            };
            texts.push((document.name.clone(), text));
        }
        let destination = self.word(stage, &copy.destination, line)?;
        let destination = match destination.as_str() {
            "." | "./" => format!("{}/", stage.absolute("")),
            path => stage.absolute(path),
        };
        let chown = match &copy.chown {
            Some(word) => self.word(stage, word, line)?,
            None => String::new(),
        };
        let mode = match &copy.chmod {
            None => None,
            Some(word) => {
                let word = self.word(stage, word, line)?;
                let mode = u32::from_str_radix(&word, 8)
                    .ok()
                    .filter(|mode| *mode <= 0o7777);
                Some(mode.ok_or_else(|| {
                    Error::invalid(format!("--chmod={word} is not understood")).hint("such as 755")
                })?)
            }
        };
        let mut copying = Copying {
            add: copy.add,
            sources,
            texts,
            destination,
            owner: None,
            mode,
        };
        let from = match &copy.from {
            Some(word) => Some(self.other_stage(&self.word(stage, word, line)?).await?),
            None => None,
        };
        let content = match &from {
            // A stage's key determines its contents, so they need not be hashed.
            Some(other) => other.key.as_str().to_string(),
            None => {
                let context = self.context.clone();
                let (hash, back) = while_waited(move |caller| {
                    let hash = copy::hash(&copying, context.as_ref(), caller)?;
                    Ok((hash, copying))
                })
                .await?;
                copying = back;
                hash
            }
        };
        let what = format!("{copying:?} {chown:?}");
        stage.key = stage
            .key
            .next(&[b"COPY", content.as_bytes(), what.as_bytes()]);
        if self.reuse(stage).await {
            self.put_back(from);
            return Ok(());
        }
        self.lay_out(stage).await?;
        copying.owner = owner(&chown, stage.place.as_ref())?;
        let made = match from {
            None => {
                let context = self.context.clone();
                self.layer(stage, move |place, layer, caller| {
                    copy::write(&copying, context.as_ref(), place, layer, caller)
                })
                .await?
            }
            Some(mut other) => {
                self.lay_out(&mut other).await?;
                let tree = other.place.take();
                let tree = tree.ok_or_else(|| Error::internal("a stage has no tree"))?;
                let (send, back) = std::sync::mpsc::channel();
                let made = self
                    .layer(stage, move |place, layer, caller| {
                        let written = copy::write(&copying, &tree, place, layer, caller);
                        let _ = send.send(tree);
                        written
                    })
                    .await;
                other.place = back.try_recv().ok();
                if other.place.is_none() {
                    other.applied = 0;
                }
                self.put_back(Some(other));
                made?
            }
        };
        self.keep(stage, made).await
    }

    /// Writes a layer against the tree of a stage.
    async fn layer(
        &self,
        stage: &mut Stage,
        work: impl FnOnce(&Workplace, &mut motu_environments::LayerWriter, &Caller) -> Result<()>
        + Send
        + 'static,
    ) -> Result<StepRecord> {
        let cache = self.cache.clone();
        let place = stage.place.take();
        let place = place.ok_or_else(|| Error::internal("a stage has no tree"))?;
        let (place, layer) = while_waited(move |caller| {
            let (new, mut writer) = cache.new_layer().map_err(environment_error)?;
            work(&place, &mut writer, caller)?;
            let layer = cache.keep_layer(new, writer).map_err(environment_error)?;
            Ok((place, layer))
        })
        .await?;
        stage.place = Some(place);
        Ok(StepRecord::new(layer))
    }
}

/// Escapes quotes, which have no meaning in a here-document.
fn quoted(text: &str) -> String {
    text.replace('"', "\\\"").replace('\'', "\\'")
}

/// Parses `--chown` to a uid and a gid; names are looked up in the tree.
fn owner(text: &str, place: Option<&Workplace>) -> Result<Option<(u64, u64)>> {
    let Some(place) = place.filter(|_| !text.is_empty()) else {
        return Ok(None);
    };
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let find = |file: &str, name: &str| {
        let text = String::from_utf8_lossy(&place.text(file)).into_owned();
        let line = text
            .lines()
            .find(|line| line.split(':').next() == Some(name))?
            .to_string();
        let fields: Vec<u64> = line
            .split(':')
            .skip(2)
            .take(2)
            .map_while(|n| n.parse().ok())
            .collect();
        Some(fields)
    };
    let unknown = |what: &str, name: &str| {
        Error::invalid(format!("--chown: the tree knows no {what} {name}"))
            .hint("numbers always work")
    };
    let (uid, own) = match user.parse::<u32>() {
        Ok(uid) => (u64::from(uid), u64::from(uid)),
        Err(_) => match find("etc/passwd", user).as_deref() {
            Some([uid, gid]) => (*uid, *gid),
            _ => return Err(unknown("user", user)),
        },
    };
    let gid = match (group, group.parse::<u32>()) {
        ("", _) => own,
        (_, Ok(gid)) => gid.into(),
        (name, _) => match find("etc/group", name).as_deref() {
            Some([gid, ..]) => *gid,
            _ => return Err(unknown("group", name)),
        },
    };
    Ok(Some((uid, gid)))
}
