//! `motu events`: what happened on this host.

use crate::context::Context;
use crate::show;
use futures_util::StreamExt;
use motu_core::event::{Event, EventFacts, ReadEvents};
use motu_core::files::ByteStream;
use motu_core::{Error, Result, Service};
use std::ops::ControlFlow;
use std::process::ExitCode;

/// What happened to sandboxes, workspaces, calls and this host, oldest first
///
/// Each event has a number that grows, over restarts too. `--after` goes on after one of them;
/// where events are not kept any more (limit events_kept), an event `events.gone` says so.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu events                              all that are kept
  motu events --follow --tail 0            from now on
  motu events --kind sandbox,call.finished
  motu events --after 1794948000123 --json")]
pub struct Args {
    /// Go on with those to come, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only those after this number
    #[arg(long, value_name = "N", conflicts_with = "tail")]
    after: Option<u64>,
    /// Only so many of the newest
    #[arg(short = 'n', long, value_name = "N")]
    tail: Option<u64>,
    /// Only of this kind, such as sandbox.created, or sandbox for all that begin so; several with
    /// commas
    #[arg(long)]
    kind: Option<String>,
    /// Only of this sandbox, workspace, environment or key
    #[arg(long)]
    id: Option<String>,
    /// Print each as one line of JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Who reads line by line gets errors beside the lines.
    pub fn json(&self) -> bool {
        self.json && !self.follow
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let follow = self.follow;
        let ask = ReadEvents {
            after: self.after,
            tail: self.tail,
            kind: self.kind,
            id: self.id,
            follow,
            ..ReadEvents::default()
        };
        let mut last = self.after;
        let pour = async {
            let lines = client.read_events(ask).await?;
            pour(lines, self.json, &mut last).await
        };
        let ended = tokio::select! {
            poured = pour => poured,
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        };
        let ended = match ended {
            Ok(Poured::Unwritten(error)) => return Err(error),
            Ok(Poured::Unread) => return Ok(ExitCode::SUCCESS),
            Ok(Poured::All) => Ok(()),
            Err(error) => Err(error),
        };
        if !follow {
            ended?;
            return Ok(ExitCode::SUCCESS);
        }
        let cause = ended
            .err()
            .map_or(String::new(), |error| format!(": {error}"));
        let next = last.map_or(String::new(), |last| format!(" --after {last}"));
        Err(Error::transport(format!("the daemon has left{cause}"))
            .hint(format!("go on with `motu events --follow{next}`")))
    }
}

/// Why printing events ended, if the daemon is not the reason.
enum Poured {
    All,
    /// Nobody reads our output any more.
    Unread,
    /// Our output cannot be written.
    Unwritten(Error),
}

/// Prints events as they come, and remembers the number of the last.
async fn pour(mut lines: ByteStream, json: bool, last: &mut Option<u64>) -> Result<Poured> {
    let mut rest = Vec::new();
    while let Some(piece) = lines.next().await {
        rest.extend_from_slice(&piece?);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let event: Event = serde_json::from_slice(&line)
                .map_err(|error| Error::internal(format!("an event cannot be read: {error}")))?;
            *last = Some(event.sequence);
            let written = match json {
                true => show::stream(&line),
                false => show::stream(show::safe(&in_words(&event)).as_bytes()),
            };
            match written {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(Poured::Unread),
                Err(error) => return Ok(Poured::Unwritten(error)),
            }
        }
    }
    Ok(Poured::All)
}

fn in_words(event: &Event) -> String {
    let happened = &event.happened;
    let time = happened.time.strftime("%Y-%m-%d %H:%M:%S");
    let id = happened.id.as_deref().unwrap_or("-");
    let mut line = format!("{} {time} {:<22} {id}", event.sequence, happened.kind);
    if happened.project != motu_core::Project::LOCAL {
        line.push_str(&format!(" project={}", happened.project));
    }
    for (name, value) in facts(&happened.facts) {
        line.push_str(&format!(" {name}={value}"));
    }
    line.push('\n');
    line
}

/// Facts as words, in the order of their names.
fn facts(facts: &EventFacts) -> Vec<(String, String)> {
    let value = serde_json::to_value(facts).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    fields
        .map(|(name, value)| match value.as_str() {
            Some(text) if !text.contains(' ') => (name.clone(), text.to_string()),
            _ => (name.clone(), value.to_string()),
        })
        .collect()
}
