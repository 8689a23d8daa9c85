//! OCI runtimes: programs that run a bundle as a container.
//!
//! The program is data: `runsc`, `crun` and `runc` are called alike. No shell is involved, only the
//! given descriptors are inherited, and every call has a timeout. Blocking; call it on a blocking
//! thread.

mod bundle;

pub use bundle::{Access, Capabilities, Config, Mount, Rlimit};

use crate::{barrier, sys};
use motu_packages::ids::plainly;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// How long a program may take on a busy host.
const PATIENCE_SECONDS: i64 = 60;
/// Where programs are when the daemon's search path leaves them out.
const PLACES: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
/// How much of a program's output is read.
const SAID_MAX: u64 = 64 * 1024;
/// The log file of a call, in its working directory.
const LOG: &str = "runtime.log";
/// The file with the container's pid.
pub const PID_FILE: &str = "pid";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    #[error("the program {program} is not installed")]
    Missing { program: String },
    #[error("[gvisor] program is {}, and there is no such program", path.display())]
    Misnamed { path: PathBuf },
    #[error("{program} {verb} failed ({status}): {said}")]
    Failed {
        program: String,
        verb: &'static str,
        status: ExitStatus,
        said: String,
    },
    #[error("{program} {verb} did not finish in {PATIENCE_SECONDS} s")]
    Slow { program: String, verb: &'static str },
    #[error("{program} {verb} answered with nonsense: {said}")]
    Nonsense {
        program: String,
        verb: &'static str,
        said: String,
    },
    #[error("{what}: {error}")]
    Io {
        what: &'static str,
        error: io::Error,
    },
}

/// A program with the command line of the runtime specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// Options before every verb.
    pub options: Vec<OsString>,
    /// A command line that ends by becoming the program, for those that start in namespaces of their own.
    pub within: Vec<OsString>,
}

/// One container: its bundle, the program's state, and its id.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    /// The working directory of every call; the bundle is in it.
    pub dir: &'a Path,
    /// The program's state directory, relative to `dir`, so that socket paths stay short.
    pub state: &'a Path,
    pub id: &'a str,
}

/// What a new container is given besides its bundle.
#[derive(Debug, Default)]
pub struct Start {
    /// Open `cgroup.procs` files of its cgroups.
    pub cgroups: Vec<OwnedFd>,
    /// Keeps the program and its children from registering for process-wide memory barriers: right
    /// for runtimes whose containers run in other processes.
    pub without_process_barriers: bool,
}

/// The state of a container by `state`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct State {
    pub status: String,
    #[serde(default)]
    pub pid: i32,
}

/// What a program has printed.
struct Heard {
    out: String,
    errors: String,
}

impl Program {
    /// Finds a program in the search path, then in the system directories.
    pub fn find(name: &str) -> Result<Program, OciError> {
        Program::find_in(&std::env::var_os("PATH").unwrap_or_default(), name)
    }

    fn find_in(path: &OsStr, name: &str) -> Result<Program, OciError> {
        std::env::split_paths(path)
            // A relative directory would depend on where the daemon was started.
            .filter(|dir| dir.is_absolute())
            .chain(PLACES.iter().map(PathBuf::from))
            .map(|dir| dir.join(name))
            .find_map(Program::at)
            .ok_or_else(|| OciError::Missing {
                program: name.to_string(),
            })
    }

    /// The program that the operator names.
    pub fn named(path: &Path) -> Result<Program, OciError> {
        Program::at(path.to_path_buf()).ok_or_else(|| OciError::Misnamed {
            path: path.to_path_buf(),
        })
    }

    fn at(path: PathBuf) -> Option<Program> {
        let runs = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok();
        (path.is_file() && runs).then_some(Program {
            path,
            options: Vec::new(),
            within: Vec::new(),
        })
    }

