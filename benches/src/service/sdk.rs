//! What the Python SDK adds to a call, beside the same request written to a socket by Python.

use super::Live;
use crate::{Bench, Outcome};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("the host as a service: the Python SDK (p50)");
    bench.note_load();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/clients/python-sdk/bin/python");
    if !python.exists() {
        let why = "left out: `tools/setup test` installs its Python";
        bench.report.note("the SDK", why.to_string());
        return Ok(());
    }
    let live = Live::create(&bench.motu)?;
    let output = Command::new(python)
        .arg(root.join("benches/src/service/sdk.py"))
        .arg(bench.motu.home.join("daemon.sock"))
        .arg(&live.id)
        .env("PYTHONPATH", root.join("sdk/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let report = &mut bench.report;
    for (what, name) in [
        ("a look at a sandbox", "get_sandbox"),
        ("exec of true", "exec"),
        ("exec of true, asyncio", "async_exec"),
    ] {
        let of = |field: &str| found[name][field].as_f64().ok_or(format!("no {name}"));
        let (sdk, raw) = (of("sdk_ms")?, of("raw_ms")?);
        report.at_most(&format!("added to {what}"), sdk - raw, 1.0, "ms");
        report.note(
            "  with the SDK, and without",
            format!("{sdk:.2}, {raw:.2} ms"),
        );
    }
    Ok(())
}
