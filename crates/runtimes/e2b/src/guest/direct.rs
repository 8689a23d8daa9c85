//! Commands with a waiting caller: their output goes directly from the agent to the caller, at the
//! caller's pace, and they end with the caller.

use super::Guest;
use super::plan::{self, Plan};
use super::table::{Output, Running, exited};
use crate::record::Ended;
use crate::wire::Events;
use crate::wire::event::{End, Happened};
use bytes::Bytes;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT};
use motu_link::message::{Failure, Said, Started};
use motu_link::{LinkError, Sender, Stream};
use motu_peer::PeerError;
use motu_peer::answer::{Failed, note};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prefix of the agent's tags of such commands.
pub(super) const TAG: &str = "motu-call-";
/// How long a killed command may take to end.
const DYING: Duration = Duration::from_secs(20);

/// Kills a command whose caller is gone, for whatever reason.
struct Ending {
    guest: Arc<Guest>,
    mark: String,
    over: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Without a runtime the daemon itself is ending: the next one finds the command.
        if !self.over
            && let Ok(threads) = tokio::runtime::Handle::try_current()
        {
            let (guest, mark) = (self.guest.clone(), self.mark.clone());
            threads.spawn(async move { guest.kill_marked(&mark, "").await });
        }
    }
}

/// Runs a command to its end, or until its caller is gone.
pub(super) async fn run(
    guest: &Arc<Guest>,
    mut plan: Plan,
    stream: &mut Stream,
) -> Result<(), Failed> {
    plan.run.tag = format!("{TAG}{}", plan.mark);
    let _called = guest.table.call(&plan.mark);
    let mut ending = Ending {
        guest: guest.clone(),
        mark: plan.mark.clone(),
        over: true,
    };
    let begun = Instant::now();
    let (pid, events) = match guest.envd.start(&plan.run).await {
        Ok(started) => started,
        Err(error) => {
            // It is unknown whether the command runs.
            ending.over = !error.is_unknown();
            return Err(plan::refused(guest, error, &plan).await);
        }
    };
    ending.over = false;
    let running = Running::new(plan.remembered(pid), Output::Direct);
    let _entered = guest.table.enter(running.clone());
    let started = Started {
        pid,
        tag: plan.tag.clone(),
        out_from: 0,
        err_from: 0,
        started_unix_ms: plan.started_unix_ms,
    };
    note(&stream.tx, Said::Started(started)).await?;
    let mut call = Call {
        guest,
        running: &running,
        tx: &stream.tx,
        out: 0,
        err: 0,
    };
    let working = call.work(events, plan.limit, &plan.mark);
    let (end, timed_out) = tokio::select! {
        ended = working => ended?,
        left = guest.listen(&running, &mut stream.rx) => return Err(left.into()),
    };
    ending.over = true;
    let ended = Ended {
        code: end.code,
        signal: end.signal,
        timed_out,
        duration_ms: begun.elapsed().as_millis() as u64,
        out: call.out,
        err: call.err,
    };
    Ok(note(&stream.tx, Said::Exited(exited(ended))).await?)
}

struct Call<'a> {
    guest: &'a Guest,
    running: &'a Running,
    tx: &'a Sender,
    out: u64,
    err: u64,
}

impl Call<'_> {
    /// Forwards output until the command ends, or its time is over.
    async fn work(
        &mut self,
        events: Events,
        limit: Option<Duration>,
        mark: &str,
    ) -> Result<(End, bool), Failed> {
        let guest = self.guest;
        let mut events = Some(events);
        let over = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            end = self.follow(&mut events) => return Ok((end?, false)),
            () = over => {}
        }
        guest.going().await;
        guest.kill_marked(mark, "").await;
        // Its last output is still on the way.
        match tokio::time::timeout(DYING, self.follow(&mut events)).await {
            Ok(end) => {
                let end = end?;
                let code = if end.code == 0 { 128 + 9 } else { end.code };
                Ok((End { code, ..end }, true))
            }
            Err(_) => Err(Failed::new(
                Failure::Cancelled,
                "the time of a command is over and it does not end",
            )),
        }
    }

    /// Forwards output until the command ends. A broken stream is resumed: a service that pauses a
    /// machine cuts its connections.
    async fn follow(&mut self, events: &mut Option<Events>) -> Result<End, Failed> {
        loop {
            let said = match events.as_mut() {
                Some(events) => events.next().await,
                None => {
                    *events = Some(self.guest.again(self.running.pid).await?);
                    self.running.heard.send_replace(true);
                    continue;
                }
            };
            match said {
                Ok(Happened::Out(bytes)) => self.say(CHANNEL_OUT, bytes).await?,
                Ok(Happened::Err(bytes)) => self.say(CHANNEL_ERR, bytes).await?,
                Ok(Happened::Ended(end)) => return Ok(end),
                Ok(Happened::Over) | Err(PeerError::Broken { .. }) => {
                    self.running.heard.send_replace(false);
                    *events = None;
                }
                Ok(_) => {}
                Err(error) => return Err(self.guest.failed(error).await),
            }
        }
    }

    /// Forwards output; a slow caller slows the agent down.
    async fn say(&mut self, channel: u8, bytes: Bytes) -> Result<(), LinkError> {
        let count = match channel {
            CHANNEL_ERR => &mut self.err,
            _ => &mut self.out,
        };
        *count += bytes.len() as u64;
        self.tx.data(channel, bytes).await
    }
}
