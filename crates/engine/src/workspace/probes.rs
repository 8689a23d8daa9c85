//! Readiness probes of services.

use crate::admission::{Follow, command};
use crate::guest::Guest;
use futures_util::StreamExt;
use motu_core::config::Config;
use motu_core::exec::{ExecEvent, ExecRequest};
use motu_core::files::GuestPath;
use motu_core::workspace::Readiness;
use motu_core::{Error, ErrorKind, Program, Result};
use motu_link::message as link;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

/// The first pause between attempts, for probes without events.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause between attempts of cheap probes.
const CHEAP_PAUSE: Duration = Duration::from_millis(20);
/// How long one attempt may take.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Bytes of an HTTP response that are read.
const STATUS_BYTES: usize = 64;

/// The context of a probe.
pub struct Scene<'a> {
    pub guest: &'a Guest,
    pub config: &'a Config,
    pub workdir: &'a str,
    /// The longest pause between attempts.
    pub interval: Duration,
    /// Turns true when the log has matched.
    pub logged: watch::Receiver<bool>,
}

/// Checks a probe before anything is started for it.
pub fn check(readiness: &Readiness) -> Result<()> {
    match readiness {
        Readiness::File { path } => file(path, "/").map(drop),
        Readiness::Tcp { port } | Readiness::Http { port, .. } if *port == 0 => {
            Err(Error::invalid("port 0 is not a port"))
        }
        Readiness::Http {
            path: Some(path), ..
        } if !path.starts_with('/') || path.contains(|c: char| c.is_control() || c == ' ') => Err(
            Error::invalid("the path of an HTTP probe begins with / and has no spaces"),
        ),
        Readiness::Command { command } if command.trim().is_empty() => {
            Err(Error::invalid("the command of a probe is empty"))
        }
        Readiness::Log { pattern } => pattern_of(pattern).map(drop),
        _ => Ok(()),
    }
}

pub fn pattern_of(pattern: &str) -> Result<regex::bytes::Regex> {
    regex::bytes::RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| Error::invalid(format!("the pattern of a probe: {error}")))
}

/// Waits until the probe succeeds. The caller bounds the time.
pub async fn wait(readiness: &Readiness, mut scene: Scene<'_>) -> Result<()> {
    match readiness {
        Readiness::File { path } => file_exists(path, &scene).await,
        Readiness::Tcp { port } => {
            retry(CHEAP_PAUSE.min(scene.interval), || {
                accepts(scene.guest, *port)
            })
            .await
        }
        Readiness::Http { port, path } => {
            let path = path.as_deref().unwrap_or("/");
            retry(CHEAP_PAUSE.min(scene.interval), || {
                answers(scene.guest, *port, path)
            })
            .await
        }
        Readiness::Command { command } => retry(scene.interval, || succeeds(&scene, command)).await,
        Readiness::Log { .. } => {
            let seen = scene.logged.wait_for(|seen| *seen).await;
            seen.map(drop)
                .map_err(|_| Error::unavailable("the service ended before its log said so"))
        }
    }
}

/// Retries until success, with pauses growing up to `most`. Only an unreachable machine is an
/// error.
async fn retry<F, T>(most: Duration, mut once: F) -> Result<()>
where
    F: FnMut() -> T,
    T: Future<Output = Result<bool>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        if tokio::time::timeout(ANSWER_TIME, once())
            .await
            .unwrap_or(Ok(false))?
        {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(most);
    }
}

fn file(path: &str, workdir: &str) -> Result<GuestPath> {
    let whole = match path.starts_with('/') {
        true => path.to_string(),
        false => format!("{}/{path}", workdir.trim_end_matches('/')),
    };
    GuestPath::new(whole.into_bytes())
}

/// Watches the parent directory, so that the creation of the file is an event.
async fn file_exists(path: &str, scene: &Scene<'_>) -> Result<()> {
    let place = file(path, scene.workdir)?;
    let parent = match place.as_bytes().iter().rposition(|byte| *byte == b'/') {
        Some(0) | None => GuestPath::new("/")?,
        Some(at) => GuestPath::new(place.as_bytes().slice(..at))?,
    };
    loop {
        // Watch before the check, so that no creation between the two is missed.
        let changes = scene.guest.watch(&parent, false).await;
        if exists(scene.guest, &place).await? {
            return Ok(());
        }
        match changes {
            Ok(mut changes) => {
                let _ = tokio::time::timeout(scene.interval, changes.next()).await;
            }
            // The directory itself does not exist yet.
            Err(error) if unreachable(&error) => return Err(error),
            Err(_) => tokio::time::sleep(CHEAP_PAUSE.min(scene.interval)).await,
        }
    }
}

/// Whether the error is about the guest itself, not about what it was asked for.
fn unreachable(error: &motu_core::Error) -> bool {
    use ErrorKind::{Timeout, Transport, Unavailable};
    matches!(error.kind, Transport | Unavailable | Timeout)
}

async fn exists(guest: &Guest, path: &GuestPath) -> Result<bool> {
    match guest.stat(path, true).await {
        Ok(_) => Ok(true),
        Err(error) if unreachable(&error) => Err(error),
        Err(_) => Ok(false),
    }
}

async fn accepts(guest: &Guest, port: u16) -> Result<bool> {
    match guest.dial(dial(port)).await {
        Ok(_) => Ok(true),
        Err(error) if unreachable(&error) => Err(error),
        Err(_) => Ok(false),
    }
}

fn dial(port: u16) -> link::Dial {
    link::Dial {
        port: port.into(),
        unix: bytes::Bytes::new(),
    }
}

async fn answers(guest: &Guest, port: u16, path: &str) -> Result<bool> {
    let mut connection = match guest.dial(dial(port)).await {
        Ok(connection) => connection,
        Err(error) if unreachable(&error) => return Err(error),
        Err(_) => return Ok(false),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    if connection
        .write
        .write_all(request.as_bytes())
        .await
        .is_err()
    {
        return Ok(false);
    }
    let mut answer = Vec::new();
    while answer.len() < STATUS_BYTES && !answer.contains(&b'\n') {
        match connection.read.read_buf(&mut answer).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(status(&answer).is_some_and(|status| (100..400).contains(&status)))
}

/// The status of an HTTP answer.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

async fn succeeds(scene: &Scene<'_>, script: &str) -> Result<bool> {
    let request = ExecRequest::from(Program {
        workdir: Some(scene.workdir.to_string()),
        timeout_seconds: Some(ANSWER_TIME.as_secs()),
        ..Program::shell(script)
    });
    let start = command(scene.config, request, Follow::Foreground)?;
    let mut session = scene.guest.start(start).await?;
    while let Some(event) = session.events.next().await {
        if let ExecEvent::Exited(exited) = event? {
            return Ok(exited.exit_code == 0);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_line_is_a_status() {
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\n"), Some(204));
        assert_eq!(status(b"HTTP/1.0 200"), Some(200));
        assert_eq!(status(b"SSH-2.0-x\r\n"), None);
        assert_eq!(status(b"\xff\xfe"), None);
    }

    #[test]
    fn impossible_probes_are_refused_at_once() {
        assert!(check(&Readiness::Tcp { port: 0 }).is_err());
        let http = |path: &str| Readiness::Http {
            port: 80,
            path: Some(path.into()),
        };
        assert!(check(&http("x")).is_err());
        assert!(check(&http("/a b")).is_err());
        assert!(check(&http("/ok?x=1")).is_ok());
        assert!(
            check(&Readiness::Log {
                pattern: "(".into()
            })
            .is_err()
        );
    }
}
