//! Output of background processes: the agent drops unread output, so it goes to files in the
//! machine, complete, with the exit code in another file.

use super::plan::{MARK, Plan};
use super::table::{Output, Running, exited};
use super::{Guest, is_missing};
use crate::record::{Ended, Remembered};
use crate::wire::Run;
use crate::wire::event::End;
use bytes::Bytes;
use http::StatusCode;
use motu_link::Sender;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT};
use motu_link::message::{Attach, Said, Started};
use motu_peer::answer::{Failed, note};
use std::time::Duration;

/// Runs a command with its output in files, and stores its exit code. The inner shell execs the
/// command, so its pid is the command's.
const SPOOL: &str = r#"d=$1; m=$2; shift 2; u=$(umask); umask 077
mkdir "$d" && : >"$d/out" && : >"$d/err" || exit 126
umask "$u"
MOTU_PROCESS=$m /bin/sh -c 'echo $$ >"$0/pid"; exec "$@"' "$d" "$@" >"$d/out" 2>"$d/err"
c=$?; echo "$c" >"$d/new"; mv "$d/new" "$d/code"; exit "$c""#;

/// Polling interval for more output, initially and after some silence.
const SOON: Duration = Duration::from_millis(50);
const LATER: Duration = Duration::from_millis(500);
/// Longest content of an exit code file.
const CODE: usize = 16;

/// A file of a process's spool directory.
fn place(about: &Remembered, name: &str) -> String {
    format!("{}/{name}", about.spool.as_deref().unwrap_or_default())
}

impl Running {
    /// The file with the command's own pid: the agent only knows the keeper's.
    pub(super) fn pid_file(&self) -> Option<String> {
        match self.output {
            Output::Spooled => Some(place(&self.about, "pid")),
            _ => None,
        }
    }
}

/// The command wrapped so that its output goes to files.
pub(super) fn spooled(plan: &Plan) -> Run {
    let run = &plan.run;
    let mut args = vec![
        "-c".to_string(),
        SPOOL.to_string(),
        "motu".to_string(),
        plan.spool.clone(),
        plan.mark.clone(),
        run.cmd.clone(),
    ];
    args.extend(run.args.iter().cloned());
    let mut run = Run {
        cmd: "/bin/sh".to_string(),
        args,
        ..run.clone()
    };
    // The keeper must not be signalled with the command.
    run.env.remove(MARK);
    run
}

/// The command's end, from the keeper's exit code. Shells report 128 + signal.
pub(super) fn unwrapped(keeper: &End) -> End {
    match keeper.code {
        code @ 129..=192 => End {
            code,
            signal: code - 128,
        },
        _ => keeper.clone(),
    }
}

impl Guest {
    /// How a process ended that the agent has forgotten; without an exit code it was killed.
    pub(super) async fn ended_before(&self, about: &Remembered) -> Result<End, Failed> {
        let path = place(about, "code");
        let killed = End {
            code: 137,
            signal: 9,
        };
        let text = match self.some(&path, CODE).await {
            Ok(text) => text,
            Err(failed) if failed.kind == motu_link::message::Failure::NotFound => {
                return Ok(killed);
            }
            Err(failed) => return Err(failed),
        };
        let code = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        Ok(code.map_or(killed, |code| unwrapped(&End { code, signal: 0 })))
    }

    /// The contents of a short file.
    async fn some(&self, path: &str, most: usize) -> Result<Vec<u8>, Failed> {
        let mut answer = self.told(self.envd.read(path, 0).await).await?;
        let mut text = Vec::new();
        let patience = self.envd.patience().call;
        while text.len() < most {
            match self.told(answer.piece_within(patience).await).await? {
                Some(piece) => text.extend_from_slice(&piece),
                None => break,
            }
        }
        text.truncate(most);
        Ok(text)
    }

    /// The sizes of both output files.
    pub(super) async fn spooled_bytes(&self, about: &Remembered) -> Result<(u64, u64), Failed> {
        let mut sizes = [0, 0];
        for (size, name) in sizes.iter_mut().zip(["out", "err"]) {
            let path = place(about, name);
            match self.envd.stat(&path, "").await {
                Ok(info) => *size = info.entry(&path).size,
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(self.failed(error).await),
            }
        }
        Ok((sizes[0], sizes[1]))
    }

    /// Sends the contents of the files until the process has ended and everything is sent.
    pub(super) async fn follow_spool(
        &self,
        process: &Running,
        wanted: &Attach,
        tx: &Sender,
    ) -> Result<Ended, Failed> {
        let there = match wanted.from_oldest {
            true => (0, 0),
            false => self.spooled_bytes(&process.about).await?,
        };
        let (mut out, mut err) = match wanted.from_newest {
            true => there,
            false if wanted.from_oldest => (0, 0),
            false => (wanted.out_from.min(there.0), wanted.err_from.min(there.1)),
        };
        let started = Started {
            pid: process.pid,
            tag: process.about.tag.clone(),
            out_from: out,
            err_from: err,
            started_unix_ms: process.about.started_unix_ms,
        };
        note(tx, Said::Started(started)).await?;
        let mut end = process.ended.subscribe();
        let mut pause = SOON;
        loop {
            // Check the end first: all output before a known end is in the files.
            let ended = *end.borrow_and_update();
            self.going().await;
            let more = self.pass(process, (CHANNEL_OUT, &mut out), tx).await?
                | self.pass(process, (CHANNEL_ERR, &mut err), tx).await?;
            if let Some(ended) = ended {
                return Ok(ended);
            }
            pause = if more { SOON } else { (pause * 2).min(LATER) };
            tokio::select! {
                _ = end.changed() => {}
                () = tokio::time::sleep(pause) => {}
                gone = tx.closed() => return Err(gone.into()),
            }
        }
    }

    /// Sends a file from an offset; returns whether there was any data.
    async fn pass(
        &self,
        process: &Running,
        (channel, at): (u8, &mut u64),
        tx: &Sender,
    ) -> Result<bool, Failed> {
        let name = if channel == CHANNEL_ERR { "err" } else { "out" };
        let path = place(&process.about, name);
        let mut answer = match self.envd.read(&path, *at).await {
            Ok(answer) => answer,
            // The process has just been started.
            Err(error) if is_missing(&error) => match self.failed(error).await {
                gone if gone.kind == motu_link::message::Failure::Cancelled => return Err(gone),
                _ => return Ok(false),
            },
            Err(error) => return Err(self.failed(error).await),
        };
        let mut skip = match answer.status {
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(false),
            StatusCode::PARTIAL_CONTENT => 0,
            _ => *at,
        };
        let patience = self.envd.patience().call;
        let mut more = false;
        while let Some(mut piece) = self.told(answer.piece_within(patience).await).await? {
            let over = skip.min(piece.len() as u64);
            skip -= over;
            let piece: Bytes = piece.split_off(over as usize);
            if !piece.is_empty() {
                *at += piece.len() as u64;
                more = true;
                tx.data(channel, piece).await?;
            }
        }
        Ok(more)
    }
}

/// Sends the exit note.
pub(super) async fn tell(tx: &Sender, ended: Ended) -> Result<(), Failed> {
    Ok(note(tx, Said::Exited(exited(ended))).await?)
}
