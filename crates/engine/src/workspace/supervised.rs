//! One service: its status, its start, the end of its output.

use super::publish::{self, Ports};
use super::ring::{self, Enough};
use crate::admission::{Follow, command};
use crate::guest::Guest;
use crate::owned::{Keeper, Owned};
use crate::store::{ServiceRow, Store};
use jiff::Timestamp;
use motu_core::config::Config;
use motu_core::exec::{AttachFrom, ExecRequest};
use motu_core::hint;
use motu_core::hint::{Verb, verb};
use motu_core::workspace::*;
use motu_core::{Error, ErrorKind, Program, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long a service may take to end after SIGTERM.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(5);
/// Lines of output in the error of a service that did not start.
const LAST_LINES: usize = 10;
/// Longest such line.
const LAST_LINE_CHARS: usize = 200;
/// Output per channel that is kept after the process has ended.
pub(super) const LAST_WORDS: usize = 64 * 1024;

/// The verb that shows all output of a service.
pub(super) fn logs(id: &WorkspaceId, name: &str) -> Verb {
    verb("logs_service")
        .with("id", id.as_str())
        .with("name", name)
}

/// How a service that is asked to end is to be shown afterwards.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub state: ServiceState,
    pub reason: String,
}

/// The store of services.
#[derive(Debug)]
pub(super) struct Services(Store);

impl Keeper<ServiceRow> for Services {
    type Along = ();

    async fn keep(&self, row: &ServiceRow, (): ()) -> Result<()> {
        // Nothing is stored where the workspace is gone: there is nobody to tell.
        self.0.put_service(row).await.map(drop)
    }
}

/// A service and the channel to its supervising task.
#[derive(Debug)]
pub struct Supervised {
    pub(super) row: Arc<Owned<ServiceRow, Services>>,
    /// Set when the service is to be ended.
    pub(super) ending: watch::Sender<Option<Ending>>,
    ended: Notify,
    pub(super) logged: watch::Sender<bool>,
    pub(super) ports: Arc<Ports>,
}

impl Supervised {
    pub(super) fn new(row: ServiceRow, store: Store) -> Supervised {
        Supervised {
            row: Owned::new(row, Services(store)),
            ending: watch::Sender::new(None),
            ended: Notify::new(),
            logged: watch::Sender::new(false),
            ports: Arc::default(),
        }
    }

    /// What is known of it. Ports that it should have and that are somebody else's are not shown as
    /// its own.
    pub fn status(&self) -> ServiceStatus {
        let mut status = self.row.row().status.clone();
        let missing = self.ports.missing();
        if !status.state.is_alive() || missing.is_empty() {
            return status;
        }
        status
            .published_ports
            .retain(|port| !missing.contains(&port.host_port));
        let taken = missing.iter().map(|port| publish::taken_meanwhile(*port));
        let reasons = status.reason.take().into_iter().chain(taken);
        status.reason = Some(reasons.collect::<Vec<_>>().join("; "));
        status
    }

    pub(super) fn row(&self) -> Arc<ServiceRow> {
        self.row.row()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.row().status.state.is_alive()
    }

    /// Whether what is known of it is stored, and nobody is changing it.
    pub(super) fn is_saved(&self) -> bool {
        self.row.is_saved()
    }

    /// Writes down what has happened to the service.
    pub(super) async fn learn(&self, fact: impl FnOnce(&mut ServiceRow)) {
        if let Err(error) = self.row.learn(fact).await {
            let service = self.row().status.service_name.clone();
            tracing::warn!(service, %error, "could not store the state of a service");
        }
    }

    pub(super) async fn close(
        &self,
        state: ServiceState,
        reason: Option<String>,
        exit_code: Option<i32>,
    ) {
        // Ports close with the service: whoever is told that it has ended can bind them.
        self.ports.close().await;
        self.learn(|row| {
            row.status.state = state;
            row.status.reason = reason;
            row.status.exit_code = exit_code;
            row.status.pid = None;
            row.status.ended_at = Some(Timestamp::now());
        })
        .await;
        self.ended.notify_waiters();
    }

