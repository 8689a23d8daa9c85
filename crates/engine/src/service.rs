//! The verbs, each a few lines over the engine's parts.

use crate::admission::{Follow, command};
use crate::blocking::blocking;
use crate::driver::{Keep, Whereabouts};
use crate::engine::Engine;
use crate::guest::files::parse_pattern;
use crate::shown::{self, Pace};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use motu_core::audit::{
    AuditId, AuditKey, AuditList, AuditVerified, Facts, FollowAudit, ListAudit, Receipt,
    VerifyAudit,
};
use motu_core::build::{BuildContext, BuildRequest};
use motu_core::call::{CallPlan, CallRequest, CallResult};
use motu_core::collect::Collector;
use motu_core::commit::CommitSandbox;
use motu_core::event::ReadEvents;
use motu_core::exec::*;
use motu_core::files::*;
use motu_core::hint;
use motu_core::key::{CreateKey, Key, KeyCreated, KeyId};
use motu_core::lists::{
    EnvironmentList, KeyList, PolicyList, PortList, ProcessList, Reaped, SandboxList, SecretList,
    TemplateList,
};
use motu_core::metrics::{MetricsFlushed, MetricsHistory, ReadMetrics};
use motu_core::outcome::Outcome as _;
use motu_core::policy::{CheckPolicy, ExplainPolicy, Explained, Policy, ReadDecisions, SetPolicy};
use motu_core::report::*;
use motu_core::runtime::Connection;
use motu_core::sandbox::{CreateSandbox, Fork, Keepalive, ListSandboxes, Sandbox};
use motu_core::secret::{SecretSummary, SetSecret};
use motu_core::template::{RebuildTemplate, SaveTemplate, Template, TemplateDefinition};
use motu_core::{Error, Isolation, Project, Result, SandboxId, Service};
use motu_link::message as link;

/// Calls a guest; a broken connection is reported as the state of the sandbox.
macro_rules! guest {
    ($engine:expr, $id:expr, $guest:ident => $call:expr) => {{
        let handle = $engine.sandboxes.handle($id).await?;
        let $guest = handle.wake().await?;
        match $call.await {
            Ok(value) => Ok(value),
            Err(error) => Err(handle.explain_soon(error).await),
        }
    }};
}

#[async_trait]
impl Service for Engine {
    async fn version(&self) -> Result<Version> {
        Ok(Version {
            version: env!("CARGO_PKG_VERSION").to_string(),
            api_version: "1".to_string(),
            pid: std::process::id(),
            home: self.sandboxes.shared.home.path().display().to_string(),
        })
    }

    async fn doctor(&self, ask: Examine) -> Result<Doctor> {
        self.examine(ask.deep).await
    }

    async fn backup(&self, ask: BackUp) -> Result<Backup> {
        self.back_up(&ask.output_path).await
    }

    fn about(&self, id: &SandboxId) -> Option<Facts> {
        let mut facts = Facts::default();
        match self.sandboxes.table.find(id) {
            Whereabouts::Awake(handle) => handle.sandbox().facts(&mut facts),
            Whereabouts::Dormant => self.sandboxes.table.dormant(id)?.facts(&mut facts),
            Whereabouts::Nowhere => return None,
        }
        Some(facts)
    }

    fn walls(&self, named: motu_core::leave::Named<'_>) -> Result<Option<Isolation>> {
        self.terminals.walls(named)
    }

    fn owner(&self, id: &SandboxId) -> Option<String> {
        self.sandboxes.table.owner(id)
    }

    fn census(&self) -> std::collections::BTreeMap<String, u64> {
        self.sandboxes.table.census()
    }

    async fn ready(&self) -> Result<()> {
        self.answers().await
    }

    async fn create_key(&self, ask: CreateKey) -> Result<KeyCreated> {
        self.keys.create(ask).await
    }

    async fn list_keys(&self, _: motu_core::Page) -> Result<KeyList> {
        Ok(self.keys.list())
    }

    async fn revoke_key(&self, id: &KeyId) -> Result<Key> {
        self.keys.revoke(id).await
    }

