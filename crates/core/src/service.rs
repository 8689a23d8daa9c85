//! The one list of verbs.
//!
//! Every capability of motu is one method here. Faces translate a request,
//! call the method and translate the answer; they decide nothing. The verbs of
//! workspaces are [`Workspaces`], those of terminals [`Terminals`], for length alone.

use crate::exec::{
    AttachFrom, Background, ExecRequest, ExecResult, ExecSession, Process, RunRequest, Selector,
};
use crate::files::{
    ByteStream, FileChange, FileEntry, FileHash, FilePage, GuestPath, ListOptions, ReadRange,
    TreeWritten, WriteOptions,
};
use crate::report::{Backup, Doctor, Environment, Metrics, Port, ProgressEvent, Pruned, Version};
use crate::runtime::Connection;
use crate::sandbox::{CreateSandbox, Sandbox};
use crate::{Result, SandboxId, Terminals, Workspaces};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;

/// Where the steps of a long call are reported. Never waited for: a slow reader misses steps, not the call.
pub type ProgressSink = mpsc::Sender<ProgressEvent>;

#[async_trait]
pub trait Service: Workspaces + Terminals {
    // ── the service itself ──────────────────────────────────────────────
    async fn version(&self) -> Result<Version>;
    /// Looks at every runtime and at the host. `deep` also boots a machine with each.
    async fn doctor(&self, deep: bool) -> Result<Doctor>;
    /// Copies everything that is kept to a new directory on the host, while machines run.
    async fn backup(&self, output_path: &str) -> Result<Backup>;

    // ── environments ────────────────────────────────────────────────────
    async fn list_environments(&self) -> Result<Vec<Environment>>;
    async fn inspect_environment(&self, name: &str) -> Result<Environment>;
    async fn pull_environment(&self, name: &str, progress: ProgressSink) -> Result<Environment>;
    async fn prune_environments(&self, all: bool) -> Result<Pruned>;

    // ── ids ─────────────────────────────────────────────────────────────
    /// The id a caller means: itself, or the one that this beginning or this name fits.
    async fn resolve(&self, word: SandboxId) -> Result<SandboxId> {
        Ok(word)
    }

    // ── sandboxes ───────────────────────────────────────────────────────
    async fn create_sandbox(&self, request: CreateSandbox) -> Result<Sandbox>;
    async fn list_sandboxes(&self) -> Result<Vec<Sandbox>>;
    async fn get_sandbox(&self, id: &SandboxId) -> Result<Sandbox>;
    /// Idempotent: destroying twice is fine, destroying the unknown is `not_found`.
    async fn destroy_sandbox(&self, id: &SandboxId) -> Result<Sandbox>;
    async fn pause_sandbox(&self, id: &SandboxId) -> Result<Sandbox>;
    async fn resume_sandbox(&self, id: &SandboxId) -> Result<Sandbox>;
    /// Ends the machine of a kept sandbox; its disks stay.
    async fn stop_sandbox(&self, id: &SandboxId) -> Result<Sandbox>;
    /// Makes a machine for a stopped sandbox, with the disks it had.
    async fn start_sandbox(&self, id: &SandboxId) -> Result<Sandbox>;
    /// Live copies of a running or paused sandbox, memory and disks, all or none.
    /// What runs in it goes on in the sandbox and in every copy.
    async fn fork_sandbox(&self, id: &SandboxId, count: u64) -> Result<Vec<Sandbox>>;
    /// Starts the time to live again, with a new length if one is given.
    async fn keepalive(&self, id: &SandboxId, ttl_seconds: Option<u64>) -> Result<Sandbox>;
    async fn reap_expired(&self) -> Result<Vec<SandboxId>>;
    /// The steps that creating this sandbox would take.
    async fn plan(&self, request: CreateSandbox) -> Result<String>;

    // ── commands ────────────────────────────────────────────────────────
    /// Make, run, throw away. The first event is the sandbox.
    async fn run(&self, request: RunRequest) -> Result<ExecSession>;
    /// Runs to the end and returns the output, cut to a budget.
    async fn exec(&self, id: &SandboxId, request: ExecRequest) -> Result<ExecResult>;
    /// Runs with live output and input; ends the command when the session is dropped.
    async fn exec_stream(&self, id: &SandboxId, request: ExecRequest) -> Result<ExecSession>;
    /// Starts and returns; the process runs on.
    async fn exec_background(&self, id: &SandboxId, request: ExecRequest) -> Result<Background>;
    /// Follows a process that was started before.
    async fn attach(
        &self,
        id: &SandboxId,
        process: Selector,
        from: AttachFrom,
    ) -> Result<ExecSession>;
    async fn list_processes(&self, id: &SandboxId) -> Result<Vec<Process>>;
    /// To the process group, or with `tree` to everything it started.
    async fn signal_process(
        &self,
        id: &SandboxId,
        process: Selector,
        signal: i32,
        tree: bool,
    ) -> Result<()>;

    // ── files ───────────────────────────────────────────────────────────
    async fn stat(&self, id: &SandboxId, path: GuestPath, follow: bool) -> Result<FileEntry>;
    async fn list(&self, id: &SandboxId, path: GuestPath, options: ListOptions)
    -> Result<FilePage>;
    async fn read(
        &self,
        id: &SandboxId,
        path: GuestPath,
        range: ReadRange,
    ) -> Result<(FileEntry, ByteStream)>;
    async fn write(
        &self,
        id: &SandboxId,
        path: GuestPath,
        options: WriteOptions,
        content: ByteStream,
    ) -> Result<FileEntry>;
    async fn mkdir(&self, id: &SandboxId, path: GuestPath, mode: Option<u32>) -> Result<FileEntry>;
    async fn remove(&self, id: &SandboxId, path: GuestPath, recursive: bool) -> Result<()>;
    async fn rename(
        &self,
        id: &SandboxId,
        from: GuestPath,
        to: GuestPath,
        overwrite: bool,
    ) -> Result<FileEntry>;
    async fn chmod(&self, id: &SandboxId, path: GuestPath, mode: u32) -> Result<FileEntry>;
    async fn glob(&self, id: &SandboxId, pattern: &str, limit: Option<u64>) -> Result<FilePage>;
    async fn hash(&self, id: &SandboxId, path: GuestPath) -> Result<FileHash>;
    /// Begins watching before it returns.
    async fn watch(
        &self,
        id: &SandboxId,
        path: GuestPath,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<FileChange>>>;
    /// A tar stream of a tree.
    async fn read_tree(&self, id: &SandboxId, path: GuestPath) -> Result<ByteStream>;
    async fn write_tree(
        &self,
        id: &SandboxId,
        path: GuestPath,
        archive: ByteStream,
    ) -> Result<TreeWritten>;

    // ── ports, measurements ─────────────────────────────────────────────
    async fn list_ports(&self, id: &SandboxId) -> Result<Vec<Port>>;
    async fn dial(&self, id: &SandboxId, port: u16) -> Result<Connection>;
    async fn dial_unix(&self, id: &SandboxId, path: GuestPath) -> Result<Connection>;
    async fn metrics(&self, id: &SandboxId) -> Result<Metrics>;
}
