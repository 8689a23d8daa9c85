//! One typed call: files in, one command, a bounded answer, an explicit end of its state.
//!
//! ```text
//!   check     the request against its policy (pure)
//!   dry       every check, and nothing else
//!   state     what an earlier call has kept, for one call at a time
//!   program   the command, by the name it has in the machine
//!   mod       machine ──► files ──► command, redacted ──► files out ──► what becomes of the state
//! ```
//!
//! What fails before the command has run is an error; the gate adds the class of the failure to it.
//! What fails later is part of the answer: the command did run.

mod check;
mod dry;
mod program;
mod state;

use crate::driver::{Handle, Keep};
use crate::guest::Guest;
use crate::owned::to_the_end;
use crate::sandbox::Sandboxes;
use crate::shown::Pace;
use crate::workspace::{Secrets, Workspaces};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use check::{Checked, check};
use futures_util::StreamExt;
use futures_util::stream;
use jiff::{SignedDuration, Timestamp};
use motu_core::call::{
    CallDestination, CallNetworkMode, CallRequest, CallResult, Failure, FailureClass, OutputFile,
    Retention, SecretRef, WORK,
};
use motu_core::collect::Collector;
use motu_core::exec::{ExecResult, ExecSession};
use motu_core::files::{GuestPath, ReadRange, WriteOptions};
use motu_core::policy::{self, PolicyRef};
use motu_core::sandbox::{CreateSandbox, Sandbox, State};
use motu_core::workspace::{CommandRecord, CreateWorkspace, SaveAs, UpdateWorkspace, WORKSPACE};
use motu_core::{Error, ErrorKind, Isolation, Result, SandboxId, Workspaces as _, limits};
use state::{Claims, Taken};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a call's machine may outlive the time limit of its command, if nothing ends it earlier.
const SLACK_SECONDS: u64 = 120;
/// The name of the snapshot that a call leaves.
const SNAPSHOT: &str = "call";
/// The label of workspaces that calls leave behind.
const LABEL: &str = "motu.call";

/// The machine of a running call.
struct Machine {
    id: SandboxId,
    handle: Arc<Handle>,
    guest: Arc<Guest>,
    sandbox: Sandbox,
    /// The state of an earlier call, if this is its machine.
    taken: Option<Taken>,
}

/// Typed calls.
#[derive(Clone, Debug)]
pub struct Calls {
    sandboxes: Arc<Sandboxes>,
    workspaces: Arc<Workspaces>,
    claims: Claims,
}

impl Calls {
    pub fn new(sandboxes: Arc<Sandboxes>, workspaces: Arc<Workspaces>) -> Calls {
        Calls {
            sandboxes,
            workspaces,
            claims: Claims::default(),
        }
    }

    pub(crate) async fn typed_call(&self, request: CallRequest) -> Result<CallResult> {
        let keeps = request
            .state
            .as_ref()
            .is_some_and(|state| state.retention != Retention::Destroy || state.from.is_some());
        if !keeps {
            return self.attempt(request).await;
        }
        // What is kept is brought to its retention, also when the caller has gone.
        let calls = self.clone();
        to_the_end(async move { calls.attempt(request).await }).await
    }

    async fn attempt(&self, request: CallRequest) -> Result<CallResult> {
        if let Some(misread) = &request.misread {
            return Err(misread.error());
        }
        let name = request.policy.as_deref().unwrap_or(policy::NONE);
        if request.policy.is_some() {
            request.bounds.allow_policy(name)?;
        }
        let known = self.sandboxes.policy(name).await?;
        let checked = check(&request, &known.policy.call)?;
        opens(&request, &known)?;
        let (given, bound) = self.given(&request.secrets).await?;
        // The command is checked before anything is made for it.
        let starts = program::starts(&self.sandboxes.config, &request, &checked, &given)?;
        let served = self.sandboxes.pool.serve();
        let machine = match &checked.from {
            Some(from) => {
                self.take(from, &request, &checked, (&known, &bound))
                    .await?
            }
            None => {
                let floor = known.policy.call.min_isolation;
                self.machine(&request, &checked, floor, bound).await?
            }
        };
        let given = given.and(machine.handle.beyond());
        let ran = async {
            prepare(&machine, &checked).await?;
            let session = program::begin(&machine.guest, starts).await?;
            let session =
                ExecSession::new(given.redacted(session.events, Pace::Pipe), session.input);
            let mut collector =
                Collector::new(Some(checked.max_output_bytes))?.within(machine.sandbox.clone());
            collector.add_all(session).await?;
            collector.finish()
        };
        let ran = match ran.await {
            Ok(ran) => ran,
            Err(error) => {
                let error = machine.handle.explain_soon(error).await;
                let away = is_away(&machine);
                let left = self.discard(&machine, checked.retention).await;
                return Err(match (left, away) {
                    (Err(left), false) => left,
                    // Whoever takes the machine away removes what is left of it, too.
                    (_, true) => given.clean_error(removed(error)),
                    (Ok(()), false) => given.clean_error(error),
                });
            }
        };
        drop(served);
        if checked.retention != Retention::Destroy {
            let words = request.command.iter().map(|word| given.redact(word));
            self.remember(&machine, words.collect(), &ran).await;
        }
        let files_out = read_out(&machine, &checked, &known.policy.call, &given).await;
        let kept = self.settle(&machine, checked.retention).await;
        Ok(self.answer(machine, &checked, known.reference(), (ran, files_out, kept)))
    }

