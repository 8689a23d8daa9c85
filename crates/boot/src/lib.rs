//! Brings a virtual machine from the kernel's first process to a running guest.
//!
//! ```text
//!   kernel ─► modules ─► disks and ports appear ─► root, /workspace mounted and grown
//!          ─► kernel file systems ─► the root becomes / ─► the guest serves ─► power off
//! ```
//!
//! A machine with kept disks waits before mounting until the host reports that its disks are
//! attached: it may have been saved at that moment, with empty disks in their place, and be one of
//! many copies since. Its `/workspace` is an overlay of a read-only baseline and a journaled disk
//! for writes.
//!
//! Everything this needs is in the initramfs next to it: it reads no configuration. It never
//! returns: in the end the machine is powered off, and the reason of a failure is on the console.

mod devices;
mod mounts;
mod news;
mod sys;

pub use devices::find_port;
pub use news::{DONE, MAX_ANSWER, Matter, NEWS_BYTES, News, fresh_id};

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Kernel modules in the initial file system, loaded in the order of their names.
pub const MODULES: &str = "/modules";
/// Further kernel modules, for machines whose disks are kept.
pub const KEPT_MODULES: &str = "/modules-kept";
/// Further kernel modules, for machines with a network.
pub const NETWORK_MODULES: &str = "/modules-network";
/// The argument after `init` for a machine with kept disks.
pub const KEPT: &str = "kept";
/// The argument after `init` for a machine with a network.
pub const NETWORK: &str = "network";
/// The disk that becomes `/`.
pub const ROOT_DISK: &str = "vda";
/// The disk of `/workspace`.
pub const WORKSPACE_DISK: &str = "vdb";
/// The baseline of `/workspace`, if it is kept.
pub const BASELINE_DISK: &str = "vdc";
/// The port of the link, and the port that announces its turns.
pub const LINK_PORT: u32 = 1;
pub const TURN_PORT: u32 = 2;
/// The port for the host's news.
pub const NEWS_PORT: u32 = 3;

/// Length of the token that announces a conversation on the turn port and begins it on the link
/// port.
pub const TOKEN_BYTES: usize = 16;

/// The mount point of the root while it is being prepared.
const STAGE: &str = "/root";
/// How long disks and ports may take to appear.
const DEVICE_TIME: Duration = Duration::from_secs(30);

/// Why a machine did not come up.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("cannot load the kernel module {module}: {error}")]
    Module {
        module: String,
        error: std::io::Error,
    },
    #[error("{device} did not appear in {} s", DEVICE_TIME.as_secs())]
    Missing { device: String },
    #[error("cannot mount {what} on {}: {error}", at.display())]
    Mount {
        what: &'static str,
        at: PathBuf,
        error: std::io::Error,
    },
    #[error("cannot {step}: {error}")]
    Step {
        step: &'static str,
        error: std::io::Error,
    },
}

impl BootError {
    fn step<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> BootError {
        move |error| BootError::Step {
            step,
            error: error.into(),
        }
    }
}

/// The two sides of a kept `/workspace`, open.
#[derive(Debug)]
pub struct Workspace {
    /// The upper directory.
    pub upper: OwnedFd,
    /// The baseline.
    pub lower: OwnedFd,
}

/// Brings the machine up, lets `guest` serve in it, and switches it off.
pub fn main(guest: impl FnOnce(Option<Workspace>) -> i32) -> i32 {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let asked = |word: &str| words.iter().any(|found| found == word);
    let network = asked(NETWORK);
    let prepared = match asked(KEPT) {
        true => prepare_kept(network).map(Some),
        false => prepare(network).map(|()| None),
    };
    match prepared {
        Ok(workspace) => {
            guest(workspace);
        }
        Err(error) => eprintln!("motu-boot: {error}"),
    }
    rustix::fs::sync();
    sys::power_off()
}

fn prepare(network: bool) -> Result<(), BootError> {
    appear(&[MODULES], &[ROOT_DISK, WORKSPACE_DISK], network)?;
    let port = news::Port::open()?;
    let stage = Path::new(STAGE);
    mounts::root(stage)?;
    settle(stage)?;
    // This takes the kernel a while, so do it in the listening thread: no news comes this early.
    port.listen(|| devices::calm_down(&[ROOT_DISK, WORKSPACE_DISK]))
}

fn prepare_kept(network: bool) -> Result<Workspace, BootError> {
    let disks = [ROOT_DISK, WORKSPACE_DISK, BASELINE_DISK];
    appear(&[MODULES, KEPT_MODULES], &disks, network)?;
    devices::calm_down(&disks);
    let port = news::Port::open()?;
    let news = port.wait_for_disks()?;
    let stage = Path::new(STAGE);
    let mounted = mounts::kept(stage).and_then(|workspace| settle(stage).map(|()| workspace));
    port.answer(&news, mounted.as_ref().map(drop))?;
    let workspace = mounted?;
    port.listen(|| ())?;
    Ok(workspace)
}

/// Loads modules and waits for devices.
fn appear(modules: &[&str], disks: &[&str], network: bool) -> Result<(), BootError> {
    mounts::early()?;
    for directory in modules {
        devices::load_modules(Path::new(directory))?;
    }
    devices::wait_for(Path::new("/dev"), disks, DEVICE_TIME)?;
    sys::loopback_up().map_err(BootError::step("switch the loopback interface on"))?;
    if network {
        devices::load_modules(Path::new(NETWORK_MODULES))?;
        devices::let_everybody_ping();
        let v6 = devices::settle_v6();
        sys::network_up().map_err(BootError::step("switch the network on"))?;
        if v6 {
            sys::network_up_v6().map_err(BootError::step("give the network IPv6"))?;
        }
    }
    devices::forget(&[MODULES, KEPT_MODULES, NETWORK_MODULES]);
    Ok(())
}

/// Moves into the mounted root.
fn settle(stage: &Path) -> Result<(), BootError> {
    mounts::kernel(stage)?;
    mounts::name(stage)?;
    mounts::become_root(stage)
}
