//! The guest: our program inside every sandbox, pid 1 where it can be.
//!
//! ```text
//!   transport   accepts connections, one link each
//!   serial      the same over the serial ports of a virtual machine
//!   dispatch    one task per stream: request in, outcome out
//!   process/    starts, follows, signals and ends processes
//!   files/      every file operation, below one root
//!   workspace/  the changes in /workspace, out and back in
//!   ports/      dials and lists ports of this machine
//!   calls       system calls that a container's filter leaves to us
//!   credentials  what a thread may do while it works for a user
//!   agent       the socket of an SSH agent that is outside
//!   system/     identity, clock, metrics, the end of the machine
//!   memory      the machine's memory, as /proc shows it
//!   state       what outlives a connection; below it what it is made of:
//!               running/ (known processes), sides and flush (/workspace and its disk), place, users
//!   sys/        the only module with `unsafe`
//! ```
//!
//! It carries no policy: what a sandbox may do is decided and enforced outside.
//! It runs on one thread; work that may block goes to a few short-lived ones.

mod agent;
mod answer;
mod arguments;
mod blocking;
mod calls;
mod cgroup;
mod credentials;
mod dispatch;
mod files;
mod flush;
mod lent;
mod lock;
mod memory;
mod place;
mod ports;
mod process;
mod running;
mod serial;
mod sides;
mod state;
mod sys;
mod system;
mod transport;
mod users;
mod workspace;

pub use motu_launch::{AskedCalls, Upper, WorkspaceDirs};
pub use serial::SerialPorts;
pub use sys::Restrict;

use state::Guest;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The limit of open files in a virtual machine; elsewhere `nofile` sets it.
const OPEN_FILES: u64 = 65_536;
/// Grace period of processes when the guest itself gets SIGTERM or SIGINT.
const SIGNAL_GRACE: Duration = Duration::from_secs(2);

/// How hosts connect.
#[derive(Debug)]
pub enum Door {
    /// A listening Unix stream socket.
    Socket(OwnedFd),
    Serial(SerialPorts),
}

/// What a guest needs to begin.
#[derive(Debug)]
pub struct Serve {
    pub door: Door,
    /// Whether this process is the init of its pid namespace.
    pub pid1: bool,
    /// Privileges taken from everything it runs; `None`: children inherit the guest's.
    pub restrict: Option<Restrict>,
    /// `/workspace` and its baseline, if it has one.
    pub workspace: Option<WorkspaceDirs>,
    /// Held open as long as the guest lives.
    pub lock: Option<OwnedFd>,
    /// `fsync` reports success even after an error (gVisor).
    pub errors_hidden: bool,
    /// System calls of commands that wait for an answer of ours.
    pub calls: Option<AskedCalls>,
}

/// What the launcher of the container runtime leaves to its pid 1.
impl From<motu_launch::GuestStart> for Serve {
    fn from(start: motu_launch::GuestStart) -> Serve {
        Serve {
            door: Door::Socket(start.listener),
            pid1: true,
            restrict: Some(Restrict {
                drop_caps_keep: start.restrict.keep_caps,
                no_new_privs: start.restrict.no_new_privs,
                landlock: start.restrict.landlock,
                nofile: start.restrict.nofile,
                // A control group limits those of the machine.
                nproc: None,
            }),
            workspace: start.workspace,
            lock: start.lock,
            errors_hidden: false,
            calls: start.calls,
        }
    }
}

/// Serves until the machine is shut down; returns the exit code.
pub fn serve(mut serve: Serve) -> i32 {
    // With its own kernel the guest is pid 1, which the OOM killer never kills.
    let own_kernel = matches!(serve.door, Door::Serial(_));
    if own_kernel {
        sys::allow_open_files(OPEN_FILES);
    }
    sys::prepare_self(serve.pid1, !own_kernel);
    // A program executed from a descriptor would be named after its number.
    let _ = rustix::thread::set_name(c"motu-guest");
    // First: the runtime below may make such a call.
    if let Some(Err(error)) = serve.calls.take().map(calls::answer) {
        return fatal("cannot answer system calls", &error);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fatal("cannot start", &error),
    };
    let code = runtime.block_on(run(serve));
    // A blocked disk must not keep the machine from ending.
    runtime.shutdown_timeout(Duration::from_millis(50));
    code
}

