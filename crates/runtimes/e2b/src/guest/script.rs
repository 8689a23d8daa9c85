//! Short commands of our own in a machine, for what the agent has no call for.

use super::meaning;
use crate::wire::event::Happened;
use crate::wire::{Envd, Run};
use motu_link::message::Failure;
use motu_peer::PeerError;
use motu_peer::answer::Failed;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most output of such a command.
const MOST: usize = 64 * 1024;
/// Timeout of such a command.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints the number of processes, the CPU line of /proc/stat, and /proc/uptime.
const COUNT: &str =
    "set -- /proc/[0-9]*; echo $#; read -r ticks </proc/stat; echo \"$ticks\"; cat /proc/uptime";
/// USER_HZ: the tick length in `/proc/stat`.
const TICK_US: u64 = 10_000;

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

impl Done {
    /// Its error output, for messages.
    pub(crate) fn said(&self) -> String {
        motu_peer::error::quoted(&self.err)
    }
}

/// Runs a command to its end as this user.
pub(crate) async fn run(
    envd: &Envd,
    user: &str,
    (cmd, args): (&str, &[&str]),
) -> Result<Done, PeerError> {
    let run = Run {
        cmd: cmd.to_string(),
        args: args.iter().map(|word| word.to_string()).collect(),
        env: BTreeMap::from([("LC_ALL".to_string(), "C".to_string())]),
        user: user.to_string(),
        tag: "motu-script".to_string(),
        deadline: Some(PATIENCE),
        ..Run::default()
    };
    let what = "run a command";
    let working = async {
        let (_, mut events) = envd.start(&run).await?;
        let mut done = Done::default();
        loop {
            match events.next().await? {
                Happened::Out(bytes) if done.out.len() + bytes.len() <= MOST => {
                    done.out.extend_from_slice(&bytes);
                }
                Happened::Out(_) => return Err(PeerError::TooLong { what }),
                Happened::Err(bytes) => {
                    let room = MOST.saturating_sub(done.err.len()).min(bytes.len());
                    done.err.extend_from_slice(&bytes[..room]);
                }
                Happened::Ended(end) => {
                    done.code = end.code;
                    return Ok(done);
                }
                Happened::Over => {
                    let reason = "its output ended before the command did".to_string();
                    return Err(PeerError::Broken { what, reason });
                }
                _ => {}
            }
        }
    };
    let patience = PATIENCE;
    let done = tokio::time::timeout(patience, working).await;
    done.map_err(|_| PeerError::Slow { what, patience })?
}

/// Number of processes, busy CPU time in microseconds, and uptime in milliseconds.
pub(crate) async fn counted(envd: &Envd) -> Result<(u32, u64, u64), Failed> {
    let done = run(envd, "", ("/bin/sh", &["-c", COUNT])).await;
    let done = done.map_err(meaning)?;
    let text = String::from_utf8_lossy(&done.out);
    numbers(&text).ok_or_else(|| Failed::new(Failure::Io, "the machine has no /proc to count in"))
}

fn numbers(text: &str) -> Option<(u32, u64, u64)> {
    let mut lines = text.lines();
    let processes = lines.next()?.trim().parse().ok()?;
    // user nice system idle iowait irq softirq steal
    let ticks: Vec<u64> = lines
        .next()?
        .split_whitespace()
        .skip(1)
        .take(8)
        .flat_map(str::parse)
        .collect();
    let idle = |at: usize| at == 3 || at == 4;
    let busy = ticks.iter().enumerate().filter(|(at, _)| !idle(*at));
    let busy = busy.fold(0u64, |sum, (_, ticks)| sum.saturating_add(*ticks));
    let uptime: f64 = lines.next()?.split_whitespace().next()?.parse().ok()?;
    let uptime = (uptime * 1000.0).clamp(0.0, 1e15) as u64;
    Some((processes, busy.saturating_mul(TICK_US), uptime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_counts_is_read_or_refused() {
        let text = "12\ncpu  1 2 3 100 50 4 5 6 7 8\n3.50 1.00\n";
        assert_eq!(numbers(text), Some((12, 210_000, 3500)));
        for wrong in ["", "x\n", "1\ncpu\n", "1\ncpu 1\nsoon\n"] {
            assert_eq!(numbers(wrong), None, "{wrong:?}");
        }
    }
}