    /// Resolves the secrets of a call: values by variable name, and the ones that stay outside.
    async fn given(
        &self,
        wanted: &BTreeMap<String, SecretRef>,
    ) -> Result<(Secrets, BTreeMap<String, SecretRef>)> {
        let sorted = self.sandboxes.sort(wanted).await?;
        Ok((
            Secrets::of_variables(sorted.values, &self.sandboxes.patterns)?,
            sorted.bound,
        ))
    }

    /// Makes the machine of a call: a sandbox that ends with it, or a workspace that stays.
    async fn machine(
        &self,
        request: &CallRequest,
        checked: &Checked,
        floor: Isolation,
        bound: BTreeMap<String, SecretRef>,
    ) -> Result<Machine> {
        let (sandbox, handle) = match checked.retention {
            Retention::Destroy => {
                let sandbox = CreateSandbox {
                    secret_refs: bound,
                    ..sandbox_of(request, checked, floor)
                };
                self.sandboxes.make(sandbox, Keep::Transient).await?
            }
            _ => {
                let workspace = CreateWorkspace {
                    secret_refs: bound,
                    ..workspace_of(request, checked, floor)
                };
                let workspace = self.workspaces.create_workspace(workspace).await?;
                let handle = self.sandboxes.handle(&workspace.workspace_id).await?;
                (handle.sandbox(), handle)
            }
        };
        Ok(Machine {
            id: sandbox.sandbox_id.clone(),
            guest: handle.guest()?,
            handle,
            sandbox,
            taken: None,
        })
    }

    /// Removes the machine of a call whose command did not run to its end. A state that an earlier
    /// call has kept stays as that one wanted it.
    async fn discard(&self, machine: &Machine, retention: Retention) -> Result<()> {
        let done = match (&machine.taken, retention) {
            (Some(taken), _) => self.put_back(machine, taken).await,
            (None, Retention::Destroy) => self.destroyed(machine).await,
            (None, _) => {
                let deleted = self.workspaces.delete_workspace(&machine.id).await;
                deleted.map(drop)
            }
        };
        unless_gone(done)
    }

