//! Processes that outlive their caller, terminals included.
//!
//! Each has a task that waits for its end. Its description is in the machine's record, so that a
//! restarted daemon adopts it.

use super::direct::TAG as CALL;
use super::plan::{self, Plan};
use super::ring::{Found, Ring};
use super::spool;
use super::table::{Output, Running};
use super::{Guest, NO_CALL, is_missing};
use crate::record::{Ended, Remembered};
use crate::wire::Events;
use crate::wire::Standing;
use crate::wire::event::{End, Happened};
use motu_core::limits;
use motu_link::Stream;
use motu_link::frame::CHANNEL_OUT;
use motu_link::message::{Attach, Failure, Gap, Said, Selector, Started};
use motu_peer::answer::{Failed, note};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prefix of the agent's tags of such processes.
const TAG: &str = "motu-kept-";
/// Pause before a broken stream is resumed, initially and at most.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(5);
/// Attempts to resume for a waiting caller.
const ATTEMPTS: u32 = 8;

/// Starts a background process. It is recorded before it exists.
pub(super) async fn start(
    guest: &Arc<Guest>,
    plan: Plan,
    stream: &mut Stream,
) -> Result<(), Failed> {
    if guest.table.is_full() {
        let most = limits::E2B_PROCESSES.default;
        let message = format!("the machine has {most} background processes (e2b_processes)");
        return Err(Failed::new(Failure::Limit, message));
    }
    let mut run = match plan.run.pty {
        Some(_) => plan.run.clone(),
        None => spool::spooled(&plan),
    };
    run.tag = format!("{TAG}{}", plan.mark);
    // The agent would only kill the keeper: the time limit is enforced here.
    run.deadline = None;
    guest.remember(|all| all.push(plan.remembered(0)))?;
    let (pid, events) = match guest.envd.start(&run).await {
        Ok(started) => started,
        Err(error) => {
            let unknown = error.is_unknown();
            guest.remember(|all| all.retain(|one| one.mark != plan.mark))?;
            if unknown {
                let file = match plan.run.pty {
                    Some(_) => String::new(),
                    None => format!("{}/pid", plan.spool),
                };
                guest.kill_marked(&plan.mark, &file).await;
            }
            return Err(plan::refused(guest, error, &plan).await);
        }
    };
    let about = plan.remembered(pid);
    let running = running(about.clone());
    if let Some(former) = guest.table.keep(running.clone()) {
        drop_spool(guest, &former.about).await;
    }
    guest.remember(|all| {
        all.retain(|one| one.mark != about.mark && one.pid != pid);
        all.push(about.clone());
    })?;
    tokio::spawn(watch(guest.clone(), running, Some(events)));
    let started = Started {
        pid,
        tag: plan.tag,
        out_from: 0,
        err_from: 0,
        started_unix_ms: plan.started_unix_ms,
    };
    Ok(note(&stream.tx, Said::Started(started)).await?)
}

fn running(about: Remembered) -> Arc<Running> {
    let output = match about.pty {
        true => Output::Ring(Ring::new(limits::OUTPUT_RING_BYTES.default as usize)),
        false => Output::Spooled,
    };
    Running::new(about, output)
}

/// Adopts what a previous daemon left: background processes continue, and commands whose callers
/// are gone are killed.
pub(super) async fn adopt(guest: Arc<Guest>) {
    guest.going().await;
    let listed = match guest.envd.processes().await {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(id = guest.id, %error, "reading the processes of an earlier daemon failed");
            Vec::new()
        }
    };
    for process in &listed {
        if let Some(mark) = process.tag.strip_prefix(CALL)
            && !guest.table.is_call(mark)
        {
            guest.kill_marked(mark, "").await;
        }
    }
    // The daemon may have died between a start and its answer.
    let found = |about: &Remembered| {
        let tag = format!("{TAG}{}", about.mark);
        listed.iter().find(|one| one.tag == tag).map(|one| one.pid)
    };
    let unnumbered: Vec<Remembered> = guest
        .record()
        .processes
        .iter()
        .filter(|one| one.pid == 0)
        .cloned()
        .collect();
    for mut about in unnumbered {
        let mark = about.mark.clone();
        if let Some(pid) = found(&about) {
            about.pid = pid;
            take_up(&guest, about.clone());
        }
        let kept = guest.remember(|all| {
            all.retain(|one| one.mark != mark);
            all.extend((about.pid > 0).then_some(about));
        });
        if let Err(failed) = kept {
            tracing::warn!(
                id = guest.id,
                reason = failed.message,
                "recording a process failed"
            );
        }
    }
}

