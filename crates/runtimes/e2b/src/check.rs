//! Checks the service, and suggests fixes.

use crate::machine::Maker;
use motu_core::report::{Check, Health};
use motu_core::{Error, Isolation};
use std::os::unix::fs::MetadataExt as _;

/// Every check, most important first.
pub(crate) async fn all(maker: &Maker) -> Vec<Check> {
    let control = &maker.service.control;
    if let Err(error) = control.knows_us().await {
        return vec![failed("service", error.into())];
    }
    let address = &control.connections.address;
    let mut checks = vec![check(
        "service",
        Health::Ok,
        format!("answers at {address}"),
        "",
    )];
    checks.push(key(maker));
    checks.push(match maker.service.isolation {
        Isolation::None => check(
            "isolation",
            Health::Degraded,
            "config.toml does not say what stands around its machines: taken for none",
            "isolation = \"vm\" in [e2b], if you know that they are virtual machines",
        ),
        isolation => check(
            "isolation",
            Health::Ok,
            format!("{isolation}, says config.toml; nobody here can see it"),
            "",
        ),
    });
    checks.push(check(
        "abilities",
        Health::Degraded,
        "not in this service's machines: networks, ports, trees, watching files",
        "docs/e2b.md says what is done how",
    ));
    checks
}

/// Checks who can read the key.
fn key(maker: &Maker) -> Check {
    let Some(path) = maker.service.control.connections.key_file() else {
        return check("key", Health::Ok, "the service wants none", "");
    };
    let shown = path.display();
    match std::fs::metadata(path).map(|found| found.mode() & 0o077) {
        Ok(0) => check("key", Health::Ok, format!("of {shown}, is taken"), ""),
        Ok(_) => check(
            "key",
            Health::Degraded,
            format!("of {shown}, is taken; others on this host can read that file"),
            format!("chmod 600 {shown}"),
        ),
        Err(error) => failed("key", Error::io(shown, &error)),
    }
}

fn failed(name: &str, error: Error) -> Check {
    let fix = error.hint.unwrap_or_default();
    check(name, Health::Failed, error.message, fix)
}

fn check(name: &str, health: Health, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name: name.to_string(),
        health,
        detail: detail.into(),
        fix: Some(fix.into()).filter(|fix| !fix.is_empty()),
    }
}
