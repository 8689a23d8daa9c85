//! Starts QEMU: in a session of its own, with nothing but what it is given.

use super::{Jail, leash};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Descriptors are handed over under numbers below this.
const HANDED: RawFd = 200;

/// What to start.
#[derive(Debug)]
pub(crate) struct Spawn<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    /// The working directory; its parents need not be open to the new process.
    pub(crate) directory: BorrowedFd<'a>,
    /// The user and group it becomes.
    pub(crate) identity: Option<(u32, u32)>,
    /// The root it sees.
    pub(crate) jail: Option<Jail>,
    /// The files it enters cgroups by.
    pub(crate) doors: Vec<OwnedFd>,
    /// Ours, and the number it has over there.
    pub(crate) descriptors: &'a [(BorrowedFd<'a>, RawFd)],
    /// The number over there of a leash's end.
    pub(crate) leash: RawFd,
    /// Where its messages go.
    pub(crate) messages: OwnedFd,
}

/// Starts a process and returns its pid.
pub(crate) fn spawn(what: Spawn<'_>) -> io::Result<i32> {
    let mut command = Command::new(what.program);
    command
        .args(what.arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(what.messages));
    // Copies above every target number: no target can hit a descriptor still to be moved.
    let mut moves: Vec<(OwnedFd, RawFd)> = Vec::with_capacity(what.descriptors.len());
    for (fd, number) in what.descriptors {
        moves.push((rustix::io::fcntl_dupfd_cloexec(fd, HANDED)?, *number));
    }
    // The library hears of the start by a pipe of its own, which may have one of the target numbers
    // and is then closed on the way: the start would seem done before the leash is tied, and a leash
    // that is let go before that ends the process. This one is out of their reach.
    let (begun, pending) = pipe_with(PipeFlags::CLOEXEC)?;
    let kept = rustix::io::fcntl_dupfd_cloexec(&pending, HANDED)?;
    drop(pending);
    let directory = what.directory.as_raw_fd();
    let duties = Duties {
        directory,
        identity: what.identity,
        jail: what.jail,
        doors: what.doors,
        leash: what.leash,
    };
    let raw: Vec<(RawFd, RawFd)> = moves
        .iter()
        .map(|(fd, number)| (fd.as_raw_fd(), *number))
        .collect();
    // SAFETY: the closure runs between fork and exec and only makes system calls;
    // what it uses was made before the fork.
    unsafe {
        command.pre_exec(move || prepare(&duties, &raw));
    }
    let pid = command.spawn()?.id() as i32;
    drop(kept);
    // It ends when the process has become QEMU, or is no more.
    File::from(begun).read_to_end(&mut Vec::new())?;
    Ok(pid)
}

/// What the new process makes of itself.
struct Duties {
    directory: RawFd,
    identity: Option<(u32, u32)>,
    jail: Option<Jail>,
    doors: Vec<OwnedFd>,
    leash: RawFd,
}

fn prepare(duties: &Duties, moves: &[(RawFd, RawFd)]) -> io::Result<()> {
    // SAFETY: integers only, and pointers to live constants.
    unsafe {
        check(libc::setsid())?;
        for door in &duties.doors {
            // "0" is whoever writes it.
            check(libc::write(door.as_raw_fd(), c"0".as_ptr().cast(), 1) as libc::c_int)?;
        }
        for (from, to) in moves {
            check(libc::dup2(*from, *to))?;
        }
        // As whoever starts it: the signal is sent in that name.
        leash::tie(duties.leash)?;
        // Before the identity changes: afterwards the way to the directory may be closed.
        // Before the namespaces do: the working directory moves along, a descriptor does not.
        check(libc::fchdir(duties.directory))?;
        if let Some(jail) = &duties.jail {
            jail.enter()?;
        }
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // Memory of a machine must not end up in a core file.
        check(libc::setrlimit(libc::RLIMIT_CORE, &raw const none))?;
        if let Some((user, group)) = duties.identity {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(group, group, group))?;
            check(libc::setresuid(user, user, user))?;
        }
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Leash;
    use super::*;
    use std::os::fd::AsFd;

    /// A process started while the lowest free numbers are the very ones it is to have.
    #[test]
    fn a_start_is_over_when_the_leash_is_tied() {
        let program = motu_needs::find("sleep");
        let here = File::open("/").unwrap();
        let null = File::open("/dev/null").unwrap();
        let mut filling = Vec::new();
        while filling
            .last()
            .is_none_or(|fd: &OwnedFd| fd.as_raw_fd() < 99)
        {
            filling.push(null.try_clone().unwrap().into());
        }
        for _ in 0..50 {
            tied(&program, &here, &null);
        }
    }

    fn tied(program: &Path, here: &File, null: &File) {
        let leash = Leash::new().unwrap();
        // Numbers around those that a pipe made now has.
        let first = leash.end().as_raw_fd();
        let descriptors: Vec<(BorrowedFd<'_>, RawFd)> = (first..first + 40)
            .map(|number| (null.as_fd(), number))
            .chain([(leash.end(), first + 40)])
            .collect();
        let pid = spawn(Spawn {
            program,
            arguments: &["20".into()],
            directory: here.as_fd(),
            identity: None,
            jail: None,
            doors: Vec::new(),
            descriptors: &descriptors,
            leash: first + 40,
            messages: null.try_clone().unwrap().into(),
        })
        .unwrap();
        assert_eq!(
            std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(),
            std::fs::canonicalize(program).unwrap(),
            "it has become the program"
        );
        drop(leash);
        let mut status = 0;
        // SAFETY: a child of ours that nobody else waits for.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL, "it was tied");
    }
}
