//! The launcher: it turns a [`Plan`] into a running machine and goes away.
//!
//! ```text
//!  daemon ──spawn──► launcher (host side)         pid 1 (inside)
//!                      outer steps │ clone3 ──────► waits
//!     ◄── Started + pidfd ─────────┤                  │
//!                      maps, layers│                  │
//!                      overlay     ├── root mount ──► inner steps
//!                      exits       ┘                  │
//!     ◄── Ready ──────────────────────────────────────┤
//!                                                  guest loop, same process image
//! ```
//!
//! The plan is data: the daemon writes it, people can read it, tests compare
//! it. This crate executes it step by step and names the step that failed. It
//! decides nothing, keeps nothing and never mounts anything in the host's
//! mount namespace, so the kernel itself removes every mount with the machine.

pub mod plan;
pub mod report;

mod inner;
mod outer;
mod sys;

pub use plan::{
    Disk, GuestStart, IdMap, IdRange, Inner, Mapper, Namespaces, Outer, Plan, RestrictSpec,
};
pub use report::{Failure, Report};

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};

/// Where the daemon leaves the plan.
pub const PLAN_FD: i32 = 3;
/// Where reports go.
pub const REPORT_FD: i32 = 4;
/// Where the daemon leaves the mount of the machine's disk, if there is one.
pub const DISK_FD: i32 = 5;

/// The name of the link's socket in the machine's directory.
pub const LINK_SOCKET: &str = "link.sock";

/// The launcher's `main`, with the arguments after `launch` (there are none).
///
/// Returns the exit code. In the machine's pid 1 it is the one of `guest`,
/// which is called with the machine around it and usually never comes back.
pub fn main(
    args: impl IntoIterator<Item = OsString>,
    guest: impl FnOnce(GuestStart) -> i32,
) -> i32 {
    if args.into_iter().next().is_some() {
        return 2;
    }
    let plan = sys::inherited(PLAN_FD);
    let report = report::Reporter::new(sys::inherited(REPORT_FD));
    match read_plan(plan).and_then(|plan| outer::run(&plan, &report)) {
        Ok(Side::Done) => 0,
        Ok(Side::Machine(start)) => {
            drop(report);
            sys::close_others(start.listener.as_fd());
            guest(start)
        }
        Err(failure) => {
            report.failed(&failure);
            1
        }
    }
}

/// Which process came back from the plan.
enum Side {
    /// The launcher, or the first process of a plan without a guest.
    Done,
    Machine(GuestStart),
}

fn read_plan(fd: OwnedFd) -> Result<Plan, Failure> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut bytes)
        .map_err(|error| Failure::new("read the plan", error))?;
    postcard::from_bytes(&bytes).map_err(|_| Failure {
        step: "read the plan".into(),
        errno: libc::EBADMSG,
    })
}
