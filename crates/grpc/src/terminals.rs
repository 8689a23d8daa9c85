//! Programs on terminals, identified by a tag.

use crate::agent::Agent;
use crate::ask::{self, Command};
use crate::commands::Missing;
use crate::service::Outgoing;
use crate::wire::{
    PtyAttachRequest, PtyAttachResponse, PtyExited, PtyKillRequest, PtyKillResponse, PtyOutput,
    PtyResizeRequest, PtyResizeResponse, PtySendInputRequest, PtySendInputResponse, PtyStarted,
    pty_attach_response::Event,
};
use futures_util::StreamExt;
use motu_core::exec::{
    Attach, AttachFrom, ExecEvent, ExecSession, ProcessInput, SignalProcess, TtySize,
};
use motu_core::id::random_hex;
use motu_core::{Error, Result, Service, Signal};

/// The default size of a terminal.
const COLS: u32 = 80;
const ROWS: u32 = 24;

impl Agent {
    pub async fn pty_attach(
        self,
        message: PtyAttachRequest,
    ) -> Result<Outgoing<PtyAttachResponse>> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let from = match message.offset {
            Some(stdout) => AttachFrom::Offsets { stdout, stderr: 0 },
            None => AttachFrom::Oldest,
        };
        let mut tag = message.tag;
        if message.cmd.is_empty() && tag.is_empty() {
            return Err(Error::invalid("neither cmd nor tag is set")
                .hint("cmd starts a program, tag finds one that was started before"));
        }
        if !message.cmd.is_empty() {
            let command = Command {
                cmd: message.cmd,
                args: message.args,
                envs: message.envs,
                cwd: message.cwd,
                user: message.user,
            };
            let mut request = command.request()?;
            if tag.is_empty() {
                tag = format!("pty-{}", random_hex(8));
            }
            request.tag = Some(tag.clone());
            request.program.stdin = true;
            request.tty = Some(size(message.cols, message.rows)?);
            self.exec_background(&id, request).await?;
        }
        let process = ask::tagged(&tag)?;
        let session = self.attach(&id, &process, Attach::from(from)).await?;
        Ok(screen(session, tag))
    }

    pub async fn pty_input(self, message: PtySendInputRequest) -> Result<PtySendInputResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let process = ask::tagged(&message.tag)?;
        let content = futures_util::stream::once(async move { Ok(message.data) });
        let typed = ProcessInput { close: false };
        self.write_process(&id, &process, typed, content.boxed())
            .await?;
        Ok(PtySendInputResponse {})
    }

    pub async fn pty_resize(self, message: PtyResizeRequest) -> Result<PtyResizeResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let process = ask::tagged(&message.tag)?;
        let size = size(message.cols, message.rows)?;
        self.resize_process(&id, &process, size).await?;
        Ok(PtyResizeResponse {})
    }

    pub async fn pty_kill(self, message: PtyKillRequest) -> Result<PtyKillResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let process = ask::tagged(&message.tag)?;
        let ask = SignalProcess {
            signal: Signal::KILL,
            tree: true,
        };
        self.signal_process(&id, &process, ask).await?;
        Ok(PtyKillResponse {})
    }
}

fn size(cols: u32, rows: u32) -> Result<TtySize> {
    let side = |name: &str, value: u32, usual: u32| {
        let value = if value == 0 { usual } else { value };
        u16::try_from(value).map_err(|_| {
            Error::invalid(format!("{name} is {value}")).hint("a terminal has at most 65535")
        })
    };
    Ok(TtySize {
        cols: side("cols", cols, COLS)?,
        rows: side("rows", rows, ROWS)?,
    })
}

/// Converts the output of a terminal to messages with offsets.
fn screen(session: ExecSession, tag: String) -> Outgoing<PtyAttachResponse> {
    let ExecSession { events, input, .. } = session;
    let mut reader = Reader {
        tag,
        ..Reader::default()
    };
    let messages = events.filter_map(move |event| {
        let _open = &input;
        let message = event.map(|event| reader.event(event)).transpose();
        std::future::ready(
            message.map(|event| event.map(|event| PtyAttachResponse { event: Some(event) })),
        )
    });
    messages.boxed()
}

#[derive(Debug, Default)]
struct Reader {
    tag: String,
    /// The offset of the next byte in the program's output.
    offset: u64,
    missing: Missing,
}

impl Reader {
    fn event(&mut self, event: ExecEvent) -> Option<Event> {
        match event {
            ExecEvent::Started(started) => {
                self.offset = started.stdout_from;
                Some(Event::Started(PtyStarted {
                    pid: started.pid,
                    tag: std::mem::take(&mut self.tag),
                }))
            }
            ExecEvent::Stdout(data) => {
                let offset = self.offset;
                self.offset += data.len() as u64;
                Some(Event::Output(PtyOutput { data, offset }))
            }
            ExecEvent::Gap(gap) => {
                self.missing.note(&gap);
                self.offset = gap.to;
                None
            }
            ExecEvent::Exited(exited) => Some(Event::Exited(PtyExited {
                exit_code: exited.exit_code,
                error: self.missing.and(&exited),
            })),
            // A terminal has only one output channel.
            ExecEvent::Stderr(_) | ExecEvent::Sandbox(_) => None,
        }
    }
}
