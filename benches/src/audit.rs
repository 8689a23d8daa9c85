//! The cost of recording a call.

use crate::stats::Timings;
use crate::{Bench, Outcome};
use motu_audit::Log;
use motu_core::audit::{AuditCall, AuditCaller, AuditId, Facts, ListAudit, Stage};
use motu_core::config::AuditConfig;
use std::path::Path;
use std::time::Instant;

/// Entries appended to measure the rate.
const ENTRIES: usize = 100_000;
/// Concurrent callers that wait for the disk.
const CROWD: usize = 256;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench.report.group("the audit log");
    let home = tempfile::tempdir_in(&bench.motu.home)?;
    let log = open(&home.path().join("one"))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let call = call();
    let alone = Timings::of(2000, || runtime.block_on(log.record(&call, true)))?;
    let report = &mut bench.report;
    report.at_most("a call that waits for the disk", alone.p50(), 1.0, "ms");
    report.note("  p99", format!("{:.2} ms", alone.quantile(0.99)));
    let read = Timings::of(2000, || runtime.block_on(log.record(&call, false)))?;
    report.note("a call that only looks", format!("{:.3} ms", read.p50()));
    let found = look_for(bench, &home.path().join("reads"), &runtime)?;
    let report = &mut bench.report;
    report.at_most(
        "the newest 20 changes behind 100 000 reads",
        found,
        5.0,
        "ms",
    );
    let log = open(&home.path().join("many"))?;
    let entries = if bench.quick { ENTRIES / 10 } else { ENTRIES };
    let began = Instant::now();
    runtime.block_on(async {
        for _ in 0..entries / CROWD {
            let waits: Vec<_> = (0..CROWD).map(|_| log.record(&call, true)).collect();
            for wait in waits {
                wait.await?;
            }
        }
        motu_core::Result::Ok(())
    })?;
    let speed = entries as f64 / began.elapsed().as_secs_f64();
    report.at_least("entries a second, each on the disk", speed, 20_000.0, "");
    let began = Instant::now();
    let ask = motu_core::audit::VerifyAudit::default();
    let found = runtime.block_on(std::sync::Arc::new(log).verify(ask))?;
    let speed = found.records as f64 / began.elapsed().as_secs_f64();
    report.note("verified", format!("{speed:.0} records a second"));
    if !found.ok {
        return Err(format!("the log does not verify: {:?}", found.problems).into());
    }
    Ok(())
}

/// Finds changes that lie behind many reads.
fn look_for(
    bench: &Bench,
    home: &Path,
    runtime: &tokio::runtime::Runtime,
) -> Result<f64, Box<dyn std::error::Error>> {
    let log = std::sync::Arc::new(open(home)?);
    let looks = AuditCall {
        verb: "get_sandbox".to_string(),
        effect: "reads".to_string(),
        ..call()
    };
    let reads = if bench.quick { ENTRIES / 10 } else { ENTRIES };
    runtime.block_on(async {
        for _ in 0..20 {
            log.record(&call(), true).await?;
        }
        for _ in 0..reads {
            log.record(&looks, false).await?;
        }
        log.flush().await
    })?;
    let ask = ListAudit {
        changes: true,
        limit: Some(20),
        ..ListAudit::default()
    };
    let first = Instant::now();
    let list = runtime.block_on(log.list(ask.clone()))?;
    if list.count != 20 {
        return Err(format!("{} changes were found", list.count).into());
    }
    let first = first.elapsed().as_secs_f64() * 1e3;
    bench
        .report
        .note("  the first time", format!("{first:.1} ms"));
    let again = Timings::of(50, || runtime.block_on(log.list(ask.clone())).map(drop))?;
    Ok(again.p50())
}

fn open(home: &Path) -> std::io::Result<Log> {
    std::fs::create_dir(home)?;
    Ok(Log::open(home, (&AuditConfig::default()).into()))
}

/// A command, as the gate records it.
fn call() -> AuditCall {
    AuditCall {
        id: AuditId::generate(),
        stage: Stage::Whole,
        time: "2026-01-01T00:00:00.000000000Z".to_string(),
        caller: AuditCaller {
            who: "uid:0".to_string(),
            face: "socket".to_string(),
            request: 7,
        },
        verb: "exec".to_string(),
        permission: "commands:exec".to_string(),
        effect: "runs".to_string(),
        decision: "allowed".to_string(),
        sandbox_id: motu_core::SandboxId::parse("sb-0123456789ab").ok(),
        request: Some("0".repeat(64)),
        policy: None,
        outcome: "ok".to_string(),
        facts: Facts {
            runtime: Some("container".to_string()),
            environment: Some("debian:12".to_string()),
            digest: Some(format!("sha256:{}", "0".repeat(64))),
            exit_code: Some(0),
            bytes_out: Some(4096),
            ..Facts::default()
        },
        duration_ns: "1234567".to_string(),
    }
}
