//! A program in the place of QEMU, for tests: it has no machine, and behaves as one does that was recorded.
//!
//! It is started as `PLACE/bin/qemu-system-x86_64`, and what lies in PLACE says what it does:
//!
//! ```text
//!   conversations/*.qmp     what its control socket answers; what is in none of them ends it
//!   boot, restore           there: it says this and ends, when it is to do that
//!   serial                  a word that is part of every state it saves
//!   restore-SERIAL          there: it says this and ends, when it is given such a state
//!   share/qboot.rom         its firmware
//! ```
//!
//! In the place of a guest it does whatever it is asked, and says so.

#![expect(clippy::unwrap_used, reason = "who starts it reads why it ended")]

#[path = "../tests/conversation/mod.rs"]
#[expect(dead_code, reason = "others write conversations")]
mod conversation;

use conversation::{Conversation, Line};
use motu_boot::{NEWS_BYTES, News, TOKEN_BYTES};
use motu_link::message::Outcome;
use motu_link::{Link, hello};
use prost::Message as _;
use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// What every state begins with.
const STATE: &str = "the devices of a machine, saved by ";

/// The numbers under which QEMU is handed what has no name.
mod handed {
    use std::fs::File;
    use std::os::fd::{FromRawFd, OwnedFd, RawFd};
    use std::os::unix::net::UnixListener;

    pub const LINK: RawFd = 100;
    pub const TURN: RawFd = 101;
    pub const QMP: RawFd = 102;
    const STATE: RawFd = 104;
    pub const NEWS: RawFd = 107;

    /// One of the sockets; each is asked for once.
    pub fn listener(number: RawFd) -> UnixListener {
        // SAFETY: the runtime hands a socket over under each of these numbers, and nobody else here takes it.
        let listener = UnixListener::from(unsafe { OwnedFd::from_raw_fd(number) });
        listener.set_nonblocking(true).unwrap();
        listener
    }

