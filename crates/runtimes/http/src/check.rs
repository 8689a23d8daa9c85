//! Checks the service, and suggests fixes.

use crate::machine::Maker;
use motu_core::report::{Check, Health};
use motu_core::{Error, Isolation};
use std::os::unix::fs::MetadataExt as _;

/// Every check, most important first.
pub(crate) async fn all(maker: &Maker) -> Vec<Check> {
    let address = &maker.peer.connections.address;
    let offer = match maker.ask().await {
        Ok(offer) => offer,
        Err(error) => return vec![failed("service", error.into())],
    };
    let version = match offer.version.as_str() {
        "" => String::new(),
        version => format!(
            " (version {})",
            version.chars().take(40).collect::<String>()
        ),
    };
    let mut checks = vec![check(
        "service",
        Health::Ok,
        format!("answers at {address}{version}"),
        "",
    )];
    checks.push(match maker.peer.knows_us().await {
        Ok(()) => key(maker),
        Err(error) => failed("key", error.into()),
    });
    checks.push(match offer.isolation {
        None | Some(Isolation::None) => check(
            "isolation",
            Health::Degraded,
            "the service does not say what stands around its machines: taken for none",
            "use it only where that is enough (--allow-host-compat)",
        ),
        Some(isolation) => check(
            "isolation",
            Health::Ok,
            format!("{isolation}, says the service; nobody here can see it"),
            "",
        ),
    });
    let lacks = offer.lacks().names();
    checks.push(check(
        "abilities",
        Health::Degraded,
        format!("not in this service's machines: {}", lacks.join(", ")),
        "docs/provider.md says which extensions a service can offer",
    ));
    checks
}

/// Checks who can read the key.
fn key(maker: &Maker) -> Check {
    let Some(path) = maker.peer.connections.key_file() else {
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
