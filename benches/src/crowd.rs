//! Five hundred sandboxes at once.

use crate::memory::resident_kib;
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::sync::Mutex;
use std::time::Instant;

const CROWD: usize = 500;
const CALLERS: usize = 8;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench.report.group("500 sandboxes at once");
    let before = resident_kib(bench.motu.pid())?;
    let ids = Mutex::new(Vec::with_capacity(CROWD));
    let begun = Instant::now();
    in_parallel(bench, CROWD, |api, _| {
        let id = api.create(ENVIRONMENT)?;
        ids.lock().map_err(|_| "a caller failed")?.push(id);
        Ok(())
    })?;
    let created = begun.elapsed().as_secs_f64();
    let ids = ids.into_inner()?;
    bench.report.at_most("created in", created, 15.0, "s");

    let mut api = bench.motu.api()?;
    let mut at = 0;
    let exec = Timings::of(1000, || {
        at = (at + 7) % CROWD;
        api.exec(&ids[at], &["true"]).map(drop)
    })?;
    bench
        .report
        .note("exec p50, all alive", format!("{:.2} ms", exec.p50()));
    bench
        .report
        .at_most("exec p99, all alive", exec.quantile(0.99), 15.0, "ms");
    let after = resident_kib(bench.motu.pid())?;
    bench.report.at_most(
        "daemon memory per idle sandbox",
        (after - before) / CROWD as f64 * 1.024,
        150.0,
        "KB",
    );

    let begun = Instant::now();
    in_parallel(bench, CROWD, |api, at| api.destroy(&ids[at]))?;
    bench
        .report
        .at_most("destroyed in", begun.elapsed().as_secs_f64(), 10.0, "s");
    bench.report.note(
        "daemon resident after all this",
        format!("{:.1} MB", resident_kib(bench.motu.pid())? / 1e3 * 1.024),
    );
    Ok(())
}

/// Does some work so many times, a few at once.
pub fn in_parallel(
    bench: &Bench,
    count: usize,
    work: impl Fn(&mut crate::api::Api, usize) -> Outcome + Sync,
) -> Outcome {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let tried = (|| -> Outcome {
                    let mut api = bench.motu.api()?;
                    loop {
                        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if at >= count {
                            return Ok(());
                        }
                        work(&mut api, at)?;
                    }
                })();
                if let (Err(error), Ok(mut slot)) = (tried, failure.lock()) {
                    slot.get_or_insert_with(|| error.to_string());
                }
            });
        }
    });
    match failure.into_inner()? {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
