//! What an answer says of itself for the audit log: the one place where answers are looked at.
//!
//! Most have nothing to say. A live session, and content that comes as a stream, go on after the
//! call was answered: they are watched until they end.

use crate::audit::{AuditId, Facts};
use crate::call::{CallPlan, CallResult};
use crate::exec::{ExecEvent, ExecResult, ExecSession, Exited};
use crate::files::{self, ByteStream, FileChange, FileEntry, TreeWritten};
use crate::page::Page;
use crate::project::sees;
use crate::runtime::Connection;
use crate::sandbox::Sandbox;
use crate::template::Template;
use crate::terminal::TerminalAnswer;
use crate::workspace::Workspace;
use crate::{
    Error, Project, Result, audit, build, exec, key, lists, policy, report, secret, terminal,
    workspace,
};
use futures_util::future::{self, BoxFuture, Either};
use futures_util::stream::{self, BoxStream, StreamExt};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// How much of a call is still to come when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Nothing: one entry.
    Whole,
    /// Nothing, but it may take long: one entry when it begins, so that one which a dying daemon
    /// left is known, and one when it is answered.
    Long,
    /// Content: one entry, when it has all been sent or nobody wants more.
    Stream,
    /// A session: one entry when it begins and one when it ends.
    Session,
}

/// Why something ends before its own end, once it does.
pub type Cut = BoxFuture<'static, Error>;

/// An answer of a verb.
pub trait Outcome: Sized {
    const LENGTH: Length = Length::Whole;

    /// What the log should know of it.
    fn facts(&self, _: &mut Facts) {}

    /// Leaves out what a caller of a project may not see. What is about one thing that is not the
    /// project's is not there.
    fn within(&mut self, _: &Within<'_>) -> Result<()> {
        Ok(())
    }

    /// Keeps the part of a list that was asked for.
    fn page(&mut self, _: &Page) -> Result<()> {
        Ok(())
    }

    /// Takes the name of the call along to whoever asked.
    fn mark(&mut self, _: &AuditId) {}

    /// Ends what goes on after the answer as soon as this comes.
    fn until(self, _: Cut) -> Self {
        self
    }

    /// Tells the end of what goes on after the answer.
    fn watched(self, _: Watch) -> Self {
        self
    }
}

/// The project of a caller, and whose sandboxes are.
pub struct Within<'a> {
    pub project: &'a Project,
    pub service: &'a dyn crate::Service,
}

impl std::fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Within({})", self.project)
    }
}

impl Within<'_> {
    /// Keeps those of a list that are the project's.
    fn keep<T>(&self, count: &mut u64, list: &mut Vec<T>, ours: impl Fn(&T) -> bool) -> Result<()> {
        list.retain(|one| ours(one));
        *count = list.len() as u64;
        Ok(())
    }

    /// Whether a recorded call is one of the project's keys.
    fn called(&self, entry: &serde_json::Value) -> bool {
        let who = entry["caller"]["who"].as_str().unwrap_or_default();
        who.split_once('@').is_some_and(|(key, project)| {
            key.starts_with("key:") && project == self.project.as_str()
        })
    }
}

/// Writes the last entry of a call.
type Finish = Box<dyn FnOnce(Facts, Option<Error>, bool) -> BoxFuture<'static, Result<()>> + Send>;

