//! QEMU as a process: started detached, watched and ended through a pidfd.

use crate::accel::Accelerator;
use crate::arguments::{
    CONSOLE, KEPT_FD, LEASH_FD, LINK_FD, MESSAGES_FD, NETWORK_FD, NEWS_FD, Origin, PANICKED,
    QMP_FD, RAM_FD, STATE_FD, TURN_FD, arguments,
};
use crate::disks::{DISKS, disk_file};
use crate::error::QemuError;
use crate::place::{LINK, NEWS, QMP, STATE, Site, TURN};
use crate::program::Program;
use crate::record::{Process, Record, Shape};
use crate::sys::{self, Jail, Kvm, Leash, Spawn};
use crate::throttle::{self, Throttle};
use crate::{cable, cgroup, tool};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

/// How long QEMU may take to end when it has closed its sockets.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a machine starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<'a> {
    Boot { ram: &'a File },
    Restore { ram: &'a File, state: &'a File },
}

/// What QEMU said, as long as it fits a pipe.
#[derive(Debug)]
pub(crate) struct Messages(File);

impl Messages {
    /// Everything said so far, for people.
    pub(crate) fn text(&mut self) -> String {
        let mut said = Vec::new();
        // The pipe never blocks: this ends when it is empty.
        let _ = self.0.read_to_end(&mut said);
        tool::tail(&String::from_utf8_lossy(&said))
    }
}

/// A process to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Program,
    pub(crate) site: &'a Site,
    pub(crate) name: &'a str,
    pub(crate) shape: &'a Shape,
    /// The generation of its disks.
    pub(crate) layer: u32,
    /// What its disks may do; with limits it starts stopped.
    pub(crate) throttle: Throttle,
    pub(crate) start: Start<'a>,
    /// Of a process that must not outlive us, even when it is written down.
    pub(crate) leash: Option<&'a Leash>,
    /// The socket of its frames; a device without one has nobody at its other end.
    pub(crate) network: Option<&'a OwnedFd>,
}

/// Starts QEMU in its place and writes down which process it is.
pub(crate) fn start(launch: Launch<'_>) -> Result<(OwnedFd, Messages), QemuError> {
    let Launch {
        site, shape, layer, ..
    } = launch;
    let place = &site.own;
    let kept = site.kept.as_ref().map(|kept| kept.path().to_path_buf());
    let identity = place.identity(shape.accel)?;
    let jail = jail(&launch.program.path, shape, identity)?;
    let mut record = Record::new(*shape, layer, kept);
    // Written down before they are made, so that whoever removes the machine finds them.
    record.cgroups = cgroup::dirs(place.path())?;
    record.store(place.path()).map_err(stored)?;
    let doors = cgroup::make(place.path(), shape)?;
    let sockets = [
        (place.listen(LINK)?, LINK_FD),
        (place.listen(TURN)?, TURN_FD),
        (place.listen(QMP)?, QMP_FD),
        (place.listen(NEWS)?, NEWS_FD),
    ];
    let (reading, writing) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)
        .map_err(QemuError::errno("cannot make a pipe"))?;
    let mut handed: Vec<(BorrowedFd<'_>, RawFd)> = vec![(reading.as_fd(), MESSAGES_FD)];
    handed.extend(
        sockets
            .iter()
            .map(|(socket, number)| (socket.as_fd(), *number)),
    );
    if let Some(kept) = &site.kept {
        handed.push((kept.handle(), KEPT_FD));
    }
    // Nobody would find a process whose name was never written down: until then it ends with us.
    let own = Leash::new().map_err(QemuError::io("cannot hold QEMU"))?;
    let leash = launch.leash.unwrap_or(&own);
    handed.push((leash.end(), LEASH_FD));
    let origin = match launch.start {
        Start::Boot { ram } => {
            handed.push((ram.as_fd(), RAM_FD));
            Origin::Boot
        }
        Start::Restore { ram, state } => {
            handed.extend([(ram.as_fd(), RAM_FD), (state.as_fd(), STATE_FD)]);
            Origin::Restore
        }
    };
    let nobody = match (shape.network, launch.network) {
        (true, None) => Some(cable::unplugged()?),
        _ => None,
    };
    if let Some(socket) = launch.network.or(nobody.as_ref()) {
        handed.push((socket.as_fd(), NETWORK_FD));
    }
    let disks: Vec<String> = DISKS.iter().map(|disk| disk_file(disk, layer)).collect();
    site.disks().give(identity, &disks)?;
    place.give(identity, own_files(origin))?;
    let mut line = arguments(launch.program.build(launch.name), shape, layer, origin);
    if !launch.throttle.is_none() {
        line.push(throttle::STOPPED.to_string());
    }
    let pid = sys::spawn(Spawn {
        program: &launch.program.path,
        arguments: &line,
        directory: place.handle(),
        identity,
        jail,
        doors,
        descriptors: &handed,
        leash: LEASH_FD,
        messages: writing,
    })
    .map_err(QemuError::io("cannot start QEMU"))?;
    let mut messages = Messages(File::from(reading));
    record.process = Process::of(pid);
    record.store(place.path()).map_err(stored)?;
    own.release().map_err(QemuError::io("cannot let QEMU go"))?;
    match record.open() {
        Some(pidfd) => Ok((pidfd, messages)),
        None => Err(QemuError::Boot {
            reason: messages.text(),
        }),
    }
}

