//! Values that the stub answers with.

use jiff::Timestamp;
use motu_core::exec::{AttachFrom, ExecEvent, Exited, Selector, Started};
use motu_core::files::{FileEntry, FileType, GuestPath};
use motu_core::report::Version;
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, ErrorKind, Isolation, Result, SandboxId};
use std::sync::Arc;
use tokio::sync::Notify;

/// Of verbs that no test of the translation needs: the corridor is the same for all of them.
pub fn nothing<T>() -> Result<T> {
    Err(Error::unsupported("the stub does not do this"))
}

/// Fails for the sandbox `fails-KIND`, with `-` for `_`, in this way.
pub fn failing(id: &SandboxId) -> Result<()> {
    let asked = id.as_str().strip_prefix("fails-").unwrap_or_default();
    let kind = ErrorKind::ALL
        .into_iter()
        .find(|kind| kind.as_str().replace('_', "-") == asked);
    kind.map_or(Ok(()), |kind| {
        Err(Error::new(kind, "as asked").hint("once more"))
    })
}

pub fn version() -> Version {
    Version {
        version: "0".to_string(),
        api_version: "1".to_string(),
        pid: 1,
        home: "/".to_string(),
    }
}

pub fn sandbox(id: &SandboxId) -> Sandbox {
    let now = jiff::Timestamp::from_second(1_700_000_000).unwrap();
    Sandbox {
        sandbox_id: id.clone(),
        owner: "uid:1000".to_string(),
        state: State::Running,
        reason: None,
        environment: "debian:12".to_string(),
        digest: "sha256:00".to_string(),
        template: None,
        runtime: "stub".to_string(),
        isolation: Isolation::None,
        accelerator: None,
        keep: false,
        network: "off".to_string(),
        policy: None,
        vcpu_count: 1,
        mem_mib: 1024,
        limits: Vec::new(),
        user: "root".to_string(),
        workdir: "/".to_string(),
        created_at: now,
        last_activity_at: now,
        expires_at: Some(now),
        ttl_seconds: 600,
        idle_seconds: 0,
        on_idle: Default::default(),
        paused: None,
    }
}

pub fn entry(path: &GuestPath, size: u64) -> FileEntry {
    let text = String::from_utf8_lossy(path.as_bytes()).into_owned();
    FileEntry {
        name: text.rsplit('/').next().unwrap_or_default().to_string(),
        path: text,
        path_base64: None,
        kind: FileType::File,
        size_bytes: size,
        mode: 0o644,
        permissions: "-rw-r--r--".to_string(),
        owner: "root".to_string(),
        group: "root".to_string(),
        uid: 0,
        gid: 0,
        modified_at: Timestamp::UNIX_EPOCH,
        link_target: None,
        revision: 0,
    }
}

pub fn exited(exit_code: i32) -> ExecEvent {
    ExecEvent::Exited(Exited {
        exit_code,
        ..Exited::default()
    })
}

pub fn started() -> ExecEvent {
    ExecEvent::Started(Started {
        pid: 42,
        tag: String::new(),
        stdout_from: 0,
        stderr_from: 0,
    })
}

/// The output of the process `kept`, of which the first four bytes are gone.
pub fn kept(process: &Selector, from: AttachFrom) -> Option<Vec<ExecEvent>> {
    let (all, oldest) = ("0123456789", 4);
    let first = match from {
        AttachFrom::Offsets { stdout, .. } => (stdout as usize).min(all.len()),
        _ => oldest,
    };
    let begun = ExecEvent::Started(Started {
        pid: 7,
        tag: "kept".to_string(),
        stdout_from: first as u64,
        stderr_from: 0,
    });
    let text = all.get(first..)?;
    let found = *process == Selector::Tag("kept".to_string());
    found.then(|| vec![begun, ExecEvent::Stdout(text.into())])
}

/// Tells when a session goes away before its command has ended.
pub struct OnDrop(pub Arc<Notify>, pub bool);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if !self.1 {
            self.0.notify_one();
        }
    }
}