    /// The pipe of the state; it is asked for once, by a program that was told to read it.
    pub fn state() -> File {
        // SAFETY: as above; `-incoming` names this number.
        unsafe { File::from_raw_fd(STATE) }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let place = Path::new(&words[0]).ancestors().nth(2).unwrap();
    let has = |word: &str| words.iter().any(|one| one == word);
    if has("--version") {
        println!("QEMU emulator version 7.2.22 (of no machine)");
    } else if has("help") {
        println!("{}", place.join("share").display());
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime
            .unwrap()
            .block_on(machine(place, has("-incoming"), has("-S")));
    }
}

/// Says why it ends, as QEMU does.
fn end(said: &str) -> ! {
    eprintln!("qemu-system-x86_64: {said}");
    std::process::exit(1)
}

fn end_if_told(place: &Path, when: &str) {
    if let Ok(said) = std::fs::read_to_string(place.join(when)) {
        end(said.trim())
    }
}

async fn machine(place: &Path, restores: bool, stopped: bool) {
    end_if_told(place, if restores { "restore" } else { "boot" });
    let (processors, runs) = watch::channel(!restores && !stopped);
    let processors = Arc::new(processors);
    let listen = |number| UnixListener::from_std(handed::listener(number)).unwrap();
    tokio::spawn(serve(listen(handed::TURN), runs.clone(), turn));
    tokio::spawn(serve(listen(handed::LINK), runs.clone(), link));
    tokio::spawn(serve(listen(handed::NEWS), runs, news));
    if restores {
        let (place, processors) = (place.to_path_buf(), processors.clone());
        tokio::spawn(async move {
            let reading = tokio::task::spawn_blocking(move || restore(&place));
            reading.await.unwrap();
            if !stopped {
                processors.send_replace(true);
            }
        });
    }
    let control = listen(handed::QMP);
    loop {
        let (stream, _) = control.accept().await.unwrap();
        converse(stream, place, &processors).await;
    }
}

/// Reads the state up to its end.
fn restore(place: &Path) {
    let mut state = String::new();
    handed::state().read_to_string(&mut state).unwrap();
    match state.strip_prefix(STATE) {
        Some(serial) => end_if_told(place, &format!("restore-{serial}")),
        None => end("error while loading state: it is none"),
    }
}

fn save(place: &Path) {
    let serial = std::fs::read_to_string(place.join("serial")).unwrap_or_default();
    std::fs::write("state", format!("{STATE}{serial}")).unwrap();
}

/// What is recorded, by name.
fn recordings(place: &Path) -> Vec<Conversation> {
    let entries = std::fs::read_dir(place.join("conversations")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text = |file: &PathBuf| Conversation::parse(&std::fs::read_to_string(file).unwrap());
    files.iter().map(text).collect()
}

async fn converse(stream: UnixStream, place: &Path, processors: &watch::Sender<bool>) {
    let recordings = recordings(place);
    let (read, mut write) = stream.into_split();
    let mut commands = BufReader::new(read).lines();
    let mut asked: Vec<Value> = Vec::new();
    loop {
        let alike = recordings.iter().find(|one| {
            let begin: Vec<&Value> = asked.iter().collect();
            one.asked().starts_with(&begin)
        });
        let Some(alike) = alike else {
            end(&format!("nobody has recorded {asked:?}"));
        };
        for line in alike.after(asked.len()) {
            let text = match line {
                Line::Said(said) => format!("{said}\n"),
                Line::Long => " ".repeat(2 << 20),
                Line::Gone => end("terminating on signal 15"),
                Line::HangsUp => return,
                Line::Remark(_) | Line::Asked(_) => continue,
            };
            if text.starts_with("{\"return\"") {
                obey(asked.last(), place, processors);
            }
            // Whoever reads may have had enough.
            if write.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
        match commands.next_line().await {
            Ok(Some(line)) => asked.push(serde_json::from_str(&line).unwrap()),
            _ => return,
        }
    }
}

/// Does what a command asks for and an answer says was done.
fn obey(command: Option<&Value>, place: &Path, processors: &watch::Sender<bool>) {
    match command.and_then(|command| command["execute"].as_str()) {
        Some("stop") => drop(processors.send_replace(false)),
        Some("cont") => drop(processors.send_replace(true)),
        Some("xen-save-devices-state") => save(place),
        _ => {}
    }
}

/// Takes connections, and looks after each as long as the machine runs.
async fn serve<F: Future<Output = Option<()>> + Send + 'static>(
    listener: UnixListener,
    runs: watch::Receiver<bool>,
    with: impl Fn(UnixStream) -> F + Copy + Send + 'static,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let mut runs = runs.clone();
        tokio::spawn(async move {
            runs.wait_for(|runs| *runs).await.ok()?;
            with(stream).await
        });
    }
}

/// Says back who may talk next.
async fn turn(mut stream: UnixStream) -> Option<()> {
    let mut token = [0; TOKEN_BYTES];
    stream.read_exact(&mut token).await.ok()?;
    stream.write_all(&token).await.ok()
}

async fn news(mut stream: UnixStream) -> Option<()> {
    let mut bytes = [0; NEWS_BYTES];
    stream.read_exact(&mut bytes).await.ok()?;
    let answer = News::decode(&bytes)?.answered_as() + motu_boot::DONE + "\n";
    stream.write_all(answer.as_bytes()).await.ok()
}

async fn link(mut stream: UnixStream) -> Option<()> {
    let mut token = [0; TOKEN_BYTES];
    stream.read_exact(&mut token).await.ok()?;
    hello::guest(&mut stream).await.ok()?;
    let (read, write) = stream.into_split();
    let (_link, mut requests) = Link::start(read, write, true);
    while let Some((_, request)) = requests.next().await {
        let done = Outcome::ok().encode_to_vec();
        request.tx.end(done.into()).await.ok()?;
    }
    Some(())
}
