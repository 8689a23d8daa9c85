//! The task that supervises one service: notices its end, and restarts it if the policy says so.

use super::room::Room;
use super::supervised::{Ending, LAST_WORDS, STOP_GRACE, Supervised, last_words, start_of};
use crate::driver::Handle;
use futures_util::StreamExt;
use jiff::Timestamp;
use motu_core::config::Config;
use motu_core::exec::{AttachFrom, ExecEvent, Exited, Selector};
use motu_core::sandbox::State;
use motu_core::workspace::{Restart, ServiceState};
use motu_core::{Error, ErrorKind, Result, id};
use regex::bytes::Regex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pauses before a restart.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After running for this long, a service's restart pause is reset.
const RECOVERED: Duration = Duration::from_secs(30);
/// A line longer than this is matched in pieces.
const LINE: usize = 16 * 1024;

/// The supervising task of one service.
pub(super) struct Watcher {
    pub(super) service: Arc<Supervised>,
    pub(super) room: Arc<Room>,
    pub(super) handle: Arc<Handle>,
    pub(super) config: Config,
    pub(super) pattern: Option<Regex>,
}

impl Watcher {
    pub(super) async fn run(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = tokio::time::Instant::now();
            let ended = self.follow().await;
            let asked = self.service.ending.borrow().clone();
            if let Some(ending) = asked {
                let code = ended.as_ref().ok().map(|exited| exited.exit_code);
                let reason = Some(ending.reason);
                return self.service.close(ending.state, reason, code).await;
            }
            let exited = match ended {
                Ok(exited) if !again(self.service.row().status.restart, &exited) => {
                    let state = match exited.exit_code {
                        0 => ServiceState::Exited,
                        _ => ServiceState::Failed,
                    };
                    let reason = Some(how(&exited));
                    let code = Some(exited.exit_code);
                    return self.service.close(state, reason, code).await;
                }
                Ok(exited) => Some(exited),
                // The daemon ended between storing that it is started again and starting it.
                Err(error) if error.kind == ErrorKind::NotFound && self.was_restarting() => None,
                Err(error) => {
                    let reason = Some(self.handle.explain_soon(error).await.message);
                    return self
                        .service
                        .close(ServiceState::Stopped, reason, None)
                        .await;
                }
            };
            if began.elapsed() > RECOVERED {
                pause = FIRST_PAUSE;
            }
            if let Err(error) = self.start_again(exited.as_ref(), pause).await {
                let reason = Some(format!("it could not be started again: {}", error.message));
                return self.service.close(ServiceState::Failed, reason, None).await;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether the next thing to do was to start it again.
    fn was_restarting(&self) -> bool {
        let row = self.service.row();
        row.status.state == ServiceState::Starting && row.status.restart_count > 0
    }

    /// Waits while the machine is paused: what is in it has not ended. A daemon that comes back may
    /// find it so.
    async fn awake(&self) {
        let mut machine = self.handle.watch();
        let _ = machine
            .wait_for(|sandbox| sandbox.state != State::Paused)
            .await;
    }

    /// Follows the process to its end, and ends it when asked to.
    async fn follow(&self) -> Result<Exited> {
        self.awake().await;
        let guest = self.handle.look()?;
        let tag = self.service.row().tag.clone();
        let selector = Selector::Tag(tag.clone());
        let mut session = guest.attach(selector.clone(), AttachFrom::Oldest).await?;
        let mut ending = self.service.ending.subscribe();
        let mut matcher = Matcher::new(self.pattern.clone());
        let mut killed = tokio::time::Instant::now() + Duration::from_secs(86_400 * 365);
        let mut asked = false;
        let exited = loop {
            tokio::select! {
                event = session.events.next() => match event {
                    Some(Ok(ExecEvent::Exited(exited))) => break exited,
                    Some(Ok(ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes))) => {
                        if matcher.sees(&bytes) {
                            self.service.logged.send_replace(true);
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                    None => return Err(Error::transport("the service's output ended")),
                },
                wanted = asked_for(&mut ending), if !asked => {
                    asked = true;
                    if wanted {
                        guest.signal(selector.clone(), libc::SIGTERM, true).await?;
                        killed = tokio::time::Instant::now() + STOP_GRACE;
                    }
                }
                () = tokio::time::sleep_until(killed), if asked => {
                    guest.signal(selector.clone(), libc::SIGKILL, true).await?;
                    killed = tokio::time::Instant::now() + STOP_GRACE;
                }
            }
        };
        // Save the last output now: the machine may end next.
        if let Ok((stdout, stderr, cut)) = last_words(&guest, &tag, LAST_WORDS).await {
            let (stdout, stderr) = (
                self.room.secrets.redact(&stdout),
                self.room.secrets.redact(&stderr),
            );
            self.service
                .learn(|row| (row.stdout, row.stderr, row.cut) = (stdout, stderr, cut))
                .await;
        }
        Ok(exited)
    }

    async fn start_again(&self, exited: Option<&Exited>, pause: Duration) -> Result<()> {
        if let Some(exited) = exited {
            let reason = how(exited);
            self.service
                .learn(|row| {
                    row.status.state = ServiceState::Starting;
                    row.status.reason = Some(format!("{reason}; it is started again"));
                    row.status.exit_code = Some(exited.exit_code);
                    row.status.pid = None;
                })
                .await;
        }
        let mut ending = self.service.ending.subscribe();
        if tokio::time::timeout(pause, asked_for(&mut ending)).await == Ok(true) {
            return Ok(());
        }
        self.awake().await;
        // Stored before it runs: a daemon that comes back knows the process by its tag, and does not
        // start it a second time.
        let tag = format!("service-{}", id::random_name(12));
        self.service
            .learn(|row| {
                row.tag = tag;
                row.status.restart_count += 1;
                row.status.started_at = Timestamp::now();
            })
            .await;
        let row = self.service.row();
        let secrets = self.room.secrets.environment(&row.secret_env)?;
        let start = start_of(&self.config, &row, secrets)?;
        let started = self.handle.guest()?.start_background(start).await?;
        self.service
            .learn(|row| {
                // One that was never ready is still waited for.
                if row.status.readiness.is_none() || row.status.ready_at.is_some() {
                    row.status.state = ServiceState::Running;
                }
                row.status.pid = Some(started.pid);
            })
            .await;
        Ok(())
    }
}

/// Waits for a request to end; false if the sender is gone.
async fn asked_for(ending: &mut watch::Receiver<Option<Ending>>) -> bool {
    ending.wait_for(Option::is_some).await.is_ok()
}

fn again(restart: Restart, exited: &Exited) -> bool {
    match restart {
        Restart::Never => false,
        Restart::OnFailure => exited.exit_code != 0,
        Restart::Always => true,
    }
}

/// How a process ended, in words.
fn how(exited: &Exited) -> String {
    match (exited.signal, exited.out_of_memory) {
        (_, true) => "it ran out of memory".to_string(),
        (Some(signal), _) => format!("it was killed by signal {signal}"),
        (None, _) => format!("it ended with exit code {}", exited.exit_code),
    }
}

/// Matches a pattern line by line.
struct Matcher {
    pattern: Option<Regex>,
    line: Vec<u8>,
}

impl Matcher {
    fn new(pattern: Option<Regex>) -> Matcher {
        Matcher {
            pattern,
            line: Vec::new(),
        }
    }

    /// Whether the pattern matches some line so far.
    fn sees(&mut self, bytes: &[u8]) -> bool {
        let Some(pattern) = &self.pattern else {
            return false;
        };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            let whole = piece.ends_with(b"\n");
            if pattern.is_match(self.line.strip_suffix(b"\n").unwrap_or(&self.line)) {
                self.pattern = None;
                self.line = Vec::new();
                return true;
            }
            if whole || self.line.len() > LINE {
                self.line.clear();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_across_pieces_but_not_across_lines() {
        let mut matcher = Matcher::new(Some(Regex::new("ready on [0-9]+").unwrap()));
        assert!(!matcher.sees(b"starting\nrea"));
        assert!(!matcher.sees(b"dy\non 80\n"));
        assert!(!matcher.sees(b"ready "));
        assert!(matcher.sees(b"on 8080"));
        assert!(!matcher.sees(b"ready on 1\n"));
    }
}
