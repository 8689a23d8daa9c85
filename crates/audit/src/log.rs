//! The log as the gate uses it: submit a call, wait until it is on disk.

use crate::key::{Key, PublicKey};
use crate::state::{News, Settings, Shared, State, refusal};
use crate::writer::{Answer, Fields, Message, Writer, fields};
use crate::{canonical, open};
use motu_core::audit::AuditCall;
use motu_core::verb::Effect;
use motu_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::{broadcast, oneshot};

/// Capacity of the writer's queue.
const QUEUE: usize = 4096;
/// The log of one state directory.
#[derive(Debug)]
pub struct Log {
    dir: PathBuf,
    key: Option<Arc<Key>>,
    sender: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

/// Waits for the writer: everything recorded is on disk before the log is dropped.
impl Drop for Log {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Log {
    /// Opens or creates the log of a state directory. A log that cannot be written is opened all
    /// the same: it refuses changes and reports why.
    pub fn open(home: &Path, settings: Settings) -> Log {
        let shared = Arc::new(Shared::new());
        let dir = home.join("audit");
        let opened = open::open(home, settings, shared.clone()).and_then(|writer| {
            let key = writer.key.clone();
            start(writer).map(|(sender, thread)| (key, sender, thread))
        });
        let (key, sender, thread) = match opened {
            Ok((key, sender, thread)) => (Some(key), Some(sender), Some(thread)),
            Err(error) => {
                tracing::error!(%error, "the audit log cannot be opened");
                let error = refusal(&error.message).hint_of(&error);
                *shared.lock() = State::Broken(error);
                (None, None, None)
            }
        };
        Log {
            dir,
            key,
            sender,
            thread,
            shared,
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn public_key(&self) -> Result<PublicKey> {
        match &self.key {
            Some(key) => Ok(key.public()),
            None => Err(self.broken()),
        }
    }

    pub(crate) fn broken(&self) -> Error {
        self.shared
            .check()
            .err()
            .unwrap_or_else(|| Error::internal("the audit log has no key"))
    }

    pub(crate) fn follow(&self) -> broadcast::Receiver<News> {
        self.shared.follow()
    }

    /// Whether a call may begin: a change that could not be recorded is refused. Reads are always
    /// admitted, and destroying calls may use the last space.
    pub async fn admit(&self, effect: Effect) -> Result<()> {
        match (effect, self.shared.state()) {
            (Effect::Reads, _) | (_, State::Ready) | (Effect::Destroys, State::Full(_)) => Ok(()),
            (_, State::Broken(error)) => Err(error),
            (_, State::Full(_)) => self.ask(Message::Retry).await,
        }
    }

    /// The keyed hash of a request.
    pub fn hide(&self, request: &impl Serialize) -> Option<String> {
        let value = serde_json::to_value(request).ok()?;
        Some(self.key.as_ref()?.hide(&canonical(&value)))
    }

    /// Submits an entry. With `durable` the future completes when the entry is on disk; otherwise
    /// at once, and the entry is on disk within milliseconds.
    pub fn record(
        &self,
        call: &AuditCall,
        durable: bool,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let fields = call_fields(call);
        let queued = self.send(Message::Entry(fields, durable.then_some(answer)));
        async move {
            if let Some((sender, message)) = queued? {
                // The queue is full because the disk is slow: wait on a blocking thread.
                let sent = tokio::task::spawn_blocking(move || sender.send(message)).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return Err(ended());
                }
            }
            match durable {
                true => answered.await.unwrap_or_else(|_| Err(ended())),
                false => Ok(()),
            }
        }
    }

    /// Sends a message to the thread; returns it if the queue is full.
    fn send(&self, message: Message) -> Result<Option<(SyncSender<Message>, Message)>> {
        let Some(sender) = &self.sender else {
            return Err(self.broken());
        };
        match sender.try_send(message) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(message)) => Ok(Some((sender.clone(), message))),
            Err(TrySendError::Disconnected(_)) => Err(ended()),
        }
    }

    async fn ask(&self, message: impl FnOnce(Answer) -> Message) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        if let Some((sender, message)) = self.send(message(answer))? {
            let sent = tokio::task::spawn_blocking(move || sender.send(message)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return Err(ended());
            }
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Waits until everything recorded is on disk.
    pub async fn flush(&self) -> Result<()> {
        self.ask(Message::Flush).await
    }

    /// Runs `work` while nothing is written. Must not be called from async code.
    pub(crate) fn pause<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let work = move |writer: &mut Writer| drop(answer.send(work(writer)));
        let Some(sender) = &self.sender else {
            return Err(self.broken());
        };
        let sent = sender.send(Message::Pause(Box::new(work)));
        sent.map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())
    }
}

fn call_fields(call: &AuditCall) -> Fields {
    let mut fields = fields(json!(call));
    fields.insert("type".to_string(), "call".into());
    fields
}

fn start(writer: Writer) -> Result<(SyncSender<Message>, JoinHandle<()>)> {
    let (sender, messages) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new()
        .name("audit".to_string())
        .spawn(move || writer.run(&messages))
        .map_err(|error| Error::io("start the audit log", &error))?;
    Ok((sender, thread))
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the audit log has ended")
}
