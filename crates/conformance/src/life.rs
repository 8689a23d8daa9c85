//! One life of a daemon, with short forms of the verbs for readable checks.

use crate::subject::Subject;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::StreamExt as _;
use motu_core::exec::{
    ExecEvent, ExecInput, ExecMode, ExecRequest, ExecResult, ExecSession, Exited, Process, Started,
};
use motu_core::files::{
    ByteStream, FileEntry, GuestPath, ReadFile, ReadRange, StatFile, WriteFile, WriteOptions,
};
use motu_core::runtime::Lacks;
use motu_core::sandbox::{CreateSandbox, Sandbox};
use motu_core::{Error, ErrorKind, Program, Result, Runtime, SandboxId, Service as _};
use motu_gate::Desk;
use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The time limit of anything that should happen, on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// The machine that checks of one test take turns on; `None` before the first and after a failure.
pub(crate) type Shared = Arc<Mutex<Option<Sandbox>>>;

/// A running engine and the subject it runs.
#[derive(Clone, Debug)]
pub struct Life {
    /// All verbs, through the gate like any face.
    pub engine: Desk,
    pub subject: Arc<Subject>,
    /// The runtime the engine uses.
    pub runtime: Arc<dyn Runtime>,
    home: PathBuf,
    /// The machine that every `create` gives, if checks share one.
    shared: Option<Shared>,
}

/// All events of a session.
#[derive(Debug, Default)]
pub struct Heard {
    pub started: Option<Started>,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub exited: Option<Exited>,
}

impl Life {
    pub(crate) fn new(
        engine: Desk,
        subject: Arc<Subject>,
        runtime: Arc<dyn Runtime>,
        home: PathBuf,
    ) -> Life {
        Life {
            engine,
            subject,
            runtime,
            home,
            shared: None,
        }
    }

    /// The same life, in which every `create` gives the same machine.
    pub(crate) fn sharing(&self, shared: &Shared) -> Life {
        Life {
            shared: Some(shared.clone()),
            ..self.clone()
        }
    }

    /// The state directory.
    pub fn home(&self) -> &std::path::Path {
        &self.home
    }

    pub fn request(&self) -> CreateSandbox {
        self.subject.request.clone()
    }

    /// What this runtime's machines cannot do. A remote service is asked first.
    pub async fn lacks(&self) -> Lacks {
        if self.runtime.elsewhere() {
            self.runtime.check().await;
        }
        self.runtime.lacks()
    }

    pub async fn create(&self) -> Sandbox {
        let Some(shared) = &self.shared else {
            return self.create_new().await;
        };
        let mut machine = shared.lock().await;
        if machine.is_none() {
            *machine = Some(self.create_new().await);
        }
        machine.clone().expect("it was just made")
    }

    async fn create_new(&self) -> Sandbox {
        self.engine
            .create_sandbox(self.request())
            .await
            .expect("a sandbox is created")
    }

    pub async fn get(&self, id: &SandboxId) -> Sandbox {
        self.engine
            .get_sandbox(id)
            .await
            .expect("a sandbox is found")
    }

    /// Directory of a sandbox's machine.
    pub fn machine_dir(&self, id: &SandboxId) -> PathBuf {
        self.home
            .join("machines")
            .join(self.subject.name)
            .join(id.as_str())
    }

    /// The kept directory of a sandbox.
    pub fn kept_dir(&self, id: &SandboxId) -> PathBuf {
        self.home.join("kept").join(id.as_str())
    }

    /// Ends a machine without the engine.
    pub fn end_machine(&self, id: &SandboxId) {
        (self.subject.end_machine)(id, &self.machine_dir(id));
    }

    pub async fn exec(&self, sandbox: &Sandbox, request: ExecRequest) -> ExecResult {
        self.engine
            .exec(&sandbox.sandbox_id, request)
            .await
            .expect("a command runs")
    }

    pub async fn stream(&self, sandbox: &Sandbox, request: ExecRequest) -> ExecSession {
        self.engine
            .exec_stream(&sandbox.sandbox_id, request)
            .await
            .expect("a command starts")
    }

    pub async fn process(&self, sandbox: &Sandbox, pid: u32) -> Option<Process> {
        let list = self.engine.list_processes(&sandbox.sandbox_id).await;
        list.expect("processes are listed")
            .into_iter()
            .find(|process| process.pid == pid)
    }

    pub async fn write(&self, sandbox: &Sandbox, name: &str, content: &[u8]) -> FileEntry {
        self.write_with(sandbox, name, content, WriteOptions::default())
            .await
            .expect("a file is written")
    }

    pub async fn write_with(
        &self,
        sandbox: &Sandbox,
        name: &str,
        content: &[u8],
        options: WriteOptions,
    ) -> Result<FileEntry> {
        let content = bytes(content);
        self.engine
            .write_file(
                &sandbox.sandbox_id,
                WriteFile::new(path(sandbox, name), options),
                content,
            )
            .await
    }

