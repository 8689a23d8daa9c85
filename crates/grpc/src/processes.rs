//! Background processes, which outlive the call that started them.

use crate::agent::Agent;
use crate::ask::{self, Command};
use crate::commands::pieces;
use crate::service::Outgoing;
use crate::wire::{
    ConnectProcessRequest, ConnectProcessResponse, KillProcessRequest, KillProcessResponse,
    ListProcessesRequest, ListProcessesResponse, ProcessEntry, StartBackgroundRequest,
    StartBackgroundResponse, connect_process_request, kill_process_request,
};
use motu_core::exec::{Attach, AttachFrom, Process, Selector, SignalProcess};
use motu_core::id::random_hex;
use motu_core::{Error, Result, Service, Signal};

impl Agent {
    pub async fn start_background(
        self,
        message: StartBackgroundRequest,
    ) -> Result<StartBackgroundResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let command = Command {
            cmd: message.cmd,
            args: message.args,
            envs: message.envs,
            cwd: message.cwd,
            user: message.user,
        };
        let mut request = command.request()?;
        let tag = ask::word(message.tag);
        request.tag = Some(tag.unwrap_or_else(|| format!("proc-{}", random_hex(8))));
        let started = self.exec_background(&id, request).await?;
        Ok(StartBackgroundResponse {
            pid: started.pid,
            tag: started.tag,
        })
    }

    pub async fn list_running(
        self,
        message: ListProcessesRequest,
    ) -> Result<ListProcessesResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let all = self.list_processes(&id).await?.processes;
        let running = all.into_iter().filter(|process| process.exited.is_none());
        Ok(ListProcessesResponse {
            processes: running.map(entry).collect(),
        })
    }

    pub async fn kill_process(self, message: KillProcessRequest) -> Result<KillProcessResponse> {
        use kill_process_request::Selector as Named;
        let id = ask::sandbox(&message.sandbox_id)?;
        let process = match message.selector {
            Some(Named::Pid(pid)) => Selector::Pid(pid),
            Some(Named::Tag(tag)) => ask::tagged(&tag)?,
            None => return Err(nobody()),
        };
        let signal = match ask::word(message.signal) {
            Some(name) => Signal::try_from(name)?,
            None => Signal::KILL,
        };
        let ask = SignalProcess { signal, tree: true };
        self.signal_process(&id, &process, ask).await?;
        Ok(KillProcessResponse {})
    }

    pub async fn connect_process(
        self,
        message: ConnectProcessRequest,
    ) -> Result<Outgoing<ConnectProcessResponse>> {
        use connect_process_request::Selector as Named;
        let id = ask::sandbox(&message.sandbox_id)?;
        let process = match message.selector {
            Some(Named::Pid(pid)) => Selector::Pid(pid),
            Some(Named::Tag(tag)) => ask::tagged(&tag)?,
            None => return Err(nobody()),
        };
        let from = match (message.stdout_from, message.stderr_from) {
            (None, None) => AttachFrom::Oldest,
            (stdout, stderr) => AttachFrom::Offsets {
                stdout: stdout.unwrap_or(0),
                stderr: stderr.unwrap_or(0),
            },
        };
        Ok(pieces(
            self.attach(&id, &process, Attach::from(from)).await?,
        ))
    }
}

fn nobody() -> Error {
    Error::invalid("no process is named").hint("set pid or tag")
}

fn entry(process: Process) -> ProcessEntry {
    let mut command = process.command.into_iter();
    ProcessEntry {
        pid: process.pid,
        tag: process.tag,
        cmd: command.next().unwrap_or_default(),
        args: command.collect(),
    }
}
