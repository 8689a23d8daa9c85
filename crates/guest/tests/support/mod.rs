//! A host for tests: starts the real guest program in a directory of its own and
//! speaks to it over the real link.

use bytes::Bytes;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_IN, CHANNEL_OUT};
use motu_link::message::*;
use motu_link::mux::Stream;
use motu_link::{Event, Link, LinkError, hello};
use prost::Message as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A guest and a link to it.
pub struct Machine {
    child: Child,
    pub place: tempfile::TempDir,
    pub link: Link,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SIGTERM lets the guest end what it started.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        // A program around the guest may not listen; its end is the guest's.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything one stream said.
#[derive(Debug, Default)]
pub struct Heard {
    pub notes: Vec<Said>,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub file: Vec<u8>,
    pub outcome: Outcome,
}

impl Heard {
    pub fn failure(&self) -> Failure {
        Failure::try_from(self.outcome.kind).unwrap()
    }

    pub fn ok(self) -> Heard {
        assert_eq!(self.failure(), Failure::None, "{}", self.outcome.message);
        self
    }

    pub fn fails(self, kind: Failure) -> String {
        assert_eq!(self.failure(), kind, "{}", self.outcome.message);
        self.outcome.message
    }

    pub fn started(&self) -> Started {
        let mut all = self.notes.iter();
        match all.next() {
            Some(Said::Started(started)) => started.clone(),
            other => panic!("the first note is {other:?}"),
        }
    }

    pub fn exited(&self) -> Exited {
        match self.notes.last() {
            Some(Said::Exited(exited)) => *exited,
            other => panic!("the last note is {other:?}"),
        }
    }

    pub fn entries(&self) -> Vec<Entry> {
        let pages = self.notes.iter().filter_map(|note| match note {
            Said::Entries(entries) => Some(entries.entries.clone()),
            _ => None,
        });
        pages.flatten().collect()
    }

    pub fn next_page(&self) -> Bytes {
        match self.notes.last() {
            Some(Said::Entries(entries)) => entries.next.clone(),
            other => panic!("the last note is {other:?}"),
        }
    }

    pub fn gaps(&self) -> Vec<Gap> {
        let gaps = self.notes.iter().filter_map(|note| match note {
            Said::Gap(gap) => Some(*gap),
            _ => None,
        });
        gaps.collect()
    }
}

/// One thing a stream said.
#[derive(Debug)]
pub enum Next {
    Note(Said),
    Data(u8, Bytes),
    Eof,
    End(Outcome),
}

impl Machine {
    /// A guest whose files are `root/` in a fresh directory.
    pub async fn start() -> Machine {
        Machine::start_by(Command::new(env!("CARGO_BIN_EXE_motu-guest")), &[]).await
    }

    /// Like `start`, as the init of a pid namespace; `None` where that is not possible.
    pub async fn start_as_init() -> Option<Machine> {
        let mut unshare = motu_needs::command("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--uts", "--kill-child"]);
        let possible = motu_needs::command("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--uts", "true"])
            .stderr(Stdio::null())
            .status();
        if !possible.is_ok_and(|status| status.success()) {
            return None;
        }
        unshare.arg(env!("CARGO_BIN_EXE_motu-guest"));
        Some(Machine::start_by(unshare, &["--pid1"]).await)
    }

    async fn start_by(command: Command, flags: &[&str]) -> Machine {
        Machine::start_in(tempfile::tempdir().unwrap(), command, flags).await
    }

    /// A guest in a directory that has something in it already.
    pub async fn start_in(
        place: tempfile::TempDir,
        mut command: Command,
        flags: &[&str],
    ) -> Machine {
        std::fs::create_dir(place.path().join("root")).unwrap();
        let socket = place.path().join("link");
        let child = command
            .arg("serve")
            .arg("--listen")
            .arg(&socket)
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let link = connect(&socket).await;
        let machine = Machine { child, place, link };
        let init = Init {
            file_root: bytes_of(&machine.root()),
            ..Init::default()
        };
        machine.call(Verb::Init(init)).await.ok();
        machine
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A second, independent link.
    pub async fn another_link(&self) -> Link {
        connect(&self.place.path().join("link")).await
    }

    pub async fn open(&self, verb: Verb) -> Stream {
        open(&self.link, verb).await
    }

    /// Sends a request and reads everything that comes back.
    pub async fn call(&self, verb: Verb) -> Heard {
        finish(self.open(verb).await).await
    }

    /// Like `call`, with data for the guest.
    pub async fn call_with(&self, verb: Verb, data: &[u8]) -> Heard {
        let stream = self.open(verb).await;
        let sender = stream.tx.clone();
        let data = Bytes::copy_from_slice(data);
        let sending = tokio::spawn(async move {
            // A guest that refuses early does not read all of it.
            let _ = sender.data(CHANNEL_IN, data).await;
            let _ = sender.eof().await;
        });
        let said = finish(stream).await;
        sending.await.unwrap();
        said
    }

    pub async fn shell(&self, script: &str) -> Heard {
        self.call(Verb::Start(sh(script))).await
    }

    pub async fn processes(&self) -> Vec<Process> {
        let said = self.call(Verb::ListProcesses(ListProcesses {})).await.ok();
        let pages = said.notes.into_iter().map(|note| match note {
            Said::Processes(page) => page.processes,
            other => panic!("{other:?}"),
        });
        pages.flatten().collect()
    }
}

