//! The list, but for terminals and shells, which are in `terminals`. Adding a verb begins here; see
//! `docs/contributing.md`.

use super::verbs;
use crate::audit::{
    AuditId, AuditKey, AuditList, AuditVerified, FollowAudit as Tail, ListAudit as Entries,
    Receipt, VerifyAudit as Verify,
};
use crate::build::BuildContext;
use crate::call::{CallPlan, CallRequest, CallResult};
use crate::commit::CommitSandbox;
use crate::exec::{
    Attach, Background, ExecRequest, ExecResult, ExecSession, ProcessInput, RunRequest, Selector,
    SignalProcess, TtySize,
};
use crate::files::{
    AtPath, ByteStream, ChangeMode, FileEntry, FileHash, FilePage, FindFiles, LendDirectory,
    LendFile, ListFiles, MakeDirectory, MoveFile, PathAs, ReadFile, RemoveFile, StatFile,
    TreeWritten, WatchFiles, WriteFile,
};
use crate::key::{CreateKey as NewKey, Key, KeyCreated, KeyId};
use crate::lists::{
    EnvironmentList, KeyList, PolicyList, PortList, ProcessList, Reaped, SandboxList, SecretList,
    ServiceList, SnapshotList, TemplateList, WorkspaceCopies, WorkspaceList,
};
use crate::metrics::{MetricsFlushed, MetricsHistory, ReadMetrics};
use crate::page::Page;
use crate::policy::{Explained, Policy};
use crate::report::ProgressSink;
use crate::report::{Backup, Doctor, Environment, Metrics, Pruned, Version};
use crate::runtime::Connection;
use crate::sandbox::{Fork, Keepalive, Sandbox};
use crate::secret::SecretSummary;
use crate::template::{RebuildTemplate, Template, TemplateDefinition};
use crate::verb::shape::Changes;
use crate::workspace::{
    CommandLog, CreateWorkspace as NewWorkspace, DiffOptions, DiffReport, DiskExported, EditFiles,
    ExportDisk, ExportFiles, Exported, FileText, FileWritten, ForkWorkspace as Copies, ListPaths,
    LogOptions, Patch, PatchReport, PathList, ReadText, ResetTo, SaveAs, ServiceLogs,
    ServiceStatus, Since, Snapshot, StartService as NewService, SyncPush, SyncReport, Undo, Undone,
    UpdateWorkspace as Update, Workspace, WorkspaceExec, WorkspaceId, WriteText,
};
use crate::{SandboxId, build, event, policy, report, sandbox, secret, template};

