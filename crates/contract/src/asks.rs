//! Calls to the sandbox under test.

use bytes::Bytes;
use futures_util::StreamExt as _;
use motu_core::exec::{ExecMode, ExecRequest, ExecResult};
use motu_core::files::{GuestPath, ReadFile, ReadRange, StatFile, WriteFile, WriteOptions};
use motu_core::sandbox::Sandbox;
use motu_core::{ErrorKind, Program, SandboxId, Service};

/// The service and the sandbox under test.
pub(crate) struct Asks<'a> {
    pub(crate) service: &'a dyn Service,
    pub(crate) sandbox: Sandbox,
}

impl<'a> Asks<'a> {
    pub(crate) fn new(service: &'a dyn Service, sandbox: Sandbox) -> Asks<'a> {
        Asks { service, sandbox }
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.sandbox.sandbox_id
    }

    /// A path below the working directory of commands.
    pub(crate) fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.sandbox.workdir.trim_end_matches('/'))
    }

    pub(crate) fn path(&self, name: &str) -> Result<GuestPath, String> {
        GuestPath::new(self.place(name)).map_err(|error| error.to_string())
    }

    pub(crate) async fn exec(&self, request: ExecRequest) -> Result<ExecResult, String> {
        let done = self.service.exec(self.id(), request).await;
        done.map_err(|error| error.to_string())
    }

    pub(crate) async fn write(&self, name: &str, content: &[u8]) -> Result<(), String> {
        let write = WriteFile::new(self.path(name)?, WriteOptions::default());
        let content = Bytes::copy_from_slice(content);
        let content = futures_util::stream::iter([Ok(content)]).boxed();
        let written = self.service.write_file(self.id(), write, content).await;
        written.map(drop).map_err(|error| error.to_string())
    }

    pub(crate) async fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let read = ReadFile::new(self.path(name)?, ReadRange::default());
        let (_, mut content) = self
            .service
            .read_file(self.id(), read)
            .await
            .map_err(|error| error.to_string())?;
        let mut whole = Vec::new();
        while let Some(piece) = content.next().await {
            whole.extend_from_slice(&piece.map_err(|error| error.to_string())?);
        }
        Ok(whole)
    }

    /// Whether a file exists; an error if that cannot be determined.
    pub(crate) async fn exists(&self, name: &str) -> Result<bool, String> {
        let stat = StatFile {
            path: self.path(name)?,
            follow: false,
            user: None,
        };
        match self.service.stat(self.id(), stat).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A shell script and its arguments.
pub(crate) fn shell(words: &[&str]) -> ExecRequest {
    ExecRequest::from(Program {
        mode: ExecMode::Shell,
        ..argv(words).program
    })
}

/// A program and its literal arguments.
pub(crate) fn argv(words: &[&str]) -> ExecRequest {
    ExecRequest::from(Program::argv(words.iter().copied()))
}