async fn connect(socket: &Path) -> Link {
    let deadline = Instant::now() + PATIENCE;
    let mut io = loop {
        match UnixStream::connect(socket).await {
            Ok(io) => break io,
            Err(error) => assert!(Instant::now() < deadline, "no guest: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let nonce = [NEXT.fetch_add(1, Ordering::Relaxed); 16];
    hello::host(&mut io, nonce).await.unwrap();
    let (read, write) = io.into_split();
    Link::start(read, write, false).0
}

pub async fn open(link: &Link, verb: Verb) -> Stream {
    let request = Request::from(verb).encode_to_vec();
    link.open(Bytes::from(request)).await.unwrap()
}

/// The next event, with a timeout.
pub async fn next(stream: &mut Stream) -> Next {
    match try_next(stream).await {
        Ok(next) => next,
        Err(error) => panic!("the stream broke: {error}"),
    }
}

pub async fn try_next(stream: &mut Stream) -> Result<Next, LinkError> {
    let event = tokio::time::timeout(2 * PATIENCE, stream.rx.recv()).await;
    Ok(match event.expect("the guest says something")? {
        Event::Data { channel, bytes } => Next::Data(channel, bytes),
        Event::Message(bytes) => Next::Note(Note::decode(bytes).unwrap().said.unwrap()),
        Event::Eof => Next::Eof,
        Event::End(bytes) => Next::End(Outcome::decode(bytes).unwrap()),
        Event::Reset => return Err(LinkError::Reset),
    })
}

/// Reads a stream to its end.
pub async fn finish(mut stream: Stream) -> Heard {
    let mut said = Heard::default();
    loop {
        match next(&mut stream).await {
            Next::Note(note) => said.notes.push(note),
            Next::Data(CHANNEL_OUT, bytes) => said.out.extend_from_slice(&bytes),
            Next::Data(CHANNEL_ERR, bytes) => said.err.extend_from_slice(&bytes),
            Next::Data(_, bytes) => said.file.extend_from_slice(&bytes),
            Next::Eof => {}
            Next::End(outcome) => {
                said.outcome = outcome;
                return said;
            }
        }
    }
}

/// Reads until a stream has said this on its output.
pub async fn read_until(stream: &mut Stream, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        let Ok(said) = tokio::time::timeout(PATIENCE, next(stream)).await else {
            panic!("no {wanted:?} in {seen:?}");
        };
        match said {
            Next::Data(_, bytes) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            Next::Note(Said::Exited(_)) | Next::End(_) => {
                panic!("ended without {wanted:?}: {seen:?}")
            }
            _ => {}
        }
    }
    seen
}

/// A followed shell script.
pub fn sh(script: &str) -> Start {
    Start {
        argv: vec![Bytes::copy_from_slice(script.as_bytes())],
        shell: true,
        follow: true,
        lossless: true,
        ..Start::default()
    }
}

pub fn argv(words: &[&str]) -> Start {
    Start {
        argv: words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect(),
        follow: true,
        lossless: true,
        ..Start::default()
    }
}

pub fn by_pid(pid: u32) -> Option<Selector> {
    Some(Selector {
        pid,
        tag: String::new(),
    })
}

pub fn by_tag(tag: &str) -> Option<Selector> {
    Some(Selector {
        pid: 0,
        tag: tag.to_string(),
    })
}

pub fn path(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn bytes_of(path: &Path) -> Bytes {
    use std::os::unix::ffi::OsStrExt as _;
    Bytes::copy_from_slice(path.as_os_str().as_bytes())
}

/// Waits for a condition that no event announces.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