verbs! {
    /// Every capability of motu. Faces translate a request, call one verb and translate the
    /// answer; they decide nothing.
    trait Service, by service, visit visit_service, table SERVICE_VERBS, with {
        /// The id a caller means: itself, or the one that this beginning or this name fits. Within
        /// a project only what is the project's is meant; anything else is not there.
        async fn resolve(
            &self,
            word: SandboxId,
            _within: Option<&crate::Project>,
        ) -> crate::Result<SandboxId> {
            Ok(word)
        }

        /// Whose a live sandbox is.
        fn owner(&self, _: &SandboxId) -> Option<String> {
            None
        }

        /// What stands around what a call names, where that is known. Fails where whoever runs
        /// this host does not allow its use any longer.
        fn walls(
            &self,
            _: crate::leave::Named<'_>,
        ) -> crate::Result<Option<crate::Isolation>> {
            Ok(None)
        }

        /// The environment that a caller of a project means: the project's own of that name, or
        /// that of the host; and whether it is the project's own.
        async fn resolve_environment(
            &self,
            name: String,
            _within: &crate::Project,
        ) -> crate::Result<(String, bool)> {
            Ok((name, false))
        }

        /// How many sandboxes live, by runtime.
        fn census(&self) -> std::collections::BTreeMap<String, u64> {
            Default::default()
        }

        /// Whether calls can be served: the store answers, and a runtime works.
        async fn ready(&self) -> crate::Result<()> {
            Ok(())
        }

        /// What the audit log should know of a sandbox, if it is there.
        fn about(&self, _: &SandboxId) -> Option<crate::audit::Facts> {
            None
        }
    };

    /// What this daemon is
    value version = VersionOf() -> Version,
        GET "/v1/version" 200, Reads, "service";
    /// What works on this host, and what would help
    value doctor = Examine(; report::Examine) -> Doctor,
        GET "/v1/doctor" 200, Reads, "service";
    /// Copy everything that is kept to a directory on the host
    ///
    /// Machines run on, each paused while its disks are copied.
    value backup = BackUp(; report::BackUp) -> Backup,
        POST "/v1/backup" 200, Changes, "service";

    /// Make a key for callers of other hosts
    ///
    /// The answer has the key itself, this once: only its hash is kept.
    value create_key = CreateKey(; NewKey) -> KeyCreated,
        POST "/v1/keys" 201, Changes, "keys";
    /// Every key, without what callers send
    value list_keys = ListKeys(; Page) -> KeyList,
        GET "/v1/keys" 200, Reads, "keys";
    /// Make a key good for nothing, from now on and for ever
    value revoke_key = RevokeKey(key: KeyId) -> Key,
        DELETE "/v1/keys/{key}" 200, Destroys, "keys";

    /// The newest calls in the audit log, oldest first
    value list_audit = ListAudit(; Entries) -> AuditList,
        GET "/v1/audit" 200, Reads, "audit";
    /// What is recorded of one call: one entry, or two of a live session
    value get_audit = GetAudit(audit: AuditId) -> AuditList,
        GET "/v1/audit/entries/{audit}" 200, Reads, "audit";
    /// One call as a receipt that can be checked without the log
    value audit_receipt = AuditReceipt(audit: AuditId) -> Receipt,
        GET "/v1/audit/entries/{audit}/receipt" 200, Reads, "audit";
    /// Check the whole audit log: chain, signatures, its end
    value verify_audit = VerifyAudit(; Verify) -> AuditVerified,
        POST "/v1/audit/verify" 200, Reads, "audit";
    /// The public key that signs the audit log
    value audit_key = ReadAuditKey() -> AuditKey,
        GET "/v1/audit/key" 200, Reads, "audit";
    /// Calls as they are recorded, one per line
    bytes follow_audit = FollowAudit(; Tail) -> ByteStream,
        GET "/v1/audit/follow" 200, Reads, "audit", "application/x-ndjson";
    /// The whole audit log as it is stored, one record per line
    bytes export_audit = ExportAudit() -> ByteStream,
        GET "/v1/audit/export" 200, Reads, "audit", "application/x-ndjson";

    /// What happened on this host, one event per line
    ///
    /// Oldest first, those of the caller's project only. With `Accept: text/event-stream` each is
    /// a server-sent event whose `id` is its number, those to come included; `Last-Event-ID` goes
    /// on where a client has stopped listening, and an event `events.gone` says where something
    /// is not kept any more.
    bytes read_events = ReadEvents(; event::ReadEvents) -> ByteStream,
        GET "/v1/events" 200, Reads, "events", "application/x-ndjson";

    /// Every environment, installed or known by name
    value list_environments = ListEnvironments(; Page) -> EnvironmentList,
        GET "/v1/environments" 200, Reads, "environments";
    /// One environment
    value inspect_environment = InspectEnvironment(name: str) -> Environment,
        GET "/v1/environments/{name}" 200, Reads, "environments";
    /// Install an environment
    ///
    /// What a project pulls is its own, except what motu's own catalog has. Answers with one `EnvironmentLine` per line; the last one is the result or the error.
    steps pull_environment = PullEnvironment(name: str => progress: ProgressSink) -> Environment,
        POST "/v1/environments/{name}/pull" 200, Settles, "environments";
    /// Remove one installed environment
    ///
    /// One that sandboxes use is a `conflict`.
    value remove_environment = RemoveEnvironment(name: str) -> Pruned,
        DELETE "/v1/environments/{name}" 200, Destroys, "environments";
    /// Give an installed environment another name
    value tag_environment = TagEnvironment(name: str; report::TagAs) -> Environment,
        POST "/v1/environments/{name}/tag" 200, Settles, "environments";
    /// An installed environment as an archive in the OCI image layout
    bytes export_environment = ExportEnvironment(name: str) -> ByteStream,
        GET "/v1/environments/{name}/export" 200, Reads, "environments", "application/x-tar";
    /// Make an environment of an archive: an OCI image layout, or what `docker save` writes
    ///
    /// A name that meant something else means this environment afterwards.
    upload import_environment = ImportEnvironment(; report::ImportAs => content: ByteStream) -> Environment,
        PUT "/v1/environments/import" 200, Settles, "environments", "application/x-tar";
    /// Send the files of a build, as an archive
    upload send_build_context = SendBuildContext(=> content: ByteStream) -> BuildContext,
        PUT "/v1/build-contexts" 200, Changes, "environments", "application/x-tar";
    /// Build an environment from another one
    ///
    /// Answers with one `EnvironmentLine` per line: `step`, `cached`, `output` and `done` as they happen;
    /// the last one is the result or the error. A build whose caller leaves is ended.
    steps build_environment = BuildEnvironment(; build::BuildRequest => progress: ProgressSink) -> Environment,
        POST "/v1/environments/build" 200, Runs, "environments";
    /// Remove environments nobody uses
    value prune_environments = PruneEnvironments(; report::Prune) -> Pruned,
        POST "/v1/environments/prune" 200, Destroys, "environments";

    /// Make a template, or change it
    ///
    /// Its setup is run first, step by step; nothing is kept of a template whose setup fails, and
    /// one that was there stays as it was. Answers with one `TemplateLine` per line, as
    /// `build_environment` does; the last one is the result or the error.
    steps put_template = PutTemplate(name: str; TemplateDefinition => progress: ProgressSink) -> Template,
        PUT "/v1/templates/{name}" 200, Runs, "templates";
    /// Every template
    value list_templates = ListTemplates(; Page) -> TemplateList,
        GET "/v1/templates" 200, Reads, "templates";
    /// One template, and the machines that wait for it
    value get_template = GetTemplate(name: str) -> Template,
        GET "/v1/templates/{name}" 200, Reads, "templates";
    /// Run the setup of a template again, on its environment as it is now
    steps build_template = BuildTemplate(name: str; RebuildTemplate => progress: ProgressSink) -> Template,
        POST "/v1/templates/{name}/build" 200, Runs, "templates";
    /// Remove a template and the machines that wait for it
    ///
    /// One that sandboxes or workspaces came from stays.
    value remove_template = RemoveTemplate(name: str) -> Template,
        DELETE "/v1/templates/{name}" 200, Destroys, "templates";

    /// Make a template of a sandbox as it is
    ///
    /// With its memory and what runs in it, or of the files on its disks alone. For the files its
    /// machine is ended in order first; with the memory it goes on. `then` may say otherwise.
    value save_template = SaveTemplate(id: SandboxId; template::SaveTemplate) -> Template,
        POST "/v1/sandboxes/{id}/template" 201, Changes, "templates";

    /// Make a sandbox
    value create_sandbox = CreateSandbox(; sandbox::CreateSandbox) -> Sandbox,
        POST "/v1/sandboxes" 201, Changes, "sandboxes";
    /// Every sandbox
    value list_sandboxes = ListSandboxes(; sandbox::ListSandboxes) -> SandboxList,
        GET "/v1/sandboxes" 200, Reads, "sandboxes";
    /// One sandbox
    value get_sandbox = GetSandbox(id: SandboxId) -> Sandbox,
        GET "/v1/sandboxes/{id}" 200, Reads, "sandboxes";
    /// Destroy a sandbox and everything in it
    ///
    /// Destroying it again is fine; an unknown one is `not_found`.
    value destroy_sandbox = DestroySandbox(id: SandboxId) -> Sandbox,
        DELETE "/v1/sandboxes/{id}" 200, Destroys, "sandboxes";
    /// Stop the clock of a sandbox
    value pause_sandbox = PauseSandbox(id: SandboxId) -> Sandbox,
        POST "/v1/sandboxes/{id}/pause" 200, Settles, "sandboxes";
    /// Let a paused sandbox go on
    value resume_sandbox = ResumeSandbox(id: SandboxId) -> Sandbox,
        POST "/v1/sandboxes/{id}/resume" 200, Settles, "sandboxes";
    /// End the machine of a kept sandbox; its disks stay
    value stop_sandbox = StopSandbox(id: SandboxId) -> Sandbox,
        POST "/v1/sandboxes/{id}/stop" 200, Settles, "sandboxes";
    /// Make a machine for a stopped sandbox, with the disks it had
    value start_sandbox = StartSandbox(id: SandboxId) -> Sandbox,
        POST "/v1/sandboxes/{id}/start" 200, Settles, "sandboxes";
    /// Live copies of a running or paused sandbox
    ///
    /// Memory and disks, all of the copies or none. What runs in it goes on in every one.
    value fork_sandbox = ForkSandbox(id: SandboxId; Fork) -> SandboxList,
        POST "/v1/sandboxes/{id}/fork" 201, Changes, "sandboxes";
    /// Make an environment of what is on the disks of a kept sandbox
    ///
    /// Its machine is ended in order first, and made again afterwards; `then` may say otherwise.
    value commit_sandbox = Commit(id: SandboxId; CommitSandbox) -> Environment,
        POST "/v1/sandboxes/{id}/commit" 200, Changes, "sandboxes";
    /// Start the time to live again
    value keepalive = KeepAlive(id: SandboxId; Keepalive) -> Sandbox,
        POST "/v1/sandboxes/{id}/keepalive" 200, Settles, "sandboxes";
    /// Destroy every sandbox that has outlived its time
    value reap_expired = ReapExpired() -> Reaped,
        POST "/v1/sandboxes/reap" 200, Destroys, "sandboxes";
    /// The steps that making this sandbox would take, for people
    text plan = Plan(; sandbox::CreateSandbox) -> String,
        POST "/v1/plan" 200, Reads, "sandboxes";

    /// Every policy: shipped, or a file
    value list_policies = ListPolicies() -> PolicyList,
        GET "/v1/policies" 200, Reads, "policies";
    /// One policy, as it is understood
    value get_policy = GetPolicy(name: str) -> Policy,
        GET "/v1/policies/{name}" 200, Reads, "policies";
    /// Read the text of a policy that is not in force
    value check_policy = CheckPolicy(; policy::CheckPolicy) -> Policy,
        POST "/v1/policies/check" 200, Reads, "policies";
    /// Whether a destination may be reached under a policy, by which rule, and why
    value explain_policy = ExplainPolicy(name: str; policy::ExplainPolicy) -> Explained,
        GET "/v1/policies/{name}/explain" 200, Reads, "policies";
    /// Give a running sandbox another policy
    ///
    /// For one that was made with a network. Connections that the new policy does not allow are cut.
    value set_policy = SetPolicy(id: SandboxId; policy::SetPolicy) -> Sandbox,
        PUT "/v1/sandboxes/{id}/policy" 200, Settles, "policies";
    /// Every decision about a sandbox's traffic
    ///
    /// One JSON value per line, the oldest first; also of a sandbox that is gone, for a while.
    /// With `Accept: text/event-stream` each is a server-sent event, those to come included;
    /// `Last-Event-ID` goes on where a client has stopped listening.
    bytes read_decisions = ReadDecisions(id: SandboxId; policy::ReadDecisions) -> ByteStream,
        GET "/v1/sandboxes/{id}/decisions" 200, Reads, "policies", "application/x-ndjson";
    /// Keep a secret for typed calls, or say where it is found
    ///
    /// `path`, `variable` and `command` are of the host: only callers of the local socket may
    /// give them.
    value set_secret = SetSecret(name: str; secret::SetSecret) -> SecretSummary,
        PUT "/v1/secrets/{name}" 200, Settles, "secrets";
    /// The secrets of typed calls, without their values
    value list_secrets = ListSecrets(; Page) -> SecretList,
        GET "/v1/secrets" 200, Reads, "secrets";
    /// Forget a secret
    value remove_secret = RemoveSecret(name: str) -> SecretSummary,
        DELETE "/v1/secrets/{name}" 200, Destroys, "secrets";
    /// One typed call: files in, one command, a bounded answer
    ///
    /// Everything in it is bounded by its policy. What fails before the command runs is an error
    /// whose `details` name the class; what fails later is in the answer's `failure`.
    value call = Call(; CallRequest) -> CallResult,
        POST "/v1/calls" 200, Runs, "calls";
    /// What would become of a typed call
    ///
    /// Everything is checked: policy, limits, secrets, environment, destinations, quotas. All that
    /// would be refused is told, with the rule and the reason; nothing is started.
    value dry_run_call = DryRunCall(; CallRequest) -> CallPlan,
        POST "/v1/calls/dry-run" 200, Reads, "calls";

    /// Make a sandbox, run one command, throw the sandbox away
    ///
    /// With `Accept: application/vnd.motu.stream` both bodies are live streams of frames;
    /// otherwise the answer comes when the command has ended.
    open run = Run(; RunRequest) -> ExecSession,
        POST "/v1/run" 200, Runs, "commands";
    /// Run one command in a sandbox
    ///
    /// With `Accept: application/vnd.motu.stream` both bodies are live streams of frames;
    /// with `background` the answer comes as soon as the process runs; otherwise when it has ended.
    value exec = Exec(id: SandboxId; ExecRequest) -> ExecResult,
        POST "/v1/sandboxes/{id}/exec" 200, Runs, "commands";
    /// Run one command in a sandbox, live
    ///
    /// The command ends when the stream is closed.
    open exec_stream = ExecStream(id: SandboxId; ExecRequest) -> ExecSession,
        POST "/v1/sandboxes/{id}/exec" 200, Runs, "commands";
    /// Start a process that runs on after the answer
    value exec_background = ExecBackground(id: SandboxId; ExecRequest) -> Background,
        POST "/v1/sandboxes/{id}/processes" 202, Runs, "commands";
    /// Follow a process, with input
    ///
    /// Both bodies are live streams of frames; the request begins with input, not with a request.
    attach attach = AttachProcess(id: SandboxId, selector: Selector; Attach) -> ExecSession,
        POST "/v1/sandboxes/{id}/processes/{selector}/stream" 200, Runs, "commands";
    /// Processes that were started here
    value list_processes = ListProcesses(id: SandboxId) -> ProcessList,
        GET "/v1/sandboxes/{id}/processes" 200, Reads, "commands";
    /// Send a signal to a process
    value signal_process = SignalOne(id: SandboxId, selector: Selector; SignalProcess) -> (),
        POST "/v1/sandboxes/{id}/processes/{selector}/signal" 204, Runs, "commands";
    /// Type into a process; the body is what is typed
    ///
    /// The answer comes when the machine has taken all of it.
    upload write_process = WriteProcess(id: SandboxId, selector: Selector; ProcessInput => content: ByteStream) -> (),
        POST "/v1/sandboxes/{id}/processes/{selector}/input" 204, Runs, "commands", "application/octet-stream";
    /// Give the terminal of a process another size
    value resize_process = ResizeProcess(id: SandboxId, selector: Selector; TtySize) -> (),
        POST "/v1/sandboxes/{id}/processes/{selector}/resize" 204, Settles, "commands";

    /// One file, directory or link
    value stat = Stat(id: SandboxId; StatFile) -> FileEntry,
        GET "/v1/sandboxes/{id}/files" 200, Reads, "files";
    /// One page of a directory
    value list_files = List(id: SandboxId; ListFiles) -> FilePage,
        GET "/v1/sandboxes/{id}/files/list" 200, Reads, "files";
    /// The contents of a file
    ///
    /// A `Range` header of one range of bytes is understood. The header `motu-entry` holds
    /// the file's entry as JSON.
    file read_file = Read(id: SandboxId; ReadFile) -> (FileEntry, ByteStream),
        GET "/v1/sandboxes/{id}/files/content" 200, Reads, "files", "application/octet-stream";
    /// Write a file; the body is its contents
    upload write_file = Write(id: SandboxId; WriteFile => content: ByteStream) -> FileEntry,
        PUT "/v1/sandboxes/{id}/files/content" 200, Changes, "files", "application/octet-stream";
    /// Make a directory, and those above it
    value mkdir = Mkdir(id: SandboxId; MakeDirectory) -> FileEntry,
        POST "/v1/sandboxes/{id}/files/mkdir" 200, Settles, "files";
    /// Remove a file or directory
    value remove_file = Remove(id: SandboxId; RemoveFile) -> (),
        DELETE "/v1/sandboxes/{id}/files" 204, Destroys, "files";
    /// Move or rename
    value move_file = Move(id: SandboxId; MoveFile) -> FileEntry,
        POST "/v1/sandboxes/{id}/files/move" 200, Changes, "files";
    /// Set permission bits
    value chmod = Chmod(id: SandboxId; ChangeMode) -> FileEntry,
        POST "/v1/sandboxes/{id}/files/chmod" 200, Settles, "files";
    /// Files whose path matches a pattern
    value glob = Glob(id: SandboxId; FindFiles) -> FilePage,
        GET "/v1/sandboxes/{id}/files/glob" 200, Reads, "files";
    /// The SHA-256 of a file
    value hash = Hash(id: SandboxId; PathAs) -> FileHash,
        GET "/v1/sandboxes/{id}/files/hash" 200, Reads, "files";
    /// Changes to a file or directory as they happen
    ///
    /// Watching has begun when the answer begins: one `WatchLine` per line.
    lines watch = Watch(id: SandboxId; WatchFiles) -> Changes,
        GET "/v1/sandboxes/{id}/files/watch" 200, Reads, "files";
    /// A tree as a tar archive
    bytes read_tree = ReadTree(id: SandboxId; PathAs) -> ByteStream,
        GET "/v1/sandboxes/{id}/files/tree" 200, Reads, "files", "application/x-tar";
    /// Unpack a tar archive into a directory
    upload write_tree = WriteTree(id: SandboxId; PathAs => archive: ByteStream) -> TreeWritten,
        PUT "/v1/sandboxes/{id}/files/tree" 200, Changes, "files", "application/x-tar";

    /// Lend an open file
    ///
    /// For callers on this host, who copy its bytes by themselves; only where the sandbox shares the
    /// host's kernel. With `Upgrade: motu-dial` on the daemon's own socket; one byte asks for the
    /// descriptor, which comes with one byte (`SCM_RIGHTS`). A file that was written is put in its
    /// place by a second byte and the end of what is sent; a line says what is there then.
    dial lend_file = LendAFile(id: SandboxId; LendFile) -> Connection,
        GET "/v1/sandboxes/{id}/files/lend" 101, Changes, "files";
    /// Show a directory of this host in a sandbox, to be read
    ///
    /// For callers on this host; only where the sandbox shares the host's kernel and the daemon is
    /// root. With `Upgrade: motu-dial` on the daemon's own socket; one byte asks for the directory,
    /// open for reading, which is handed over with one byte (`SCM_RIGHTS`). A line says what is there
    /// then. It stays until the sandbox's machine ends, and shows what the directory becomes.
    /// Nothing in it can be written: its owner's files belong to root inside, all others to nobody.
    /// What is mounted in it is not shown.
    dial lend_directory = LendADirectory(id: SandboxId; LendDirectory) -> Connection,
        GET "/v1/sandboxes/{id}/files/lend-directory" 101, Changes, "files";

    /// TCP ports something listens on
    value list_ports = ListPorts(id: SandboxId) -> PortList,
        GET "/v1/sandboxes/{id}/ports" 200, Reads, "ports";
    /// Connect to a TCP port
    ///
    /// With `Upgrade: motu-dial` the connection becomes plain bytes to and from the port.
    dial dial = Dial(id: SandboxId, port: u16) -> Connection,
        GET "/v1/sandboxes/{id}/ports/{port}/dial" 101, Runs, "ports";
    /// Connect to a Unix socket
    ///
    /// With `Upgrade: motu-dial` the connection becomes plain bytes to and from the socket.
    dial dial_unix = DialUnix(id: SandboxId; AtPath) -> Connection,
        GET "/v1/sandboxes/{id}/sockets/dial" 101, Runs, "ports";
    /// What a sandbox uses right now
    value metrics = MetricsOf(id: SandboxId) -> Metrics,
        GET "/v1/sandboxes/{id}/metrics" 200, Reads, "ports";
    /// What a sandbox used, over time
    ///
    /// As the host sees it; where the host has no counters of a machine, as its guest does, every
    /// 30 s. Kept in memory: a new daemon begins anew.
    value metrics_history = HistoryOfMetrics(id: SandboxId; ReadMetrics) -> MetricsHistory,
        GET "/v1/sandboxes/{id}/metrics/history" 200, Reads, "ports";
    /// What a sandbox used, over time, for somebody who keeps it: it is told once
    value flush_metrics = FlushMetrics(id: SandboxId) -> MetricsFlushed,
        POST "/v1/sandboxes/{id}/metrics/flush" 200, Changes, "ports";
}

