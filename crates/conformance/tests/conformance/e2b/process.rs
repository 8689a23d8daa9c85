//! A real process of a machine, with pipes or a terminal.

use super::sandbox::{MARK, Sandbox};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Capacity of a subscriber's queue.
const QUEUE: usize = 8;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is asked for.
pub struct Order {
    pub config: Value,
    pub size: Option<(u16, u16)>,
    pub tag: String,
    pub stdin: bool,
}

#[derive(Default)]
struct Listeners {
    all: Vec<mpsc::Sender<Value>>,
    end: Option<Value>,
}

pub struct Process {
    pub pid: u32,
    pub config: Value,
    pub tag: String,
    input: Mutex<Option<File>>,
    terminal: Option<File>,
    listeners: Mutex<Listeners>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Process {
    /// Starts a process; its first subscriber misses nothing.
    pub fn start(
        sandbox: &Sandbox,
        order: Order,
    ) -> Result<(Arc<Process>, mpsc::Receiver<Value>), String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let cmd = text(&order.config["cmd"]);
        let cwd = match order.config["cwd"].as_str() {
            Some(cwd) => sandbox.home.join(cwd),
            None => sandbox.home.clone(),
        };
        if !cwd.is_dir() {
            return Err(format!("cwd '{}' does not exist", cwd.display()));
        }
        // With a terminal `setsid` is started first, which exists even if the command does not.
        if order.size.is_some() && !is_program(&cmd) {
            return Err(format!(
                "error starting process '{cmd}': fork/exec {cmd}: no such file or directory"
            ));
        }
        let mut command = match order.size {
            None => Command::new(&cmd),
            // Sets the controlling terminal and execs the command.
            Some(_) => {
                let mut command = Command::new("setsid");
                command.args(["-c", &cmd]);
                command
            }
        };
        let args = order.config["args"].as_array().cloned().unwrap_or_default();
        command
            .args(args.iter().map(text))
            .current_dir(&cwd)
            .env_clear();
        command.env("PATH", PATH);
        command
            .env("HOME", &sandbox.home)
            .env("USER", "user")
            .env("LOGNAME", "user");
        command.env("TMPDIR", sandbox.tmp());
        if let Some(envs) = order.config["envs"].as_object() {
            command.envs(envs.iter().map(|(name, value)| (name, text(value))));
        }
        command.env(MARK, &sandbox.id);
        let missing = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!(
                    "error starting process '{cmd}': exec: \"{cmd}\": executable file not found in $PATH"
                )
            }
            _ => format!(
                "error starting process '{cmd}': fork/exec {cmd}: {}",
                error.to_string().to_lowercase()
            ),
        };
        let (child, input, terminal) = match order.size {
            Some(size) => on_terminal(&mut command, size).map_err(missing)?,
            None => {
                command.process_group(0);
                let stdin = if order.stdin {
                    Stdio::piped()
                } else {
                    Stdio::null()
                };
                command
                    .stdin(stdin)
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                let mut child = command.spawn().map_err(missing)?;
                let input = child
                    .stdin
                    .take()
                    .map(|pipe| File::from(OwnedFd::from(pipe)));
                (child, input, None)
            }
        };
        let (listener, heard) = mpsc::channel(QUEUE);
        let process = Arc::new(Process {
            pid: child.id(),
            config: order.config,
            tag: order.tag,
            input: Mutex::new(input),
            terminal,
            listeners: Mutex::new(Listeners {
                all: vec![listener],
                end: None,
            }),
            thread: Mutex::default(),
        });
        let own = process.clone();
        let thread = std::thread::spawn(move || own.attend(child));
        *process.thread.lock().expect("not poisoned") = Some(thread);
        Ok((process, heard))
    }

    /// Reads everything, then waits: a child that holds the pipes open delays the end.
    fn attend(self: Arc<Self>, mut child: Child) {
        std::thread::scope(|threads| {
            if let Some(out) = child.stdout.take() {
                threads.spawn(|| self.pump(out, "stdout"));
            }
            if let Some(err) = child.stderr.take() {
                threads.spawn(|| self.pump(err, "stderr"));
            }
            if let Some(terminal) = &self.terminal {
                let terminal = terminal.try_clone().expect("a terminal");
                threads.spawn(|| self.pump(terminal, "pty"));
            }
        });
        let status = child.wait().expect("it is our child");
        let end = json!({ "event": { "end": described(status) } });
        let mut listeners = self.listeners.lock().expect("not poisoned");
        listeners.end = Some(end.clone());
        let all = std::mem::take(&mut listeners.all);
        drop(listeners);
        for listener in all {
            let _ = listener.blocking_send(end.clone());
        }
    }

    fn pump(&self, mut from: impl Read, channel: &str) {
        let mut piece = vec![0; 32 * 1024];
        // A terminal without processes returns EIO.
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let text = BASE64.encode(&piece[..count]);
            self.tell(json!({ "event": { "data": { channel: text } } }));
        }
    }

    /// Blocks for every listener; output without listeners is lost.
    fn tell(&self, event: Value) {
        let all = self.listeners.lock().expect("not poisoned").all.clone();
        for listener in &all {
            let _ = listener.blocking_send(event.clone());
        }
        let mut listeners = self.listeners.lock().expect("not poisoned");
        listeners.all.retain(|listener| !listener.is_closed());
    }

    /// Subscribes to events; if the process has ended and that is remembered, returns the end.
    pub fn listen(&self, forgetful: bool) -> Option<mpsc::Receiver<Value>> {
        let mut listeners = self.listeners.lock().expect("not poisoned");
        let (listener, heard) = mpsc::channel(QUEUE);
        match &listeners.end {
            None => listeners.all.push(listener),
            Some(_) if forgetful => return None,
            Some(end) => listener.try_send(end.clone()).expect("there is room"),
        }
        Some(heard)
    }

    pub fn has_ended(&self) -> bool {
        self.listeners.lock().expect("not poisoned").end.is_some()
    }

    /// Ends every stream without an end message.
    pub fn cut(&self) {
        self.listeners.lock().expect("not poisoned").all.clear();
    }

    pub fn join(&self) {
        let thread = self.thread.lock().expect("not poisoned").take();
        if let Some(thread) = thread {
            thread.join().expect("it was attended to");
        }
    }

    pub fn input(&self, bytes: &[u8], pty: bool) -> Result<(), String> {
        let input = match (pty, &self.terminal) {
            (true, Some(terminal)) => terminal.try_clone().map_err(|error| error.to_string())?,
            (false, None) => {
                let input = self.input.lock().expect("not poisoned");
                let input = input.as_ref().ok_or("stdin is closed")?;
                input.try_clone().map_err(|error| error.to_string())?
            }
            _ => return Err("that is not its input".to_string()),
        };
        (&input).write_all(bytes).map_err(|error| error.to_string())
    }

    pub fn close_stdin(&self) {
        self.input.lock().expect("not poisoned").take();
    }

    pub fn resize(&self, size: (u16, u16)) -> Result<(), String> {
        let terminal = self.terminal.as_ref().ok_or("it has no terminal")?;
        tcsetwinsize(terminal, winsize(size)).map_err(|error| error.to_string())
    }
}

