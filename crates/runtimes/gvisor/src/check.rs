//! Checks what works on this host, and suggests fixes for the rest.

use crate::machine::{self, INSTALL, Maker, RENAME};
use crate::mapped;
use crate::oci::{OciError, Program};
use crate::record::Record;
use motu_core::report::{Check, Health};
use motu_core::runtime::{Ask, MachineLimits, MachineSpec};
use motu_core::{Accel, Error, SandboxId};
use motu_local::{Kind, boot_id, nested};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// The first release with systrap as the default platform.
const OLDEST: u32 = 20_230_801;
/// The name of the machine that is made as a test.
const PROBE: &str = "sb-gvisor-probe";

/// The results of asking `runsc` and making a machine, and the conditions under which they hold.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Probed {
    conditions: String,
    version: String,
    allows_suid: bool,
}

/// Every check, most important first.
pub(crate) async fn all(maker: &Arc<Maker>) -> Vec<Check> {
    let worker = maker.clone();
    let look = move || vec![privilege(&worker), present(&worker)];
    let mut checks = tokio::task::spawn_blocking(look).await.unwrap_or_default();
    if checks.iter().all(|check| check.health != Health::Failed) {
        checks.pop();
        checks.extend(probe(maker).await);
    }
    checks.extend([cgroups(maker), disk(maker)]);
    checks
}

fn good(name: &str, detail: impl Into<String>) -> Check {
    Check {
        name: name.into(),
        health: Health::Ok,
        detail: detail.into(),
        fix: None,
    }
}

fn bad(name: &str, health: Health, detail: impl Into<String>, fix: &str) -> Check {
    Check {
        name: name.into(),
        health,
        detail: detail.into(),
        fix: Some(fix.into()),
    }
}

fn privilege(maker: &Maker) -> Check {
    if maker.privileged {
        return good("privilege", "root");
    }
    let name = "privilege";
    let range = match rustix::process::geteuid().is_root() {
        true if machine::may_mount() => Err((
            "this root is an ordinary user of the host".to_string(),
            None,
        )),
        true => Err(("this root may not mount".to_string(), None)),
        false => mapped::range().map_err(|lacking| (lacking.to_string(), Some(lacking.fix()))),
    };
    match range {
        Ok(()) => bad(
            name,
            Health::Degraded,
            "an ordinary user with a range of ids: no network, no kept disks and no limit of disks",
            "run the daemon as root for these",
        ),
        Err((error, fix)) => bad(
            name,
            Health::Failed,
            format!("without root, machines need a range of ids: {error}"),
            match (nested::is_container(), &fix) {
                (false, Some(fix)) => fix,
                (true, _) => nested::more(),
                (false, None) => "let it mount, or run the daemon as an ordinary user",
            },
        ),
    }
}

fn present(maker: &Maker) -> Check {
    match maker.program() {
        Err(error) => {
            let fix = match error {
                OciError::Misnamed { .. } => RENAME,
                _ => INSTALL,
            };
            bad("runsc", Health::Failed, error.to_string(), fix)
        }
        Ok(program) => good("runsc", program.path.display().to_string()),
    }
}

fn version(said: &str) -> Check {
    match release(said) {
        Some(date) if date < OLDEST => {
            let detail = format!("{said} is too old: it has no systrap platform");
            bad("runsc", Health::Failed, detail, INSTALL)
        }
        _ => good("runsc", said),
    }
}

/// The date in a version such as `release-20240729.0`, `0.0~20240729.0` or, of a Go module, `v0.0.0-20260701204157-69c2d17aea96`.
fn release(said: &str) -> Option<u32> {
    said.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| {
            matches!(word.len(), 8 | 14) && word.bytes().all(|byte| byte.is_ascii_digit())
        })
        .find_map(|digits| digits.get(..8)?.parse().ok())
}

/// Asks `runsc`, makes an empty machine, waits for its guest and removes it. The result holds until
/// the host reboots or one of the programs changes.
async fn probe(maker: &Arc<Maker>) -> Vec<Check> {
    let _turn = maker.probing.lock().await;
    let marker = maker.home.join("cache/gvisor/probed");
    let conditions = conditions(maker);
    let remembered = std::fs::read(&marker).ok();
    let remembered = remembered.and_then(|text| serde_json::from_slice::<Probed>(&text).ok());
    let sandbox = good("sandbox", "one was made, and its guest answered");
    if let Some(known) = remembered.filter(|known| known.conditions == conditions) {
        maker.remember_suid(known.allows_suid);
        return vec![version(&known.version), sandbox, sudo(known.allows_suid)];
    }
    let worker = maker.clone();
    let ask = move || {
        (
            worker.program().and_then(Program::version),
            worker.allows_suid(),
        )
    };
    let said = match tokio::task::spawn_blocking(ask).await {
        Ok((Ok(said), allows_suid)) => Ok((said, allows_suid)),
        Ok((Err(error), _)) => Err(error.to_string()),
        Err(_) => Err("asking runsc panicked".to_string()),
    };
    let (said, allows_suid) = match said {
        Ok(said) => said,
        Err(error) => return vec![bad("runsc", Health::Failed, error, INSTALL)],
    };
    let runsc = version(&said);
    if runsc.health == Health::Failed {
        return vec![runsc];
    }
    if let Err(error) = try_machine(maker).await {
        let program = maker.program().map(|program| program.path.clone());
        let fix = match program.is_ok_and(|path| is_dynamic(&path).unwrap_or_default()) {
            true => {
                "this runsc needs libraries of the host, which are not in the empty root that it gives its sandbox: build it with CGO_ENABLED=0"
            }
            false => "see the daemon's log and the kernel's (`dmesg`)",
        };
        return vec![
            runsc,
            bad("sandbox", Health::Failed, error.to_string(), fix),
        ];
    }
    let probed = Probed {
        conditions,
        version: said,
        allows_suid,
    };
    // Without the marker the next check probes again.
    let _ = serde_json::to_vec(&probed).map(|text| std::fs::write(&marker, text));
    vec![runsc, sandbox, sudo(allows_suid)]
}