    #[must_use]
    pub fn with<S: Into<OsString>>(mut self, options: impl IntoIterator<Item = S>) -> Program {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// The program at the end of another command line.
    #[must_use]
    pub fn within(mut self, words: Vec<OsString>) -> Program {
        self.within = words;
        self
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// The first line of `--version`.
    pub fn version(&self) -> Result<String, OciError> {
        let mut command = self.bare();
        command.arg("--version");
        let said = self.answer(command, "--version")?;
        Ok(said.lines().next().unwrap_or_default().to_string())
    }

    /// Whether the program lists a global option.
    pub fn knows(&self, option: &str) -> Result<bool, OciError> {
        let mut command = self.bare();
        command.arg("flags");
        let Heard { out, errors } = self.hear(command, "flags")?;
        // `runsc` prints the list where errors belong.
        let said = format!("{out}\n{errors}");
        let option = format!("-{option}");
        Ok(said
            .lines()
            .any(|line| line.split_whitespace().next() == Some(&option)))
    }

    /// Creates and starts a detached container.
    pub fn run(&self, container: Container<'_>, start: Start) -> Result<i32, OciError> {
        self.make(container, "run", &["--detach"], start)
    }

    /// Makes a container whose process waits for [`Program::start`].
    pub fn create(&self, container: Container<'_>, start: Start) -> Result<i32, OciError> {
        self.make(container, "create", &[], start)
    }

    /// Restores a container from a checkpoint image.
    pub fn restore(
        &self,
        container: Container<'_>,
        image: &Path,
        start: Start,
    ) -> Result<i32, OciError> {
        let image = format!("--image-path={}", image.display());
        self.make(container, "restore", &["--detach", &image], start)
    }

    pub fn start(&self, container: Container<'_>) -> Result<(), OciError> {
        self.tell(container, "start", &[], &[])
    }

    pub fn state(&self, container: Container<'_>) -> Result<State, OciError> {
        let mut command = self.command(container, "state", &[]);
        command.arg(container.id);
        let said = self.answer(command, "state")?;
        serde_json::from_str(&said).map_err(|_| OciError::Nonsense {
            program: self.name(),
            verb: "state",
            said,
        })
    }

    pub fn kill(&self, container: Container<'_>, signal: &str) -> Result<(), OciError> {
        self.tell(container, "kill", &[], &[signal])
    }

    /// Deletes a container, after killing it if needed.
    pub fn delete(&self, container: Container<'_>) -> Result<(), OciError> {
        self.tell(container, "delete", &["--force"], &[])
    }

    pub fn pause(&self, container: Container<'_>) -> Result<(), OciError> {
        self.tell(container, "pause", &[], &[])
    }

    pub fn resume(&self, container: Container<'_>) -> Result<(), OciError> {
        self.tell(container, "resume", &[], &[])
    }

    /// Checkpoints a container, which keeps running.
    pub fn checkpoint(&self, container: Container<'_>, image: &Path) -> Result<(), OciError> {
        let image = format!("--image-path={}", image.display());
        self.tell(container, "checkpoint", &["--leave-running", &image], &[])
    }

    fn bare(&self) -> Command {
        let mut command = match self.within.split_first() {
            None => Command::new(&self.path),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.path);
                command
            }
        };
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    fn command(&self, container: Container<'_>, verb: &str, options: &[&str]) -> Command {
        let mut state = OsString::from("--root=");
        state.push(container.state);
        let mut command = self.bare();
        command
            .current_dir(container.dir)
            .arg(state)
            .arg(format!("--log={LOG}"))
            .args(&self.options)
            .arg(verb)
            .args(options);
        command
    }

    /// Makes a container and returns its process.
    fn make(
        &self,
        container: Container<'_>,
        verb: &'static str,
        options: &[&str],
        start: Start,
    ) -> Result<i32, OciError> {
        let mut command = self.command(container, verb, options);
        // By its whole path: every process of the container can be known by it.
        let mut bundle = OsString::from("--bundle=");
        bundle.push(container.dir);
        command
            .arg(bundle)
            .arg(format!("--pid-file={PID_FILE}"))
            .arg(container.id);
        // The container's first process inherits these, so they must not be files of the host. The
        // program itself writes to its log.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let before = sys::Before {
            cgroups: start.cgroups,
            filter: start
                .without_process_barriers
                .then_some(barrier::UNREGISTERED),
        };
        sys::first(&mut command, before);
        let mut child = self.spawn(command)?;
        let status = self.wait(&mut child, verb)?;
        let log = container.dir.join(LOG);
        let said = || std::fs::File::open(log).map_or_else(|_| String::new(), heard);
        self.judge(verb, status, said)?;
        let text = std::fs::read_to_string(container.dir.join(PID_FILE)).unwrap_or_default();
        text.trim().parse().map_err(|_| OciError::Nonsense {
            program: self.name(),
            verb,
            said: text,
        })
    }

