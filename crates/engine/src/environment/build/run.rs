//! `RUN`: one command in a machine of its own.

use super::Builder;
use super::capture::Capture;
use super::lines::Lines;
use super::mounts::Cache;
use super::refused::Reach;
use super::state::{Stage, failed_at};
use crate::admission::{Follow, command, environment_error};
use crate::blocking::blocking;
use crate::driver::{Handle, Keep, Origin};
use crate::pipe;
use crate::shown::{self, Pace};
use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, ExecRequest, Exited};
use motu_core::files::GuestPath;
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::runtime::Kept;
use motu_core::sandbox::{CreateSandbox, StartRoot};
use motu_core::{Error, ErrorKind, Program, Result, limits};
use motu_dockerfile::{Command, Mount, Run, SecretMount, Step, StepNetwork};
use motu_environments::{Privilege, StepRecord};
use motu_workspaces::tarball::{Meta, TarWriter};
use std::collections::BTreeMap;
use std::time::Duration;

/// The runtime of build steps, unless the caller names another.
const RUNTIME: &str = "container";
/// How long background processes of a command may take to end.
const GRACE: Duration = Duration::from_secs(2);
/// How long an orderly shutdown may take in all.
const END: Duration = Duration::from_secs(20);
/// Secret files of a command live on a tmpfs: in the machine's memory, never on a disk.
const VAULT: &str = "dev/shm/.motu-build";
/// Lines of output that an error quotes.
const TAIL_LINES: usize = 20;

/// What one `RUN` runs, with everything expanded.
pub(super) struct Running<'a> {
    pub(super) step: &'a Step,
    pub(super) run: &'a Run,
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

impl Running<'_> {
    fn secrets(&self) -> impl Iterator<Item = &SecretMount> {
        self.run.mounts.iter().filter_map(|mount| match mount {
            Mount::Secret(secret) => Some(secret),
            Mount::Cache(_) => None,
        })
    }

    /// Paths that do not belong into the layer: secret files and cache targets.
    fn without(&self, caches: &[Cache]) -> Vec<Vec<u8>> {
        let targets = self.secrets().filter_map(|secret| secret.target.as_ref());
        let targets = targets.map(|target| target.trim_matches('/').as_bytes().to_vec());
        let caches = caches.iter().map(|cache| cache.target.clone());
        targets.chain(caches).collect()
    }
}

/// The program and arguments of a `RUN`. A here-document is passed to the shell unchanged, or is
/// itself the script.
pub(super) fn argv(run: &Run, shell: &[String], line: usize) -> Result<Vec<String>> {
    let text = match &run.command {
        Command::Exec(words) => return Ok(words.clone()),
        Command::Shell(text) => text,
    };
    let whole = match run.heredocs.as_slice() {
        [] => text.clone(),
        [only]
            if text
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .starts_with("<<")
                && !text.trim().contains(char::is_whitespace) =>
        {
            if only.body.starts_with("#!") {
                return Err(Error::unsupported(format!(
                    "line {line}: a here-document with an interpreter of its own is not supported"
                ))
                .hint("pass it to the interpreter: RUN python3 - <<EOF"));
            }
            only.body.clone()
        }
        all => {
            let mut whole = text.clone();
            for document in all {
                whole.push('\n');
                whole.push_str(&document.body);
                whole.push_str(&document.name);
            }
            whole + "\n"
        }
    };
    let mut argv = shell.to_vec();
    argv.push(whole);
    Ok(argv)
}

