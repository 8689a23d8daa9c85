//! `motu call`: one typed call.

use crate::context::Context;
use crate::failure::Reader;
use crate::show::answer;
use crate::wording::Commands;
use crate::{live, pull, show};
use jiff::Timestamp;
use motu_api::Client;
use motu_core::audit::ListAudit;
use motu_core::call::{CallPlan, CallRequest, CallResult, FailureClass};
use motu_core::shown::misread;
use motu_core::verb::{Ask as _, Call, Verb as _};
use motu_core::{Error, ErrorKind, Result, Service, hint, limits};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Entries of the audit log among which a call is looked for.
const RECENT: u64 = 50;

/// Make one typed call: files in, one command, a bounded answer
///
/// The request is JSON: what a model may ask for, and nothing else. It names a language or an image,
/// files, a command and what becomes of the state; its policy bounds all of it (`motu policy show`).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu call --request - <<'END'
  {\"language\": \"python\",
   \"files\": [{\"path\": \"/work/main.py\", \"content\": \"print('hello')\"}],
   \"command\": [\"python3\", \"/work/main.py\"],
   \"state\": {\"retention\": \"destroy\"}}
  END

Exits with the command's own code; docs/calls.md lists the fields, the answers and the failures.")]
pub struct Args {
    /// A file with the request; - is standard input
    #[arg(long, value_name = "FILE")]
    request: PathBuf,

    /// The policy that applies, for a request that names none [default: none]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// Start nothing: say what would be refused, by which rule and why
    #[arg(long)]
    dry_run: bool,

    /// Print the whole answer as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn json(&self) -> bool {
        self.json
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        self.make(context).await.map_err(CallRequest::failed)
    }

    async fn make(self, context: &Context) -> Result<ExitCode> {
        let mut request = read(&self.request)?;
        if request.policy.is_none() {
            request.policy = self.policy;
        }
        let client = context.client();
        if self.dry_run {
            let plan = client.dry_run_call(request).await?;
            answer(self.json, &plan, planned);
            return Ok(match plan.allowed {
                true => ExitCode::SUCCESS,
                false => crate::failure::exit_code(ErrorKind::Denied),
            });
        }
        let began = Timestamp::now();
        let result = match client.call(request.clone()).await {
            Err(error) if pull::would_help(&error) => {
                let name = error.details["environment"].as_str().unwrap_or_default();
                pull::pull(&client, name, Reader::of(self.json)).await?;
                client.call(request).await
            }
            other => other,
        };
        let result = match result {
            Err(error) => return Err(recorded(&client, error, began).await),
            Ok(result) => result,
        };
        match self.json {
            true => answer(true, &result, |_| String::new()),
            false => tell(&result),
        }
        Ok(code(&result))
    }
}

fn read(path: &Path) -> Result<CallRequest> {
    let most = 2 * limits::CALL_ALL_FILES_BYTES.max;
    let mut text = String::new();
    let reading = match path == Path::new("-") {
        true => std::io::stdin().take(most).read_to_string(&mut text),
        false => {
            std::fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text))
        }
    };
    reading.map_err(|error| Error::with_file(path.display().to_string(), &error))?;
    serde_json::from_str(&text).or_else(|error| {
        // The daemon refuses it, so that it is recorded like any other call that fails.
        let error = Error::invalid(format!("the request: {}", misread(error)))
            .hint("docs/calls.md lists the fields");
        CallRequest::misread(&error).ok_or(error)
    })
}

/// The error of a call whose daemon went away, with the name of the call in the audit log: that it
/// began was written down. Without one if it cannot be told which of several it was.
async fn recorded(client: &Client, error: Error, began: Timestamp) -> Error {
    if error.kind != ErrorKind::Transport || error.details["audit_id"].is_string() {
        return error;
    }
    let ask = ListAudit {
        verb: Some(Call::INFO.name.to_string()),
        limit: Some(RECENT),
        ..ListAudit::default()
    };
    let Ok(list) = client.list_audit(ask).await else {
        return error;
    };
    let mut open = BTreeSet::new();
    for entry in &list.entries {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let time: Option<Timestamp> = text("time").parse().ok();
        match text("stage") {
            "begin" if time >= Some(began) => drop(open.insert(text("id").to_string())),
            _ => drop(open.remove(text("id"))),
        }
    }
    match (open.pop_first(), open.is_empty()) {
        (Some(id), true) => {
            let mut details = error.details.clone();
            details["audit_id"] = id.into();
            error.details(details)
        }
        _ => error,
    }
}

/// What a dry run has found, one line each.
fn planned(plan: &CallPlan) -> String {
    let word = |allowed: bool| if allowed { "ok" } else { "refused" };
    let mut text = String::new();
    for one in &plan.checks {
        text += &format!("{:<8} {}", word(one.allowed), show::safe(&one.check));
        if let Some(message) = &one.message {
            text += &format!(": {}", show::safe(message));
        }
        if let Some(rule) = &one.rule {
            text += &format!(" ({})", show::safe(rule));
        }
        text.push('\n');
        let worded = hint::say(&one.next, &Commands).filter(|said| !said.is_empty());
        if let Some(hint) = worded.as_ref().or(one.hint.as_ref()) {
            text += &format!("         hint: {}\n", show::safe(hint));
        }
    }
    for to in &plan.destinations {
        let (host, message) = (show::safe(&to.host), show::safe(&to.message));
        text += &format!("{:<8} {host}:{}: {message}\n", word(to.allowed), to.port);
    }
    let end = match (plan.allowed, &plan.runtime) {
        (true, Some(runtime)) => format!("it would run on {runtime}; nothing was started\n"),
        _ => "it would not run; nothing was started\n".to_string(),
    };
    text + &end
}

/// The output as it was; what went wrong besides on standard error.
fn tell(result: &CallResult) {
    show::print(&result.stdout);
    show::note(&result.stderr);
    if let Some(failure) = &result.failure
        && failure.class != FailureClass::GuestCommandFailure
    {
        let message = show::safe(&failure.message);
        show::note(&format!("note: {message}\nretry: {}\n", failure.retry));
    }
    if result.truncated {
        show::note("note: some of the output is left out\n");
    }
}

/// The command's own code, or motu's for what ended it.
fn code(result: &CallResult) -> ExitCode {
    let class = result.failure.as_ref().map(|failure| failure.class);
    let own = crate::failure::exit_code;
    match (class, result.exit_code) {
        (Some(FailureClass::CleanupFailure), _) => own(ErrorKind::Cleanup),
        (_, code) => live::exit_code(code.unwrap_or(1), result.timed_out),
    }
}