verbs! {
    /// The verbs of workspaces: sandboxes that are kept.
    trait Workspaces, by workspaces, visit visit_workspaces, table WORKSPACE_VERBS;

    /// Make a workspace, and start it
    ///
    /// `seed_path` and the `path` of a secret are paths of the host: only callers of the
    /// local socket may give them.
    value create_workspace = CreateWorkspace(; NewWorkspace) -> Workspace,
        POST "/v1/workspaces" 201, Changes, "workspaces";
    /// Every workspace, the most recently active first
    value list_workspaces = ListWorkspaces(; Page) -> WorkspaceList,
        GET "/v1/workspaces" 200, Reads, "workspaces";
    /// One workspace
    value status_workspace = StatusWorkspace(id: WorkspaceId) -> Workspace,
        GET "/v1/workspaces/{id}" 200, Reads, "workspaces";
    /// Change the name and the labels of a workspace, and nothing else
    value update_workspace = UpdateWorkspace(id: WorkspaceId; Update) -> Workspace,
        PATCH "/v1/workspaces/{id}" 200, Settles, "workspaces";
    /// End the machine of a workspace; everything it keeps stays
    value stop_workspace = StopWorkspace(id: WorkspaceId) -> Workspace,
        POST "/v1/workspaces/{id}/stop" 200, Settles, "workspaces";
    /// Start a stopped workspace with the disks it had
    value start_workspace = StartWorkspace(id: WorkspaceId) -> Workspace,
        POST "/v1/workspaces/{id}/start" 200, Settles, "workspaces";
    /// Make the whole machine anew, with `/workspace` as a snapshot has it
    value reset_workspace = ResetWorkspace(id: WorkspaceId; ResetTo) -> Workspace,
        POST "/v1/workspaces/{id}/reset" 200, Destroys, "workspaces";
    /// Take the last commands back, in place
    ///
    /// `/workspace` is again as it was before the last command with a checkpoint, or before the
    /// last `steps` of them. The machine, its services and shells go on; what commands did outside
    /// `/workspace` stays.
    value undo_workspace = UndoWorkspace(id: WorkspaceId; Undo) -> Undone,
        POST "/v1/workspaces/{id}/undo" 200, Destroys, "workspaces";
    /// Delete a workspace, with its snapshots, secrets and history
    value delete_workspace = DeleteWorkspace(id: WorkspaceId) -> Workspace,
        DELETE "/v1/workspaces/{id}" 200, Destroys, "workspaces";
    /// Copies of a workspace, all or none
    value fork_workspace = ForkWorkspace(id: WorkspaceId; Copies) -> WorkspaceCopies,
        POST "/v1/workspaces/{id}/fork" 201, Changes, "workspaces";

    /// Run one command in a workspace, in `/workspace`
    ///
    /// With `Accept: application/vnd.motu.stream` both bodies are live streams of frames, and
    /// the command ends when the stream is closed; otherwise the answer comes when it has ended.
    value exec_workspace = ExecWorkspace(id: WorkspaceId; WorkspaceExec) -> ExecResult,
        POST "/v1/workspaces/{id}/exec" 200, Runs, "workspaces";
    /// Run one command in a workspace, live
    ///
    /// The command ends when the stream is closed.
    open exec_workspace_stream = ExecWorkspaceStream(id: WorkspaceId; WorkspaceExec) -> ExecSession,
        POST "/v1/workspaces/{id}/exec" 200, Runs, "workspaces";
    /// The commands a workspace has run, oldest first
    value logs_workspace = LogsWorkspace(id: WorkspaceId) -> CommandLog,
        GET "/v1/workspaces/{id}/logs" 200, Reads, "workspaces";

    /// Bring later content of the host into a running workspace
    ///
    /// `source_path` is a path of the host: only callers of the local socket may give it.
    value push_workspace_sync = PushWorkspaceSync(id: WorkspaceId; SyncPush) -> SyncReport,
        POST "/v1/workspaces/{id}/sync/push" 200, Changes, "workspace content";
    /// What is at a path, without what is in the files
    value list_workspace_files = ListWorkspaceFiles(id: WorkspaceId; ListPaths) -> PathList,
        GET "/v1/workspaces/{id}/files" 200, Reads, "workspace content";
    /// A text file, up to a budget
    value read_workspace_file = ReadWorkspaceFile(id: WorkspaceId; ReadText) -> FileText,
        GET "/v1/workspaces/{id}/files/text" 200, Reads, "workspace content";
    /// Create or replace a text file, and the directories above it
    value write_workspace_file = WriteWorkspaceFile(id: WorkspaceId; WriteText) -> FileWritten,
        PUT "/v1/workspaces/{id}/files/text" 200, Settles, "workspace content";
    /// Copy a file or a tree to the host
    ///
    /// `output_path` is a path of the host: only callers of the local socket may give it.
    value export_workspace = ExportWorkspace(id: WorkspaceId; ExportFiles) -> Exported,
        POST "/v1/workspaces/{id}/export" 200, Changes, "workspace content";
    /// Apply one unified patch: all of it, or none
    value apply_workspace_patch = ApplyWorkspacePatch(id: WorkspaceId; Patch) -> PatchReport,
        POST "/v1/workspaces/{id}/patch" 200, Changes, "workspace content";
    /// Replace exact texts in files: all of them, or none
    value edit_workspace = EditWorkspace(id: WorkspaceId; EditFiles) -> PatchReport,
        POST "/v1/workspaces/{id}/edit" 200, Changes, "workspace content";
    /// What changed since the baseline
    value diff_workspace = DiffWorkspace(id: WorkspaceId; DiffOptions) -> DiffReport,
        GET "/v1/workspaces/{id}/diff" 200, Reads, "workspace content";

    /// Save `/workspace` as it is now under a name
    value create_snapshot = CreateSnapshot(id: WorkspaceId; SaveAs) -> Snapshot,
        POST "/v1/workspaces/{id}/snapshots" 201, Changes, "snapshots";
    /// The baseline and every named snapshot
    value list_snapshots = ListSnapshots(id: WorkspaceId; Page) -> SnapshotList,
        GET "/v1/workspaces/{id}/snapshots" 200, Reads, "snapshots";
    /// Delete a named snapshot
    value delete_snapshot = DeleteSnapshot(id: WorkspaceId, name: str) -> Snapshot,
        DELETE "/v1/workspaces/{id}/snapshots/{name}" 200, Destroys, "snapshots";
    /// What changed between two snapshots
    value diff_snapshots = DiffSnapshots(id: WorkspaceId, name: str; Since) -> DiffReport,
        GET "/v1/workspaces/{id}/snapshots/{name}/diff" 200, Reads, "snapshots";

    /// Write the root of a stopped workspace to the host as a file system in a file
    ///
    /// `output_path` is a path of the host: only callers of the local socket may give it.
    value export_workspace_disk = ExportWorkspaceDisk(id: WorkspaceId; ExportDisk) -> DiskExported,
        POST "/v1/workspaces/{id}/disk/export" 200, Changes, "snapshots";
    /// What is at a path of the root of a stopped workspace
    value list_workspace_disk = ListWorkspaceDisk(id: WorkspaceId; ListPaths) -> PathList,
        GET "/v1/workspaces/{id}/disk/files" 200, Reads, "snapshots";
    /// A text file of the root of a stopped workspace, up to a budget
    value read_workspace_disk = ReadWorkspaceDisk(id: WorkspaceId; ReadText) -> FileText,
        GET "/v1/workspaces/{id}/disk/files/text" 200, Reads, "snapshots";

    /// Start a service, and wait until it is ready
    value start_service = StartService(id: WorkspaceId; NewService) -> ServiceStatus,
        POST "/v1/workspaces/{id}/services" 201, Runs, "services";
    /// Every service of a workspace, ended ones included
    value list_services = ListServices(id: WorkspaceId) -> ServiceList,
        GET "/v1/workspaces/{id}/services" 200, Reads, "services";
    /// One service
    value status_service = StatusService(id: WorkspaceId, name: str) -> ServiceStatus,
        GET "/v1/workspaces/{id}/services/{name}" 200, Reads, "services";
    /// The output of a service
    value logs_service = LogsService(id: WorkspaceId, name: str; LogOptions) -> ServiceLogs,
        GET "/v1/workspaces/{id}/services/{name}/logs" 200, Reads, "services";
    /// Follow the output of a service from now on
    ///
    /// The answer is a live stream of frames that ends with the service. Leaving does not end it.
    attach follow_service = FollowService(id: WorkspaceId, name: str) -> ExecSession,
        POST "/v1/workspaces/{id}/services/{name}/stream" 200, Reads, "services";
    /// End a service
    value stop_service = StopService(id: WorkspaceId, name: str) -> ServiceStatus,
        POST "/v1/workspaces/{id}/services/{name}/stop" 200, Destroys, "services";
}
