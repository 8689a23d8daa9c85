//! Exec of `true` in one live container, through REST and through gRPC: one caller, then many.

use super::grpc::Rpc;
use super::{Fallible, Live};
use crate::api::Api;
use crate::report::Report;
use crate::stats::Timings;
use crate::{Bench, Outcome};
use std::path::Path;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

const ALONE: usize = 500;
const CALLERS: usize = 64;
/// Calls of each of them.
const EACH: usize = 100;
const WARM: usize = 5;

/// A connection that runs commands.
pub trait Runs {
    fn run_true(&mut self, id: &str) -> Outcome;
}

impl Runs for Api {
    fn run_true(&mut self, id: &str) -> Outcome {
        self.exec(id, &["true"]).map(drop)
    }
}

impl Runs for Rpc {
    fn run_true(&mut self, id: &str) -> Outcome {
        self.exec(id, "true")
    }
}

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("the host as a service: exec of true in a live container");
    bench.note_load();
    let socket = bench.motu.home.join("daemon.sock");
    let live = Live::create(&bench.motu)?;
    face(&mut bench.report, "REST", &live.id, || {
        Api::connect(&socket)
    })?;
    face(&mut bench.report, "gRPC", &live.id, || connect(&socket))
}

fn connect(socket: &Path) -> Fallible<Rpc> {
    Rpc::connect(socket)
}

/// The figures of one face.
fn face<R: Runs>(
    report: &mut Report,
    name: &str,
    id: &str,
    open: impl Fn() -> Fallible<R> + Sync,
) -> Outcome {
    let mut one = open()?;
    let alone = Timings::of(ALONE, || one.run_true(id))?;
    report.at_most(&format!("{name}, one caller, p50"), alone.p50(), 3.0, "ms");
    let (busy, rate) = crowd(id, &open, None)?;
    report.at_least(
        &format!("{name}, {CALLERS} callers without a pause"),
        rate,
        1500.0,
        "/s",
    );
    let what = format!("{name}, {CALLERS} callers without a pause, p99");
    report.at_most(&what, busy.quantile(0.99), 15.0, "ms");
    // Callers that never pause wait for each other: with two processors their time is their number
    // divided by the rate. So the same crowd is measured with work to spare, too.
    let pause = Duration::from_secs_f64(CALLERS as f64 / (rate / 2.0));
    let (calm, _) = crowd(id, &open, Some(pause))?;
    let what = format!("{name}, {CALLERS} callers at half that rate, p99");
    report.at_most(&what, calm.quantile(0.99), 15.0, "ms");
    report.note("  p50", format!("{:.2} ms", calm.p50()));
    Ok(())
}

/// Runs commands from many connections at once: how long each took, and how many there were in a
/// second. With `apart`, each caller begins one in every such span.
fn crowd<R: Runs>(
    id: &str,
    open: &(impl Fn() -> Fallible<R> + Sync),
    apart: Option<Duration>,
) -> Fallible<(Timings, f64)> {
    let all = Mutex::new(Vec::with_capacity(CALLERS * EACH));
    let failure = Mutex::new(None);
    let start = Barrier::new(CALLERS + 1);
    let mut began = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..CALLERS {
            let (all, failure, start) = (&all, &failure, &start);
            scope.spawn(move || {
                let offset = apart.map(|apart| apart * number as u32 / CALLERS as u32);
                let ready = warm(id, open);
                start.wait();
                let ran = ready.and_then(|one| calls(one, id, apart.zip(offset)));
                match ran {
                    Ok(mut own) => {
                        if let Ok(mut all) = all.lock() {
                            all.append(&mut own);
                        }
                    }
                    Err(error) => {
                        if let Ok(mut failure) = failure.lock() {
                            *failure = Some(error.to_string());
                        }
                    }
                }
            });
        }
        start.wait();
        began = Instant::now();
    });
    let took = began.elapsed().as_secs_f64();
    match failure.into_inner()? {
        Some(error) => Err(error.into()),
        None => Ok((
            Timings::from(all.into_inner()?),
            (CALLERS * EACH) as f64 / took,
        )),
    }
}

fn warm<R: Runs>(id: &str, open: &impl Fn() -> Fallible<R>) -> Fallible<R> {
    let mut one = open()?;
    for _ in 0..WARM {
        one.run_true(id)?;
    }
    Ok(one)
}

fn calls(
    mut one: impl Runs,
    id: &str,
    pace: Option<(Duration, Duration)>,
) -> Fallible<Vec<Duration>> {
    let begin = Instant::now();
    let mut own = Vec::with_capacity(EACH);
    for number in 0..EACH {
        if let Some((apart, offset)) = pace {
            let due = offset + apart * number as u32;
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        let began = Instant::now();
        one.run_true(id)?;
        own.push(began.elapsed());
    }
    Ok(own)
}