    pub async fn read(&self, sandbox: &Sandbox, name: &str) -> Result<Vec<u8>> {
        self.read_range(sandbox, name, ReadRange::default()).await
    }

    pub async fn read_range(
        &self,
        sandbox: &Sandbox,
        name: &str,
        range: ReadRange,
    ) -> Result<Vec<u8>> {
        let path = path(sandbox, name);
        let (_, content) = self
            .engine
            .read_file(&sandbox.sandbox_id, ReadFile::new(path, range))
            .await?;
        collect(content).await
    }

    pub async fn exists(&self, sandbox: &Sandbox, name: &str) -> bool {
        let path = path(sandbox, name);
        match self
            .engine
            .stat(
                &sandbox.sandbox_id,
                StatFile {
                    path,
                    follow: false,
                    user: None,
                },
            )
            .await
        {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
                false
            }
        }
    }
}

/// Collects a stream.
pub async fn collect(mut content: ByteStream) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(piece) = content.next().await {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole)
}

/// Content as a stream of more than one piece.
pub fn bytes(content: &[u8]) -> ByteStream {
    let pieces: Vec<Result<Bytes>> = content
        .chunks(100_000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    futures_util::stream::iter(pieces).boxed()
}

/// Content without a short period; text if binary is not supported.
pub fn long(bytes: u32, text: bool) -> Vec<u8> {
    let letter = |at: u32| match text {
        true => b'a' + (at / 251 % 26) as u8,
        false => (at / 251) as u8,
    };
    (0..bytes).map(letter).collect()
}

/// The absolute path of a name in the working directory.
pub fn path(sandbox: &Sandbox, name: &str) -> GuestPath {
    GuestPath::new(place(sandbox, name)).expect("the path is absolute")
}

/// A path of the sandbox as text.
pub fn place(sandbox: &Sandbox, name: &str) -> String {
    format!("{}/{name}", sandbox.workdir.trim_end_matches('/'))
}

/// A program and its literal arguments.
pub fn argv(words: &[&str]) -> ExecRequest {
    ExecRequest::from(Program::argv(words.iter().copied()))
}

/// A script.
pub fn shell(script: &str) -> ExecRequest {
    ExecRequest::from(Program {
        mode: ExecMode::Shell,
        ..argv(&[script]).program
    })
}

/// The exact bytes of a result's standard output.
pub fn stdout(result: &ExecResult) -> Vec<u8> {
    match &result.stdout_base64 {
        Some(text) => BASE64.decode(text).expect("base64"),
        None => result.stdout.clone().into_bytes(),
    }
}

/// Everything a session says.
pub async fn hear(mut session: ExecSession) -> Heard {
    let mut heard = Heard::default();
    while let Some(event) = next(&mut session).await {
        match event {
            ExecEvent::Started(started) => heard.started = Some(started),
            ExecEvent::Stdout(bytes) => heard.out.extend_from_slice(&bytes),
            ExecEvent::Stderr(bytes) => heard.err.extend_from_slice(&bytes),
            ExecEvent::Exited(exited) => heard.exited = Some(exited),
            ExecEvent::Gap(gap) => panic!("output was lost: {gap:?}"),
            ExecEvent::Sandbox(_) => {}
        }
    }
    heard
}

/// The next event of a session, or `None` at its end.
pub async fn next(session: &mut ExecSession) -> Option<ExecEvent> {
    let event = soon("the next event", session.events.next()).await;
    event.transpose().expect("the session is not torn")
}

/// Reads standard output until it ends in `text`.
pub async fn hear_until(session: &mut ExecSession, text: &str) {
    let mut out = Vec::new();
    while !out.ends_with(text.as_bytes()) {
        match next(session).await {
            Some(ExecEvent::Stdout(bytes)) => out.extend_from_slice(&bytes),
            Some(ExecEvent::Started(_)) => {}
            other => panic!("{other:?} came after {out:?}, before {text:?}"),
        }
    }
}

pub async fn say(session: &ExecSession, input: ExecInput) {
    session.input.send(input).await.expect("input is taken");
}

/// Awaits something with a time limit.
pub async fn soon<T>(what: &str, answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, answer)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come within {SOON:?}"))
}

/// Polls until a condition holds.
pub async fn eventually<Fut: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> Fut) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    soon(what, looking).await;
}

/// The error of a call that must be refused with this kind.
pub fn refused<T: Debug>(kind: ErrorKind, result: Result<T>) -> Error {
    let error = result.expect_err("this is refused");
    assert_eq!(error.kind, kind, "{error:?}");
    assert!(!error.message.is_empty());
    error
}
