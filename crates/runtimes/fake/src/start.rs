//! Starting a process: what it runs, and how it ends.

use crate::answer::{ENOENT, Failed};
use crate::machine::Machine;
use crate::process::Process;
use crate::program::{self, Context};
use motu_link::message::{Failure, Start};
use std::sync::Arc;
use std::time::Duration;

const SIGKILL: i32 = 9;

/// How the main task of a process ended.
enum Ending {
    Code(i32),
    Signal(i32),
    Timeout,
}

/// Checks a request and starts what it asks for.
pub fn start(machine: &Arc<Machine>, start: &Start) -> Result<Arc<Process>, Failed> {
    let argv = arguments(start)?;
    if !program::known(&argv[0]) {
        return Err(Failed {
            errno: ENOENT,
            ..Failed::new(
                Failure::CannotRun,
                format!("program {:?} in PATH: no such file or directory", argv[0]),
            )
        });
    }
    if start.pty.is_some() {
        return Err(Failed::unsupported("open a terminal"));
    }
    let (env, cwd, user) = machine.surroundings(start)?;
    let process = Process::new(machine.next_pid(), start, (cwd.clone(), user));
    machine.enter(process.clone())?;
    let timeout = (start.timeout_ms > 0).then(|| Duration::from_millis(start.timeout_ms));
    let context = Context::new(machine.clone(), process.clone(), env, cwd);
    let main = supervise(process.clone(), machine.clone(), context, argv, timeout);
    process.spawn(main);
    Ok(process)
}

async fn supervise(
    process: Arc<Process>,
    machine: Arc<Machine>,
    context: Context,
    argv: Vec<String>,
    timeout: Option<Duration>,
) {
    let mut signals = process.signals();
    let ending = tokio::select! {
        code = program::run(context, argv) => Ending::Code(code),
        signal = signals.wait_for(Option::is_some) => {
            Ending::Signal(signal.ok().and_then(|signal| *signal).unwrap_or(SIGKILL))
        }
        () = sleep(timeout) => Ending::Timeout,
    };
    machine.not_paused().await;
    if !matches!(ending, Ending::Code(_)) {
        process.abort_children();
    }
    let (code, signal) = match ending {
        Ending::Code(code) => (code, 0),
        Ending::Signal(signal) => (128 + signal, signal),
        Ending::Timeout => (128 + SIGKILL, SIGKILL),
    };
    process.exit(code, signal, matches!(ending, Ending::Timeout));
}

/// The arguments of a request; a script's arguments are appended to the script, as by the real
/// guest.
fn arguments(start: &Start) -> Result<Vec<String>, Failed> {
    let mut words: Vec<String> = start
        .argv
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.is_empty() {
        return Err(Failed::new(Failure::Invalid, "no program to run"));
    }
    if start.shell {
        let quoted = words[1..]
            .iter()
            .map(|word| format!(" '{}'", word.replace('\'', r"'\''")));
        let script: String = std::iter::once(words[0].clone()).chain(quoted).collect();
        words = vec!["sh".to_string(), "-c".to_string(), script];
    }
    Ok(words)
}

async fn sleep(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}
