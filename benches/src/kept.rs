//! What stays costs: stopped workspaces in memory, at the start and in lists, and what a daemon
//! keeps of sandboxes that are gone.

use crate::memory::{own_kib, resident_kib};
use crate::motu::Motu;
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use rusqlite::{Connection, params};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const WORKSPACES: usize = 20_000;
const SANDBOXES: usize = 1_000;
const PAGE: usize = 100;
/// What a daemon does not need is given back once nobody has asked it for two seconds.
const QUIET: Duration = Duration::from_secs(4);

pub fn measure(bench: &mut Bench) -> Outcome {
    bench.report.group("what is kept");
    bench.note_load();
    let home = tempfile::tempdir_in(bench.motu.home.join(".."))?;
    share_environments(&bench.motu.home, home.path())?;
    let motu = Motu::serve(&bench.motu.binary, home.path())?;
    let empty = resting(&motu)?;
    bench
        .report
        .note("a daemon with nothing", format!("{empty:.1} MB"));
    gone(bench, &motu, empty)?;
    let stencil = stencil(&motu)?;
    drop(motu);
    let count = if bench.quick {
        WORKSPACES / 20
    } else {
        WORKSPACES
    };
    fill(home.path(), &stencil, count)?;
    let begun = Instant::now();
    let motu = Motu::serve(&bench.motu.binary, home.path())?;
    let serving = begun.elapsed().as_secs_f64();
    let kept = resting(&motu)?;
    let each = (kept - empty) * 1e3 / count as f64;
    let mut api = motu.api()?;
    let address = format!("/v1/workspaces?limit={PAGE}");
    let page = Timings::of(30, || {
        let page = api.call("GET", &address, None)?;
        match page["count"] == PAGE {
            true => Ok(()),
            false => Err(format!("a page has {}", page["count"]).into()),
        }
        .map_err(|error: Box<dyn std::error::Error>| error)
    })?;
    let whole = Timings::of(5, || api.call("GET", "/v1/workspaces", None).map(drop))?;
    let mut number = 0;
    let woken = Timings::of(50, || {
        number += 1;
        let address = format!("/v1/workspaces/{}", name(number));
        api.call("GET", &address, None).map(drop)
    })?;
    let report = &mut bench.report;
    let many = format!("{count} stopped workspaces");
    report.at_most(&format!("{many}: until it serves"), serving, 0.5, "s");
    report.at_most(&format!("{many}: resident"), kept, 60.0, "MB");
    report.at_most("each of them", each, 2.0, "KB");
    report.at_most("first page of them", page.p50(), 10.0, "ms");
    report.note("all of them at once", format!("{:.0} ms", whole.p50()));
    report.note(
        "the status of one that is read again",
        format!("{:.1} ms", woken.p50()),
    );
    Ok(())
}

/// What stays of sandboxes that are gone.
fn gone(bench: &mut Bench, motu: &Motu, empty: f64) -> Fallible<()> {
    let count = if bench.quick {
        SANDBOXES / 10
    } else {
        SANDBOXES
    };
    let mut api = motu.api()?;
    for _ in 0..count {
        let id = api.create(ENVIRONMENT)?;
        api.destroy(&id)?;
    }
    drop(api);
    let after = resting(motu)?;
    let own = own_kib(motu.pid())? / 1e3 * 1.024;
    let report = &mut bench.report;
    report.at_most(
        &format!("after {count} sandboxes: resident"),
        after,
        25.0,
        "MB",
    );
    report.note(
        "  its own, without pages of the program",
        format!("{own:.1} MB"),
    );
    report.note("  more than before", format!("{:.1} MB", after - empty));
    Ok(())
}

/// The environments of another state directory, as they are.
fn share_environments(from: &Path, to: &Path) -> Fallible<()> {
    std::os::unix::fs::symlink(from.join("environments"), to.join("environments"))?;
    Ok(())
}

/// The memory of a daemon that nobody asks for anything, in MB.
fn resting(motu: &Motu) -> Fallible<f64> {
    std::thread::sleep(QUIET);
    Ok(resident_kib(motu.pid())? / 1e3 * 1.024)
}

/// A real workspace that was stopped, from which others are made.
struct Stencil {
    id: String,
    sandbox: String,
    launch: String,
    workspace: String,
    records: Vec<(PathBuf, String)>,
}

fn stencil(motu: &Motu) -> Fallible<Stencil> {
    let mut api = motu.api()?;
    let ask = json!({"environment": ENVIRONMENT, "runtime": "container", "name": "one of many",
        "labels": {"made-for": "measuring"}});
    let made = api.call("POST", "/v1/workspaces", Some(&ask))?;
    let id = made["workspace_id"]
        .as_str()
        .ok_or("no workspace_id")?
        .to_string();
    api.call("POST", &format!("/v1/workspaces/{id}/stop"), None)?;
    let store = Connection::open(motu.home.join("motu.db"))?;
    let query = "SELECT s.sandbox, s.launch, w.workspace FROM sandboxes s, workspaces w
         WHERE s.sandbox_id = ?1 AND w.workspace_id = ?1";
    let (sandbox, launch, workspace) = store.query_row(query, [&id], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let mut records = Vec::new();
    for entry in std::fs::read_dir(motu.home.join("kept").join(&id))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let name = path.file_name().ok_or("no name")?.into();
            records.push((name, std::fs::read_to_string(&path)?));
        }
    }
    Ok(Stencil {
        id,
        sandbox,
        launch,
        workspace,
        records,
    })
}

fn name(number: usize) -> String {
    format!("ws-{number:012}")
}

/// Copies of it, in the store and beside it, with empty disks.
fn fill(home: &Path, of: &Stencil, count: usize) -> Fallible<()> {
    let mut store = Connection::open(home.join("motu.db"))?;
    let transaction = store.transaction()?;
    let now = i64::try_from(jiff::Timestamp::now().as_nanosecond())?;
    for number in 0..count {
        let id = name(number);
        let own = |text: &str| text.replace(&of.id, &id);
        transaction.execute(
            "INSERT INTO sandboxes VALUES (?1, 'stopped', 'container', ?2, NULL, unixepoch(), ?3, 9, ?4, 'uid:0')",
            params![id, own(&of.sandbox), own(&of.launch), now + number as i64],
        )?;
        transaction.execute(
            "INSERT INTO workspaces VALUES (?1, ?2)",
            params![id, own(&of.workspace)],
        )?;
        let dir = home.join("kept").join(&id);
        std::fs::create_dir(&dir)?;
        for (name, text) in &of.records {
            std::fs::write(dir.join(name), own(text))?;
        }
    }
    transaction.commit()?;
    Ok(())
}
