//! Converts a request to a command of the agent.

use super::{Guest, NO_CALL};
use crate::record::Remembered;
use crate::wire::Run;
use bytes::Bytes;
use motu_link::message::Start;
use motu_peer::PeerError;
use motu_peer::answer::Failed;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable that marks all processes of a command, so that all of them can be killed.
pub(super) const MARK: &str = "MOTU_PROCESS";
/// Characters of a mark.
const MARK_CHARS: usize = 20;
/// How much later than our own limit the agent kills a command whose time is over.
const LATER: Duration = Duration::from_secs(15);

/// A command to start.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) run: Run,
    pub(super) mark: String,
    /// The directory in the machine for output without a waiting caller.
    pub(super) spool: String,
    /// The caller's arguments.
    pub(super) argv: Vec<String>,
    pub(super) tag: String,
    pub(super) limit: Option<Duration>,
    pub(super) started_unix_ms: u64,
}

impl Plan {
    pub(super) fn remembered(&self, pid: u32) -> Remembered {
        let limit = self.limit.map(|limit| limit.as_millis() as u64);
        Remembered {
            pid,
            mark: self.mark.clone(),
            tag: self.tag.clone(),
            spool: self.run.pty.is_none().then(|| self.spool.clone()),
            argv: self.argv.clone(),
            cwd: self.run.cwd.clone(),
            user: self.run.user.clone(),
            pty: self.run.pty.is_some(),
            started_unix_ms: self.started_unix_ms,
            ends_unix_ms: limit.map(|limit| self.started_unix_ms.saturating_add(limit)),
            ended: None,
        }
    }
}

/// Plans a request, or returns the reason for a refusal.
pub(super) fn planned(guest: &Guest, start: &Start) -> Result<Plan, Failed> {
    if start.clear_env {
        return Err(Failed::unsupported(
            "start a command without variables",
            NO_CALL,
        ));
    }
    let text = |bytes: &Bytes| {
        let text = std::str::from_utf8(bytes).map(str::to_string);
        text.map_err(|_| Failed::unsupported("pass on what is no text", "the protocol is JSON"))
    };
    let argv: Vec<String> = start.argv.iter().map(text).collect::<Result<_, _>>()?;
    let Some((program, arguments)) = argv.split_first() else {
        return Err(Failed::invalid("no program to run"));
    };
    if program.is_empty() {
        return Err(Failed::cannot_run("program \"\": no such file", true));
    }
    let (cmd, args) = match start.shell {
        false => (program.clone(), arguments.to_vec()),
        true => {
            let script = shell_script(program, arguments);
            ("/bin/sh".to_string(), vec!["-c".to_string(), script])
        }
    };
    let mark = motu_core::id::random_name(MARK_CHARS);
    let record = guest.record();
    let mut env = BTreeMap::new();
    if start.pty.is_some() {
        env.insert("TERM".to_string(), "xterm-256color".to_string());
    }
    env.insert("LANG".to_string(), "C.UTF-8".to_string());
    env.extend(record.env.clone());
    env.extend(start.env.clone());
    env.insert(MARK.to_string(), mark.clone());
    let cwd = match start.cwd.is_empty() {
        true => record.workdir.clone(),
        false => text(&start.cwd)?,
    };
    let user = match start.user.is_empty() {
        true => record.user.clone(),
        false => start.user.clone(),
    };
    if user.contains(':') {
        let why = "its agent knows users by their names";
        return Err(Failed::unsupported("run commands as ids", why));
    }
    let limit = (start.timeout_ms > 0).then(|| Duration::from_millis(start.timeout_ms));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Plan {
        run: Run {
            cmd,
            args,
            env,
            cwd,
            user,
            pty: start.pty.map(|size| (size.cols.max(1), size.rows.max(1))),
            stdin: start.stdin,
            tag: String::new(),
            deadline: limit.map(|limit| limit.saturating_add(LATER)),
        },
        spool: format!("{}/.motu-{mark}", record.tmp),
        mark,
        argv,
        tag: start.tag.clone(),
        limit,
        started_unix_ms: now.map_or(0, |since| since.as_millis() as u64),
    })
}

/// A script followed by its arguments as quoted words.
fn shell_script(script: &str, arguments: &[String]) -> String {
    let mut line = script.to_string();
    for argument in arguments {
        line.push_str(" '");
        line.push_str(&argument.replace('\'', "'\\''"));
        line.push('\'');
    }
    line
}

/// The error of a command that did not start. The agent uses the same code for a missing program
/// and a missing directory; only the text differs.
pub(super) async fn refused(guest: &Guest, error: PeerError, plan: &Plan) -> Failed {
    let said = match &error {
        PeerError::Refused { refusal, .. } if !refusal.code.is_empty() => refusal.said.clone(),
        _ => return guest.failed(error).await,
    };
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["cwd"]) {
        return Failed::invalid(format!("the directory {:?}: {said}", plan.run.cwd));
    }
    let missing = has(&["executable file not found", "no such file or directory"]);
    if missing || has(&["permission denied", "exec format error", "is a directory"]) {
        return Failed::cannot_run(format!("program {:?}: {said}", plan.run.cmd), missing);
    }
    guest.failed(error).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_script_are_words_whatever_they_contain() {
        let words = ["a b", "it's", "$HOME;`x`"].map(str::to_string);
        let line = shell_script("printf '%s|'", &words);
        let mut run = std::process::Command::new("/bin/sh");
        let said = run.arg("-c").arg(line).output().unwrap();
        assert_eq!(said.stdout, b"a b|it's|$HOME;`x`|");
    }
}