/// Enters recorded processes at once: callers may ask for them before the machine answers.
pub(super) fn recall(guest: &Arc<Guest>) {
    let known = guest.record().processes.clone();
    for about in known.into_iter().filter(|one| one.pid > 0) {
        take_up(guest, about);
    }
}

fn take_up(guest: &Arc<Guest>, about: Remembered) {
    let running = running(about);
    guest.table.keep(running.clone());
    if running.has_ended().is_none() {
        tokio::spawn(watch(guest.clone(), running, None));
    }
}

/// Waits for the end of a process, or of its machine.
async fn watch(guest: Arc<Guest>, process: Arc<Running>, events: Option<Events>) {
    let mut fate = guest.fates.watch(&guest.id);
    tokio::select! {
        () = attend(&guest, &process, events) => {}
        // An error means that the fate was removed: the machine was destroyed.
        _ = fate.wait_for(Option::is_some) => {}
    }
}

async fn attend(guest: &Guest, process: &Running, mut events: Option<Events>) {
    let mut timed_out = false;
    let mut pause = AGAIN;
    let end = loop {
        let over = async {
            match process.about.ends_unix_ms {
                Some(ends) if !timed_out => tokio::time::sleep(until(ends)).await,
                _ => std::future::pending().await,
            }
        };
        let followed = tokio::select! {
            followed = follow(guest, process, &mut events) => followed,
            () = over => {
                timed_out = true;
                guest.kill_tree(process).await;
                continue;
            }
        };
        match followed {
            Ok(end) => break end,
            // No answer does not mean that it has ended: ask again.
            Err(failed) => {
                let reason = failed.message;
                tracing::debug!(id = guest.id, pid = process.pid, reason, "asked again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MOST);
            }
        }
    };
    settle(guest, process, end, timed_out).await;
}

fn until(unix_ms: u64) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Duration::from_millis(unix_ms).saturating_sub(now)
}

/// Follows a process to its end; `events` is `None` if they must be requested.
async fn follow(
    guest: &Guest,
    process: &Running,
    events: &mut Option<Events>,
) -> Result<End, Failed> {
    loop {
        let Some(stream) = events.as_mut() else {
            guest.going().await;
            match guest.envd.attach(process.pid).await {
                Ok(found) => *events = Some(found),
                Err(error) if is_missing(&error) => match guest.failed(error).await {
                    gone if gone.kind == Failure::Cancelled => return Err(gone),
                    _ => return guest.ended_before(&process.about).await,
                },
                Err(error) => return Err(guest.failed(error).await),
            }
            continue;
        };
        match (stream.next().await, &process.output) {
            (Ok(Happened::Out(bytes)), Output::Ring(ring)) => ring.push(&bytes).await,
            (Ok(Happened::Ended(end)), Output::Spooled) => return Ok(spool::unwrapped(&end)),
            (Ok(Happened::Ended(end)), _) => return Ok(end),
            (Ok(Happened::Over), _) => *events = None,
            (Ok(_), _) => {}
            (Err(error), _) => {
                *events = None;
                return Err(guest.failed(error).await);
            }
        }
    }
}

