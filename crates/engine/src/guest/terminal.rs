//! The guest kernel's view of a terminal.

use super::exec::selector;
use super::{Guest, unexpected};
use bytes::Bytes;
use motu_core::Result;
use motu_core::exec::Selector;
use motu_link::message as link;
use motu_link::message::{Said, Verb};
use motu_terminal::KernelFacts;
use motu_terminal::classify::Process;

/// Bounds on what a guest may report: processes, arguments, bytes of text.
const MEMBERS: usize = 32;
const ARGUMENTS: usize = 64;
const TEXT: usize = 4096;
const CARRIERS: usize = 8;

/// The result of one look at a terminal.
#[derive(Clone, Debug)]
pub struct Looked {
    pub facts: KernelFacts,
    /// The working directory of the shell.
    pub cwd: Option<String>,
    /// The working directory of the foreground process.
    pub front_cwd: Option<String>,
}

impl Guest {
    pub async fn look_at_terminal(&self, tag: &str) -> Result<Looked> {
        let process = selector(Selector::Tag(tag.to_string()));
        match self.ask(Verb::LookAtTerminal(process)).await? {
            Said::TerminalFacts(found) => Ok(looked(found)),
            _ => Err(unexpected()),
        }
    }

    /// Signals the foreground process group of a terminal.
    pub async fn signal_foreground(&self, tag: &str, signal: i32) -> Result<()> {
        self.tell(Verb::SignalForeground(link::SignalForeground {
            process: Some(selector(Selector::Tag(tag.to_string()))),
            signal,
        }))
        .await
    }
}

fn looked(found: link::TerminalFacts) -> Looked {
    let member = |process: link::TerminalProcess| Process {
        pid: process.pid,
        name: text(&process.name),
        argv: process.argv.iter().take(ARGUMENTS).map(text).collect(),
        reads_tty: process.reads_tty,
    };
    let members = found.foreground.into_iter().take(MEMBERS);
    Looked {
        facts: KernelFacts {
            foreground: members.map(member).collect(),
            shell_in_front: found.shell_in_front,
            echo: found.echo,
            canonical: found.canonical,
            unread_input: found.unread_input,
            output_bytes: found.output_bytes,
            input_bytes: found.input_bytes,
            carriers: found.carriers.iter().take(CARRIERS).map(text).collect(),
        },
        cwd: (!found.cwd.is_empty()).then(|| text(&found.cwd)),
        front_cwd: (!found.front_cwd.is_empty()).then(|| text(&found.front_cwd)),
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boastful_guest_is_cut_short() {
        let process = link::TerminalProcess {
            pid: 7,
            name: Bytes::from(vec![0xff; 10_000]),
            argv: vec![Bytes::from_static(b"x"); 1000],
            reads_tty: None,
        };
        let found = looked(link::TerminalFacts {
            foreground: vec![process; 100],
            ..link::TerminalFacts::default()
        });
        assert_eq!(found.facts.foreground.len(), MEMBERS);
        assert_eq!(found.facts.foreground[0].argv.len(), ARGUMENTS);
        assert_eq!(found.facts.foreground[0].name.chars().count(), TEXT);
        assert_eq!(found.cwd, None);
    }
}
