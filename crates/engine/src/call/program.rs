//! The command of a call.
//!
//! A model names the program of a language as it knows it, and an environment may have it by
//! another name: Debian has `python3` and no `python`.

use super::check::Checked;
use crate::admission::{Follow, command};
use crate::guest::Guest;
use crate::workspace::Secrets;
use futures_util::StreamExt;
use futures_util::stream;
use motu_core::call::{CallRequest, WORK};
use motu_core::config::Config;
use motu_core::exec::{ExecEvent, ExecRequest, ExecSession};
use motu_core::{Error, Program, Result};
use motu_link::message::Start;

/// Programs of a language that have a second name: language, name, and the name that is tried where
/// the machine has no program of the first one.
const NAMES: [(&str, &str, &str); 1] = [("python", "python", "python3")];

/// The command, and the same by another name if its program has one; checked.
pub fn starts(
    config: &Config,
    request: &CallRequest,
    checked: &Checked,
    given: &Secrets,
) -> Result<Vec<Start>> {
    let argvs = std::iter::once(request.command.clone()).chain(by_another_name(request));
    argvs
        .map(|argv| {
            let exec = ExecRequest::from(Program {
                command: argv,
                workdir: Some(WORK.to_string()),
                env: given.variables(),
                timeout_seconds: Some(checked.timeout_seconds),
                max_output_bytes: Some(checked.max_output_bytes),
                ..Program::default()
            });
            command(config, exec, Follow::Foreground)
        })
        .collect()
}

fn by_another_name(request: &CallRequest) -> Option<Vec<String>> {
    let language = request.language.as_deref()?;
    let (program, rest) = request.command.split_first()?;
    let known = NAMES
        .iter()
        .find(|(of, name, _)| language.starts_with(of) && program == name);
    let (_, _, other) = known?;
    let mut argv = vec![other.to_string()];
    argv.extend_from_slice(rest);
    Some(argv)
}

/// Starts the first of these whose program the machine has. Without one, the answer is that of the
/// first: the name that was asked for.
pub async fn begin(guest: &Guest, starts: Vec<Start>) -> Result<ExecSession> {
    let mut first = None;
    for start in starts {
        let mut session = guest.start(start).await?;
        // A program that cannot be started says so without an event of its start.
        let event = session.events.next().await;
        let started = matches!(event, Some(Ok(ExecEvent::Started(_)) | Err(_)));
        session.events = stream::iter(event).chain(session.events).boxed();
        if started {
            return Ok(session);
        }
        first = first.or(Some(session));
    }
    first.ok_or_else(|| Error::internal("a call has no command"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_the_language_have_a_second_name() {
        let other = |language: &str, command: &[&str]| {
            by_another_name(&CallRequest {
                language: Some(language.to_string()),
                command: command.iter().map(ToString::to_string).collect(),
                ..CallRequest::default()
            })
        };
        let expected = ["python3", "-c", "1"].map(String::from).to_vec();
        assert_eq!(other("python", &["python", "-c", "1"]), Some(expected));
        assert_eq!(other("python", &["python3"]), None);
        assert_eq!(other("bash", &["python"]), None);
        assert_eq!(other("python", &[]), None);
    }
}
