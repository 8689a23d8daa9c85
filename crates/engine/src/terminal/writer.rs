//! Writes sessions' output to files, on a thread of its own.
//!
//! One thread writes for all sessions. A session may have a bounded amount queued; beyond that it
//! reads no more output, and the program that prints is slowed down. No answer waits for a disk.

use motu_core::{Error, Result};
use motu_terminal::record::{Record, Recorder};
use motu_terminal::session::Carried;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Bytes one session may have queued.
const WAITING_BYTES: usize = 4 * 1024 * 1024;
/// The file with the position to continue from after a restart.
const POSITION: &str = "position.json";
/// Longest line in it, which contains paths.
const POSITION_BYTES: u64 = 16 * 1024;

/// How far the files of a session reach, in machine offsets and stream positions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The shell that printed the output.
    pub tag: String,
    /// The machine offset up to which output is in the files.
    pub machine: u64,
    /// The end of the stream, and so of the transcript.
    pub stream: u64,
    pub carried: Carried,
}

impl Position {
    pub fn read(dir: &Path) -> Option<Position> {
        use std::io::Read as _;
        let mut text = Vec::new();
        let file = File::open(dir.join(POSITION)).ok()?;
        file.take(POSITION_BYTES).read_to_end(&mut text).ok()?;
        // The file is overwritten in place: a shorter line leaves the end of a longer one behind
        // it.
        let line = text.split(|byte| *byte == b'\n').next()?;
        serde_json::from_slice(line).ok()
    }
}

/// The open files of one session.
#[derive(Debug)]
pub struct Files {
    pub recorder: Recorder,
    position: File,
}

impl Files {
    pub fn new(recorder: Recorder) -> io::Result<Files> {
        let path = recorder.dir().join(POSITION);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        Ok(Files {
            position: options.open(path)?,
            recorder,
        })
    }

    fn write(&mut self, records: &[Record], position: &Position) -> io::Result<()> {
        self.recorder.write(records)?;
        let mut line = serde_json::to_vec(position)?;
        line.push(b'\n');
        // One `pwrite`: a killed daemon leaves the old line or the new one.
        self.position.write_all_at(&line, 0)
    }
}

/// The state of one session in the writer.
#[derive(Debug)]
struct Lane {
    files: Mutex<Files>,
    waiting: AtomicUsize,
    room: Notify,
    broken: AtomicBool,
}

impl Lane {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn done(&self, bytes: usize, result: io::Result<()>) {
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
        self.room.notify_one();
        if let Err(error) = result
            && !self.broken.swap(true, Ordering::Relaxed)
        {
            let dir = self.files().recorder.dir().display().to_string();
            tracing::warn!(%error, dir, "a terminal session is no longer recorded");
        }
    }
}

enum Job {
    Write {
        lane: Arc<Lane>,
        records: Vec<Record>,
        position: Position,
        bytes: usize,
    },
    Finish(Arc<Lane>, Option<i32>, Duration),
    Reached(oneshot::Sender<()>),
}

/// The writer's thread. It writes everything it was given before it ends.
#[derive(Debug)]
pub struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub fn start() -> Result<Arc<Writer>> {
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("recorder".to_string())
            .spawn(move || queue.into_iter().for_each(work))
            .map_err(|error| Error::io("cannot start the recorder", &error))?;
        Ok(Arc::new(Writer {
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Waits until everything that was handed over so far is in the files.
    pub async fn reached(&self) {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Reached(answer));
        let _ = answered.await;
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.lock().unwrap_or_else(|lost| lost.into_inner());
        if let Some(jobs) = jobs.as_ref() {
            // The thread lives as long as `self`.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let jobs = self.jobs.get_mut();
        jobs.unwrap_or_else(|lost| lost.into_inner()).take();
        let thread = self.thread.get_mut();
        if let Some(thread) = thread.unwrap_or_else(|lost| lost.into_inner()).take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn work(job: Job) {
    match job {
        Job::Write {
            lane,
            records,
            position,
            bytes,
        } => {
            let result = match lane.broken.load(Ordering::Relaxed) {
                true => Ok(()),
                false => lane.files().write(&records, &position),
            };
            lane.done(bytes, result);
        }
        Job::Finish(lane, exit_code, at) => {
            let result = lane.files().recorder.finish(exit_code, at);
            lane.done(0, result);
        }
        Job::Reached(answer) => {
            let _ = answer.send(());
        }
    }
}

/// A session's handle to the writer.
#[derive(Clone, Debug)]
pub struct Pen {
    writer: Arc<Writer>,
    lane: Arc<Lane>,
}

impl Pen {
    pub fn new(writer: Arc<Writer>, files: Files) -> Pen {
        Pen {
            writer,
            lane: Arc::new(Lane {
                files: Mutex::new(files),
                waiting: AtomicUsize::new(0),
                room: Notify::new(),
                broken: AtomicBool::new(false),
            }),
        }
    }

    pub fn write(&self, records: Vec<Record>, position: Position) {
        let bytes = records.iter().map(size).sum();
        self.lane.waiting.fetch_add(bytes, Ordering::AcqRel);
        self.writer.send(Job::Write {
            lane: self.lane.clone(),
            records,
            position,
            bytes,
        });
    }

    pub fn finish(&self, exit_code: Option<i32>, at: Duration) {
        let job = Job::Finish(self.lane.clone(), exit_code, at);
        self.writer.send(job);
    }

    /// Whether more is queued than a session may have.
    pub fn is_full(&self) -> bool {
        self.lane.waiting.load(Ordering::Acquire) > WAITING_BYTES
    }

    /// Waits until it is no longer full.
    pub async fn room(&self) {
        while self.is_full() {
            self.lane.room.notified().await;
        }
    }

    /// Whether a write has failed.
    pub fn is_broken(&self) -> bool {
        self.lane.broken.load(Ordering::Relaxed)
    }

    /// Waits until everything handed over so far is in the files.
    pub async fn reached(&self) {
        self.writer.reached().await;
    }
}

fn size(record: &Record) -> usize {
    let content = match record {
        Record::Output { bytes, .. } => bytes.len(),
        Record::Interaction { text, .. } => text.len(),
        Record::Resize { .. } | Record::Answer { .. } => 0,
    };
    content + size_of::<Record>()
}