    /// Destroys a machine, and fails if something of it is left.
    async fn destroyed(&self, machine: &Machine) -> Result<()> {
        let gone = machine.handle.destroy().await?;
        let dir = self
            .sandboxes
            .shared
            .home
            .machine(&gone.runtime, &machine.id);
        match dir.exists() {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Cleanup,
                format!("something is left of the machine: {}", dir.display()),
            )
            .hint("the daemon's log says what; its next start removes it")),
        }
    }

    /// Brings the state of a call to its requested retention. Returns the name of the snapshot, if
    /// any.
    async fn settle(&self, machine: &Machine, retention: Retention) -> Result<Option<String>> {
        let id = &machine.id;
        if machine.taken.is_some() && retention != Retention::Destroy {
            self.label(id, retention).await?;
        }
        match retention {
            Retention::Destroy if machine.taken.is_some() => {
                let deleted = self.workspaces.delete_workspace(id).await;
                unless_gone(deleted.map(drop)).map(|()| None)
            }
            Retention::Destroy => unless_gone(self.destroyed(machine).await).map(|()| None),
            Retention::Stop => self.workspaces.stop_workspace(id).await.map(|_| None),
            Retention::Cold => self.sandboxes.handle(id).await?.pause().await.map(|_| None),
            Retention::Snapshot => {
                let name = self.snapshot_name(id).await?;
                let snapshot = self
                    .workspaces
                    .create_snapshot(id, SaveAs::named(&name))
                    .await?;
                self.workspaces.stop_workspace(id).await?;
                Ok(Some(snapshot.snapshot_name))
            }
        }
    }

    /// Adds the command to the history of the workspace that keeps its state.
    async fn remember(&self, machine: &Machine, command: Vec<String>, ran: &ExecResult) {
        let most = limits::HISTORY_OUTPUT_BYTES.max as usize;
        let cut = |text: &str| text[..text.floor_char_boundary(most)].to_string();
        let status = match ran.timed_out {
            true => "timed_out",
            false => "exited",
        };
        let record = CommandRecord {
            sequence: 0,
            command,
            workdir: WORK.to_string(),
            exit_code: (!ran.timed_out).then_some(ran.exit_code),
            status: status.to_string(),
            stdout: cut(&ran.stdout),
            stderr: cut(&ran.stderr),
            truncated: ran.truncated || ran.stdout.len().max(ran.stderr.len()) > most,
            duration_ms: ran.duration_ms,
            started_at: Timestamp::now() - SignedDuration::from_millis(ran.duration_ms as i64),
            checkpoint: None,
        };
        let store = &self.sandboxes.shared.store;
        if let Err(error) = store.begin_command(&machine.id, record).await {
            tracing::warn!(id = %machine.id, %error, "could not add a call to the history");
        }
    }

    /// The first name that no snapshot of this workspace has.
    async fn snapshot_name(&self, id: &SandboxId) -> Result<String> {
        let list = self
            .workspaces
            .list_snapshots(id, Default::default())
            .await?;
        let taken = |name: &str| list.snapshots.iter().any(|one| one.snapshot_name == name);
        let names = std::iter::once(SNAPSHOT.to_string());
        let mut names = names.chain((2..).map(|number| format!("{SNAPSHOT}-{number}")));
        let free = names.find(|name| !taken(name));
        free.ok_or_else(|| Error::internal("there is no name left"))
    }

    /// Says what became of a state that is there already.
    async fn label(&self, id: &SandboxId, retention: Retention) -> Result<()> {
        let update = UpdateWorkspace {
            labels: [(LABEL.to_string(), retention.as_str().to_string())].into(),
            ..UpdateWorkspace::default()
        };
        self.workspaces.update_workspace(id, update).await.map(drop)
    }

    fn answer(
        &self,
        machine: Machine,
        checked: &Checked,
        policy: PolicyRef,
        (ran, files_out, kept): (ExecResult, Vec<OutputFile>, Result<Option<String>>),
    ) -> CallResult {
        let failure = match &kept {
            Err(error) => Some(Failure {
                code: error.kind.as_str().to_string(),
                ..failure(FailureClass::CleanupFailure, &error.message)
            }),
            Ok(_) => of_command(&ran),
        };
        let expires_at = match checked.retention {
            Retention::Destroy => None,
            _ => machine.handle.sandbox().expires_at,
        };
        CallResult {
            sandbox_id: machine.id,
            exit_code: (!ran.timed_out).then_some(ran.exit_code),
            stdout: ran.stdout,
            stderr: ran.stderr,
            timed_out: ran.timed_out,
            audit_id: String::new(),
            retention: checked.retention,
            truncated: ran.truncated,
            duration_ms: ran.duration_ms,
            runtime: ran.runtime,
            isolation: ran.isolation,
            policy,
            files_out,
            snapshot: kept.ok().flatten(),
            expires_at,
            failure,
        }
    }
}

/// Checks that the policy has any network, if the call asks for one.
fn opens(request: &CallRequest, known: &motu_policy::Known) -> Result<()> {
    if request.network.mode == CallNetworkMode::Bridge && known.rules.allow.is_empty() {
        let name = &known.policy.name;
        return Err(Error::new(
            ErrorKind::Denied,
            format!("the policy {name} opens no network"),
        )
        .hint("`\"mode\": \"none\"`, or another policy"));
    }
    Ok(())
}

/// The policy of a call's network, and the destinations it is narrowed to.
fn network_of(request: &CallRequest) -> (Option<String>, Option<Vec<CallDestination>>) {
    let network = &request.network;
    match network.mode {
        CallNetworkMode::None => (None, None),
        CallNetworkMode::Bridge => {
            let narrowed = (!network.allow.is_empty()).then(|| network.allow.clone());
            (request.policy.clone(), narrowed)
        }
    }
}

/// The sandbox of a call that leaves no state.
fn sandbox_of(request: &CallRequest, checked: &Checked, floor: Isolation) -> CreateSandbox {
    let (policy, narrowed) = network_of(request);
    CreateSandbox {
        owner: request.owner.clone(),
        bounds: request.bounds.clone(),
        environment: checked.environment.clone(),
        isolation: Some(floor),
        size: request.limits.size,
        ttl_seconds: Some(checked.timeout_seconds + SLACK_SECONDS),
        policy,
        narrowed,
        ..CreateSandbox::default()
    }
}

/// The workspace of a call whose state is kept.
fn workspace_of(request: &CallRequest, checked: &Checked, floor: Isolation) -> CreateWorkspace {
    let (policy, narrowed) = network_of(request);
    CreateWorkspace {
        owner: request.owner.clone(),
        bounds: request.bounds.clone(),
        environment: checked.environment.clone(),
        isolation: Some(floor),
        size: request.limits.size,
        ttl_seconds: Some(checked.ttl_seconds),
        labels: [(LABEL.to_string(), checked.retention.as_str().to_string())].into(),
        policy,
        narrowed,
        ..CreateWorkspace::default()
    }
}

