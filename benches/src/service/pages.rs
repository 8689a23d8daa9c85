//! Pages of long lists, from the store to the answer.

use crate::motu::Motu;
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use rusqlite::{Connection, params};
use serde_json::Value;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Sandboxes that are there, and as many as are remembered of those that are gone.
const MANY: usize = 10_000;
const GONE: usize = 1_000;
const EVENTS: usize = 100_000;
const PAGE: usize = 100;
const TIMES: usize = 50;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("the host as a service: pages of lists (p50)");
    bench.note_load();
    let one = record(bench)?;
    // A store of its own: the daemon adopts its rows as after any restart.
    let home = tempfile::tempdir_in(bench.motu.home.join(".."))?;
    drop(Motu::serve(&bench.motu.binary, home.path())?);
    fill(home.path(), &one)?;
    let motu = Motu::serve(&bench.motu.binary, home.path())?;
    let mut api = motu.api()?;
    let whole = api.call("GET", "/v1/sandboxes?all=true", None)?;
    let count = whole["count"].as_u64().unwrap_or(0) as usize;
    if count != MANY + GONE {
        return Err(format!("{count} sandboxes are listed").into());
    }
    let mut page = |query: &str| -> Fallible<f64> {
        let address = format!("/v1/sandboxes?limit={PAGE}{query}");
        let timings = Timings::of(TIMES, || {
            let page = api.call("GET", &address, None)?;
            match page["count"] == PAGE {
                true => Ok(()),
                false => Err(format!("{address}: {} sandboxes", page["count"])),
            }
            .map_err(Box::<dyn std::error::Error>::from)
        })?;
        Ok(timings.p50())
    };
    let (first, with_gone) = (page("")?, page("&all=true")?);
    let last = deep(&mut motu.api()?)?;
    let within = page(&format!("&cursor={last}"))?;
    let whole = Timings::of(5, || api.call("GET", "/v1/sandboxes", None).map(drop))?.p50();
    let tail = tail(&motu)?;
    let report = &mut bench.report;
    report.at_most("first page of 10 000 sandboxes", first, 10.0, "ms");
    report.at_most("with 1 000 that are gone", with_gone, 10.0, "ms");
    report.at_most("a page in the middle", within, 10.0, "ms");
    report.at_most("the newest 20 of 100 000 events", tail, 5.0, "ms");
    report.note("all of them at once", format!("{whole:.0} ms"));
    Ok(())
}

/// The row of a real sandbox, as the store has it.
fn record(bench: &Bench) -> Fallible<Value> {
    let mut api = bench.motu.api()?;
    let id = api.create(ENVIRONMENT)?;
    let store = Connection::open(bench.motu.home.join("motu.db"))?;
    let query = "SELECT sandbox FROM sandboxes WHERE sandbox_id = ?1";
    let row: String = store.query_row(query, [&id], |row| row.get(0))?;
    api.destroy(&id)?;
    Ok(serde_json::from_str(&row)?)
}

/// Rows as a host has them that was restarted: machines that ended, and sandboxes that are gone.
fn fill(home: &std::path::Path, one: &Value) -> Fallible<()> {
    let mut store = Connection::open(home.join("motu.db"))?;
    let transaction = store.transaction()?;
    for number in 0..MANY + GONE {
        let state = if number < MANY { "failed" } else { "destroyed" };
        let id = format!("sb-{number:05}");
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(100_000 - number as i64);
        let mut row = one.clone();
        row["sandbox_id"] = id.as_str().into();
        row["state"] = state.into();
        row["created_at"] = at.to_string().into();
        row["expires_at"] = Value::Null;
        let age = i64::try_from(at.as_nanosecond())?;
        transaction.execute(
            "INSERT INTO sandboxes (sandbox_id, state, runtime, sandbox, updated_unix, created_ns, owner)
             VALUES (?1, ?2, 'container', ?3, unixepoch(), ?4, ?5)",
            params![id, state, row.to_string(), age, row["owner"].as_str()],
        )?;
    }
    transaction.commit()?;
    Ok(())
}

/// Reads the end of a long journal.
fn tail(motu: &Motu) -> Fallible<f64> {
    let mut store = Connection::open(motu.home.join("motu.db"))?;
    let query = "SELECT event FROM events ORDER BY sequence DESC LIMIT 1";
    let event: String = store.query_row(query, [], |row| row.get(0))?;
    let transaction = store.transaction()?;
    for _ in 0..EVENTS {
        let insert = "INSERT INTO events (event, project) VALUES (?1, 'local')";
        transaction.execute(insert, [&event])?;
    }
    transaction.commit()?;
    let mut api = motu.api()?;
    let timings = Timings::of(TIMES, || {
        api.download("/v1/events?tail=20", |_| Ok(())).map(drop)
    })?;
    Ok(timings.p50())
}

/// The cursor of a page in the middle of the list.
fn deep(api: &mut crate::api::Api) -> Fallible<String> {
    let mut cursor = String::new();
    for _ in 0..5 {
        let address = format!("/v1/sandboxes?limit=1000{cursor}");
        let page = api.call("GET", &address, None)?;
        let next = page["next_cursor"].as_str().ok_or("no next page")?;
        cursor = format!("&cursor={next}");
    }
    Ok(cursor.trim_start_matches("&cursor=").to_string())
}