async fn run(serve: Serve) -> i32 {
    let hidden = serve.errors_hidden;
    let open = |dirs| sides::Workspace::open(dirs, hidden);
    let workspace = match serve.workspace.map(open).transpose() {
        Ok(workspace) => workspace,
        Err(error) => return fatal("cannot open the workspace", &error),
    };
    if let Some(Err(errno)) = workspace
        .as_ref()
        .map(|sides| workspace::recover(&sides.top))
    {
        // The unfinished changes stay in place, and the next start tries again.
        eprintln!("motu-guest: unfinished changes could not be taken back: {errno}");
    }
    // The lock is released when this process ends, however it ends.
    let _lock = serve.lock;
    // Without restrictions and without its own kernel, `/` may be the host's root.
    let own_root = serve.restrict.is_some() || matches!(serve.door, Door::Serial(_));
    let guest = match Guest::new(serve.pid1, serve.restrict, workspace) {
        Ok(mut guest) => {
            guest.own_root = serve.pid1 && own_root;
            Arc::new(guest)
        }
        Err(error) => return fatal("cannot open the root directory", &error),
    };
    blocking::prepare();
    let reaper = match process::Reaper::new() {
        Ok(reaper) => reaper,
        Err(error) => return fatal("cannot watch for ended processes", &error),
    };
    // A task of its own: it is needed most during shutdown, below.
    tokio::spawn(reaper.run(guest.clone()));
    if let Some(workspace) = guest.workspace.clone() {
        let started = workspace::now_ns();
        // Nobody waits for it.
        drop(blocking::spawn(move || {
            workspace::remove_leftovers(&workspace, started)
        }));
    }
    let endings = system::Endings::new();
    tokio::select! {
        error = enter(serve.door, guest.clone()) => fatal("nobody can reach this guest", &error),
        () = give_back_memory(&guest) => 1,
        () = memory::keep_view(&guest) => 1,
        () = guest.over() => 0,
        () = endings.asked() => {
            system::end_processes(&guest, SIGNAL_GRACE).await;
            0
        }
    }
}

/// Returns free memory to the kernel after work, once the idle threads are gone.
async fn give_back_memory(guest: &Guest) {
    loop {
        guest.rested.notified().await;
        tokio::time::sleep(blocking::KEEP + Duration::from_secs(1)).await;
        sys::trim_memory();
    }
}

/// Accepts hosts until that fails; returns the error.
async fn enter(door: Door, guest: Arc<Guest>) -> std::io::Error {
    match door {
        Door::Serial(ports) => serial::serve(ports, guest).await,
        Door::Socket(listener) => match transport::listener(listener) {
            Ok(listener) => transport::accept(listener, guest).await,
            Err(error) => return error,
        },
    }
    std::io::ErrorKind::NotConnected.into()
}

/// Serves as the init of a virtual machine; returns the exit code.
pub fn serve_machine(workspace: Option<WorkspaceDirs>) -> i32 {
    match SerialPorts::open() {
        Ok(ports) => serve(Serve {
            door: Door::Serial(ports),
            pid1: true,
            restrict: None,
            workspace,
            lock: None,
            errors_hidden: false,
            calls: None,
        }),
        Err(error) => fatal("cannot open the serial ports", &error),
    }
}

/// Runs `serve` with command-line arguments; returns the exit code.
pub fn command(arguments: &[OsString]) -> i32 {
    match arguments::parse(arguments) {
        Ok(ready) => serve(ready),
        Err(message) => {
            eprintln!("motu-guest: {message}");
            2
        }
    }
}

fn fatal(what: &str, error: &dyn std::fmt::Display) -> i32 {
    eprintln!("motu-guest: {what}: {error}");
    1
}
