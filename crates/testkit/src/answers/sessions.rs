//! Live sessions of commands that nobody runs.

use super::sandbox;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use motu_core::exec::{ExecEvent, ExecInput, ExecSession, Exited, Started};
use motu_core::verb::{self, Recorder};
use motu_core::{Error, Result, SandboxId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

type Events = BoxStream<'static, Result<ExecEvent>>;

#[derive(Clone, Debug, Default)]
pub struct Sessions {
    /// Told when a session or a wait is dropped before its command has ended.
    pub killed: Arc<Notify>,
    /// Chunks that floods have produced.
    pub produced: Arc<AtomicUsize>,
}

pub fn started() -> ExecEvent {
    ExecEvent::Started(Started {
        pid: 42,
        tag: String::new(),
        stdout_from: 0,
        stderr_from: 0,
    })
}

pub fn exited(exit_code: i32) -> ExecEvent {
    ExecEvent::Exited(Exited {
        exit_code,
        duration_ms: 5,
        ..Exited::default()
    })
}

impl Sessions {
    /// Answers the verbs of live commands, services, terminals and shells.
    pub fn tell(&self, recorder: &Recorder) {
        let it = self.clone();
        recorder.on(move |verb::Run { ask }| {
            let id = ask.sandbox.sandbox_id.unwrap_or_else(SandboxId::generate);
            let head = vec![ExecEvent::Sandbox(Box::new(sandbox(&id))), started()];
            it.start(&ask.exec.program.command, head)
        });
        let it = self.clone();
        recorder
            .on(move |call: verb::ExecStream| it.start(&call.ask.program.command, vec![started()]));
        let it = self.clone();
        recorder.on(move |call: verb::ExecWorkspaceStream| {
            it.start(&call.ask.program.command, vec![started()])
        });
        let it = self.clone();
        recorder.on(move |_: verb::FollowService| {
            it.start(
                &["true".to_string()],
                vec![ExecEvent::Stderr("a line\n".into())],
            )
        });
        recorder.on(|call: verb::AttachTerminal| call.ask.seat().map(|_| echoing_screen()));
        recorder.on(|_: verb::AttachShell| Ok(echoing_screen()));
    }

    /// The commands: `echo WORDS`, `cat`, `both`, `true`, `lines COUNT`, `flood CHUNKS`,
    /// `sleep`, `fail`.
    pub fn start(&self, command: &[String], head: Vec<ExecEvent>) -> Result<ExecSession> {
        let (input, inputs) = mpsc::channel(2);
        let line = command.join(" ");
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let body: Events = match word {
            "echo" => told([ExecEvent::Stdout(format!("{rest}\n").into()), exited(0)]),
            "both" => told([
                ExecEvent::Stdout("out".into()),
                ExecEvent::Stderr(Bytes::from_static(b"err\xff")),
                exited(3),
            ]),
            "lines" => {
                let lines = (0..rest.parse().unwrap()).map(|n: usize| format!("line {n}\n"));
                let text: String = lines.collect();
                told([ExecEvent::Stdout(text.into()), exited(0)])
            }
            "true" => told([exited(0)]),
            "fail" => stream::iter([Err(Error::transport("the guest is gone"))]).boxed(),
            "cat" => cat(inputs),
            "flood" => self.flood(rest.parse().unwrap()),
            "sleep" => self.forever().into_stream().boxed(),
            _ => return Err(Error::invalid("no such command")),
        };
        Ok(ExecSession::new(told(head).chain(body).boxed(), input))
    }

    /// Never comes back, and tells when nobody waits for it any more.
    pub fn forever<T: 'static>(&self) -> BoxFuture<'static, T> {
        struct OnDrop(Arc<Notify>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let waiting = OnDrop(self.killed.clone());
        async move {
            let _waiting = waiting;
            std::future::pending().await
        }
        .boxed()
    }

    fn flood(&self, chunks: usize) -> Events {
        let produced = self.produced.clone();
        let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
        let all = stream::iter(0..chunks).map(move |_| {
            produced.fetch_add(1, Ordering::Relaxed);
            Ok(ExecEvent::Stdout(chunk.clone()))
        });
        all.chain(told([exited(0)])).boxed()
    }
}

fn told(events: impl IntoIterator<Item = ExecEvent, IntoIter: Send + 'static>) -> Events {
    stream::iter(events.into_iter().map(Ok)).boxed()
}

/// A terminal: its screen, and what is typed.
fn echoing_screen() -> ExecSession {
    let (input, inputs) = mpsc::channel(2);
    let screen = [started(), ExecEvent::Stdout("the screen\r\n".into())];
    ExecSession::new(told(screen).chain(cat(inputs)).boxed(), input)
}

/// Input comes back as output; a signal or the end of input ends it.
fn cat(inputs: mpsc::Receiver<ExecInput>) -> Events {
    stream::unfold(Some(inputs), async |inputs| {
        let mut inputs = inputs?;
        let event = match inputs.recv().await {
            Some(ExecInput::Stdin(bytes)) => {
                return Some((Ok(ExecEvent::Stdout(bytes)), Some(inputs)));
            }
            Some(ExecInput::Resize(size)) => {
                let text = format!("{}x{}\n", size.cols, size.rows);
                return Some((Ok(ExecEvent::Stdout(text.into())), Some(inputs)));
            }
            Some(ExecInput::Signal(signal)) => exited(128 + signal),
            Some(ExecInput::CloseStdin) | None => exited(0),
        };
        Some((Ok(event), None))
    })
    .boxed()
}