/// Makes the working directory of the command and writes its files there.
async fn prepare(machine: &Machine, checked: &Checked) -> Result<()> {
    let work = GuestPath::new(Bytes::from_static(WORK.as_bytes()))?;
    match (checked.retention, &machine.taken) {
        (Retention::Destroy, None) => machine.guest.mkdir(&work, None).await.map(drop)?,
        // A workspace keeps only `/workspace`, so the working directory is a symbolic link to it.
        _ => link_work(machine).await?,
    }
    for file in &checked.files {
        let content = file.content.clone();
        let options = WriteOptions {
            mode: Some(file.mode),
            ..WriteOptions::default()
        };
        let content = stream::once(async move { Ok(content) }).boxed();
        machine.guest.write(&file.path, options, content).await?;
    }
    Ok(())
}

async fn link_work(machine: &Machine) -> Result<()> {
    let link = motu_link::message::Start {
        argv: ["ln", "-sfn", WORKSPACE, WORK]
            .map(|word| Bytes::from_static(word.as_bytes()))
            .into(),
        user: "0".into(),
        cwd: Bytes::from_static(b"/"),
        follow: true,
        forget: true,
        timeout_ms: 10_000,
        ..motu_link::message::Start::default()
    };
    let mut collector = Collector::new(None)?.within(machine.sandbox.clone());
    collector.add_all(machine.guest.start(link).await?).await?;
    let ran = collector.finish()?;
    match ran.exit_code {
        0 => Ok(()),
        _ => Err(Error::transport(format!(
            "{WORK} could not be made: {}",
            ran.stderr.trim()
        ))),
    }
}

/// Reads the requested files; a file that cannot be read is reported with the reason.
async fn read_out(
    machine: &Machine,
    checked: &Checked,
    bounds: &motu_core::policy::CallBounds,
    given: &Secrets,
) -> Vec<OutputFile> {
    let mut files = Vec::new();
    for path in &checked.files_out {
        let read = read_one(machine, path, bounds.output_file_bytes).await;
        let mut file = OutputFile {
            path: String::from_utf8_lossy(path.as_bytes()).into_owned(),
            content: String::new(),
            encoding: "utf-8".to_string(),
            bytes: 0,
            error: None,
        };
        match read {
            Ok(bytes) => {
                file.bytes = bytes.len() as u64;
                match String::from_utf8(given.redactor().redact(&bytes)) {
                    Ok(text) => file.content = text,
                    Err(other) => {
                        file.content = STANDARD.encode(other.as_bytes());
                        file.encoding = "base64".to_string();
                    }
                }
            }
            Err(error) => file.error = Some(given.redact(&error.message)),
        }
        files.push(file);
    }
    files
}

async fn read_one(machine: &Machine, path: &GuestPath, most: u64) -> Result<Vec<u8>> {
    let range = ReadRange {
        offset: 0,
        length: Some(most + 1),
    };
    let (_, mut content) = machine.guest.read(path, range).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = content.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() as u64 > most {
            return Err(Error::limit(format!(
                "it has more than {most} bytes, which is call_output_file_bytes"
            )));
        }
    }
    Ok(bytes)
}

fn failure(class: FailureClass, message: &str) -> Failure {
    Failure {
        class,
        code: String::new(),
        retry: class.retry().to_string(),
        message: message.to_string(),
    }
}

/// The failure of a call whose command did not end with 0.
fn of_command(ran: &ExecResult) -> Option<Failure> {
    if ran.timed_out {
        let message = "the command ran out of its time and was ended, with all it had started";
        return Some(Failure {
            code: "timeout".to_string(),
            ..failure(FailureClass::Timeout, message)
        });
    }
    let (code, message) = match (ran.exit_code, ran.out_of_memory) {
        (0, _) => return None,
        (code, true) => (
            "out_of_memory",
            format!("the command exited with {code}: the memory limit was reached"),
        ),
        (code, false) => ("exit_code", format!("the command exited with {code}")),
    };
    Some(Failure {
        code: code.to_string(),
        ..failure(FailureClass::GuestCommandFailure, &message)
    })
}

/// The error of a call whose machine somebody else has removed, stopped or paused: nothing is wrong
/// with the request.
fn removed(error: Error) -> Error {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Conflict => Error::transport(format!(
            "the machine was taken away while the call ran: {}",
            error.message
        ))
        .details(error.details),
        _ => error,
    }
}

/// Whether somebody else ends the machine, or has.
fn is_away(machine: &Machine) -> bool {
    let state = machine.handle.state();
    state != State::Running || machine.guest.going().is_some()
}

/// What is to be removed may have been removed by somebody else.
fn unless_gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