/// The root QEMU sees. Root that may not make one has none; an ordinary user has one or no machine.
fn jail(
    program: &Path,
    shape: &Shape,
    identity: Option<(u32, u32)>,
) -> Result<Option<Jail>, QemuError> {
    let wanted = shape.accel == Accelerator::Kvm;
    let kvm = |node| if wanted { node } else { Kvm::Without };
    let made = match identity {
        Some(owner) if sys::jail::makes_nodes() => Jail::new(program, kvm(Kvm::Private(owner))),
        Some(_) if sys::jail::possible() => Jail::new(program, kvm(Kvm::Shown)),
        Some(_) => return Ok(None),
        None => Jail::of_user(program, kvm(Kvm::Shown)),
    };
    made.map(Some)
        .map_err(QemuError::io("cannot make a root for QEMU"))
}

/// What a machine writes to besides its disks.
fn own_files(origin: Origin) -> &'static [&'static str] {
    match origin {
        Origin::Boot => &[STATE, CONSOLE],
        Origin::Restore => &[STATE],
    }
}

fn stored(error: motu_core::Error) -> QemuError {
    QemuError::Io {
        context: error.message,
        error: std::io::ErrorKind::Other.into(),
    }
}

/// Waits for the end of a process; says how it ended, if it was ours to know.
pub(crate) async fn wait(pidfd: OwnedFd) -> std::io::Result<Option<String>> {
    let watched = sys::watch(pidfd)?;
    // The guard is a borrow of what is used below.
    drop(watched.readable().await?);
    Ok(reap(watched.get_ref().as_fd()))
}

/// Why nothing came of what a machine was to do.
#[derive(Debug)]
pub(crate) enum Failed {
    /// QEMU has ended; how, where it is known.
    Ended(String),
    Work(QemuError),
}

/// Does something with a machine for as long as its process lives.
pub(crate) async fn while_it_lives<T>(
    pidfd: &OwnedFd,
    work: impl Future<Output = Result<T, QemuError>>,
) -> Result<T, Failed> {
    let watching = |error| Failed::Work(QemuError::io("cannot watch QEMU")(error));
    let ended = wait(pidfd.try_clone().map_err(watching)?);
    tokio::pin!(ended);
    let how = tokio::select! {
        done = work => match done {
            Ok(done) => return Ok(done),
            // Of a QEMU that ends, the sockets are closed first: the cause is in what it said.
            Err(error) => match tokio::time::timeout(LAST_WORDS, ended).await {
                Ok(how) => how,
                Err(_) => return Err(Failed::Work(error)),
            },
        },
        how = &mut ended => how,
    };
    let how = how.ok().flatten();
    Err(Failed::Ended(how.unwrap_or_else(|| "QEMU ended".into())))
}

/// Takes the exit status of a child, so that nothing of it stays.
fn reap(pidfd: BorrowedFd<'_>) -> Option<String> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::PidFd(pidfd), options).ok()??;
    if let Some(signal) = status.terminating_signal() {
        return Some(format!("QEMU was killed by signal {signal}"));
    }
    match status.exit_status() {
        Some(0) => Some("the machine was switched off from inside".into()),
        Some(PANICKED) => Some("the kernel of the machine panicked".into()),
        Some(code) => Some(format!("QEMU exited with code {code}")),
        None => None,
    }
}

/// Ends a process and waits until it is gone.
pub(crate) async fn end(pidfd: OwnedFd) -> Result<(), QemuError> {
    match pidfd_send_signal(&pidfd, Signal::KILL) {
        // Gone already, which is what is wanted.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(QemuError::errno("cannot end QEMU")(errno)),
    }
    wait(pidfd)
        .await
        .map(drop)
        .map_err(QemuError::io("cannot wait for the end of QEMU"))
}
