//! The host's end of a machine's serial ports.
//!
//! A conversation is announced on the turn port with a random token, which the
//! guest says back when it has hung up the old one; the same token then begins
//! the conversation on the link port. See the guest's `serial` for why. What a
//! machine must know that was copied or paused goes over a third port, beside
//! whatever is being said.

use crate::error::QemuError;
use crate::place::{LINK, NEWS, Place, TURN};
use bytes::Bytes;
use motu_boot::{DONE, MAX_ANSWER, Matter, News, TOKEN_BYTES};
use motu_link::message::{Init, Outcome, Request, Start, Verb};
use motu_link::{Event, Link, hello};
use prost::Message as _;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// How long a running guest may take to begin a conversation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a machine that was resumed may take to set its clock; without an answer it goes on all the same.
const CLOCK_TIME: Duration = Duration::from_secs(1);
/// How long a first command may take.
const WARM_TIME: Duration = Duration::from_secs(10);
/// Answers for others that may come before ours on the port for news.
const MAX_OLD_ANSWERS: usize = 16;
/// How much may be said on the turn port before our token comes back.
const MAX_ANSWERS: usize = 64 * TOKEN_BYTES;

/// Opens a fresh connection to the guest, before the greeting.
pub(crate) async fn connect(place: &Place) -> Result<UnixStream, QemuError> {
    connect_within(place, PATIENCE).await
}

async fn connect_within(place: &Place, patience: Duration) -> Result<UnixStream, QemuError> {
    let connecting = async {
        let token = random::<TOKEN_BYTES>()?;
        announce(place, &token).await?;
        let failed = || QemuError::io("cannot connect to the guest");
        let mut link = UnixStream::connect(place.socket(LINK))
            .await
            .map_err(failed())?;
        link.write_all(&token).await.map_err(failed())?;
        Ok(link)
    };
    tokio::time::timeout(patience, connecting)
        .await
        .map_err(|_| no("it did not answer; is it paused?"))?
}

async fn announce(place: &Place, token: &[u8; TOKEN_BYTES]) -> Result<(), QemuError> {
    let failed = || QemuError::io("cannot announce a conversation to the guest");
    let mut turn = UnixStream::connect(place.socket(TURN))
        .await
        .map_err(failed())?;
    turn.write_all(token).await.map_err(failed())?;
    // Answers to somebody who did not wait for them may come first.
    let mut heard = Vec::with_capacity(2 * TOKEN_BYTES);
    while !heard.ends_with(token) {
        if heard.len() > MAX_ANSWERS {
            return Err(no("it answers somebody else"));
        }
        if turn.read_buf(&mut heard).await.map_err(failed())? == 0 {
            return Err(no("it hung up"));
        }
    }
    Ok(())
}

/// Waits until a guest answers.
pub(crate) async fn greet(place: &Place) -> Result<Link, QemuError> {
    greet_within(place, PATIENCE).await
}

/// The same for a guest that has to boot first.
pub(crate) async fn greet_within(place: &Place, patience: Duration) -> Result<Link, QemuError> {
    let mut stream = connect_within(place, patience).await?;
    let nonce = random::<16>()?;
    let greeting = hello::host(&mut stream, nonce);
    tokio::time::timeout(PATIENCE, greeting)
        .await
        .map_err(|_| no("it did not greet"))?
        .map_err(|error| no(&error.to_string()))?;
    let (read, write) = stream.into_split();
    Ok(Link::start(read, write, false).0)
}

/// Makes a copied machine a machine of its own: its randomness, with it its id, and its clock.
pub(crate) async fn renew(place: &Place, matter: Matter) -> Result<(), QemuError> {
    let news = News {
        matter,
        number: number()?,
        unix_ns: unix_ns(),
        randomness: random()?,
    };
    tell(place, &news, PATIENCE).await
}

/// Tells a machine that was paused what time it is.
pub(crate) async fn set_clock(place: &Place) -> Result<(), QemuError> {
    let news = News {
        matter: Matter::News,
        unix_ns: unix_ns(),
        ..News::here(number()?)
    };
    tell(place, &news, CLOCK_TIME).await
}