/// Whether a program names an interpreter, which loads its libraries.
fn is_dynamic(path: &Path) -> std::io::Result<bool> {
    const HEADER: usize = 64;
    const ENTRY: usize = 56;
    const INTERPRETER: u32 = 3;
    let file = std::fs::File::open(path)?;
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(false);
    }
    let mut place = [0; 8];
    place.copy_from_slice(&header[32..40]);
    let place = u64::from_le_bytes(place);
    let count = u16::from_le_bytes([header[56], header[57]]);
    let mut entries = vec![0; usize::from(count) * ENTRY];
    file.read_exact_at(&mut entries, place)?;
    let kind = |entry: &[u8]| entry.first_chunk().copied().map(u32::from_le_bytes);
    let mut entries = entries.chunks_exact(ENTRY);
    Ok(entries.any(|entry| kind(entry) == Some(INTERPRETER)))
}

/// Everything that the result of a probe depends on.
fn conditions(maker: &Maker) -> String {
    let program = maker.program().ok().map(|program| program.path.clone());
    let seen = program
        .as_ref()
        .and_then(|path| std::fs::metadata(path).ok());
    let changed = seen.map_or((0, 0), |seen| (seen.mtime(), seen.ctime()));
    format!(
        "{}\n{program:?} {changed:?}\n{}\n",
        boot_id(),
        maker.guest_name()
    )
}

async fn try_machine(maker: &Arc<Maker>) -> Result<(), Error> {
    let cache = maker.home.join("cache/gvisor");
    let (dir, root) = (cache.join("probe"), cache.join("empty"));
    let id = SandboxId::parse(PROBE).map_err(|error| Error::internal(error.to_string()))?;
    // An earlier probe may have been interrupted.
    machine::remove(maker, &id, &dir, Record::load(&dir)).await?;
    for place in [&dir, &root] {
        std::fs::create_dir_all(place).map_err(|error| Error::io("the probe", &error))?;
    }
    let ask = |value| Ask {
        value,
        explicit: false,
    };
    let spec = MachineSpec {
        id: id.clone(),
        dir: dir.clone(),
        environment: String::new(),
        root,
        hostname: PROBE.into(),
        wants_sudo: false,
        limits: MachineLimits {
            vcpu_count: ask(1),
            mem_mib: ask(64),
            disk_mib: ask(maker.usual_disk_mib),
            pids_max: ask(16),
            nofile: ask(64),
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        },
        accel: Accel::Auto,
        kept: None,
        network: None,
    };
    let made = machine::create(maker, &spec).await?;
    let removed = machine::remove(maker, &id, &dir, machine::record_of(&made)).await;
    // An empty directory does no harm.
    let _ = std::fs::remove_dir(&dir);
    removed
}

fn cgroups(maker: &Maker) -> Check {
    let kinds = [Kind::Memory, Kind::Pids, Kind::Cpu];
    let (have, lack): (Vec<Kind>, Vec<Kind>) = kinds
        .into_iter()
        .partition(|kind| maker.cgroups.controller(*kind).is_some());
    let names = |kinds: &[Kind]| {
        kinds
            .iter()
            .map(|kind| kind.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    if lack.is_empty() {
        return good("cgroups", names(&have));
    }
    let detail = format!("not enforceable: {}", names(&lack));
    let fix = "run the daemon where it may use these controllers: the check `cgroups` of `container` has the command";
    bad("cgroups", Health::Degraded, detail, fix)
}

fn sudo(allows_suid: bool) -> Check {
    match allows_suid {
        true => good(
            "sudo",
            "setuid programs work where an environment wants them",
        ),
        false => bad(
            "sudo",
            Health::Degraded,
            "this runsc ignores setuid programs: `sudo` gives nothing inside",
            "run commands as root (--user root), or install a runsc that knows --allow-suid",
        ),
    }
}

fn disk(maker: &Maker) -> Check {
    let fix = match (maker.privileged, nested::is_container()) {
        (true, _) => "install e2fsprogs; modprobe loop",
        (false, true) => nested::more(),
        (false, false) => "run the daemon as root",
    };
    match maker.bounded() {
        Ok(()) => good("disk limit", "ext4 images on loop devices"),
        Err(reason) => bad("disk limit", Health::Degraded, reason, fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_libraries_are_told_from_those_without() {
        assert!(is_dynamic(&motu_needs::find("bash")).unwrap());
        assert!(!is_dynamic(&motu_needs::find("busybox")).unwrap());
        assert!(!is_dynamic(Path::new("/etc/passwd")).unwrap_or_default());
    }

    #[test]
    fn releases_are_found_in_versions() {
        let debian = "runsc version 0.0~20240729.0";
        assert_eq!(release(debian), Some(20_240_729));
        assert_eq!(
            release("runsc version release-20230102.0"),
            Some(20_230_102)
        );
        assert_eq!(
            release("runsc version v0.0.0-20260701204157-69c2d17aea96"),
            Some(20_260_701)
        );
        assert_eq!(release("runsc version VERSION_MISSING"), None);
    }
}
