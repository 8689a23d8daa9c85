//! Checks what works on this host, and suggests fixes for the rest.

use crate::api::{ABSENT, ApiError, FORBIDDEN, Info, Make};
use crate::machine::Maker;
use crate::socket::Found;
use motu_core::report::{Check, Health};

/// Every check, most important first.
pub(crate) async fn all(maker: &Maker) -> Vec<Check> {
    let found = match maker.around().find() {
        Ok(found) => found,
        Err(error) => {
            let fix = error.hint.unwrap_or_else(|| ABSENT.to_string());
            return vec![bad("engine", Health::Failed, error.message, fix)];
        }
    };
    let api = maker.api(&found.socket);
    let asked = async { Ok((api.ping().await?, api.info().await?)) };
    let (make, info) = match asked.await {
        Ok(answers) => answers,
        Err(error) => return vec![silent(&found, &error)],
    };
    vec![
        engine(&found, make, &info),
        runtime(maker, make, &info),
        limits(&info),
        bad(
            "disk limit",
            Health::Degraded,
            "what a sandbox writes is on the engine's own disk, without a bound (disk_mib)",
            "choose --runtime container, gvisor or qemu where that matters",
        ),
    ]
}

fn good(name: &str, detail: impl Into<String>) -> Check {
    Check {
        name: name.into(),
        health: Health::Ok,
        detail: detail.into(),
        fix: None,
    }
}

fn bad(name: &str, health: Health, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name: name.into(),
        health,
        detail: detail.into(),
        fix: Some(fix.into()),
    }
}

fn silent(found: &Found, error: &ApiError) -> Check {
    let forbidden = matches!(error, ApiError::Unreachable { error, .. }
        if error.kind() == std::io::ErrorKind::PermissionDenied);
    let fix = if forbidden { FORBIDDEN } else { ABSENT };
    let detail = format!("{error} (found by {})", found.by);
    bad("engine", Health::Failed, detail, fix)
}

fn engine(found: &Found, make: Make, info: &Info) -> Check {
    let name = match make {
        Make::Docker => "Docker",
        Make::Podman => "Podman",
    };
    let what = format!(
        "{name} {} at {} (found by {})",
        info.server_version,
        found.socket.display(),
        found.by
    );
    match info.os_type.as_str() {
        "linux" => good("engine", what),
        other => bad(
            "engine",
            Health::Failed,
            format!("{what}: it makes containers of {other:?}, not of Linux"),
            ABSENT,
        ),
    }
}

fn runtime(maker: &Maker, make: Make, info: &Info) -> Check {
    match maker.walls.fit(make, info) {
        Ok(name) => {
            let isolation = maker.walls.isolation();
            good("runtime", format!("{name}: isolation {isolation}"))
        }
        Err(error) => {
            let fix = error.hint.unwrap_or_else(|| ABSENT.to_string());
            bad("runtime", Health::Failed, error.message, fix)
        }
    }
}

fn limits(info: &Info) -> Check {
    let lack: Vec<&str> = [
        ("memory", info.memory_limit),
        ("processes", info.pids_limit),
        ("processors", info.cpu_cfs_quota),
    ]
    .into_iter()
    .filter(|(_, has)| !has || info.limits_nothing())
    .map(|(name, _)| name)
    .collect();
    match lack.is_empty() {
        true => good("limits", "memory, processes, processors"),
        false => bad(
            "limits",
            Health::Degraded,
            format!("the engine does not limit: {}", lack.join(", ")),
            "an engine of an ordinary user limits only with cgroups of version 2, delegated to that user",
        ),
    }
}