/// Sees what goes on after an answer, and says how it ended: also when it is dropped.
pub struct Watch {
    facts: Facts,
    finish: Option<Finish>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch {
    /// `finish` is given the facts, the error and whether it came to its own end; it has written
    /// when it returns, and its future waits until that is on the disk.
    pub fn new(facts: Facts, finish: Finish) -> Watch {
        Watch {
            facts,
            finish: Some(finish),
        }
    }

    async fn end(&mut self, error: Option<Error>) -> Result<()> {
        match self.finish.take() {
            Some(finish) => finish(std::mem::take(&mut self.facts), error, true).await,
            None => Ok(()),
        }
    }

    fn passed(&mut self, bytes: usize) {
        *self.facts.bytes_out.get_or_insert(0) += bytes as u64;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(finish) = self.finish.take() {
            drop(finish(std::mem::take(&mut self.facts), None, false));
        }
    }
}

/// A stream whose end is told before its reader sees it.
fn watched<T: Send + 'static>(
    items: BoxStream<'static, Result<T>>,
    watch: Watch,
    see: fn(&mut Watch, &T) -> bool,
) -> BoxStream<'static, Result<T>> {
    stream::unfold((items, watch), move |(mut items, mut watch)| async move {
        let item = match items.next().await {
            None => {
                // Nothing is left that could carry an error: what is lost is in the daemon's log.
                let _ = watch.end(None).await;
                return None;
            }
            Some(Ok(item)) => match see(&mut watch, &item) {
                true => watch.end(None).await.map(|()| item),
                false => Ok(item),
            },
            Some(Err(error)) => {
                let _ = watch.end(Some(error.clone())).await;
                Err(error)
            }
        };
        Some((item, (items, watch)))
    })
    .boxed()
}

/// A stream that ends in an error as soon as it is cut.
fn cut<T: Send + 'static>(
    items: BoxStream<'static, Result<T>>,
    cut: Cut,
) -> BoxStream<'static, Result<T>> {
    stream::unfold(Some((items, cut)), |state| async {
        let (mut items, cut) = state?;
        // Who is cut off hears nothing more, however much there is.
        match future::select(cut, items.next()).await {
            Either::Left((error, _)) => Some((Err(error), None)),
            Either::Right((item, cut)) => Some((item?, Some((items, cut)))),
        }
    })
    .boxed()
}

/// A connection that breaks off as soon as it is cut.
struct Severed {
    read: Box<dyn AsyncRead + Send + Unpin>,
    cut: Cut,
}

impl AsyncRead for Severed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.cut.as_mut().poll(cx) {
            self.cut = Box::pin(future::ready(error.clone()));
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                error.message,
            )));
        }
        Pin::new(&mut self.read).poll_read(cx, buffer)
    }
}

impl Outcome for Connection {
    fn until(self, cut: Cut) -> Connection {
        let read = self.read;
        Connection {
            read: Box::new(Severed { read, cut }),
            ..self
        }
    }
}

impl Outcome for ByteStream {
    const LENGTH: Length = Length::Stream;

    fn until(self, by: Cut) -> ByteStream {
        cut(self, by)
    }

    fn watched(self, watch: Watch) -> ByteStream {
        watched(self, watch, |watch, bytes| {
            watch.passed(bytes.len());
            false
        })
    }
}

impl Outcome for (FileEntry, ByteStream) {
    const LENGTH: Length = Length::Stream;

    fn until(self, by: Cut) -> Self {
        (self.0, cut(self.1, by))
    }

    fn watched(self, watch: Watch) -> Self {
        (self.0, Outcome::watched(self.1, watch))
    }
}

impl Outcome for BoxStream<'static, Result<FileChange>> {
    const LENGTH: Length = Length::Stream;

    fn until(self, by: Cut) -> Self {
        cut(self, by)
    }

    fn watched(self, watch: Watch) -> Self {
        watched(self, watch, |_, _| false)
    }
}

impl Outcome for ExecSession {
    const LENGTH: Length = Length::Session;

    fn until(self, by: Cut) -> ExecSession {
        ExecSession {
            events: cut(self.events, by),
            ..self
        }
    }

    fn mark(&mut self, id: &AuditId) {
        self.audit_id = Some(id.clone());
    }

    fn watched(self, watch: Watch) -> ExecSession {
        let see = |watch: &mut Watch, event: &ExecEvent| match event {
            ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => {
                watch.passed(bytes.len());
                false
            }
            ExecEvent::Sandbox(sandbox) => {
                sandbox.facts(&mut watch.facts);
                false
            }
            ExecEvent::Exited(exited) => {
                ended(exited, &mut watch.facts);
                true
            }
            ExecEvent::Started(_) | ExecEvent::Gap(_) => false,
        };
        ExecSession {
            events: watched(self.events, watch, see),
            ..self
        }
    }
}

