//! What it costs the daemon to sample many sandboxes, whose only work it is.

use super::Fallible;
use crate::crowd::in_parallel;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const CROWD: usize = 500;
/// Long enough for a round of questions to the guests, which is every 30 s.
const SPAN: Duration = Duration::from_secs(32);
/// What creating them leaves to be done is over by then.
const CALM: Duration = Duration::from_secs(15);

pub fn measure(bench: &mut Bench) -> Outcome {
    let crowd = if bench.quick { CROWD / 10 } else { CROWD };
    let title = format!("the host as a service: sampling {crowd} idle containers");
    bench.report.group(&title);
    let ids = Mutex::new(Vec::with_capacity(crowd));
    in_parallel(bench, crowd, |api, _| {
        let id = api.create(ENVIRONMENT)?;
        ids.lock().map_err(|_| "a caller failed")?.push(id);
        Ok(())
    })?;
    let ids = ids.into_inner()?;
    let measured = sampled(bench, ids.first().ok_or("no sandbox")?);
    in_parallel(bench, crowd, |api, at| api.destroy(&ids[at]))?;
    let (share, points) = measured?;
    bench
        .report
        .at_most("of one processor", share * 100.0, 5.0, "%");
    bench.report.note(
        "points of one of them in that time",
        format!("{points} in {} s", SPAN.as_secs()),
    );
    Ok(())
}

/// The share of a processor that the daemon takes, and how many points one sandbox got meanwhile.
fn sampled(bench: &Bench, id: &str) -> Fallible<(f64, u64)> {
    let points = || -> Fallible<u64> {
        let address = format!("/v1/sandboxes/{id}/metrics/history?range=10m");
        // A new connection each time: the daemon closes one that is silent for so long.
        let history = bench.motu.api()?.call("GET", &address, None)?;
        let points = history["points"].as_array().ok_or("no points")?;
        Ok(points.len() as u64)
    };
    std::thread::sleep(CALM);
    bench.note_load();
    let (before, spent, began) = (points()?, cpu(bench.motu.pid())?, Instant::now());
    std::thread::sleep(SPAN);
    let share = (cpu(bench.motu.pid())? - spent) / began.elapsed().as_secs_f64();
    let points = points()? - before;
    // Two in a second, or they were not sampled as they should be.
    match points >= SPAN.as_secs() * 3 / 2 {
        true => Ok((share, points)),
        false => Err(format!("only {points} points in {} s", SPAN.as_secs()).into()),
    }
}

/// Seconds of processor time that a process has taken.
fn cpu(pid: u32) -> Fallible<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name before it may have blanks.
    let (_, rest) = stat.rsplit_once(')').ok_or("no name")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| -> Fallible<f64> { Ok(fields.get(at).ok_or("no field")?.parse()?) };
    let a_second = rustix::param::clock_ticks_per_second() as f64;
    Ok((ticks(11)? + ticks(12)?) / a_second)
}