/// Waits until somebody in the machine listens.
pub(crate) async fn listens(place: &Place, patience: Duration) -> Result<(), QemuError> {
    tell(place, &News::here(number()?), patience).await
}

async fn tell(place: &Place, news: &News, patience: Duration) -> Result<(), QemuError> {
    let failed = || QemuError::io("cannot tell the guest news");
    let telling = async {
        let mut port = UnixStream::connect(place.socket(NEWS))
            .await
            .map_err(failed())?;
        port.write_all(&news.encode()).await.map_err(failed())?;
        let mut answers = BufReader::new(port.take((MAX_OLD_ANSWERS * MAX_ANSWER) as u64));
        let ours = news.answered_as();
        loop {
            let mut line = Vec::with_capacity(MAX_ANSWER);
            answers
                .read_until(b'\n', &mut line)
                .await
                .map_err(failed())?;
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().strip_prefix(&ours) {
                Some(DONE) => return Ok(()),
                Some(reason) => return Err(no(reason)),
                None if line.is_empty() => return Err(no("it did not take the news")),
                // For somebody who did not wait for it.
                None => {}
            }
        }
    };
    tokio::time::timeout(patience, telling)
        .await
        .map_err(|_| QemuError::Silent {
            reason: "it did not take the news in time".into(),
        })?
}

fn number() -> Result<u64, QemuError> {
    random().map(u64::from_le_bytes)
}

fn unix_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i64)
}

/// Looks at every program there is: copies find the way to it in their memory.
const LOOK: &str = "for f in /bin/* /usr/bin/* /usr/local/bin/*; do [ -x \"$f\" ]; done";

/// Lets a machine that will be copied do once what each copy does first, so that
/// the copies find the shell and the ways to programs in their memory.
pub(crate) async fn prepare(link: &Link) {
    first_command(link, LOOK, true).await;
    warm(link).await;
}

/// Lets a machine that will wait take on a name and run a first command, the two ways there are.
pub(crate) async fn warm(link: &Link) {
    let named = Verb::Init(Init {
        hostname: "motu".into(),
        default_user: "0".into(),
        ..Init::default()
    });
    let named = tokio::time::timeout(WARM_TIME, ask(link, named)).await;
    tracing::debug!(?named, "took on a name");
    first_command(link, "true", true).await;
    first_command(link, "true", false).await;
}

async fn first_command(link: &Link, command: &'static str, shell: bool) {
    let first = Start {
        argv: vec![Bytes::from_static(command.as_bytes())],
        shell,
        user: "root".into(),
        cwd: Bytes::from_static(b"/"),
        follow: true,
        forget: true,
        timeout_ms: WARM_TIME.as_millis() as u64,
        ..Start::default()
    };
    // An environment without a shell is as good as any other.
    let warmed = tokio::time::timeout(WARM_TIME, ask(link, Verb::Start(first))).await;
    tracing::debug!(?warmed, "ran a first command");
}

async fn ask(link: &Link, verb: Verb) -> Result<(), QemuError> {
    let broken = |error: motu_link::LinkError| no(&error.to_string());
    let request = Bytes::from(Request::from(verb).encode_to_vec());
    let mut stream = link.open(request).await.map_err(broken)?;
    loop {
        match stream.rx.recv().await.map_err(broken)? {
            Event::End(last) => {
                let outcome = Outcome::decode(last).map_err(|error| no(&error.to_string()))?;
                return match outcome.kind {
                    0 => Ok(()),
                    _ => Err(no(&outcome.message)),
                };
            }
            Event::Reset => return Err(no("it gave up")),
            _ => {}
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], QemuError> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes).map_err(|error| no(&error.to_string()))?;
    Ok(bytes)
}

fn no(reason: &str) -> QemuError {
    QemuError::Guest {
        reason: reason.chars().take(300).collect(),
    }
}
