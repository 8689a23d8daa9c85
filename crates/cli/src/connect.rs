//! Finding the daemon, or starting it.
//!
//! A daemon started here is detached from this terminal and from this process.
//! It says that it is ready, or why it cannot be, through a pipe it was given
//! as its standard input. Two clients that start one at once both succeed: the
//! second daemon sees the first, says "ready" for it and leaves.

use crate::home::{LOG, Place};
use crate::show;
use async_trait::async_trait;
use motu_api::{Client, Dial, Duplex, socket};
use motu_core::{Error, Result};
use motu_engine::OwnDirectory;
use rustix::fs::OFlags;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// What a daemon says when it takes connections.
pub const READY: &str = "ready";
/// Starts before giving up; more than one only when a daemon leaves at that very moment.
const ATTEMPTS: usize = 3;
/// How long a daemon may take to start before somebody is told, and after that.
const START_WARNING: Duration = Duration::from_secs(10);
const START_PATIENCE: Duration = Duration::from_secs(110);
/// The variables a daemon keeps of those of the command that happened to start it.
const KEPT: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "RUST_BACKTRACE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "XDG_RUNTIME_DIR",
];

/// A client of the daemon of this state directory, which is started if it is not there.
pub fn client(place: &Place) -> Client {
    let dial = OnDemand {
        place: place.clone(),
    };
    Client::new(dial)
        .expect_version(env!("CARGO_PKG_VERSION"))
        .warn_by(warn)
}

fn warn(text: &str) {
    let yellow = show::style(show::YELLOW);
    show::note(&format!("{yellow}motu:{yellow:#} {text}\n"));
}

#[derive(Debug)]
struct OnDemand {
    place: Place,
}

#[async_trait]
impl Dial for OnDemand {
    async fn dial(&self) -> Result<Box<dyn Duplex>> {
        for attempt in 0..=ATTEMPTS {
            match socket::connect(&self.place.socket()).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) if nobody_there(&error) && attempt < ATTEMPTS => self.start().await?,
                Err(error) => return Err(self.unreachable(&error)),
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn look(&self) -> Result<Box<dyn Duplex>> {
        match socket::connect(&self.place.socket()).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(self.unreachable(&error)),
        }
    }
}

/// Whether a failed connection means that no daemon runs. One that is killed at this moment resets
/// those who wait for it to answer.
pub fn nobody_there(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

impl OnDemand {
    fn unreachable(&self, error: &io::Error) -> Error {
        let socket = self.place.socket();
        Error::unavailable(format!(
            "cannot reach the daemon at {}: {error}",
            socket.display()
        ))
        .hint(format!("its log is {}", self.place.log().display()))
    }

    async fn start(&self) -> Result<()> {
        let home = self.place.open()?;
        let (ours, theirs) = io::pipe().map_err(|error| self.cannot_start(&error))?;
        self.spawn(&home, theirs)
            .map_err(|error| self.cannot_start(&error))?;
        let mut answer = String::new();
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| self.cannot_start(&error.into()))?;
        let mut pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(ours.into())
            .map_err(|error| self.cannot_start(&error))?;
        self.hear(pipe.read_to_string(&mut answer)).await?;
        if answer == READY {
            return Ok(());
        }
        // The daemon sent an error, or ended before it could.
        Err(serde_json::from_str(&answer).unwrap_or_else(|_| {
            Error::unavailable("the daemon ended while it started")
                .hint(format!("its log is {}", self.place.log().display()))
        }))
    }

    /// Waits for a new daemon's word, and says so when that takes long.
    async fn hear(&self, word: impl Future<Output = io::Result<usize>>) -> Result<()> {
        let mut word = std::pin::pin!(word);
        for (patience, text) in [
            (START_WARNING, Some("the daemon is still starting")),
            (START_PATIENCE, None),
        ] {
            match tokio::time::timeout(patience, &mut word).await {
                Ok(heard) => return heard.map(drop).map_err(|error| self.cannot_start(&error)),
                Err(_) => text.into_iter().for_each(warn),
            }
        }
        let seconds = (START_WARNING + START_PATIENCE).as_secs();
        Err(
            Error::unavailable(format!("the daemon has not become ready in {seconds} s"))
                .hint(format!("its log is {}", self.place.log().display())),
        )
    }

    fn cannot_start(&self, error: &io::Error) -> Error {
        Error::io("start the daemon", error)
    }

    fn spawn(&self, home: &OwnDirectory, ready: io::PipeWriter) -> io::Result<()> {
        let log = home.file(LOG, OFlags::APPEND)?;
        // Refers to this very program, even if its file was replaced meanwhile.
        let mut daemon = Command::new("/proc/self/exe");
        daemon
            .arg0("motu")
            .args(["serve", "--on-demand", "--home"])
            .arg(self.place.path())
            .current_dir("/")
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| {
                let name = name.to_string_lossy();
                name.starts_with("MOTU_") || KEPT.contains(&name.to_ascii_uppercase().as_str())
            }))
            .stdin(Stdio::from(ready))
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log));
        daemon.spawn().map(drop)
    }
}
