//! A service in memory: enough behaviour to see every translation.

mod made;
pub mod terminals;
pub mod workspaces;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
pub use made::sandbox;
use made::{OnDrop, entry, exited, nothing, started};
use motu_core::audit::*;
use motu_core::build::{BuildContext, BuildRequest};
use motu_core::call::{CallPlan, CallRequest, CallResult};
use motu_core::commit::CommitSandbox;
use motu_core::exec::*;
use motu_core::files::*;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::key::{CreateKey, Key, KeyCreated, KeyId};
use motu_core::lists::*;
use motu_core::metrics::*;
use motu_core::policy::*;
use motu_core::report::*;
use motu_core::runtime::Connection;
use motu_core::sandbox::*;
use motu_core::secret::{SecretSummary, SetSecret};
use motu_core::template::{RebuildTemplate, SaveTemplate, Template, TemplateDefinition};
use motu_core::{Error, Program, Result, SandboxId, Service};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};

#[derive(Default)]
pub struct Stub {
    pub files: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Sessions that were dropped before their command ended.
    pub killed: Arc<Notify>,
    /// Chunks a flood has produced.
    pub produced: Arc<AtomicUsize>,
    pub signals: Mutex<Vec<(Selector, i32, bool)>>,
    /// The verb of workspaces or terminals that was called last, and its arguments.
    pub called: Mutex<Option<(&'static str, serde_json::Value)>>,
    /// Lets the verb go on that was asked for the workspace `ws-slow`.
    pub go_on: Notify,
    /// Where terminals say that their files are.
    pub directory: Mutex<String>,
}

impl Stub {
    /// The commands: `echo WORDS`, `cat`, `flood CHUNKS`, `sleep`, `both`, `fail`.
    fn start(&self, request: &ExecRequest, head: Vec<ExecEvent>) -> Result<ExecSession> {
        let (input, inputs) = mpsc::channel(2);
        let words: Vec<&str> = request.program.command.iter().map(String::as_str).collect();
        let head = stream::iter(head.into_iter().map(Ok));
        let body: BoxStream<'static, Result<ExecEvent>> = match words[..] {
            ["echo", ref rest @ ..] => {
                let line = format!("{}\n", rest.join(" "));
                stream::iter([Ok(ExecEvent::Stdout(line.into())), Ok(exited(0))]).boxed()
            }
            ["both"] => stream::iter([
                Ok(ExecEvent::Stdout("out".into())),
                Ok(ExecEvent::Stderr(Bytes::from_static(b"err\xff"))),
                Ok(exited(3)),
            ])
            .boxed(),
            ["true"] => stream::iter([Ok(exited(0))]).boxed(),
            ["fail"] => stream::iter([Err(Error::transport("the guest is gone"))]).boxed(),
            ["cat"] => cat(inputs),
            ["flood", chunks] => self.flood(chunks.parse().unwrap()),
            ["sleep"] => self.sleep(),
            ["panic"] => panic!("as asked"),
            _ => return Err(Error::invalid("no such command")),
        };
        Ok(ExecSession::new(head.chain(body).boxed(), input))
    }

    fn flood(&self, chunks: usize) -> BoxStream<'static, Result<ExecEvent>> {
        let produced = self.produced.clone();
        let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
        stream::iter(0..chunks)
            .map(move |_| {
                produced.fetch_add(1, Ordering::Relaxed);
                Ok(ExecEvent::Stdout(chunk.clone()))
            })
            .chain(stream::iter([Ok(exited(0))]))
            .boxed()
    }

    fn sleep(&self) -> BoxStream<'static, Result<ExecEvent>> {
        let guard = OnDrop(self.killed.clone(), false);
        stream::pending()
            .map(move |event| {
                let _alive = &guard;
                event
            })
            .boxed()
    }

    fn content(&self, path: &GuestPath) -> Result<Vec<u8>> {
        let files = self.files.lock().unwrap();
        let found = files.get(path.as_bytes().as_ref()).cloned();
        found.ok_or_else(|| Error::not_found("no such file"))
    }
}

/// Input comes back as output; a signal or the end of input ends it.
fn cat(inputs: mpsc::Receiver<ExecInput>) -> BoxStream<'static, Result<ExecEvent>> {
    stream::unfold(Some(inputs), async |inputs| {
        let mut inputs = inputs?;
        let event = match inputs.recv().await {
            Some(ExecInput::Stdin(bytes)) => {
                return Some((Ok(ExecEvent::Stdout(bytes)), Some(inputs)));
            }
            Some(ExecInput::Resize(size)) => {
                let text = format!("{}x{}\n", size.cols, size.rows);
                return Some((Ok(ExecEvent::Stdout(text.into())), Some(inputs)));
            }
            Some(ExecInput::Signal(signal)) => exited(128 + signal),
            Some(ExecInput::CloseStdin) | None => exited(0),
        };
        Some((Ok(event), None))
    })
    .boxed()
}