fn ended(exited: &Exited, facts: &mut Facts) {
    facts.exit_code = Some(exited.exit_code);
    facts.signal = exited.signal;
    facts.bytes_out = Some(exited.stdout_bytes + exited.stderr_bytes);
    facts.reached("timeout_seconds", exited.timed_out);
    facts.reached("mem_mib", exited.out_of_memory);
}

impl Outcome for ExecResult {
    fn facts(&self, facts: &mut Facts) {
        facts.exit_code = Some(self.exit_code);
        facts.signal = self.signal;
        facts.bytes_out = Some(self.stdout_bytes + self.stderr_bytes);
        facts.reached("timeout_seconds", self.timed_out);
        facts.reached("mem_mib", self.out_of_memory);
        facts.reached("max_output_bytes", self.truncated);
    }

    fn mark(&mut self, id: &AuditId) {
        self.audit_id = Some(id.clone());
    }
}

impl Outcome for Sandbox {
    fn facts(&self, facts: &mut Facts) {
        facts.made = Some(self.sandbox_id.clone());
        facts.policy = self.policy.as_ref().map(|policy| policy.hash.clone());
        facts.runtime = Some(self.runtime.clone());
        facts.isolation = Some(self.isolation);
        facts.environment = Some(self.environment.clone());
        facts.digest = Some(self.digest.clone()).filter(|digest| !digest.is_empty());
        facts.network = Some(self.network.clone());
    }
}

impl Outcome for Template {
    fn facts(&self, facts: &mut Facts) {
        facts.environment = Some(self.start().to_string());
        facts.digest = self.built.as_ref().map(|built| built.digest.clone());
    }
}

impl Outcome for Workspace {
    fn facts(&self, facts: &mut Facts) {
        facts.made = Some(self.workspace_id.clone());
        facts.runtime = Some(self.runtime.clone());
        facts.isolation = Some(self.isolation);
        facts.environment = Some(self.environment.clone());
        facts.digest = Some(self.digest.clone()).filter(|digest| !digest.is_empty());
    }
}

impl Outcome for CallResult {
    const LENGTH: Length = Length::Long;

    fn facts(&self, facts: &mut Facts) {
        facts.made = Some(self.sandbox_id.clone());
        facts.policy = Some(self.policy.hash.clone());
        facts.runtime = Some(self.runtime.clone());
        facts.isolation = Some(self.isolation);
        facts.exit_code = self.exit_code;
        facts.bytes_out = Some((self.stdout.len() + self.stderr.len()) as u64);
        facts.reached("call_timeout_seconds", self.timed_out);
        facts.reached("call_output_bytes", self.truncated);
    }

    fn mark(&mut self, id: &AuditId) {
        self.audit_id = id.to_string();
    }
}

impl Outcome for CallPlan {
    fn facts(&self, facts: &mut Facts) {
        facts.policy = self.policy.as_ref().map(|policy| policy.hash.clone());
        facts.runtime = self.runtime.clone();
        facts.isolation = self.isolation;
    }
}

impl Outcome for TerminalAnswer {
    fn facts(&self, facts: &mut Facts) {
        facts.exit_code = self.exit_code;
        facts.bytes_out = Some(self.output.len() as u64 + self.dropped_bytes);
        facts.reached("terminal_timeout_seconds", self.timed_out);
        facts.reached("terminal_output_bytes", self.output_truncated);
    }
}

impl Outcome for FileEntry {
    /// Kept of a file that was written; elsewhere it is no traffic.
    fn facts(&self, facts: &mut Facts) {
        facts.bytes_in = Some(self.size_bytes);
    }
}

impl Outcome for TreeWritten {
    fn facts(&self, facts: &mut Facts) {
        facts.bytes_in = Some(self.bytes);
    }
}

