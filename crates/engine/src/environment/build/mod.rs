//! Building environments from Dockerfiles, in machines of our own.
//!
//! ```text
//! Dockerfile ──► stages ──► steps ──key──► in the cache? its layer
//!                                    └───► RUN: a machine from the tree so far, then what it changed
//!                                          COPY: files of the context or of another stage
//!                                                              │ layer
//!                    installed tree ──hard links──► tree ◄─────┘        ──► environment
//! ```
//!
//! A step's key hashes everything that its layer depends on: whose build it is, the tree it begins
//! with, every instruction before it, the values of all that the step can see, and for `COPY` the
//! contents of the files. A build whose steps are all known makes no tree at all. What a build leaves when it fails, or is killed, is layers that
//! finished steps made; the tree it worked on is in a staging directory and goes with it.
//!
//! Values of secrets are in the memory of the machine only: not on a disk, in a key only through a hash
//! with a secret of the cache, and taken out of what is shown. What a build needs is held: nothing
//! collects it meanwhile.

mod capture;
mod commit;
mod context;
mod copy;
mod keys;
mod lines;
mod mounts;
mod refused;
mod run;
mod source;
mod stage;
mod state;
mod trees;

use super::Environments;
use super::upload::STALE;
use crate::admission::environment_error;
use crate::blocking::{blocking, while_waited};
use crate::sandbox::Sandboxes;
use crate::titles::title;
use context::Context;
use keys::Key;
use motu_core::build::{BuildReport, BuildRequest};
use motu_core::hint;
use motu_core::hint::field;
use motu_core::report::{Environment, ProgressEvent, ProgressSink};
use motu_core::turns::Turns;
use motu_core::{Error, Result, limits};
use motu_dockerfile::{Bounds, Dockerfile, Instruction, ParseError, Step, expand, parse_trigger};
use motu_environments::{BuildCache, ImageInfo, Title};
use motu_redaction::{Forms, Known, Redactor};
use state::{Stage, failed_at};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The default PATH of a stage that starts from scratch.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The name of the empty base image.
const SCRATCH: &str = "scratch";

/// The limits of the Dockerfile parser.
fn bounds() -> Bounds {
    let number = |limit: limits::Limit| usize::try_from(limit.max).unwrap_or(usize::MAX);
    Bounds {
        file_bytes: number(limits::BUILD_FILE_BYTES),
        line_bytes: number(limits::BUILD_LINE_BYTES),
        instructions: number(limits::BUILD_INSTRUCTIONS),
    }
}

/// Converts a parser error to the service's `Error`, with its place.
fn unparsed(file: &str, error: ParseError) -> Error {
    let place = match error.line {
        0 => file.to_string(),
        line => format!("{file}, line {line}"),
    };
    let said = Error::invalid(format!("{place}: {}", error.message));
    let said = match error.hint {
        Some(hint) => said.hint(hint),
        None => said,
    };
    said.details(serde_json::json!({ "file": file, "line": error.line }))
}

/// One build.
struct Builder<'a> {
    sandboxes: &'a Sandboxes,
    turns: &'a Turns,
    ask: BuildRequest,
    /// What the result will be called, unless its contents say.
    named: Option<Title>,
    progress: ProgressSink,
    cache: BuildCache,
    redactor: Redactor,
    /// The file name of the Dockerfile.
    file: String,
    escape: char,
    context: Arc<Context>,
    /// `ARG` values from before the first stage.
    global: BTreeMap<String, String>,
    /// Finished stages by number and name, and environments that were copied from.
    stages: BTreeMap<String, Stage>,
    /// The number of each stage that has a name.
    names: BTreeMap<String, usize>,
    tail: VecDeque<String>,
    report: BuildReport,
    shown: (u64, u64),
}

impl Environments {
    pub(crate) async fn build(
        &self,
        ask: BuildRequest,
        progress: ProgressSink,
    ) -> Result<Environment> {
        let named = ask.name.as_deref().map(|name| Title {
            made_for: ask.made_for.clone(),
            ..title(&ask.owner, name)
        });
        let built = self.while_space(self.build_untold(ask, named.clone(), progress));
        self.telling(named.as_ref(), built).await
    }