#[async_trait]
impl Service for Stub {
    async fn list_policies(&self) -> Result<PolicyList> {
        Ok(PolicyList::new(Vec::new()))
    }
    async fn get_policy(&self, _: &str) -> Result<Policy> {
        nothing()
    }
    async fn check_policy(&self, _: CheckPolicy) -> Result<Policy> {
        nothing()
    }
    async fn explain_policy(&self, _: &str, _: ExplainPolicy) -> Result<Explained> {
        nothing()
    }
    async fn set_policy(&self, _: &SandboxId, _: SetPolicy) -> Result<Sandbox> {
        nothing()
    }
    async fn read_decisions(&self, _: &SandboxId, _: ReadDecisions) -> Result<ByteStream> {
        nothing()
    }
    async fn dry_run_call(&self, _: CallRequest) -> Result<CallPlan> {
        nothing()
    }
    async fn set_secret(&self, _: &str, _: SetSecret) -> Result<SecretSummary> {
        nothing()
    }
    async fn list_secrets(&self, _: motu_core::Page) -> Result<SecretList> {
        Ok(SecretList::new(Vec::new()))
    }
    async fn remove_secret(&self, _: &str) -> Result<SecretSummary> {
        nothing()
    }
    async fn call(&self, _: CallRequest) -> Result<CallResult> {
        nothing()
    }
    async fn version(&self) -> Result<Version> {
        Ok(made::version())
    }
    async fn create_key(&self, _: CreateKey) -> Result<KeyCreated> {
        nothing()
    }
    async fn list_keys(&self, _: motu_core::Page) -> Result<KeyList> {
        nothing()
    }
    async fn revoke_key(&self, _: &KeyId) -> Result<Key> {
        nothing()
    }
    async fn doctor(&self, ask: Examine) -> Result<Doctor> {
        let _ = ask;
        panic!("as asked")
    }
    async fn list_audit(&self, ask: ListAudit) -> Result<AuditList> {
        Err(Error::unavailable(format!("{:?}", ask.limit)))
    }
    async fn get_audit(&self, id: &AuditId) -> Result<AuditList> {
        Err(Error::not_found(id.to_string()))
    }
    async fn audit_receipt(&self, id: &AuditId) -> Result<Receipt> {
        Err(Error::not_found(id.to_string()))
    }
    async fn verify_audit(&self, _: VerifyAudit) -> Result<AuditVerified> {
        Ok(AuditVerified::default())
    }
    async fn audit_key(&self) -> Result<AuditKey> {
        Err(Error::unavailable("no key"))
    }
    async fn read_events(&self, _: motu_core::event::ReadEvents) -> Result<ByteStream> {
        Ok(stream::empty().boxed())
    }
    async fn follow_audit(&self, _: FollowAudit) -> Result<ByteStream> {
        Ok(stream::iter([Ok(Bytes::new())]).boxed())
    }
    async fn export_audit(&self) -> Result<ByteStream> {
        Ok(stream::empty().boxed())
    }
    async fn list_environments(&self, _: motu_core::Page) -> Result<EnvironmentList> {
        Ok(EnvironmentList::new(Vec::new()))
    }
    async fn inspect_environment(&self, name: &str) -> Result<Environment> {
        Ok(Environment {
            name: name.to_string(),
            description: String::new(),
            installed: true,
            digest: None,
            size_bytes: None,
            created_at: None,
            architecture: "amd64".to_string(),
            default_user: "root".to_string(),
            default_workdir: "/".to_string(),
            source: "stub".to_string(),
            packages: Vec::new(),
            manifest_digest: Some("sha256:11".to_string()),
            layers: vec![EnvironmentLayer {
                digest: "sha256:22".to_string(),
                size_bytes: 2048,
            }],
            entrypoint: match name {
                "silent" => Vec::new(),
                _ => vec!["echo".to_string()],
            },
            cmd: match name {
                "silent" => Vec::new(),
                _ => vec!["from the image".to_string()],
            },
            build: None,
        })
    }
    async fn pull_environment(&self, name: &str, progress: ProgressSink) -> Result<Environment> {
        for done in 0..3 {
            let step = ProgressEvent {
                stage: "fetch".to_string(),
                message: "fetching".to_string(),
                done: Some(done),
                total: Some(3),
            };
            let _ = progress.try_send(step);
            tokio::task::yield_now().await;
        }
        match name {
            "broken" => Err(Error::unavailable("no mirror answers").hint("try later")),
            name => self.inspect_environment(name).await,
        }
    }
    async fn backup(&self, ask: BackUp) -> Result<motu_core::report::Backup> {
        let output_path = ask.output_path;
        Ok(motu_core::report::Backup {
            output_path: output_path.to_string(),
            ..Default::default()
        })
    }
    async fn remove_environment(&self, name: &str) -> Result<Pruned> {
        Ok(Pruned {
            removed: vec![name.to_string()],
            ..Pruned::default()
        })
    }
    async fn tag_environment(&self, name: &str, ask: TagAs) -> Result<Environment> {
        Ok(Environment {
            name: ask.name,
            ..self.inspect_environment(name).await?
        })
    }
    async fn export_environment(&self, name: &str) -> Result<ByteStream> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        Ok(stream::iter([Ok(name)]).boxed())
    }
    async fn import_environment(&self, ask: ImportAs, content: ByteStream) -> Result<Environment> {
        content.for_each(|_| async {}).await;
        self.inspect_environment(&ask.name.unwrap_or_default())
            .await
    }
    async fn send_build_context(&self, content: ByteStream) -> Result<BuildContext> {
        let sizes = content.map(|chunk| chunk.map_or(0, |chunk| chunk.len() as u64));
        let bytes = sizes.fold(0, |sum, size| async move { sum + size }).await;
        Ok(BuildContext {
            context_id: "context".to_string(),
            bytes,
        })
    }
    async fn build_environment(
        &self,
        ask: BuildRequest,
        progress: ProgressSink,
    ) -> Result<Environment> {
        self.pull_environment(&ask.name.unwrap_or_default(), progress)
            .await
    }
    async fn put_template(
        &self,
        _: &str,
        _: TemplateDefinition,
        _: ProgressSink,
    ) -> Result<Template> {
        nothing()
    }
    async fn list_templates(&self, _: motu_core::Page) -> Result<TemplateList> {
        Ok(TemplateList::new(Vec::new()))
    }
    async fn get_template(&self, _: &str) -> Result<Template> {
        nothing()
    }
    async fn build_template(
        &self,
        _: &str,
        _: RebuildTemplate,
        _: ProgressSink,
    ) -> Result<Template> {
        nothing()
    }
    async fn remove_template(&self, _: &str) -> Result<Template> {
        nothing()
    }
    async fn prune_environments(&self, ask: Prune) -> Result<Pruned> {
        let all = ask.all;
        Ok(Pruned {
            freed_bytes: u64::from(all),
            ..Pruned::default()
        })
    }
    async fn create_sandbox(&self, request: CreateSandbox) -> Result<Sandbox> {
        Ok(sandbox(
            &request.sandbox_id.unwrap_or_else(SandboxId::generate),
        ))
    }
    async fn list_sandboxes(&self, _: ListSandboxes) -> Result<SandboxList> {
        Ok(SandboxList::new(vec![sandbox(&SandboxId::parse("sb-a")?)]))
    }
    async fn get_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        made::failing(id)?;
        if id.as_str() == "missing" {
            return Err(Error::not_found("no sandbox missing")
                .hint(hint![verb("list_sandboxes"), " lists them"]));
        }
        Ok(sandbox(id))
    }
    async fn destroy_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.get_sandbox(id).await
    }
    async fn pause_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.get_sandbox(id).await
    }
    async fn resume_sandbox(&self, _: &SandboxId) -> Result<Sandbox> {
        Err(Error::conflict("it is not paused"))
    }
    async fn stop_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        Ok(sandbox(id))
    }

    async fn start_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        Ok(sandbox(id))
    }

    async fn fork_sandbox(
        &self,
        id: &SandboxId,
        ask: motu_core::sandbox::Fork,
    ) -> Result<SandboxList> {
        let count = ask.count;
        Ok(SandboxList::new(vec![sandbox(id); count as usize]))
    }

    async fn keepalive(
        &self,
        id: &SandboxId,
        ask: motu_core::sandbox::Keepalive,
    ) -> Result<Sandbox> {
        let ttl_seconds = ask.ttl_seconds;
        let mut sandbox = sandbox(id);
        sandbox.ttl_seconds = ttl_seconds.unwrap_or(600);
        Ok(sandbox)
    }
    async fn reap_expired(&self) -> Result<Reaped> {
        Ok(Reaped::new(vec![SandboxId::parse("sb-old")?]))
    }
    async fn plan(&self, request: CreateSandbox) -> Result<String> {
        Ok(format!("1. start {}\n", request.environment))
    }
    async fn run(&self, request: RunRequest) -> Result<ExecSession> {
        let made = self.create_sandbox(request.sandbox).await?;
        self.start(
            &request.exec,
            vec![ExecEvent::Sandbox(Box::new(made)), started()],
        )
    }
    async fn exec(&self, _: &SandboxId, request: ExecRequest) -> Result<ExecResult> {
        if request.program.command == ["sleep"] {
            let _guard = OnDrop(self.killed.clone(), false);
            futures_util::future::pending::<()>().await;
        }
        Err(Error::unsupported("collecting is not stubbed"))
    }
    async fn exec_stream(&self, _: &SandboxId, request: ExecRequest) -> Result<ExecSession> {
        self.start(&request, vec![started()])
    }
    async fn exec_background(&self, _: &SandboxId, request: ExecRequest) -> Result<Background> {
        Ok(Background {
            pid: 7,
            tag: request.tag.unwrap_or_default(),
        })
    }
    async fn attach(&self, _: &SandboxId, process: &Selector, ask: Attach) -> Result<ExecSession> {
        let from = ask.begin()?;
        if let Some(head) = made::kept(process, from) {
            return self.start(&Program::argv(["true"]).into(), head);
        }
        let text = format!("{process:?} {from:?}");
        let request = ExecRequest::from(Program {
            command: vec!["echo".to_string(), text],
            ..Program::default()
        });
        self.start(&request, Vec::new())
    }
    async fn list_processes(&self, id: &SandboxId) -> Result<ProcessList> {
        Ok(ProcessList::new(id.clone(), Vec::new()))
    }
    async fn signal_process(
        &self,
        _: &SandboxId,
        process: &Selector,
        ask: SignalProcess,
    ) -> Result<()> {
        let (signal, tree, process) = (ask.signal.number(), ask.tree, process.clone());
        self.signals.lock().unwrap().push((process, signal, tree));
        Ok(())
    }
    async fn write_process(
        &self,
        _: &SandboxId,
        _: &Selector,
        _: ProcessInput,
        _: ByteStream,
    ) -> Result<()> {
        nothing()
    }
    async fn resize_process(&self, _: &SandboxId, _: &Selector, _: TtySize) -> Result<()> {
        nothing()
    }
    async fn stat(&self, _: &SandboxId, ask: StatFile) -> Result<FileEntry> {
        Ok(entry(&ask.path, self.content(&ask.path)?.len() as u64))
    }
    async fn list_files(&self, _: &SandboxId, ask: ListFiles) -> Result<FilePage> {
        let (path, options) = (ask.path.clone(), ask.options());
        Ok(FilePage {
            entries: vec![entry(&path, options.limit.unwrap_or(0))],
            next: options
                .after
                .map(|after| String::from_utf8_lossy(&after).into_owned()),
        })
    }
    async fn read_file(&self, _: &SandboxId, ask: ReadFile) -> Result<(FileEntry, ByteStream)> {
        let (path, range) = (ask.path.clone(), ask.range());
        let content = self.content(&path)?;
        let size = content.len();
        let first = (range.offset as usize).min(size);
        let end = range
            .length
            .map_or(size, |length| (first + length as usize).min(size));
        let part = Bytes::from(content[first..end].to_vec());
        Ok((entry(&path, size as u64), stream::iter([Ok(part)]).boxed()))
    }
    async fn write_file(
        &self,
        _: &SandboxId,
        ask: WriteFile,
        mut content: ByteStream,
    ) -> Result<FileEntry> {
        let (path, options) = ask.into_parts();
        let mut whole = Vec::new();
        while let Some(chunk) = content.next().await {
            whole.extend_from_slice(&chunk?);
        }
        let mut entry = entry(&path, whole.len() as u64);
        entry.mode = options.mode.unwrap_or(0o644);
        self.files
            .lock()
            .unwrap()
            .insert(path.as_bytes().to_vec(), whole);
        Ok(entry)
    }
    async fn mkdir(&self, _: &SandboxId, ask: MakeDirectory) -> Result<FileEntry> {
        let (path, mode) = (ask.path, ask.mode);
        let mut entry = entry(&path, 0);
        entry.mode = mode.unwrap_or(0o755);
        Ok(entry)
    }
    async fn remove_file(&self, _: &SandboxId, ask: RemoveFile) -> Result<()> {
        let path = ask.path;
        let removed = self.files.lock().unwrap().remove(path.as_bytes().as_ref());
        removed
            .map(drop)
            .ok_or_else(|| Error::not_found("no such file"))
    }
    async fn move_file(&self, _: &SandboxId, ask: MoveFile) -> Result<FileEntry> {
        let to = ask.to;
        Ok(entry(&to, 0))
    }
    async fn chmod(&self, _: &SandboxId, ask: ChangeMode) -> Result<FileEntry> {
        let (path, mode) = (ask.path, ask.mode);
        let mut entry = entry(&path, 0);
        entry.mode = mode;
        Ok(entry)
    }
    async fn glob(&self, _: &SandboxId, ask: FindFiles) -> Result<FilePage> {
        let pattern = ask.pattern;
        let path = GuestPath::new(pattern.as_bytes().to_vec())?;
        Ok(FilePage {
            entries: vec![entry(&path, 0)],
            next: None,
        })
    }
    async fn hash(&self, _: &SandboxId, ask: AtPath) -> Result<FileHash> {
        let path = ask.path;
        let size = self.content(&path)?.len() as u64;
        Ok(FileHash {
            sha256: "00".to_string(),
            size_bytes: size,
        })
    }
    async fn watch(
        &self,
        _: &SandboxId,
        ask: WatchFiles,
    ) -> Result<BoxStream<'static, Result<FileChange>>> {
        let path = ask.path;
        let path = String::from_utf8_lossy(path.as_bytes()).into_owned();
        let change = FileChange {
            kind: ChangeKind::Created,
            path,
            from: None,
        };
        Ok(stream::iter([Ok(change), Err(Error::not_found("the directory is gone"))]).boxed())
    }
    async fn read_tree(&self, _: &SandboxId, ask: AtPath) -> Result<ByteStream> {
        let path = ask.path;
        if path.as_bytes() == "/gone" {
            return Ok(stream::iter([Err(Error::not_found("no such tree"))]).boxed());
        }
        let later = async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            Err(Error::transport("broke"))
        };
        let first = stream::iter([Ok(Bytes::from_static(b"tar"))]);
        Ok(first.chain(stream::once(later)).boxed())
    }
    async fn write_tree(
        &self,
        _: &SandboxId,
        _: AtPath,
        archive: ByteStream,
    ) -> Result<TreeWritten> {
        let sizes = archive.map(|chunk| chunk.map_or(0, |chunk| chunk.len() as u64));
        let bytes = sizes.fold(0, |sum, size| async move { sum + size }).await;
        Ok(TreeWritten { entries: 1, bytes })
    }
    async fn list_ports(&self, id: &SandboxId) -> Result<PortList> {
        Ok(PortList::new(id.clone(), Vec::new()))
    }
    async fn dial(&self, _: &SandboxId, port: &u16) -> Result<Connection> {
        if *port == 1 {
            return Err(Error::unavailable("nothing listens on port 1"));
        }
        let (ours, theirs) = tokio::io::duplex(64);
        let (mut read, mut write) = tokio::io::split(theirs);
        tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await }.map(drop));
        let (read, write) = tokio::io::split(ours);
        Ok(Connection::new(read, write))
    }
    async fn dial_unix(&self, id: &SandboxId, _: AtPath) -> Result<Connection> {
        self.dial(id, &2).await
    }
    async fn lend_directory(&self, _: &SandboxId, _: LendDirectory) -> Result<Connection> {
        Err(Error::unsupported("not stubbed"))
    }
    async fn lend_file(&self, _: &SandboxId, _: LendFile) -> Result<Connection> {
        Err(Error::unsupported("not stubbed"))
    }
    async fn commit_sandbox(&self, id: &SandboxId, _: CommitSandbox) -> Result<Environment> {
        Err(Error::not_found(id.to_string()))
    }
    async fn save_template(&self, id: &SandboxId, _: SaveTemplate) -> Result<Template> {
        Err(Error::not_found(id.to_string()))
    }
    async fn metrics_history(&self, id: &SandboxId, _: ReadMetrics) -> Result<MetricsHistory> {
        Err(Error::not_found(id.to_string()))
    }
    async fn flush_metrics(&self, id: &SandboxId) -> Result<MetricsFlushed> {
        Err(Error::not_found(id.to_string()))
    }
    async fn metrics(&self, _: &SandboxId) -> Result<Metrics> {
        Err(Error::unsupported("not stubbed"))
    }
}