impl Builder<'_> {
    /// Runs a command and stores its changes as a layer.
    pub(super) async fn run(
        &mut self,
        stage: &mut Stage,
        running: Running<'_>,
    ) -> Result<StepRecord> {
        if Privilege::detect() == Privilege::User {
            return Err(Error::unsupported(
                "RUN needs a daemon of root's: files that an ordinary user's machines leave belong \
                 to ids that stand for others, and cannot be read back as they are inside",
            )
            .hint(hint![
                "build as root, then ",
                verb("export_environment"),
                " there and ",
                verb("import_environment"),
                " here"
            ]));
        }
        let cache = self.cache.clone();
        let image = stage.image.clone();
        self.lay_out(stage).await?;
        let caches = self.caches(stage, running.run).await?;
        let place = stage.place.as_mut();
        let place = place.ok_or_else(|| Error::internal("a stage has no tree"))?;
        let disks = place.fresh_disks().map_err(environment_error)?;
        let kept = Kept {
            baseline: place.root().join("workspace"),
            dir: disks,
        };
        let root = StartRoot {
            path: place.root(),
            digest: match stage.layers.is_empty() {
                true => place.digest().to_string(),
                false => String::new(),
            },
            wants_sudo: image.wants_sudo,
        };
        let path = root.path.clone();
        let network = running.run.network;
        let (handle, name) = self.machine(root, kept.clone(), network).await?;
        let life = Life(Some(handle.clone()));
        self.clear_targets(&handle, &caches).await?;
        self.fill_vault(&handle, &running, &caches).await?;
        self.fill_caches(&handle, &caches).await?;
        let ended = self.follow(&handle, &running, &image).await?;
        let is_kept = ended.exit_code == 0 || !caches.is_empty();
        if let Some(guest) = handle.guest().ok().filter(|_| is_kept) {
            // Without an orderly shutdown, unwritten data would be missing from the layer.
            let asked = tokio::time::timeout(END, guest.shutdown(GRACE)).await;
            if !matches!(asked, Ok(Ok(()))) {
                return Err(Error::unavailable(
                    "the machine of a step did not end in order",
                ));
            }
        }
        life.end().await;
        let ran = match ended.exit_code {
            0 => Ok(()),
            _ => {
                let reach = self.reach(&handle.sandbox().sandbox_id, network).await;
                Err(self.failed(&running, &ended, reach))
            }
        };
        if !is_kept {
            ran.clone()?;
        }
        let runtime = self.sandboxes.runtimes.named(&name);
        let runtime = runtime.ok_or_else(|| Error::internal("its runtime is not in this build"))?;
        let rest = runtime.at_rest(&kept, &path)?;
        let without = running.without(&caches);
        self.keep_caches(caches, &rest).await?;
        ran?;
        let place = stage.place.take();
        let place = place.ok_or_else(|| Error::internal("a stage has no tree"))?;
        let (place, layer) = blocking(move || {
            let (new, mut writer) = cache.new_layer().map_err(environment_error)?;
            let capture = Capture {
                rest: &rest,
                place: &place,
                without: &without,
            };
            capture.write(&mut writer)?;
            let layer = cache.keep_layer(new, writer).map_err(environment_error)?;
            Ok((place, layer))
        })
        .await?;
        stage.place = Some(place);
        // Best effort: a disk that stays is removed with the workplace.
        let _ = runtime.discard(&kept.dir).await;
        let _ = std::fs::remove_dir_all(&kept.dir);
        Ok(StepRecord::new(layer))
    }

    async fn machine(
        &self,
        root: StartRoot,
        kept: Kept,
        network: StepNetwork,
    ) -> Result<(std::sync::Arc<Handle>, String)> {
        let ask = &self.ask;
        let request = CreateSandbox {
            owner: ask.owner.clone(),
            bounds: ask.bounds.clone(),
            environment: "build".to_string(),
            root: Some(root),
            runtime: Some(ask.runtime.clone().unwrap_or(RUNTIME.to_string())),
            size: ask.size,
            policy: ask
                .policy
                .clone()
                .filter(|_| network == StepNetwork::Policy),
            allowed_hosts: ask.allowed_hosts.clone(),
            ..CreateSandbox::default()
        };
        // What runtimes have made of environments stays until the machine has it.
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        let mut admitted = self.sandboxes.gate().admit(request).await?;
        if !admitted.runtime.capabilities().keep {
            return Err(admitted
                .runtime
                .cannot("keep what a build changes")
                .hint(hint![
                    "choose another ",
                    field("runtime"),
                    ", such as container"
                ]));
        }
        admitted.launch.kept = Some(kept);
        let name = admitted.runtime.name().to_string();
        let made = self
            .sandboxes
            .start(admitted, Keep::Transient, Origin::New(None));
        Ok((made.await?.1, name))
    }

    /// Puts the values of secrets where the command expects them, and makes the directories of caches.
    async fn fill_vault(
        &self,
        handle: &Handle,
        running: &Running<'_>,
        caches: &[Cache],
    ) -> Result<()> {
        let mut files = Vec::new();
        let mut links = Vec::new();
        for (number, secret) in running.secrets().enumerate() {
            let (Some(value), Some(target)) = (self.ask.secrets.get(&secret.id), &secret.target)
            else {
                continue;
            };
            files.push((format!("{VAULT}/{number}"), value.clone(), secret.clone()));
            links.push((
                target.trim_matches('/').to_string(),
                format!("/{VAULT}/{number}"),
            ));
        }
        if files.is_empty() && caches.is_empty() {
            return Ok(());
        }
        let directories: Vec<(Vec<u8>, Meta)> = caches
            .iter()
            .map(|cache| (cache.target.clone(), cache.top()))
            .collect();
        let archive = pipe::written(move |out| {
            let failed = |error| Error::io("cannot pass a secret on", &error);
            let mut tar = TarWriter::new(out);
            let meta = |mode, uid, gid| Meta {
                mode,
                uid,
                gid,
                modified_unix_ns: 0,
            };
            let none = Default::default();
            tar.directory(VAULT.as_bytes(), meta(0o755, 0, 0), &none)
                .map_err(failed)?;
            for (path, value, secret) in &files {
                let size = value.len() as u64;
                let meta = meta(secret.mode & 0o777, secret.uid, secret.gid);
                tar.file(path.as_bytes(), meta, &none, size, &mut value.as_bytes())
                    .map_err(failed)?;
            }
            for (target, meta) in &directories {
                tar.directory(target, *meta, &none).map_err(failed)?;
            }
            for (target, path) in &links {
                tar.symlink(target.as_bytes(), meta(0o777, 0, 0), path.as_bytes())
                    .map_err(failed)?;
            }
            tar.finish().map(drop).map_err(failed)
        });
        let guest = handle.guest()?;
        guest
            .write_owned_tree(&GuestPath::new("/")?, archive)
            .await?;
        Ok(())
    }

    /// Runs the command and reports its output.
    async fn follow(
        &mut self,
        handle: &Handle,
        running: &Running<'_>,
        image: &motu_environments::ImageInfo,
    ) -> Result<Exited> {
        let mut env = running.env.clone();
        for secret in running.secrets() {
            if let (Some(name), Some(value)) = (&secret.env, self.ask.secrets.get(&secret.id)) {
                env.insert(name.clone(), value.clone());
            }
        }
        let seconds = limits::BUILD_STEP_SECONDS.resolve(self.ask.timeout_seconds)?;
        let request = ExecRequest::from(Program {
            command: running.argv.clone(),
            workdir: Some(image.default_workdir.clone()),
            env,
            user: Some(image.default_user.clone()),
            timeout_seconds: Some(seconds),
            ..Program::default()
        });
        let start = command(&self.sandboxes.config, request, Follow::Foreground)?;
        let session = handle.guest()?.start(start).await?;
        let mut events = shown::redacted(&self.redactor, session.events, Pace::Pipe);
        self.tail.clear();
        let mut lines = Lines::default();
        while let Some(event) = events.next().await {
            match event? {
                ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => {
                    for line in bytes.into_iter().filter_map(|byte| lines.add(byte)) {
                        self.output(line).await;
                    }
                }
                ExecEvent::Exited(exited) => {
                    if let Some(line) = lines.rest() {
                        self.output(line).await;
                    }
                    return Ok(exited);
                }
                _ => {}
            }
        }
        Err(Error::transport("the machine of a step went away"))
    }

    async fn output(&mut self, line: String) {
        self.tail.push_back(line.clone());
        while self.tail.len() > TAIL_LINES {
            self.tail.pop_front();
        }
        self.say("output", line).await;
    }

    fn failed(&self, running: &Running<'_>, ended: &Exited, reach: Reach) -> Error {
        let (kind, how) = match (ended.timed_out, ended.out_of_memory) {
            (true, _) => (
                ErrorKind::Timeout,
                "ran out of its time (build_step_seconds)".to_string(),
            ),
            (_, true) => (
                ErrorKind::Limit,
                format!(
                    "was ended by the memory limit (exit code {})",
                    ended.exit_code
                ),
            ),
            _ => (
                ErrorKind::Invalid,
                format!("ended with exit code {}", ended.exit_code),
            ),
        };
        let log: Vec<&str> = self.tail.iter().map(String::as_str).collect();
        let error = Error::new(kind, format!("the command {how}")).details(serde_json::json!({
            "exit_code": ended.exit_code,
            "log": log.join("\n"),
        }));
        let error = match ended.timed_out || ended.out_of_memory {
            true => error,
            false => reach.explain(error),
        };
        failed_at(&self.file, running.step, error)
    }
}

/// Destroys a machine on drop, or with `end`, which waits.
struct Life(Option<std::sync::Arc<Handle>>);

impl Life {
    async fn end(mut self) {
        if let Some(handle) = self.0.take() {
            // Fails only if the machine has been destroyed already.
            let _ = handle.destroy().await;
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            drop(handle.destroy_soon());
        }
    }
}
