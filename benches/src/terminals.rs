//! Terminals over MCP, compared with PiloTY if it is installed.
//!
//! `MOTU_BENCH_PILOTY` names the rival's command (it is in no package registry; it needs `mcp`
//! below version 2). Without it its results are skipped.

mod mcp;

use crate::memory::resident_kib;
use crate::stats::Timings;
use crate::{Bench, Outcome};
use mcp::Mcp;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Sessions that run commands concurrently.
const CROWD: usize = 200;
/// Commands per session.
const ROUNDS: u32 = 10;
/// Idle sessions whose memory is measured.
const IDLE: usize = 50;
/// A log of this many lines.
const LOG_LINES: u32 = 700_000;

/// Creates a coloured log, like the output of a build.
const MAKE_LOG: &str = r#"python3 -c "
import sys
for n in range(%LINES%):
    print(f'\x1b[2m12:00:{n%60:02}\x1b[0m \x1b[32mINFO\x1b[0m \x1b[1mworker-{n%8}\x1b[0m handled request {n} in {n%97} ms')
" > /tmp/log"#;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench.report.group("terminals over MCP (stdio)");
    bench.note_load();
    start(bench)?;
    let mut ours = Mcp::start(server(bench))?;
    calls(bench, &mut ours)?;
    ingestion(bench, &mut ours)?;
    rival(bench)?;
    memory(bench)?;
    crowd(bench)?;
    // The shared workspace of sessions is normally kept; a bench removes it.
    let mut api = bench.motu.api()?;
    api.call("DELETE", "/v1/workspaces/terminals", None)
        .map(drop)
}

fn server(bench: &Bench) -> Command {
    bench
        .motu
        .command(&["mcp", "serve", "--profile", "terminal"])
}

/// The time from the start of the process to the answer of `tools/list`.
fn start(bench: &mut Bench) -> Outcome {
    let (mut all, mut resident) = (Vec::new(), 0.0f64);
    for _ in 0..20 {
        let begun = Instant::now();
        let mut mcp = Mcp::start(server(bench))?;
        mcp.ask("tools/list", json!({}))?;
        all.push(begun.elapsed());
        resident = resident.max(resident_kib(mcp.pid())?);
    }
    let timings = Timings::from(all);
    let report = &mut bench.report;
    report.at_most("start to tools/list", timings.p50(), 40.0, "ms");
    report.at_most("server resident", resident / 1e3 * 1.024, 20.0, "MB");
    Ok(())
}

fn run(mcp: &mut Mcp, session: &str, command: &str, timeout: f64) -> Fallible<Value> {
    let arguments = json!({ "session_id": session, "command": command, "timeout": timeout });
    mcp.tool("run", arguments)
}

fn calls(bench: &mut Bench, mcp: &mut Mcp) -> Outcome {
    // The first use creates the shared sandbox of sessions.
    let first = Instant::now();
    let place = json!({ "session_id": "bench", "cwd": "/workspace" });
    mcp.tool("create_session", place)?;
    run(mcp, "bench", "echo hi", 60.0)?;
    bench.report.note(
        "first run, its sandbox made",
        format!("{:.0} ms", first.elapsed().as_secs_f64() * 1e3),
    );
    let echo = Timings::of(500, || -> Outcome {
        let answer = run(mcp, "bench", "echo hi", 30.0)?;
        match (&answer["output"], &answer["exit_code"]) {
            (Value::String(said), Value::Number(_)) if said.trim() == "hi" => Ok(()),
            _ => Err(format!("not what echo says: {answer}").into()),
        }
    })?;
    let screen = Timings::of(500, || {
        mcp.tool("get_screen", json!({ "session_id": "bench" }))
            .map(drop)
    })?;
    let begun = Instant::now();
    let slept = run(mcp, "bench", "sleep 2; echo done", 30.0)?;
    let took = begun.elapsed().as_secs_f64();
    let said = slept["output"].as_str().map(str::trim);
    if slept["exit_code"] != json!(0) || said != Some("done") {
        return Err(format!("not what was printed: {slept}").into());
    }
    let report = &mut bench.report;
    report.at_most("run echo hi, p50", echo.p50(), 4.0, "ms");
    report.at_most("run echo hi, p99", echo.quantile(0.99), 10.0, "ms");
    report.at_most("get_screen, p50", screen.p50(), 1.5, "ms");
    report.at_most("sleep 2; echo done", took, 2.05, "s");
    Ok(())
}

fn ingestion(bench: &mut Bench, mcp: &mut Mcp) -> Outcome {
    let lines = if bench.quick {
        LOG_LINES / 20
    } else {
        LOG_LINES
    };
    run(
        mcp,
        "bench",
        &MAKE_LOG.replace("%LINES%", &lines.to_string()),
        120.0,
    )?;
    let size = run(mcp, "bench", "stat -c %s /tmp/log", 30.0)?;
    let size: f64 = size["output"].as_str().unwrap_or_default().trim().parse()?;
    let mut best = f64::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let shown = run(mcp, "bench", "cat /tmp/log", 120.0)?;
        if shown["exit_code"] != json!(0) {
            return Err(format!("the log was not shown: {shown}").into());
        }
        best = best.min(begun.elapsed().as_secs_f64());
    }
    bench
        .report
        .note("a coloured log", format!("{:.1} MB", size / 1e6));
    bench
        .report
        .at_least("ingestion, end to end", size / 1e6 / best, 40.0, "MB/s");
    Ok(())
}