fn is_program(name: &str) -> bool {
    let places = PATH
        .split(':')
        .map(|place| std::path::Path::new(place).join(name));
    match name.contains('/') {
        true => std::path::Path::new(name).exists(),
        false => places.into_iter().any(|place| place.exists()),
    }
}

fn winsize((cols, rows): (u16, u16)) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn on_terminal(
    command: &mut Command,
    size: (u16, u16),
) -> std::io::Result<(Child, Option<File>, Option<File>)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let name = name.into_string().map_err(std::io::Error::other)?;
    let slave = File::options().read(true).write(true).open(name)?;
    tcsetwinsize(&slave, winsize(size))?;
    command
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave);
    let child = command.spawn()?;
    // Drop the command, which holds the slave: the terminal ends with its processes.
    *command = Command::new("true");
    Ok((child, None, Some(File::from(master))))
}

/// The status in the agent's format.
fn described(status: ExitStatus) -> Value {
    match (status.code(), status.signal()) {
        (Some(0), _) => json!({ "exited": true, "status": "exit status 0" }),
        (Some(code), _) => {
            json!({ "exitCode": code, "exited": true, "status": format!("exit status {code}") })
        }
        (None, Some(9)) => json!({ "exitCode": -1, "status": "signal: killed" }),
        (None, Some(15)) => json!({ "exitCode": -1, "status": "signal: terminated" }),
        (None, Some(2)) => json!({ "exitCode": -1, "status": "signal: interrupt" }),
        (None, signal) => {
            json!({ "exitCode": -1, "status": format!("signal: signal {}", signal.unwrap_or(0)) })
        }
    }
}
