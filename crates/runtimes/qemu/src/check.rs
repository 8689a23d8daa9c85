//! What works on this host, and what a machine would be made of.

use crate::arguments::{Build, Origin, arguments};
use crate::board::Board;
use crate::distribution::{self, Need};
use crate::error::QemuError;
use crate::machine::Maker;
use crate::record::Shape;
use crate::version::FIRMWARE;
use crate::{accel::Accelerator, tool};
use motu_core::Accel;
use motu_core::report::{Check, Health};
use motu_core::runtime::MachineSpec;
use motu_packages::ids::{self, NoRange};

/// Every check, the reasons for failure first.
pub(crate) async fn all(maker: &Maker) -> Vec<Check> {
    let mut checks = vec![
        architecture(),
        privilege(),
        qemu(maker).await,
        program("mke2fs"),
    ];
    checks.push(kernel(maker));
    checks.push(accelerator(maker).await);
    checks
}

fn check(name: &str, health: Health, detail: impl Into<String>) -> Check {
    Check {
        name: name.into(),
        health,
        detail: detail.into(),
        fix: None,
    }
}

fn fixed_by(check: Check, fix: impl Into<String>) -> Check {
    Check {
        fix: Some(fix.into()),
        ..check
    }
}

fn architecture() -> Check {
    match std::env::consts::ARCH {
        "x86_64" => check("architecture", Health::Ok, "x86_64"),
        "aarch64" => check(
            "architecture",
            Health::Degraded,
            "aarch64: its virtual machines were tested emulated, and on no such host yet",
        ),
        other => check(
            "architecture",
            Health::Failed,
            format!("no virtual machine has run on {other} yet, so none is made there"),
        ),
    }
}

/// Files of an environment have owners, which root can put on a disk, and an ordinary user with a range of ids.
fn privilege() -> Check {
    if rustix::process::geteuid().is_root() {
        return check("privilege", Health::Ok, "root");
    }
    match range() {
        Ok(()) => check(
            "privilege",
            Health::Ok,
            "an ordinary user with a range of ids; QEMU runs as this user, in namespaces of its own",
        ),
        Err(lacking) => fixed_by(
            check(
                "privilege",
                Health::Failed,
                format!("environments cannot be made into disks without a range of ids: {lacking}"),
            ),
            lacking.fix(),
        ),
    }
}

/// Whether this user has a range of ids, tried; else why not.
fn range() -> Result<(), NoRange> {
    ids::check(rustix::process::geteuid().as_raw())?;
    // Of one id first, which fails at once where no namespace may be made: with a range, the helper of a failed `unshare`
    // waits for ever.
    let alone = tool::command("unshare").and_then(|mut command| {
        command.args(["--map-root-user", "--", "true"]);
        tool::run(command)
    });
    match alone.and_then(|_| tool::mapped("true").and_then(tool::run)) {
        Ok(_) => Ok(()),
        Err(QemuError::Failed { tail, .. }) => Err(NoRange::Refused { said: tail }),
        Err(error) => Err(NoRange::Refused {
            said: error.to_string(),
        }),
    }
}

/// The version is part of it: one that is too old has other options.
async fn qemu(maker: &Maker) -> Check {
    let name = maker.board.program();
    let error = match maker.program().await {
        Ok(found) => {
            let detail = format!("{}, version {}", found.path.display(), found.version);
            return check(name, Health::Ok, detail);
        }
        Err(error) => error,
    };
    let fix = match &error {
        QemuError::Old { .. } => distribution::upgrade_here(),
        QemuError::Firmware => distribution::install(distribution::here(), Need::Firmware),
        _ => distribution::install(distribution::here(), Need::Qemu),
    };
    fixed_by(check(name, Health::Failed, error.to_string()), fix)
}

fn program(name: &str) -> Check {
    match tool::find(name) {
        Ok(path) => check(name, Health::Ok, path.display().to_string()),
        Err(error) => fixed_by(
            check(name, Health::Failed, error.to_string()),
            distribution::install(distribution::here(), Need::of(name)),
        ),
    }
}

fn kernel(maker: &Maker) -> Check {
    if maker.kernels.is_ready() {
        return check("kernel", Health::Ok, "ready");
    }
    match maker.kernels.describe() {
        Ok(said) => check("kernel", Health::Ok, said),
        Err(error) => fixed_by(
            check("kernel", Health::Failed, error.to_string()),
            "name a file that is there in [qemu] of config.toml, or leave it out",
        ),
    }
}

/// Says which accelerator machines would have, and why not the better one.
async fn accelerator(maker: &Maker) -> Check {
    let name = "accelerator";
    let slow = "software emulation (about 10 times slower than the host)";
    if maker.accel == Accel::Tcg {
        return check(name, Health::Degraded, format!("{slow}, as configured"));
    }
    match (maker.probe.kvm().await.broken, maker.accel) {
        (None, _) => check(name, Health::Ok, "KVM, tried with a small machine"),
        (Some(reason), Accel::Kvm) => fixed_by(
            check(
                name,
                Health::Failed,
                format!("KVM does not work here: {reason}"),
            ),
            "set accel = \"tcg\", or use a host whose KVM works",
        ),
        (Some(reason), _) => check(
            name,
            Health::Degraded,
            format!("{slow}, because KVM does not work here: {reason}"),
        ),
    }
}

/// The steps of `create`, for people.
pub(crate) fn plan(spec: &MachineSpec, choice: Accel, board: Board) -> String {
    let limits = &spec.limits;
    let shape = Shape {
        accel: match choice {
            Accel::Kvm => Accelerator::Kvm,
            Accel::Auto | Accel::Tcg => Accelerator::Tcg,
        },
        mem_mib: limits.mem_mib.value,
        vcpu_count: limits.vcpu_count.value,
        disk_mib: limits.disk_mib.value,
        root_bytes: 0,
        kept: spec.kept.is_some(),
        network: spec.network.is_some(),
    };
    let build = Build {
        name: spec.id.as_str(),
        board,
        firmware: FIRMWARE,
    };
    let line = arguments(build, &shape, 1, Origin::Restore).join(" ");
    format!(
        "image    {} as ext4, once per environment\n\
         template boot once per kind of machine, save memory and devices, keep\n\
         disks    root (environment + {disk} MiB) and /workspace ({disk} MiB), each a layer of its own\n\
         process  in {} as a user of its own: {program} {line}\n\
         guest    new randomness, clock and machine id\n",
        spec.root.display(),
        spec.dir.display(),
        disk = limits.disk_mib.value,
        program = board.program(),
    )
}