    async fn build_untold(
        &self,
        ask: BuildRequest,
        named: Option<Title>,
        progress: ProgressSink,
    ) -> Result<Environment> {
        let began = Instant::now();
        let cache = self.build_cache(&ask.owner)?;
        // Taken first, so that the uploaded context is deleted however the build ends.
        let context = ask.context_id.as_deref().map(|id| {
            let path = cache.context(id);
            path.ok_or_else(|| Error::not_found("there is no such context; send it again"))
        });
        let context = context.transpose()?.map(Sent);
        let file = ask.dockerfile_name.clone();
        let file = file.unwrap_or("Dockerfile".to_string());
        let parsed = dockerfile(&ask, &file)?;
        if let Some(title) = &named {
            let checked = self.sandboxes.environments.check_own_name(title);
            checked.map_err(environment_error)?;
        }
        let values = ask.secrets.iter().map(|(name, value)| Known {
            name: Some(name),
            value: value.as_bytes(),
            forms: Forms::All,
        });
        let mut builder = Builder {
            redactor: Redactor::new(values, &self.sandboxes.patterns),
            context: match &context {
                Some(sent) => {
                    let path = sent.0.clone();
                    let opened = while_waited(move |caller| Context::open(&path, caller));
                    Arc::new(opened.await?)
                }
                None => Arc::default(),
            },
            turns: &self.turns,
            sandboxes: &self.sandboxes,
            progress,
            cache: cache.clone(),
            escape: parsed.escape,
            file,
            global: BTreeMap::new(),
            stages: BTreeMap::new(),
            names: BTreeMap::new(),
            tail: VecDeque::new(),
            report: BuildReport::default(),
            shown: (0, 0),
            named,
            ask,
        };
        let built = builder.all(&parsed).await;
        let built = built.map_err(|error| crate::shown::clean_error(&builder.redactor, error));
        blocking(move || {
            cache.trim(limits::BUILD_CACHE_BYTES.max, STALE);
            Ok(())
        })
        .await?;
        let mut built = built?;
        builder.report.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(0);
        built.build = Some(builder.report);
        Ok(built)
    }
}

/// An uploaded context, deleted when this is dropped.
struct Sent(PathBuf);

impl Drop for Sent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Parses the instructions of a request.
fn dockerfile(ask: &BuildRequest, file: &str) -> Result<Dockerfile> {
    match (&ask.dockerfile, &ask.from) {
        (Some(text), None) if ask.run.is_empty() => {
            motu_dockerfile::parse(text, &bounds()).map_err(|error| unparsed(file, error))
        }
        (None, Some(from)) => {
            let begin = format!("FROM {from}\n");
            let begin = motu_dockerfile::parse(&begin, &bounds());
            let mut parsed = begin.map_err(|error| unparsed("from", error))?;
            let steps = ask.run.iter().enumerate().map(|(number, command)| Step {
                line: number + 1,
                text: format!("RUN {}", command.lines().next().unwrap_or_default()),
                instruction: Instruction::Run(motu_dockerfile::Run {
                    command: motu_dockerfile::Command::Shell(command.clone()),
                    mounts: Vec::new(),
                    network: motu_dockerfile::StepNetwork::Policy,
                    heredocs: Vec::new(),
                }),
            });
            if let Some(stage) = parsed.stages.last_mut() {
                stage.steps.extend(steps);
            }
            Ok(parsed)
        }
        _ => Err(
            Error::invalid("a build needs a Dockerfile, or an environment to begin with").hint(
                hint![
                    "give the text of a Dockerfile, or ",
                    field("from"),
                    " and ",
                    field("run")
                ],
            ),
        ),
    }
}