    async fn list_audit(&self, ask: ListAudit) -> Result<AuditList> {
        self.audit.list(ask).await
    }

    async fn get_audit(&self, id: &AuditId) -> Result<AuditList> {
        self.audit.get(id.clone()).await
    }

    async fn audit_receipt(&self, id: &AuditId) -> Result<Receipt> {
        self.audit.receipt(id.clone()).await
    }

    async fn verify_audit(&self, ask: VerifyAudit) -> Result<AuditVerified> {
        self.audit.verify(ask).await
    }

    async fn audit_key(&self) -> Result<AuditKey> {
        self.audit.key()
    }

    async fn follow_audit(&self, ask: FollowAudit) -> Result<ByteStream> {
        Ok(crate::audit::followed(self.audit.tail(ask).await?))
    }

    async fn export_audit(&self) -> Result<ByteStream> {
        Ok(crate::audit::exported(self.audit.export().await?))
    }

    async fn read_events(&self, ask: ReadEvents) -> Result<ByteStream> {
        self.events.lines(ask).await
    }

    async fn list_environments(&self, _: motu_core::Page) -> Result<EnvironmentList> {
        self.environments.list().await
    }

    async fn inspect_environment(&self, name: &str) -> Result<Environment> {
        self.environments.inspect(name).await
    }

    async fn pull_environment(&self, name: &str, progress: ProgressSink) -> Result<Environment> {
        self.environments.pull(name, progress).await
    }

    async fn remove_environment(&self, name: &str) -> Result<Pruned> {
        self.environments.remove(name).await
    }

    async fn tag_environment(&self, name: &str, ask: TagAs) -> Result<Environment> {
        self.environments.tag(name, ask).await
    }

    async fn export_environment(&self, name: &str) -> Result<ByteStream> {
        self.environments.export(name).await
    }

    async fn import_environment(&self, ask: ImportAs, content: ByteStream) -> Result<Environment> {
        self.environments.import(ask, content).await
    }

    async fn send_build_context(&self, content: ByteStream) -> Result<BuildContext> {
        self.environments.keep_context(content).await
    }

    async fn build_environment(
        &self,
        ask: BuildRequest,
        progress: ProgressSink,
    ) -> Result<Environment> {
        self.environments.build(ask, progress).await
    }

    async fn prune_environments(&self, ask: Prune) -> Result<Pruned> {
        self.environments.prune(ask).await
    }

    async fn put_template(
        &self,
        name: &str,
        ask: TemplateDefinition,
        progress: ProgressSink,
    ) -> Result<Template> {
        self.templates.put(name, ask, progress).await
    }

    async fn list_templates(&self, _: motu_core::Page) -> Result<TemplateList> {
        Ok(self.templates.list())
    }

    async fn get_template(&self, name: &str) -> Result<Template> {
        self.templates.get(name)
    }

    async fn build_template(
        &self,
        name: &str,
        ask: RebuildTemplate,
        progress: ProgressSink,
    ) -> Result<Template> {
        self.templates.build(name, ask, progress).await
    }

    async fn remove_template(&self, name: &str) -> Result<Template> {
        self.templates.remove(name).await
    }

    async fn resolve(&self, word: SandboxId, within: Option<&Project>) -> Result<SandboxId> {
        match within {
            None => self.workspaces.resolve(word),
            Some(project) => self.workspaces.resolve_within(word, project).await,
        }
    }

    async fn resolve_environment(&self, name: String, within: &Project) -> Result<(String, bool)> {
        self.environments.meant(name, within).await
    }

    async fn create_sandbox(&self, request: CreateSandbox) -> Result<Sandbox> {
        let request = self.templates.fill_sandbox(request).await?;
        Ok(self.sandboxes.make(request, Keep::Stored).await?.0)
    }

    async fn list_sandboxes(&self, ask: ListSandboxes) -> Result<SandboxList> {
        Ok(SandboxList::new(self.sandboxes.list(&ask).await?))
    }

