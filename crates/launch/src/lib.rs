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
//! The plan is data: the daemon writes it, people can read it, tests compare it. This crate
//! executes it step by step and names the step that failed. It decides nothing, keeps nothing and
//! never mounts anything in the host's mount namespace, so the kernel removes every mount together
//! with the machine.

pub mod plan;
pub mod report;
pub mod seeded;

mod directory;
mod inner;
mod outer;
mod overlay;
mod sys;
mod view;

pub use plan::{
    AskedCalls, ControlGroups, Disk, GuestStart, IdMap, IdRange, Inner, Mapper, Namespaces, Outer,
    Plan, RestrictSpec, Upper, WORKSPACE_LAYERS, WorkspaceDirs,
};
pub use report::{Failure, Report};

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The number of the inherited packet socket. The daemon sends one packet, the plan, with the open
/// files that its steps take, in their order: the mount of a disk, or a directory and the machine
/// that it is for. Reports are sent back over it.
///
/// A launcher may wait for its plan for any time: daemons start a few ahead. If the daemon goes
/// away, the launcher exits.
pub const SOCKET_FD: i32 = 3;

/// The lower half of a filter's "ask" that says: allowed where the kernel has nobody to ask. Without it the call is absent there.
pub const OTHERWISE_ALLOWED: u32 = 1;

/// The longest plan.
pub const PLAN_BYTES: usize = 128 * 1024;

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
    let socket = sys::inherited(SOCKET_FD);
    let (plan, given) = match receive_plan(&socket) {
        Ok(Some(order)) => order,
        Ok(None) => return 0,
        Err(_) => return 2,
    };
    let report = report::Reporter::new(socket);
    match outer::run(&plan, given, &report) {
        Ok(Side::Done) => 0,
        Ok(Side::Machine(start)) => {
            drop(report);
            sys::close_others(start.descriptors());
            guest(start)
        }
        Err(failure) => {
            report.failed(&failure);
            1
        }
    }
}

/// Which process returned from the plan.
enum Side {
    /// The launcher, or the first process of a plan without a guest.
    Done,
    Machine(GuestStart),
}

/// Waits for the plan; `None` if the daemon went away.
fn receive_plan(socket: &OwnedFd) -> io::Result<Option<(Plan, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; PLAN_BYTES];
    let (length, given) = report::receive_packet(socket.as_fd(), &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let plan = postcard::from_bytes(&buffer[..length]).map_err(io::Error::other)?;
    Ok(Some((plan, given)))
}

/// Gives a waiting launcher its plan, and the open files that its steps take.
pub fn send_plan(socket: BorrowedFd<'_>, plan: &Plan, given: &[OwnedFd]) -> io::Result<()> {
    let bytes = postcard::to_allocvec(plan).map_err(io::Error::other)?;
    let given: Vec<BorrowedFd<'_>> = given.iter().map(AsFd::as_fd).collect();
    report::send_packet(socket, &bytes, &given)
}
