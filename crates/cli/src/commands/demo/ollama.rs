//! `motu demo ollama`: a local model, and the tools it is given.

use super::model::Endpoint;
use super::tools::{Answer, Tools};
use crate::commands::shape::word;
use crate::context::Context;
use crate::show;
use motu_core::{Error, Result};
use motu_mcp::{Approvals, Options, Profile, Server, Text};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Let a local model use a machine, through the tools that MCP clients get
///
/// Asks a model behind Ollama, or anything that speaks as it does, and runs the tools it calls, until it
/// has an answer. Prints a line for each step and a summary at the end. Nothing leaves this host
/// but what goes to that endpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ollama pull llama3.2:3b && motu demo ollama
  motu demo ollama --model qwen3:8b --profile workspace-core --prompt 'Make a workspace and run tests in it'")]
pub struct Args {
    /// Where the model is
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://localhost:11434/v1",
        value_parser = word::<Endpoint>
    )]
    base_url: Endpoint,

    /// Which model
    #[arg(long, value_name = "NAME", default_value = "llama3.2:3b")]
    model: String,

    /// What it is asked
    #[arg(long, value_name = "TEXT", default_value = PROMPT, allow_hyphen_values = true)]
    prompt: String,

    /// Which tools it is given
    #[arg(long, value_name = "NAME", default_value = "vm-run", value_parser = word::<Profile>)]
    profile: Profile,

    /// How long one answer of the model may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout_seconds: u64,

    /// Show arguments and answers whole, not their beginning
    #[arg(short, long)]
    verbose: bool,
}

const PROMPT: &str = "How much is 12345 times 6789, and what does `uname -s` say? Do not guess: find out with the \
                      tool vm_run in the environment busybox, then say both.";
/// How often the model may call tools before it has to have an answer.
const ROUNDS: usize = 12;
/// Calls of one answer of the model; more are told that they are too many.
const CALLS: usize = 8;
/// What is shown of an argument or an answer.
const SHOWN_CHARS: usize = 160;

#[derive(Debug, Default)]
struct Tally {
    rounds: usize,
    calls: usize,
    failed: usize,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let options = Options {
            profile: self.profile,
            // No approvals: the person at the keyboard has started this demo.
            approvals: Approvals::Never,
            text: Text::Plain,
            ..Options::default()
        };
        // Of the host it gets nothing, approved or not.
        let client = context.client().held_to(&options.leave)?;
        let server = Server::new(Arc::new(client), options);
        let mut tools = Tools::open(server).await?;
        let mut tally = Tally::default();
        let talked = self.talk(&mut tools, &mut tally).await;
        let closed = tools.close().await;
        let answer = talked?;
        closed?;
        let answer = answer.unwrap_or_default();
        log(&format!(
            "summary: model={} rounds={} tool_calls={} failed_calls={} answer={}",
            self.model,
            tally.rounds,
            tally.calls,
            tally.failed,
            json!(cut(&answer, SHOWN_CHARS))
        ));
        match tally.calls > tally.failed && !answer.is_empty() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(Error::unavailable(
                "the model has not come to an answer by means of a tool",
            )
            .hint("take a model that can call tools, such as llama3.2:3b or qwen3:8b")),
        }
    }

    /// Asks until the model has an answer; none when it has used up its rounds.
    async fn talk(&self, tools: &mut Tools, tally: &mut Tally) -> Result<Option<String>> {
        let offer = tools.offer().await?;
        log(&format!(
            "model {} at {}, {} tools",
            self.model,
            self.base_url,
            offer.len()
        ));
        let mut messages = vec![json!({"role": "user", "content": self.prompt})];
        let patience = Duration::from_secs(self.timeout_seconds);
        while tally.rounds < ROUNDS {
            tally.rounds += 1;
            let conversation = json!({
                "model": self.model,
                "messages": messages,
                "tools": offer,
                "stream": false,
            });
            let message = self.base_url.ask(&conversation, patience).await?;
            let calls = message["tool_calls"].as_array().cloned();
            messages.push(message.clone());
            let Some(calls) = calls.filter(|calls| !calls.is_empty()) else {
                let said = message["content"].as_str().unwrap_or_default();
                log(&format!("model: {}", self.shown(said)));
                return Ok(Some(said.trim().to_string()));
            };
            for (at, call) in calls.iter().enumerate() {
                let answer = match at < CALLS {
                    true => self.obey(tools, call, tally).await?,
                    false => refused(format!("more than {CALLS} calls at once")),
                };
                messages.push(json!({
                    "role": "tool",
                    "tool_call_id": call["id"],
                    "content": answer.text,
                }));
            }
        }
        log(&format!("model: no answer after {ROUNDS} rounds"));
        Ok(None)
    }

    /// Runs one call of the model.
    async fn obey(&self, tools: &mut Tools, call: &Value, tally: &mut Tally) -> Result<Answer> {
        tally.calls += 1;
        let name = call["function"]["name"].as_str().unwrap_or_default();
        let given = &call["function"]["arguments"];
        // Ollama's own API has an object here, the OpenAI-compatible one has text.
        let arguments = match given.as_str() {
            Some(text) => serde_json::from_str(text).ok(),
            None => Some(given.clone()),
        };
        let arguments = arguments.filter(Value::is_object);
        let shown = arguments.as_ref().unwrap_or(given);
        log(&format!("call: {name} {}", self.shown(&shown.to_string())));
        let answer = match &arguments {
            Some(arguments) => tools.call(name, arguments).await?,
            None => refused("the arguments are not a JSON object".to_string()),
        };
        tally.failed += usize::from(answer.is_error);
        let kind = if answer.is_error { "refused" } else { "answer" };
        log(&format!("{kind}: {}", self.shown(&answer.text)));
        Ok(answer)
    }

    fn shown(&self, text: &str) -> String {
        match self.verbose {
            true => text.to_string(),
            false => cut(text, SHOWN_CHARS),
        }
    }
}

fn refused(text: String) -> Answer {
    Answer {
        text,
        is_error: true,
    }
}

/// The beginning of a text, in one line.
fn cut(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn log(text: &str) {
    show::print(&format!("{}\n", show::safe(text)));
}