    fn tell(
        &self,
        container: Container<'_>,
        verb: &'static str,
        options: &[&str],
        after: &[&str],
    ) -> Result<(), OciError> {
        let mut command = self.command(container, verb, options);
        command.arg(container.id).args(after);
        self.answer(command, verb).map(drop)
    }

    /// Runs a command to its end and returns its output.
    fn answer(&self, command: Command, verb: &'static str) -> Result<String, OciError> {
        self.hear(command, verb).map(|heard| heard.out)
    }

    fn hear(&self, mut command: Command, verb: &'static str) -> Result<Heard, OciError> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.spawn(command)?;
        let status = self.wait(&mut child, verb)?;
        let errors = child.stderr.take().map_or_else(String::new, heard);
        self.judge(verb, status, || errors.clone())?;
        Ok(Heard {
            out: child.stdout.take().map_or_else(String::new, heard),
            errors,
        })
    }

    fn spawn(&self, mut command: Command) -> Result<Child, OciError> {
        command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OciError::Missing {
                program: self.name(),
            },
            _ => OciError::Io {
                what: "starting the program",
                error,
            },
        })
    }

    fn wait(&self, child: &mut Child, verb: &'static str) -> Result<ExitStatus, OciError> {
        let failed = io_error("waiting for the program");
        let pid = Pid::from_child(child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => return Err(failed(error.into())),
        };
        let patience = Timespec {
            tv_sec: PATIENCE_SECONDS,
            tv_nsec: 0,
        };
        let ended = loop {
            let mut wanted = [PollFd::new(&pidfd, PollFlags::IN)];
            match poll(&mut wanted, Some(&patience)) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other,
            }
        };
        if !matches!(ended, Ok(1..)) {
            // Fails only if the program has just ended.
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            let _ = child.wait();
            return Err(OciError::Slow {
                program: self.name(),
                verb,
            });
        }
        child.wait().map_err(failed)
    }

    fn judge(
        &self,
        verb: &'static str,
        status: ExitStatus,
        said: impl FnOnce() -> String,
    ) -> Result<(), OciError> {
        if status.success() {
            return Ok(());
        }
        Err(OciError::Failed {
            program: self.name(),
            verb,
            status,
            said: plainly(cause(&said())),
        })
    }
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> OciError + Copy {
    move |error| OciError::Io { what, error }
}

/// The line with the reason: the first that is not a warning.
fn cause(said: &str) -> &str {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .find(|line| !line.contains("level=warning"))
        .unwrap_or_default()
}

/// The output, up to the limit.
fn heard(from: impl Read) -> String {
    let mut bytes = Vec::new();
    // Keep what was read before a failure.
    let _ = from.take(SAID_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn options_are_found_wherever_they_are_printed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("runsc");
        for to in ["1", "2"] {
            let text =
                format!("#!/bin/sh\nprintf '  -allow-suid\\n\\tallows\\n  -debug\\n' >&{to}\n");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let program = Program::named(&path).unwrap();
            assert!(program.knows("allow-suid").unwrap(), "{to}");
            assert!(!program.knows("allow").unwrap(), "{to}");
        }
    }

    #[test]
    fn a_program_is_the_first_of_the_path_that_can_be_run() {
        let place = tempfile::tempdir().unwrap();
        let dir = |name: &str| place.path().join(name);
        for (name, mode) in [("one", 0o644), ("two", 0o755), ("three", 0o755)] {
            std::fs::create_dir(dir(name)).unwrap();
            let file = dir(name).join("runsc-of-ours");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = std::env::join_paths(["one", "two", "three"].map(dir)).unwrap();
        let found = Program::find_in(&path, "runsc-of-ours").unwrap();
        assert_eq!(found.path, dir("two").join("runsc-of-ours"));
        // The usual directories come after it.
        assert!(Program::find_in(&path, "sh").is_ok());
        let error = Program::find_in(&path, "runsc-of-nobody").unwrap_err();
        assert!(matches!(error, OciError::Missing { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_named_is_there_or_that_is_said() {
        let shell = Program::named(Path::new("/bin/sh")).unwrap();
        assert_eq!(shell.path, Path::new("/bin/sh"));
        for none in ["/bin", "/etc/passwd", "/nowhere/runsc"] {
            let error = Program::named(Path::new(none)).unwrap_err().to_string();
            assert!(
                error.contains("[gvisor] program") && error.contains(none),
                "{error}"
            );
        }
    }
}
