//! Code shared by the runtimes that make machines on this host.
//!
//! ```text
//!   cgroup     limits of memory, processes, CPU and disks; freezing
//!   disk       disks of bounded size, some of them ready beforehand
//!   mount      mounting their images, attached nowhere
//!   reuse      disks of machines that are gone, emptied for the next ones
//!   tending    what images of kept disks need: space given back, errors noticed
//!   seed       the files a workspace began with
//!   hidden     what of /proc and /sys machines on the host's kernel do not see
//!   nested     hosts that are containers themselves
//!   process    processes that are known again after a restart of the daemon
//!   program    the guest program as a file, for runtimes that need one
//!   sys        the only module with `unsafe`
//! ```

mod cgroup;
pub mod disk;
pub mod hidden;
pub mod mount;
pub mod nested;
mod process;
mod program;
mod reuse;
mod seed;
mod sys;
mod tending;

pub use cgroup::{Hierarchies, Kind, Made, Target, Version};
pub use process::{Process, boot_id, start_time};
pub use program::place_program;
pub use seed::own_seed;
pub use sys::{exit_status, resize_ext4, watch};
pub use tending::{errors, flush, hold, trim, trim_at_rest};
