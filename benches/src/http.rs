//! The http runtime, with `motu serve --provider` on this host as its service.

use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const EXECS: usize = 200;
const MADE: usize = 10;

/// The service, killed on drop.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("machines of a service on this host, over HTTP (p50)");
    bench.note_load();
    let key = bench.motu.home.join("provider.key");
    std::fs::write(&key, "a-key-of-the-benchmarks")?;
    let (_served, url) = serve(bench, &key)?;
    let settings = format!("[http]\nurl = {url:?}\nkey_file = {key:?}\n");
    bench.motu.configure(Some(&settings))?;
    let measured = figures(bench);
    bench.motu.configure(None)?;
    measured
}

fn serve(bench: &Bench, key: &std::path::Path) -> Fallible<(Served, String)> {
    let words = ["serve", "--provider", "0", "--runtime", "container"];
    let mut command = bench.motu.command(&words);
    command.arg("--key-file").arg(key).stderr(Stdio::piped());
    let mut process = command.spawn()?;
    let told = process.stderr.take().ok_or("no output")?;
    let served = Served(process);
    let mut told = BufReader::new(told).lines();
    let first = told.next().ok_or("it says nothing")??;
    let url = first.rsplit(' ').next().unwrap_or_default().to_string();
    // Discard further output, so that the pipe does not fill up.
    std::thread::spawn(move || told.for_each(drop));
    Ok((served, url))
}

fn figures(bench: &mut Bench) -> Outcome {
    let create = |bench: &Bench, runtime: &str| -> Fallible<String> {
        let words = ["create", ENVIRONMENT, "--runtime", runtime, "--json"];
        let made = bench.motu.json(&words)?;
        Ok(made["sandbox_id"].as_str().ok_or("no id")?.to_string())
    };
    let mut api = bench.motu.api()?;
    let id = create(bench, "http")?;
    let exec = Timings::of(EXECS, || api.exec(&id, &["true"]).map(drop))?.p50();
    api.destroy(&id)?;
    // The same without HTTP.
    let id = create(bench, "container")?;
    let direct = Timings::of(EXECS, || api.exec(&id, &["true"]).map(drop))?.p50();
    api.destroy(&id)?;
    let mut made = Vec::new();
    for _ in 0..MADE {
        let begun = std::time::Instant::now();
        let id = create(bench, "http")?;
        made.push(begun.elapsed());
        api.destroy(&id)?;
    }
    let made = Timings::from(made).p50();
    let report = &mut bench.report;
    report.at_most("exec of true, through the API", exec, 3.0, "ms");
    report.note("the same in a container of ours", format!("{direct:.2} ms"));
    report.note("motu create --runtime http", format!("{made:.0} ms"));
    Ok(())
}
