//! A real shell on a real terminal, driven like by an engine.

use motu_terminal::classify::{Ended, KernelFacts, Process};
use motu_terminal::integration::{Injection, Shell, ShellRequest, Startup};
use motu_terminal::session::{Config, Outcome, Session, Ticket};
use motu_terminal::{Nonce, Size, TerminalError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcgetpgrp, tcsetwinsize};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Timeout of every step.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A shell, its terminal and its session.
pub struct Local {
    pub session: Session,
    child: Child,
    master: OwnedFd,
    tty: PathBuf,
    start: Instant,
    pub home: tempfile::TempDir,
    ended: bool,
}

/// Reports that a test was skipped. With `MOTU_NO_SKIP` set that is a failure.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("MOTU_NO_SKIP").is_none(),
        "MOTU_NO_SKIP is set, but: {reason}"
    );
    eprintln!("SKIP: {reason}");
    if let Some(path) = std::env::var_os("MOTU_SKIP_LOG") {
        use std::io::Write as _;
        let mut log = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        writeln!(log, "{reason}").unwrap();
    }
}

/// Whether a program of `tools/needs` is here.
pub fn installed(program: &str) -> bool {
    assert!(
        motu_needs::list().any(|need| need.name == program),
        "{program} is not in tools/needs"
    );
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// The shell, if it is here.
pub fn shell(shell: Shell, startup: Startup, rc: &[(&str, &str)]) -> Option<Local> {
    if !installed(shell.name()) {
        skip(&format!("terminal: {} is not installed", shell.name()));
        return None;
    }
    let mut local = Local::start(shell, startup, rc);
    let ticket = local.session.expect_prompt(PATIENCE, local.now()).unwrap();
    let outcome = local.wait(ticket);
    assert!(
        !outcome.timed_out(),
        "no prompt:\n{}",
        local.session.view().text()
    );
    Some(local)
}

impl Local {
    pub fn start(shell: Shell, startup: Startup, rc: &[(&str, &str)]) -> Local {
        let home = tempfile::tempdir().unwrap();
        for (name, contents) in rc {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, contents).unwrap();
        }
        let nonce = Nonce::random().unwrap();
        let dir = home.path().join(".motu");
        let injection = Injection::new(
            &ShellRequest {
                shell,
                program: shell.name(),
                startup,
                dir: &dir,
                zdotdir: None,
            },
            &nonce,
        );
        for file in &injection.files {
            std::fs::create_dir_all(file.path.parent().unwrap()).unwrap();
            std::fs::write(&file.path, file.contents).unwrap();
        }
        let config = Config {
            nonce: Some(nonce),
            ..Config::default()
        };
        Local::spawn(&injection.argv, &injection.env, home, config)
    }

    pub fn spawn(
        argv: &[String],
        env: &[(String, String)],
        home: tempfile::TempDir,
        config: Config,
    ) -> Local {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let tty = PathBuf::from(name.to_str().unwrap());
        set_size(&master, config.size);
        let slave = || {
            Stdio::from(
                std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&tty)
                    .unwrap(),
            )
        };
        // `setsid` gives the shell a session whose terminal is this one.
        let mut command = motu_needs::command("setsid");
        command
            .arg("--ctty")
            .args(argv)
            .env_clear()
            .envs(env.iter().map(|(key, value)| (key, value)))
            .env("HOME", home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("USER", "root")
            .current_dir(home.path())
            .stdin(slave())
            .stdout(slave())
            .stderr(slave());
        let child = command.spawn().unwrap();
        Local {
            session: Session::new(config),
            child,
            master,
            tty,
            start: Instant::now(),
            home,
            ended: false,
        }
    }

    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Runs until `done` returns true.
    pub fn until(&mut self, mut done: impl FnMut(&mut Local) -> bool) {
        let deadline = Instant::now() + PATIENCE * 2;
        while !done(self) {
            assert!(
                Instant::now() < deadline,
                "stuck:\n{}",
                self.session.view().text()
            );
            self.step();
        }
    }

    /// One turn of the engine's loop.
    fn step(&mut self) {
        let input = self.session.take_input();
        if !input.is_empty() {
            let mut rest = input.as_slice();
            while !rest.is_empty() {
                let sent = rustix::io::write(&self.master, rest).unwrap();
                rest = &rest[sent..];
            }
        }
        if self.session.wants_facts(self.now()) && !self.ended {
            let mut facts = self.look_at_the_kernel();
            // Output written before the look belongs before it.
            while self.readable(Duration::ZERO) && !self.ended {
                self.read();
            }
            facts.output_bytes = Some(self.session.received());
            self.session.facts(facts, self.now());
            return;
        }
        let now = self.now();
        let wake = self
            .session
            .wake_at()
            .unwrap_or(now + Duration::from_millis(200));
        let pause = wake.saturating_sub(now).min(Duration::from_millis(200));
        if self.ended || !self.readable(pause) {
            self.session.tick(self.now());
            return;
        }
        self.read();
    }

    fn readable(&self, pause: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: pause.as_nanos() as i64,
        };
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).unwrap() > 0
    }

    fn read(&mut self) {
        let mut buffer = vec![0; 65_536];
        match rustix::io::read(&self.master, &mut buffer) {
            Ok(got) if got > 0 => self.session.output(&buffer[..got], self.now()),
            _ => {
                self.ended = true;
                self.session.ended(Ended::Eof, self.now());
            }
        }
    }

    pub fn wait(&mut self, ticket: Ticket) -> Outcome {
        let mut found = None;
        self.until(|local| {
            for (done, outcome) in local.session.take_outcomes() {
                if done == ticket {
                    found = Some(outcome);
                }
            }
            found.is_some()
        });
        found.unwrap()
    }

    pub fn run(&mut self, command: &str) -> Outcome {
        self.try_run(command, PATIENCE).unwrap()
    }

    pub fn try_run(&mut self, command: &str, timeout: Duration) -> Result<Outcome, TerminalError> {
        let now = self.now();
        let ticket = self
            .session
            .run(motu_terminal::session::Run::new(command, timeout), now)?;
        Ok(self.wait(ticket))
    }

    pub fn send(&mut self, text: &str) -> Outcome {
        let now = self.now();
        let send = motu_terminal::session::Send::text(text, PATIENCE);
        let ticket = self.session.send(&send, now).unwrap();
        self.wait(ticket)
    }

    pub fn keys(&mut self, names: &[&str]) -> Outcome {
        let send = motu_terminal::session::Send {
            input: motu_terminal::session::Input::Keys(
                names.iter().map(|name| (*name).to_owned()).collect(),
            ),
            timeout: PATIENCE,
            shape: Default::default(),
        };
        let now = self.now();
        let ticket = self.session.send(&send, now).unwrap();
        self.wait(ticket)
    }

    pub fn resize(&mut self, size: Size) {
        set_size(&self.master, size);
        let now = self.now();
        self.session.resize(size, now);
    }

    /// Gathers kernel facts like the guest.
    pub fn look_at_the_kernel(&self) -> KernelFacts {
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        let group = tcgetpgrp(&self.master)
            .map(|pid| pid.as_raw_nonzero().get())
            .unwrap_or(0);
        let mut foreground: Vec<Process> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .filter_map(|pid| self.process(pid, group))
            .collect();
        foreground.sort_by_key(|process| (process.pid as i32 != group, process.pid));
        KernelFacts {
            shell_in_front: group as u32 == self.child.id(),
            foreground,
            echo: modes.contains(LocalModes::ECHO),
            canonical: modes.contains(LocalModes::ICANON),
            unread_input: self.unread_input(),
            ..KernelFacts::default()
        }
    }

    /// Typed input that is not read.
    fn unread_input(&self) -> Option<u32> {
        let flags =
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NONBLOCK;
        let slave = rustix::fs::open(&self.tty, flags, rustix::fs::Mode::empty()).ok()?;
        rustix::io::ioctl_fionread(&slave)
            .ok()
            .map(|bytes| bytes as u32)
    }

    fn process(&self, pid: u32, group: i32) -> Option<Process> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let pgrp: i32 = rest.split(' ').nth(2)?.parse().ok()?;
        if pgrp != group || rest.starts_with('Z') {
            return None;
        }
        let argv = std::fs::read(proc.join("cmdline")).unwrap_or_default();
        let argv = argv
            .split(|byte| *byte == 0)
            .map(|arg| String::from_utf8_lossy(arg).into_owned());
        Some(Process {
            pid,
            name: name.to_owned(),
            argv: argv.filter(|arg| !arg.is_empty()).collect(),
            reads_tty: self.reads_tty(&proc),
        })
    }

    /// Derived from the blocking system call: a read of the terminal, or a poll of stdin that is
    /// the terminal.
    fn reads_tty(&self, proc: &Path) -> Option<bool> {
        let call = std::fs::read_to_string(proc.join("syscall")).ok()?;
        let mut words = call.split_whitespace();
        let number: i64 = match words.next()? {
            "running" => return Some(false),
            number => number.parse().ok()?,
        };
        let is_tty = |fd: u64| {
            std::fs::read_link(proc.join(format!("fd/{fd}")))
                .is_ok_and(|link| link == self.tty || link == Path::new("/dev/tty"))
        };
        let first = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
        match number {
            0 => Some(is_tty(first)),
            // poll, select, pselect6, ppoll.
            7 | 23 | 270 | 271 => Some(is_tty(0)),
            // In epoll: unknown.
            232 | 281 => None,
            _ => Some(false),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Kill the foreground group, then the shell.
        if let Ok(group) = tcgetpgrp(&self.master) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(master: &OwnedFd, size: Size) {
    let size = Winsize {
        ws_row: size.rows(),
        ws_col: size.cols(),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(master, size).unwrap();
}