    async fn get_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        if let Some(handle) = self.sandboxes.awake(id) {
            return Ok(handle.sandbox());
        }
        match self.sandboxes.shared.store.get(id).await? {
            Some(row) => Ok(row.sandbox),
            None => Err(Error::not_found(format!("there is no sandbox {id}"))
                .hint(hint![hint::verb("list_sandboxes"), " lists them"])),
        }
    }

    async fn destroy_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.workspaces.not_a_workspace(id)?;
        match self.sandboxes.get(id).await? {
            // Lost a race with another destroy: the tombstone has the result.
            Some(handle) => match handle.destroy().await {
                Ok(sandbox) => Ok(sandbox),
                Err(_) => self.get_sandbox(id).await,
            },
            None => self.get_sandbox(id).await,
        }
    }

    async fn pause_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandboxes.handle(id).await?.pause().await
    }

    async fn resume_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandboxes.handle(id).await?.resume().await
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandboxes.handle(id).await?.stop().await
    }

    async fn start_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        let handle = self.sandboxes.handle(id).await?;
        let (table, quota) = (&self.sandboxes.table, &self.sandboxes.config.quota);
        let _counted = self.sandboxes.placed(|| table.starts(id, quota)).await?;
        handle.start().await
    }

    async fn fork_sandbox(&self, id: &SandboxId, ask: Fork) -> Result<SandboxList> {
        self.sandboxes
            .fork(id, ask.count)
            .await
            .map(SandboxList::new)
    }

    async fn commit_sandbox(&self, id: &SandboxId, ask: CommitSandbox) -> Result<Environment> {
        let handle = self.plain(id).await?;
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        self.environments.commit(&handle, &ask).await
    }

    async fn save_template(&self, id: &SandboxId, ask: SaveTemplate) -> Result<Template> {
        self.templates.save(&*self.plain(id).await?, ask).await
    }

    async fn keepalive(&self, id: &SandboxId, ask: Keepalive) -> Result<Sandbox> {
        self.sandboxes.handle(id).await?.keepalive(ask).await
    }

    async fn reap_expired(&self) -> Result<Reaped> {
        let mut sandbox_ids = Vec::new();
        for handle in self.sandboxes.table.awake() {
            let sandbox = handle.sandbox();
            if handle.expired() && handle.destroy().await.is_ok() {
                sandbox_ids.push(sandbox.sandbox_id);
            }
        }
        Ok(Reaped::new(sandbox_ids))
    }

    async fn plan(&self, request: CreateSandbox) -> Result<String> {
        let request = self.templates.fill_sandbox(request).await?;
        let admitted = self.sandboxes.gate().admit(request).await?;
        let id = admitted.sandbox.sandbox_id;
        let dir = self
            .sandboxes
            .shared
            .home
            .machine(admitted.runtime.name(), &id);
        let spec = admitted
            .launch
            .spec(id, dir, &self.sandboxes.shared.gateways, None);
        admitted.runtime.plan(&spec)
    }

    async fn list_policies(&self) -> Result<PolicyList> {
        let shelf = self.sandboxes.shared.home.policies();
        blocking(move || shelf.list()).await.map(PolicyList::new)
    }

    async fn get_policy(&self, name: &str) -> Result<Policy> {
        self.sandboxes.policy(name).await.map(|known| known.policy)
    }

    async fn check_policy(&self, ask: CheckPolicy) -> Result<Policy> {
        motu_policy::parse("checked", "text", &ask.text).map(|known| known.policy)
    }

    async fn explain_policy(&self, name: &str, ask: ExplainPolicy) -> Result<Explained> {
        motu_policy::explain(&self.sandboxes.policy(name).await?, &ask)
    }

    async fn set_policy(&self, id: &SandboxId, ask: SetPolicy) -> Result<Sandbox> {
        ask.bounds.allow_policy(&ask.policy)?;
        let known = self.sandboxes.policy(&ask.policy).await?;
        self.sandboxes.handle(id).await?.set_network(known).await
    }

    async fn read_decisions(&self, id: &SandboxId, ask: ReadDecisions) -> Result<ByteStream> {
        self.sandboxes.decisions(id, ask).await
    }

    async fn set_secret(&self, name: &str, ask: SetSecret) -> Result<SecretSummary> {
        self.sandboxes.keep_secret(name, ask).await
    }

    async fn list_secrets(&self, _: motu_core::Page) -> Result<SecretList> {
        self.sandboxes.known_secrets().await
    }

    async fn remove_secret(&self, name: &str) -> Result<SecretSummary> {
        self.sandboxes.drop_secret(name).await
    }

    async fn call(&self, request: CallRequest) -> Result<CallResult> {
        self.calls.typed_call(request).await
    }

    async fn dry_run_call(&self, request: CallRequest) -> Result<CallPlan> {
        self.calls.dry_call(request).await
    }

    async fn run(&self, mut request: RunRequest) -> Result<ExecSession> {
        request.sandbox = self.templates.fill_sandbox(request.sandbox).await?;
        self.sandboxes.one_shot(request).await
    }

    async fn exec(&self, id: &SandboxId, request: ExecRequest) -> Result<ExecResult> {
        let collector = Collector::new(request.program.max_output_bytes)?;
        let mut collector = collector.within(self.sandboxes.handle(id).await?.sandbox());
        collector
            .add_all(self.exec_stream(id, request).await?)
            .await?;
        collector.finish()
    }

    async fn exec_stream(&self, id: &SandboxId, request: ExecRequest) -> Result<ExecSession> {
        let handle = self.sandboxes.handle(id).await?;
        if let Some(room) = self.workspaces.known(id).await? {
            return self
                .workspaces
                .follow_remembered(room, handle, request, None)
                .await;
        }
        let pace = Pace::of(&request);
        let start = command(&self.sandboxes.config, request, Follow::Foreground)?;
        let session = guest!(self, id, guest => guest.start(start))?;
        let events = shown::redacted(&self.sandboxes.commands, session.events, pace);
        let events = handle.beyond().redacted(events, pace);
        Ok(handle.explained(ExecSession::new(events, session.input)))
    }

    async fn exec_background(
        &self,
        id: &SandboxId,
        mut request: ExecRequest,
    ) -> Result<Background> {
        let tag = request
            .tag
            .get_or_insert_with(|| format!("proc-{}", motu_core::id::random_name(8)))
            .clone();
        let started = match self.workspaces.known(id).await? {
            Some(room) => {
                let handle = self.sandboxes.handle(id).await?;
                self.workspaces
                    .start_remembered(&room, &handle, request)
                    .await?
            }
            None => {
                let start = command(&self.sandboxes.config, request, Follow::Background)?;
                guest!(self, id, guest => guest.start_background(start))?
            }
        };
        Ok(Background {
            pid: started.pid,
            tag,
        })
    }

    async fn attach(&self, id: &SandboxId, process: &Selector, ask: Attach) -> Result<ExecSession> {
        let from = ask.begin()?;
        let handle = self.sandboxes.handle(id).await?;
        let session = guest!(self, id, guest => guest.attach(process.clone(), from))?;
        let events = match self.workspaces.known(id).await? {
            Some(room) => room.shown(session.events, Pace::Terminal),
            None => {
                let pace = Pace::Terminal;
                let events = shown::redacted(&self.sandboxes.commands, session.events, pace);
                handle.beyond().redacted(events, pace)
            }
        };
        Ok(handle.explained(ExecSession::new(events, session.input)))
    }

    async fn list_processes(&self, id: &SandboxId) -> Result<ProcessList> {
        let all = guest!(self, id, guest => guest.processes())?;
        Ok(ProcessList::new(id.clone(), all))
    }

    async fn signal_process(
        &self,
        id: &SandboxId,
        process: &Selector,
        ask: SignalProcess,
    ) -> Result<()> {
        let signal = ask.signal.number();
        guest!(self, id, guest => guest.signal(process.clone(), signal, ask.tree))
    }

    async fn write_process(
        &self,
        id: &SandboxId,
        process: &Selector,
        ask: ProcessInput,
        content: ByteStream,
    ) -> Result<()> {
        guest!(self, id, guest => guest.write_input(process.clone(), ask.close, content))
    }

    async fn resize_process(
        &self,
        id: &SandboxId,
        process: &Selector,
        size: TtySize,
    ) -> Result<()> {
        guest!(self, id, guest => guest.resize(process.clone(), size))
    }

    async fn stat(&self, id: &SandboxId, ask: StatFile) -> Result<FileEntry> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).stat(&ask.path, ask.follow))
    }

    async fn list_files(&self, id: &SandboxId, ask: ListFiles) -> Result<FilePage> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).list(&ask.path, ask.options()))
    }

    async fn read_file(&self, id: &SandboxId, ask: ReadFile) -> Result<(FileEntry, ByteStream)> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).read(&ask.path, ask.range()))
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        ask: WriteFile,
        content: ByteStream,
    ) -> Result<FileEntry> {
        let (path, options) = ask.into_parts();
        guest!(self, id, guest => guest.write(&path, options, content))
    }

    async fn mkdir(&self, id: &SandboxId, ask: MakeDirectory) -> Result<FileEntry> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).mkdir(&ask.path, ask.mode))
    }

    async fn remove_file(&self, id: &SandboxId, ask: RemoveFile) -> Result<()> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).remove(&ask.path, ask.recursive))
    }

    async fn move_file(&self, id: &SandboxId, ask: MoveFile) -> Result<FileEntry> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).rename(&ask.from, &ask.to, ask.overwrite))
    }

    async fn chmod(&self, id: &SandboxId, ask: ChangeMode) -> Result<FileEntry> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).chmod(&ask.path, ask.mode))
    }

    async fn glob(&self, id: &SandboxId, ask: FindFiles) -> Result<FilePage> {
        let pattern = parse_pattern(&ask.pattern)?;
        guest!(self, id, guest => guest.files(ask.user.as_deref()).glob(&pattern, ask.limit))
    }

    async fn hash(&self, id: &SandboxId, ask: PathAs) -> Result<FileHash> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).hash(&ask.path))
    }

    async fn watch(
        &self,
        id: &SandboxId,
        ask: WatchFiles,
    ) -> Result<BoxStream<'static, Result<FileChange>>> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).watch(&ask.path, ask.recursive))
    }

    async fn read_tree(&self, id: &SandboxId, ask: PathAs) -> Result<ByteStream> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).read_tree(&ask.path))
    }

    async fn write_tree(
        &self,
        id: &SandboxId,
        ask: PathAs,
        archive: ByteStream,
    ) -> Result<TreeWritten> {
        guest!(self, id, guest => guest.files(ask.user.as_deref()).write_tree(&ask.path, archive))
    }

    async fn list_ports(&self, id: &SandboxId) -> Result<PortList> {
        let all = guest!(self, id, guest => guest.ports())?;
        Ok(PortList::new(id.clone(), all))
    }

    async fn lend_file(&self, id: &SandboxId, ask: LendFile) -> Result<Connection> {
        guest!(self, id, guest => guest.lend(ask))
    }

    async fn lend_directory(&self, id: &SandboxId, ask: LendDirectory) -> Result<Connection> {
        guest!(self, id, guest => guest.lend_directory(ask))
    }

    async fn dial(&self, id: &SandboxId, port: &u16) -> Result<Connection> {
        let dial = link::Dial {
            port: (*port).into(),
            unix: Bytes::new(),
        };
        guest!(self, id, guest => guest.dial(dial))
    }

    async fn dial_unix(&self, id: &SandboxId, ask: AtPath) -> Result<Connection> {
        let dial = link::Dial {
            port: 0,
            unix: ask.path.as_bytes().clone(),
        };
        guest!(self, id, guest => guest.dial(dial))
    }

    async fn metrics_history(&self, id: &SandboxId, ask: ReadMetrics) -> Result<MetricsHistory> {
        self.sandboxes.metrics_history(id, ask).await
    }

    async fn flush_metrics(&self, id: &SandboxId) -> Result<MetricsFlushed> {
        self.sandboxes.flush_metrics(id).await
    }

    async fn metrics(&self, id: &SandboxId) -> Result<Metrics> {
        let handle = self.sandboxes.handle(id).await?;
        match handle.look()?.metrics().await {
            Ok(metrics) => Ok(metrics),
            Err(error) => Err(handle.explain_soon(error).await),
        }
    }
}