/// Lists that are given in pages: by what each has its place in them, and which of it a project
/// has, where several may.
macro_rules! paged {
    ($($list:ty { $items:ident } at |$at:ident| $place:expr
        $(, of |$within:ident, $one:ident| $ours:expr)?;)*) => {$(
        impl Outcome for $list {
            $(fn within(&mut self, $within: &Within<'_>) -> Result<()> {
                $within.keep(&mut self.count, &mut self.$items, |$one| $ours)
            })?

            fn page(&mut self, page: &Page) -> Result<()> {
                self.next_cursor = page.cut(&mut self.$items, |$at| $place)?;
                self.count = self.$items.len() as u64;
                Ok(())
            }
        }
    )*};
}

paged! {
    lists::SandboxList { sandboxes } at |one| (one.created_at, one.sandbox_id.clone()),
        of |within, one| one.owner == within.project.owner();
    lists::WorkspaceList { workspaces } at |one| one.workspace_id.clone(),
        of |within, one| within.service.owner(&one.workspace_id) == Some(within.project.owner());
    lists::TerminalList { sessions } at |one| one.session_id.to_string(),
        of |within, one| within.project.has(&one.session_id);
    lists::TemplateList { templates } at |one| one.name.clone(),
        of |within, one| within.project.has(&one.name);
    lists::SecretList { secrets } at |one| one.name.clone(),
        of |within, one| within.project.has(&one.name);
    lists::EnvironmentList { environments } at |one| one.name.clone(),
        of |within, one| sees(Some(within.project), &one.owner);
    lists::SnapshotList { snapshots } at |one| (one.created_at, one.snapshot_name.clone());
    lists::KeyList { keys } at |one| (one.created_at, one.key_id.to_string());
}

impl Outcome for audit::AuditList {
    fn within(&mut self, within: &Within<'_>) -> Result<()> {
        let first = self.entries.first().map(|entry| entry["id"].clone());
        within.keep(&mut self.count, &mut self.entries, |entry| {
            within.called(entry)
        })?;
        // The log gives lists of a project's calls alone: this was one call of somebody else.
        match (first, self.count) {
            (Some(id), 0) => Err(audit::unknown(id.as_str().unwrap_or_default())),
            _ => Ok(()),
        }
    }
}

impl Outcome for audit::Receipt {
    fn within(&mut self, within: &Within<'_>) -> Result<()> {
        match within.called(&self.entry) {
            true => Ok(()),
            false => Err(audit::unknown(
                self.entry["id"].as_str().unwrap_or_default(),
            )),
        }
    }
}

impl Outcome for report::Environment {
    /// The gate has asked whose it is before; this is in case somebody else's has got its name since.
    fn within(&mut self, within: &Within<'_>) -> Result<()> {
        match sees(Some(within.project), &self.owner) {
            true => Ok(()),
            false => Err(report::no_environment(&self.name)),
        }
    }
}

impl Outcome for report::Version {
    /// Where the daemon keeps its things is no matter of callers of other hosts.
    fn within(&mut self, _: &Within<'_>) -> Result<()> {
        self.home.clear();
        Ok(())
    }
}

/// Answers that say nothing of themselves.
macro_rules! silent {
    ($($answer:ty),* $(,)?) => { $(impl Outcome for $answer {})* };
}

silent! {
    (), String, exec::Background,
    build::BuildContext, files::FileHash, files::FilePage,
    lists::PortList, lists::ProcessList, lists::Reaped,
    lists::ServiceList, lists::ShellList, lists::WorkspaceCopies,
    key::Key, key::KeyCreated,
    report::Backup, report::Doctor, report::Metrics, crate::metrics::MetricsHistory, crate::metrics::MetricsFlushed, report::Pruned,
    terminal::Terminal, terminal::TerminalOpened, terminal::TerminalScreen,
    terminal::TerminalScrollback, terminal::TerminalTranscript,
    workspace::CommandLog, workspace::DiffReport, workspace::DiskExported, workspace::Exported,
    workspace::FileText, workspace::FileWritten, workspace::PatchReport, workspace::PathList,
    workspace::ServiceLogs, workspace::ServiceStatus, workspace::Shell, workspace::ShellOutput,
    workspace::Snapshot, workspace::SyncReport, workspace::Undone,
    lists::PolicyList, policy::Policy, policy::Explained, secret::SecretSummary,
    audit::AuditKey, audit::AuditVerified,
}
