//! A machine from a saved state: a template's, or that of a machine that is copied.
//!
//! A template is good as long as its copies come to life. When one does not (QEMU or the host's
//! kernel has changed in a way nobody could see), it is made again and tried once more; then the
//! failure is the answer.

use crate::arguments;
use crate::cable::Cable;
use crate::disks::{DISKS, disk_file};
use crate::error::QemuError;
use crate::kept;
use crate::place::{BASE, BLANK, Place, Site};
use crate::process::{self, Failed, Launch, Start};
use crate::qcow2::Below;
use crate::record::{Record, Shape};
use crate::removal::remove;
use crate::template::{Kind, Template, Templates};
use crate::throttle::Throttle;
use crate::{guest, state};
use motu_boot::Matter;
use motu_core::runtime::{Machine, MachineSpec};
use motu_core::sandbox::AppliedLimit;
use std::os::fd::OwnedFd;

/// A copy of a template to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) site: &'a Site,
    /// The generation of its disks.
    pub(crate) layer: u32,
}

/// Makes a machine of its template, which is made again if no machine comes of it.
pub(crate) async fn from_template(
    templates: &Templates,
    spec: &MachineSpec,
    copy: Copy<'_>,
) -> Result<Machine, QemuError> {
    let template = templates.get(copy.kind).await?;
    let error = match try_template(&template, spec, copy).await {
        Err(error) if error.may_be_the_templates() => error,
        done => return done,
    };
    tracing::warn!(%error, "a template does not come to life and is made again");
    remove(&spec.dir).await?;
    let template = templates.instead_of(copy.kind, &template).await?;
    try_template(&template, spec, copy).await
}

async fn try_template(
    template: &Template,
    spec: &MachineSpec,
    copy: Copy<'_>,
) -> Result<Machine, QemuError> {
    let shape = &copy.kind.shape;
    let matter = match shape.kept {
        true => {
            let baseline = arguments::kept_path(kept::BASELINE);
            copy.site.own.show_baseline(&baseline)?;
            Matter::Disks
        }
        false => {
            lay_out(&copy.site.own, copy.kind, template)?;
            Matter::News
        }
    };
    let (reading, writing) = state::pipe()?;
    let launch = Launch {
        program: &copy.kind.program,
        site: copy.site,
        name: spec.id.as_str(),
        shape,
        layer: copy.layer,
        throttle: Throttle::of(&spec.limits),
        start: Start::Restore {
            ram: &template.ram,
            state: &reading,
        },
        leash: None,
        network: None,
    };
    let restoring = restore(spec, launch, matter);
    state::fed(restoring, state::hand_over(template.state()?, writing)).await
}

/// What a machine of a template finds in its directory.
pub(crate) fn lay_out(place: &Place, kind: &Kind, template: &Template) -> Result<(), QemuError> {
    if let Some(root) = &kind.root {
        place.link(&root.path, BASE)?;
    }
    place.link(&kind.blank.path, BLANK)?;
    for disk in DISKS {
        let below = disk_file(disk, 0);
        place.link(&template.layer(disk), &below)?;
        place.add_layer(disk, 1, &kind.shape, (&below, Below::Qcow2))?;
    }
    Ok(())
}

/// Starts a prepared machine from a saved state and gives it a life of its own.
pub(crate) async fn restore(
    spec: &MachineSpec,
    launch: Launch<'_>,
    matter: Matter,
) -> Result<Machine, QemuError> {
    let cable = Cable::of(spec).await?;
    let wired = Launch {
        network: cable.as_ref().map(Cable::end),
        ..launch
    };
    let pidfd = begin(wired, matter).await?;
    if let Some(cable) = cable {
        cable.hold(pidfd)?;
    }
    let record = Record::load(&spec.dir).ok_or(QemuError::Gone)?;
    Ok(made(spec, launch.shape, record))
}

/// Starts QEMU from a saved state and waits until its guest has taken in the news.
async fn begin(launch: Launch<'_>, matter: Matter) -> Result<OwnedFd, QemuError> {
    let place = &launch.site.own;
    let (pidfd, mut messages) = process::start(launch)?;
    let begun = async {
        launch.throttle.apply(place, launch.shape).await?;
        guest::renew(place, matter).await?;
        match matter {
            // Its guest begins only now.
            Matter::Disks => guest::greet(place).await.map(|link| link.close()),
            _ => Ok(()),
        }
    };
    match process::while_it_lives(&pidfd, begun).await {
        Ok(()) => Ok(pidfd),
        Err(Failed::Work(error)) => Err(error),
        Err(Failed::Ended(how)) => Err(QemuError::Boot {
            reason: format!("{how}; it said: {}", messages.text()),
        }),
    }
}

pub(crate) fn made(spec: &MachineSpec, shape: &Shape, record: Record) -> Machine {
    Machine {
        id: spec.id.clone(),
        dir: spec.dir.clone(),
        limits: limits(spec, shape),
        accelerator: Some(shape.accel.name().to_string()),
        record: serde_json::to_value(record).unwrap_or_default(),
    }
}

fn limits(spec: &MachineSpec, shape: &Shape) -> Vec<AppliedLimit> {
    let limit = |name: &str, value: u64, enforced: bool, by: &str| AppliedLimit {
        name: name.into(),
        value,
        enforced,
        by: by.into(),
    };
    let own_kernel = "nothing: the machine has a kernel of its own";
    let limits = &spec.limits;
    let throttled = limits.io().into_iter();
    let throttled = throttled.map(|(name, value)| limit(name, value, true, "QEMU"));
    let usual = [
        limit(
            "vcpu_count",
            limits.vcpu_count.value,
            true,
            "virtual processors",
        ),
        limit(
            "mem_mib",
            limits.mem_mib.value,
            true,
            "memory of the virtual machine",
        ),
        limit(
            "disk_mib",
            shape.disk_mib,
            true,
            "size of the virtual disks, the root's and that of /workspace each",
        ),
        limit("pids_max", limits.pids_max.value, false, own_kernel),
        limit("nofile", limits.nofile.value, false, own_kernel),
    ];
    usual.into_iter().chain(throttled).collect()
}