impl Builder<'_> {
    async fn say(&self, stage: &str, message: impl Into<String>) {
        let event = ProgressEvent {
            stage: stage.to_string(),
            message: message.into(),
            done: Some(self.shown.0),
            total: Some(self.shown.1),
        };
        // A send fails only when the caller is gone; the call is then cancelled.
        let _ = self.progress.send(event).await;
    }

    async fn all(&mut self, parsed: &Dockerfile) -> Result<Environment> {
        self.globals(parsed)?;
        for (number, stage) in parsed.stages.iter().enumerate() {
            if let Some(name) = &stage.name {
                self.names.insert(name.clone(), number);
            }
        }
        let target = match &self.ask.target {
            None => parsed.stages.len() - 1,
            Some(word) => self
                .number(&word.to_ascii_lowercase(), parsed.stages.len())
                .ok_or_else(|| Error::not_found(format!("{} has no stage {word}", self.file)))?,
        };
        let needed = self.needed(parsed, target)?;
        let steps = needed
            .iter()
            .map(|number| 1 + parsed.stages[*number].steps.len() as u64);
        self.shown.1 = steps.sum();
        for number in needed {
            self.stage(parsed, number).await?;
        }
        let last = self.stages.remove(&target.to_string());
        let last = last.ok_or_else(|| Error::internal("the last stage is missing"))?;
        self.finish(last).await
    }

    fn globals(&mut self, parsed: &Dockerfile) -> Result<()> {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        for side in ["TARGET", "BUILD"] {
            let all = [
                ("PLATFORM", format!("linux/{arch}")),
                ("OS", "linux".into()),
                ("ARCH", arch.into()),
            ];
            for (name, value) in all {
                self.global.insert(format!("{side}{name}"), value);
            }
        }
        for step in &parsed.global {
            let Instruction::Arg(all) = &step.instruction else {
                continue;
            };
            for (name, default) in all {
                let value = match (self.ask.build_args.get(name), default) {
                    (Some(value), _) => value.clone(),
                    (None, Some(word)) => self.global_word(word, step.line)?,
                    (None, None) => continue,
                };
                self.global.insert(name.clone(), value);
            }
        }
        Ok(())
    }

    fn global_word(&self, word: &str, line: usize) -> Result<String> {
        let lookup = |name: &str| self.global.get(name).cloned();
        expand(word, self.escape, line, &lookup).map_err(|error| unparsed(&self.file, error))
    }

    /// Finds a stage among the first `below` ones, by its name or number.
    fn number(&self, word: &str, below: usize) -> Option<usize> {
        let number = self.names.get(word).copied().or_else(|| word.parse().ok());
        number.filter(|number| *number < below)
    }

    /// All stages that a stage depends on.
    fn needed(&self, parsed: &Dockerfile, target: usize) -> Result<BTreeSet<usize>> {
        let mut needed = BTreeSet::new();
        let mut open = vec![target];
        while let Some(number) = open.pop() {
            if !needed.insert(number) {
                continue;
            }
            let stage = &parsed.stages[number];
            let from = self.global_word(&stage.from, stage.line)?;
            open.extend(self.number(&from.to_ascii_lowercase(), number));
            for step in &stage.steps {
                if let Instruction::Copy(copy) = &step.instruction
                    && let Some(from) = &copy.from
                {
                    open.extend(self.number(&from.to_ascii_lowercase(), number));
                }
            }
        }
        Ok(needed)
    }

    async fn stage(&mut self, parsed: &Dockerfile, number: usize) -> Result<()> {
        let wanted = &parsed.stages[number];
        self.shown.0 += 1;
        self.say("step", format!("FROM {}", wanted.from)).await;
        let from = self.global_word(&wanted.from, wanted.line)?;
        let known = self.number(&from.to_ascii_lowercase(), number);
        let known = known.and_then(|other| self.stages.get(&other.to_string()));
        let began = match known {
            Some(other) => Ok(other.after()),
            None => self.begin(&from).await,
        };
        let mut stage = began.map_err(|error| {
            let step = Step {
                line: wanted.line,
                text: format!("FROM {from}"),
                instruction: Instruction::Maintainer(String::new()),
            };
            failed_at(&self.file, &step, error)
        })?;
        let triggers = std::mem::take(&mut stage.image.on_build);
        for text in &triggers {
            let step = parse_trigger(text, wanted.line, &bounds());
            let step = step.map_err(|error| unparsed(&self.file, error))?;
            self.step(&mut stage, &step).await?;
        }
        for step in &wanted.steps {
            self.shown.0 += 1;
            self.say("step", step.text.clone()).await;
            let began = Instant::now();
            let cached = self.report.cached;
            self.step(&mut stage, step).await?;
            let stage = match self.report.cached > cached {
                true => "cached",
                false => "done",
            };
            self.say(stage, format!("{:.1} s", began.elapsed().as_secs_f32()))
                .await;
        }
        stage.label = number.to_string();
        self.put_back(Some(stage));
        Ok(())
    }

    /// A stage that starts from an environment, or from nothing.
    async fn begin(&self, name: &str) -> Result<Stage> {
        if name == SCRATCH {
            let key = self.key(&[b"scratch"]);
            return Ok(Stage::new(None, nothing(), key));
        }
        let environments = &self.sandboxes.environments;
        // Names stand in Dockerfiles, too, which the gate does not read.
        let name = self.sandboxes.environment_of(&self.ask.owner, name).await?;
        let installed = self
            .sandboxes
            .installed_and_held(&self.ask.owner, &name, &self.progress);
        let (found, hold) = installed.await?;
        let info = environments
            .inspect(&found.name)
            .await
            .map_err(environment_error)?;
        let image = info.image.unwrap_or_else(|| ImageInfo {
            default_user: found.default_user.clone(),
            default_workdir: found.default_workdir.clone(),
            env: found.env.clone(),
            wants_sudo: found.wants_sudo,
            ..nothing()
        });
        // Catalog environments have a default user for sandboxes; a Dockerfile starts as root in
        // `/`.
        let image = match environments
            .catalog()
            .iter()
            .any(|entry| entry.name == found.name)
        {
            true => ImageInfo {
                default_user: "root".to_string(),
                default_workdir: "/".to_string(),
                ..image
            },
            false => image,
        };
        let said = serde_json::json!([
            image.env,
            image.default_user,
            image.default_workdir,
            image.shell
        ]);
        let key = self.key(&[found.digest.as_bytes(), said.to_string().as_bytes()]);
        Ok(Stage::new(Some(Arc::new(hold)), image, key))
    }

    /// The first of the keys of a stage. Whose the build is, is in every key, and nobody can make one
    /// without the secret of the cache.
    fn key(&self, parts: &[&[u8]]) -> Key {
        Key::begin(self.cache.key(), &self.ask.owner, parts)
    }

    /// Takes out a stage to copy from; the caller puts it back.
    async fn other_stage(&mut self, word: &str) -> Result<Stage> {
        let number = self.number(&word.to_ascii_lowercase(), usize::MAX);
        let key = number.map_or(word.to_string(), |number| number.to_string());
        match (self.stages.remove(&key), number) {
            (Some(stage), _) => Ok(stage),
            (None, Some(_)) => Err(Error::invalid(format!("{word} is not an earlier stage"))),
            (None, None) => {
                let mut stage = self.begin(word).await?;
                stage.label = word.to_string();
                Ok(stage)
            }
        }
    }

    fn put_back(&mut self, stage: Option<Stage>) {
        if let Some(stage) = stage {
            self.stages.insert(stage.label.clone(), stage);
        }
    }
}

/// The image settings of an empty image.
fn nothing() -> ImageInfo {
    ImageInfo {
        reference: String::new(),
        manifest_digest: None,
        layers: Vec::new(),
        default_user: "root".to_string(),
        default_workdir: "/".to_string(),
        env: BTreeMap::from([("PATH".to_string(), PATH.to_string())]),
        entrypoint: Vec::new(),
        cmd: Vec::new(),
        labels: BTreeMap::new(),
        exposed_ports: Vec::new(),
        stop_signal: None,
        volumes: Vec::new(),
        healthcheck: None,
        on_build: Vec::new(),
        shell: Vec::new(),
        wants_sudo: false,
    }
}
