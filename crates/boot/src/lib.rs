//! From the kernel's first process to a machine the guest can serve in.
//!
//! ```text
//!   kernel ─► modules ─► disks and ports appear ─► root, /workspace mounted and grown
//!          ─► kernel file systems ─► the root becomes / ─► the guest serves ─► power off
//! ```
//!
//! Everything this needs is in the initial file system next to it: it reads no
//! configuration. It never comes back: whatever happens, the machine is
//! switched off at the end, and the reason of a failure is on the console.

mod devices;
mod mounts;
mod sys;

pub use devices::find_port;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Kernel modules in the initial file system, loaded in the order of their names.
pub const MODULES: &str = "/modules";
/// The disk that becomes `/`.
pub const ROOT_DISK: &str = "vda";
/// The disk of `/workspace`.
pub const WORKSPACE_DISK: &str = "vdb";
/// The number of the port that carries the link, and of the one that announces its turns.
pub const LINK_PORT: u32 = 1;
pub const TURN_PORT: u32 = 2;

/// The bytes with which a host announces a conversation on the turn port and begins it on the link port.
pub const TOKEN_BYTES: usize = 16;

/// Where the root is while it is being prepared.
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

/// Brings the machine up, lets `guest` serve in it, and switches it off.
pub fn main(guest: impl FnOnce() -> i32) -> i32 {
    match prepare() {
        Ok(()) => {
            guest();
        }
        Err(error) => eprintln!("motu-boot: {error}"),
    }
    rustix::fs::sync();
    sys::power_off()
}

fn prepare() -> Result<(), BootError> {
    mounts::early()?;
    devices::load_modules(Path::new(MODULES))?;
    devices::wait_for(Path::new("/dev"), DEVICE_TIME)?;
    let stage = Path::new(STAGE);
    mounts::root(stage)?;
    mounts::kernel(stage)?;
    mounts::name(stage)?;
    sys::loopback_up().map_err(BootError::step("switch the loopback interface on"))?;
    devices::forget(Path::new(MODULES));
    mounts::become_root(stage)
}
