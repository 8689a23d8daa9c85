//! The guest of a fake machine: it answers requests on any number of links.
//!
//! All of its tasks run on the runtime where its first connection was spawned, independent of the
//! engine that talks to it.

use crate::answer::{Failed, end, note};
use crate::follow::{self, Manner};
use crate::machine::Machine;
use crate::{file_verbs, start};
use bytes::Bytes;
use motu_link::message::{
    Attach, Connected, Dial, Failure, Input, Pong, Ports, Processes, Request, Said, Start, Verb,
};
use motu_link::{Event, LINK_VERSION, Link, Stream};
use prost::Message as _;
use std::sync::Arc;
use tokio::io::DuplexStream;

/// The only port of every fake machine: an echo service.
const ECHO_PORT: u32 = 7;

impl Machine {
    /// Serves one connection until the host leaves or the link is cut.
    pub async fn serve(self: Arc<Self>, io: DuplexStream) {
        let mut cuts = self.cuts();
        tokio::select! {
            () = self.converse(io) => {}
            _ = cuts.changed() => {}
        }
    }

    async fn converse(self: &Arc<Self>, mut io: DuplexStream) {
        if motu_link::hello::guest(&mut io).await.is_err() {
            return;
        }
        let (read, write) = tokio::io::split(io);
        let (link, mut incoming) = Link::start(read, write, true);
        let _closing = Closing(link);
        while let Some((request, stream)) = incoming.next().await {
            tokio::spawn(self.clone().answer(request, stream));
        }
    }

    async fn answer(self: Arc<Self>, request: Bytes, mut stream: Stream) {
        self.not_paused().await;
        let result = match Request::decode(request)
            .ok()
            .and_then(|request| request.verb)
        {
            None => Err(Failed::new(Failure::Unsupported, "an unknown request")),
            Some(verb) => self.dispatch(verb, &mut stream).await,
        };
        end(&stream.tx, result).await;
    }

    async fn dispatch(self: &Arc<Self>, verb: Verb, stream: &mut Stream) -> Result<(), Failed> {
        let said = match verb {
            Verb::Start(start) => return self.start(start, stream).await,
            Verb::Attach(attach) => return self.attach(attach, stream).await,
            Verb::ListProcesses(_) => Said::Processes(Processes {
                processes: self.processes().iter().map(|p| p.describe()).collect(),
            }),
            Verb::Signal(signal) => {
                self.find(signal.process)?.signal(signal.signal);
                return Ok(());
            }
            Verb::Input(input) => return self.input(input, stream).await,
            Verb::Forget(selector) => {
                let process = self.find(Some(selector))?;
                self.forget(&process);
                return Ok(());
            }
            Verb::Dial(dial) => return dial_echo(dial, stream).await,
            Verb::ListPorts(_) => Said::Ports(Ports::default()),
            Verb::Ping(_) => Said::Pong(Pong {
                guest_version: "fake".to_string(),
                uptime_ms: self.uptime_ms(),
                link_version: LINK_VERSION,
            }),
            Verb::Init(init) => {
                self.set_identity(init);
                return Ok(());
            }
            Verb::Metrics(_) => Said::Metrics(self.metrics()),
            Verb::SetClock(_) | Verb::Reseed(_) => return Ok(()),
            Verb::Shutdown(_) => {
                self.end("the guest was told to shut down");
                return Ok(());
            }
            Verb::Resize(_) => return Err(Failed::unsupported("resize a terminal")),
            files => return file_verbs::answer(self, files, stream).await,
        };
        Ok(note(&stream.tx, said).await?)
    }

    async fn start(self: &Arc<Self>, start: Start, stream: &mut Stream) -> Result<(), Failed> {
        let process = start::start(self, &start)?;
        let manner = Manner {
            out: 0,
            err: 0,
            kill_on_reset: start.kill_on_reset,
            forget: start.forget,
        };
        if start.follow {
            return follow::follow(self, &process, stream, manner).await;
        }
        Ok(follow::greet(&process, &stream.tx, manner).await?)
    }

    async fn attach(self: &Arc<Self>, attach: Attach, stream: &mut Stream) -> Result<(), Failed> {
        let process = self.find(attach.process)?;
        let ends = process.ends();
        let (out, err) = match (attach.from_newest, attach.from_oldest) {
            (true, _) => ends,
            (_, true) => (0, 0),
            _ => (attach.out_from.min(ends.0), attach.err_from.min(ends.1)),
        };
        let manner = Manner {
            out,
            err,
            kill_on_reset: attach.kill_on_reset,
            forget: attach.forget,
        };
        follow::follow(self, &process, stream, manner).await
    }

    async fn input(&self, input: Input, stream: &mut Stream) -> Result<(), Failed> {
        let process = self.find(input.process)?;
        loop {
            match stream.rx.recv().await? {
                Event::Data { bytes, .. } => {
                    if !process.feed(bytes) {
                        return Err(Failed::new(Failure::Invalid, "its input is closed"));
                    }
                }
                Event::Message(_) => {}
                Event::Eof | Event::End(_) | Event::Reset => break,
            }
        }
        if input.close {
            process.close_input();
        }
        Ok(())
    }
}

/// Closes a link when its serving task ends.
struct Closing(Link);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn dial_echo(dial: Dial, stream: &mut Stream) -> Result<(), Failed> {
    if dial.port != ECHO_PORT || !dial.unix.is_empty() {
        return Err(Failed::new(Failure::NotFound, "nothing listens there"));
    }
    note(&stream.tx, Said::Connected(Connected {})).await?;
    loop {
        match stream.rx.recv().await? {
            Event::Data { bytes, .. } => {
                stream.tx.data(motu_link::frame::CHANNEL_OUT, bytes).await?;
            }
            Event::Message(_) => {}
            Event::Eof | Event::End(_) | Event::Reset => return Ok(()),
        }
    }
}