fn rival(bench: &mut Bench) -> Outcome {
    let Some(command) = std::env::var_os("MOTU_BENCH_PILOTY") else {
        let why = "left out: MOTU_BENCH_PILOTY is not set".to_string();
        bench.report.note("PiloTY", why);
        return Ok(());
    };
    let mut mcp = Mcp::start(Command::new(command))?;
    let opened = json!({ "session_id": "bench", "cwd": "/tmp" });
    mcp.tool("create_session", opened)?;
    let echo = Timings::of(10, || run(&mut mcp, "bench", "echo hi", 30.0).map(drop))?;
    let screen = Timings::of(100, || {
        mcp.tool("get_screen", json!({ "session_id": "bench" }))
            .map(drop)
    })?;
    let report = &mut bench.report;
    report.note("PiloTY run echo hi, p50", format!("{:.0} ms", echo.p50()));
    report.note("PiloTY get_screen, p50", format!("{:.1} ms", screen.p50()));
    Ok(())
}

/// The daemon's memory per session.
fn memory(bench: &mut Bench) -> Outcome {
    let mut api = bench.motu.api()?;
    let before = resident_kib(bench.motu.pid())?;
    for at in 0..IDLE {
        open(&mut api, &named("idle", at))?;
    }
    let idle = (resident_kib(bench.motu.pid())? - before) / IDLE as f64 * 1.024;
    let before = resident_kib(bench.motu.pid())?;
    let fill = json!({ "command": "seq -f %075.0f 1 12000", "timeout": 60.0 });
    let path = format!("/v1/terminals/{}/run", named("idle", 0));
    api.call("POST", &path, Some(&fill))?;
    let full = (resident_kib(bench.motu.pid())? - before) / 1e3 * 1.024;
    for at in 0..IDLE {
        api.call(
            "DELETE",
            &format!("/v1/terminals/{}", named("idle", at)),
            None,
        )?;
    }
    let report = &mut bench.report;
    report.at_most("memory per idle session", idle, 300.0, "KB");
    report.at_most("memory of a full scrollback", full, 25.0, "MB");
    Ok(())
}

/// A name that no earlier run has used: terminated sessions keep their names.
fn named(what: &str, at: usize) -> String {
    format!("{what}-{}-{at}", std::process::id())
}

fn open(api: &mut crate::api::Api, session: &str) -> Fallible<()> {
    let body = json!({ "session_id": session });
    api.call("POST", "/v1/terminals", Some(&body)).map(drop)
}

/// Each session runs a command every second; reports the 99th percentile.
fn crowd(bench: &mut Bench) -> Outcome {
    let mut api = bench.motu.api()?;
    for at in 0..CROWD {
        open(&mut api, &named("crowd", at))?;
    }
    let timings = Mutex::new(Vec::new());
    let failure: Mutex<Option<String>> = Mutex::new(None);
    let begun = Instant::now() + Duration::from_millis(500);
    std::thread::scope(|scope| {
        for at in 0..CROWD {
            let (timings, failure, motu) = (&timings, &failure, &bench.motu);
            scope.spawn(move || {
                let each = || -> Fallible<Vec<Duration>> {
                    let mut api = motu.api()?;
                    let path = format!("/v1/terminals/{}/run", named("crowd", at));
                    let mut all = Vec::new();
                    for round in 0..ROUNDS {
                        // Spread evenly over the second.
                        let due = begun
                            + Duration::from_secs(u64::from(round))
                            + Duration::from_millis((at * 1000 / CROWD) as u64);
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        let asked = Instant::now();
                        let body = json!({ "command": format!("echo {round}") });
                        let said = api.call("POST", &path, Some(&body))?;
                        all.push(asked.elapsed());
                        if said["exit_code"] != json!(0) {
                            return Err(format!("crowd-{at}: {said}").into());
                        }
                    }
                    Ok(all)
                };
                match each() {
                    Ok(mut all) => {
                        if let Ok(mut timings) = timings.lock() {
                            timings.append(&mut all);
                        }
                    }
                    Err(error) => {
                        if let Ok(mut slot) = failure.lock() {
                            slot.get_or_insert(error.to_string());
                        }
                    }
                }
            });
        }
    });
    for at in 0..CROWD {
        api.call(
            "DELETE",
            &format!("/v1/terminals/{}", named("crowd", at)),
            None,
        )?;
    }
    if let Some(error) = failure.into_inner()? {
        return Err(error.into());
    }
    let timings = Timings::from(timings.into_inner()?);
    bench.report.note(
        "200 sessions, a command a second each, p50",
        format!("{:.2} ms", timings.p50()),
    );
    let p99 = timings.quantile(0.99);
    bench.report.at_most("  p99", p99, 50.0, "ms");
    Ok(())
}