    /// Waits until the service has ended.
    pub(super) async fn gone(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if self.is_alive() {
            ended.await;
        }
    }

    /// Asks for the end of the service, as one that was stopped for a reason.
    pub(super) fn ask_to_end(&self, state: ServiceState, reason: &str) {
        let reason = reason.to_string();
        self.ending.send_replace(Some(Ending { state, reason }));
    }

    /// Ends the service and waits for it.
    pub(super) async fn end(&self, state: ServiceState, reason: &str) -> Result<()> {
        self.ask_to_end(state, reason);
        let patience = STOP_GRACE * 3;
        tokio::time::timeout(patience, self.gone())
            .await
            .map_err(|_| {
                let row = self.row();
                let (id, name) = (&row.status.workspace_id, &row.status.service_name);
                let seconds = patience.as_secs();
                Error::new(
                    ErrorKind::Timeout,
                    format!(
                        "service {name:?} has not ended in {seconds} s; it is still being ended"
                    ),
                )
                .hint(hint![
                    verb("stop_workspace").with("id", id.as_str()),
                    " ends everything in it"
                ])
            })
    }

    /// The error of a service that did not start: how it ended, and its last output.
    pub(super) fn failed_to_start(&self, kind: ErrorKind, what: &str) -> Error {
        let row = self.row();
        let name = &row.status.service_name;
        let reason = row.status.reason.as_deref().unwrap_or_default();
        let said = match row.stderr.trim().is_empty() {
            true => &row.stdout,
            false => &row.stderr,
        };
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let from = lines.len().saturating_sub(LAST_LINES);
        let cut = |line: &&str| line.chars().take(LAST_LINE_CHARS).collect::<String>();
        let lines: Vec<String> = lines[from..].iter().map(cut).collect();
        let mut message = format!("service {name:?} {what}: {reason}");
        match lines.is_empty() {
            true => message.push_str("; it said nothing"),
            false => message.push_str(&format!("; its last lines:\n  {}", lines.join("\n  "))),
        }
        Error::new(kind, message)
            .hint(hint![
                logs(&row.status.workspace_id, name),
                " shows all it said"
            ])
            .details(serde_json::json!({
                "exit_code": row.status.exit_code, "last_lines": lines,
            }))
    }
}

/// The guest's `Start` for a service's command.
pub(super) fn start_of(
    config: &Config,
    row: &ServiceRow,
    secrets: BTreeMap<String, String>,
) -> Result<motu_link::message::Start> {
    let mut env = row.env.clone();
    env.extend(secrets);
    let request = ExecRequest {
        program: Program {
            command: row.status.command.clone(),
            mode: row.mode,
            workdir: Some(row.status.cwd.clone()),
            user: row.user.clone(),
            env,
            ..Program::default()
        },
        tag: Some(row.tag.clone()),
        no_timeout: true,
        ..ExecRequest::default()
    };
    command(config, request, Follow::Background)
}

/// The end of a process's output, and whether there was more.
pub(super) async fn last_words(
    guest: &Guest,
    tag: &str,
    most: usize,
) -> Result<(String, String, bool)> {
    let enough = Enough {
        max_bytes: usize::MAX,
        idle: None,
        patience: Duration::from_secs(10),
    };
    let output = ring::read(guest, tag, AttachFrom::Oldest, enough).await?;
    let cut = |bytes: &[u8]| {
        let from = bytes.len().saturating_sub(most);
        (
            String::from_utf8_lossy(&bytes[from..]).into_owned(),
            from > 0,
        )
    };
    let (stdout, cut_out) = cut(&output.stdout.bytes);
    let (stderr, cut_err) = cut(&output.stderr.bytes);
    let lost = output.stdout.lost || output.stderr.lost || cut_out || cut_err;
    Ok((stdout, stderr, lost))
}