/// Records how a process ended, and notifies waiters.
async fn settle(guest: &Guest, process: &Running, end: End, timed_out: bool) {
    let (out, err) = match &process.output {
        Output::Ring(ring) => (ring.total(), 0),
        _ => guest
            .spooled_bytes(&process.about)
            .await
            .unwrap_or_default(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_millis() as u64);
    let ended = Ended {
        code: end.code,
        signal: end.signal,
        timed_out,
        duration_ms: now.saturating_sub(process.about.started_unix_ms),
        out,
        err,
    };
    let written = guest.remember(|all| {
        let own = all.iter_mut().filter(|one| one.mark == process.about.mark);
        own.for_each(|one| one.ended = Some(ended));
    });
    if let Err(failed) = written {
        tracing::warn!(
            id = guest.id,
            reason = failed.message,
            "recording the exit of a process failed"
        );
    }
    process.ended.send_replace(Some(ended));
}

/// Follows a process for a new caller.
pub(super) async fn attach(
    guest: &Arc<Guest>,
    wanted: Attach,
    stream: &mut Stream,
) -> Result<(), Failed> {
    let process = guest.table.find(wanted.process.clone())?;
    let following = async {
        match &process.output {
            Output::Direct => Err(Failed::unsupported(
                "follow a command of another call",
                NO_CALL,
            )),
            Output::Spooled => guest.follow_spool(&process, &wanted, &stream.tx).await,
            Output::Ring(ring) => follow_ring(&process, ring, &wanted, &stream.tx).await,
        }
    };
    let ended = tokio::select! {
        ended = following => ended?,
        left = guest.listen(&process, &mut stream.rx) => {
            if wanted.kill_on_reset && left == motu_link::LinkError::Reset {
                guest.kill_tree(&process).await;
            }
            return Err(left.into());
        }
    };
    spool::tell(&stream.tx, ended).await?;
    match wanted.forget {
        true => forget(guest, wanted.process.unwrap_or_default()).await,
        false => Ok(()),
    }
}

async fn follow_ring(
    process: &Running,
    ring: &Ring,
    wanted: &Attach,
    tx: &motu_link::Sender,
) -> Result<Ended, Failed> {
    let at = (!wanted.from_oldest).then_some(wanted.out_from);
    let mut reader = ring.reader(at, wanted.from_newest, wanted.lossless);
    let started = Started {
        pid: process.pid,
        tag: process.about.tag.clone(),
        out_from: reader.at(),
        err_from: 0,
        started_unix_ms: process.about.started_unix_ms,
    };
    note(tx, Said::Started(started)).await?;
    let mut end = process.ended.subscribe();
    loop {
        let ended = *end.borrow_and_update();
        match reader.take() {
            Found::Bytes(bytes) => tx.data(CHANNEL_OUT, bytes).await?,
            Found::Gap { from, to } => {
                let channel = u32::from(CHANNEL_OUT);
                note(tx, Said::Gap(Gap { channel, from, to })).await?;
            }
            Found::Nothing => match ended {
                Some(ended) => return Ok(ended),
                None => tokio::select! {
                    () = reader.moved() => {}
                    _ = end.changed() => {}
                },
            },
        }
    }
}

/// Forgets a process that has ended.
pub(super) async fn forget(guest: &Arc<Guest>, process: Selector) -> Result<(), Failed> {
    let process = guest.table.find(Some(process))?;
    if process.has_ended().is_none() {
        return Err(Failed::invalid("the process has not ended"));
    }
    guest.table.forget(process.pid);
    drop_spool(guest, &process.about).await;
    guest.remember(|all| all.retain(|one| one.mark != process.about.mark))
}

async fn drop_spool(guest: &Guest, about: &Remembered) {
    if let Some(spool) = &about.spool
        && let Err(error) = guest.envd.remove(spool).await
    {
        tracing::debug!(id = guest.id, %error, "removing output files from the machine failed");
    }
}

impl Guest {
    /// Resumes a broken stream of a process, for a waiting caller.
    pub(super) async fn again(&self, pid: u32) -> Result<Events, Failed> {
        let mut pause = AGAIN;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            self.going().await;
            let error = match self.envd.attach(pid).await {
                Ok(events) => return Ok(events),
                Err(error) => error,
            };
            match self.control.detail(&self.id).await {
                Ok(Standing::Gone(reason)) => return Err(self.gone(&reason)),
                // It is being paused, or will be resumed shortly.
                Ok(Standing::There(detail)) if detail.is_paused() => {}
                Ok(Standing::There(_)) if is_missing(&error) => {
                    let message = "its output ended before the command did";
                    return Err(Failed::new(Failure::Cancelled, message));
                }
                _ => {}
            }
            last = Some(error);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MOST);
        }
        let error = last.map_or_else(String::new, |error| error.to_string());
        Err(Failed::new(
            Failure::Cancelled,
            format!("a command cannot be followed: {error}"),
        ))
    }
}
