//! `motu doctor`: what works on this host, and what would help.

mod deep;

use crate::context::Context;
use crate::failure::{Reader, exit_code};
use crate::show::answer;
use crate::{show, waiting};
use motu_contract::{Finding, Findings, Outcome};
use motu_core::report::{Check, Doctor, Examine, Health};
use motu_core::sandbox::CreateSandbox;
use motu_core::{ErrorKind, Result, Service};
use std::process::ExitCode;

/// Look at this host: what works, what does not, and what would help
///
/// Exits with 107 when no sandbox can be made, or a self-test (--deep) fails; with --conformance, with 108 when a promise is broken.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also try each runtime that works with real machines; ends with a text for a report
    #[arg(long)]
    deep: bool,

    /// Make a sandbox with this runtime and find out which promises of a runtime it keeps
    #[arg(long, value_name = "RUNTIME", conflicts_with = "deep")]
    conformance: Option<String>,

    /// The environment of that sandbox, or an image of the runtime's service
    #[arg(
        long,
        value_name = "NAME",
        default_value = "busybox",
        requires = "conformance"
    )]
    environment: String,

    /// Also of a runtime that isolates nothing, or does not say so
    #[arg(long, requires = "conformance")]
    allow_host_compat: bool,

    /// Print the whole report as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        if let Some(runtime) = self.conformance.clone() {
            return self.conforms(runtime, context).await;
        }
        if self.deep {
            return deep::run(self.json, context).await;
        }
        let client = context.client();
        let work = client.doctor(Examine { deep: false });
        let doctor = waiting::told("looking at this host", Reader::of(self.json), work).await?;
        answer(self.json, &doctor, text);
        Ok(match doctor.healthy {
            true => ExitCode::SUCCESS,
            false => exit_code(ErrorKind::Unavailable),
        })
    }
}

impl Args {
    async fn conforms(self, runtime: String, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let request = CreateSandbox {
            environment: self.environment,
            runtime: Some(runtime),
            allow_host_compat: self.allow_host_compat,
            ..CreateSandbox::default()
        };
        let work = async { Result::Ok(motu_contract::examine(&client, request).await) };
        let found = waiting::told("asking everything of it", Reader::of(self.json), work).await?;
        answer(self.json, &found, conformance);
        Ok(match found.holds {
            true => ExitCode::SUCCESS,
            false => exit_code(ErrorKind::Unsupported),
        })
    }
}

fn conformance(found: &Findings) -> String {
    let bold = show::bold();
    let mut text = format!(
        "{bold}runtime {}{bold:#}, environment {}\n",
        show::safe(&found.runtime),
        show::safe(&found.environment)
    );
    let kept = |one: &&Finding| one.outcome == Outcome::Holds;
    for one in &found.findings {
        let health = match one.outcome {
            Outcome::Holds => Health::Ok,
            Outcome::Fails => Health::Failed,
            Outcome::Untried => Health::Degraded,
        };
        text.push_str(&format!(
            "  {} {}: {}\n",
            mark(health),
            one.name,
            one.promise
        ));
        if !one.detail.is_empty() {
            text.push_str(&format!("         {}\n", show::safe(&one.detail)));
        }
    }
    let count = found.findings.iter().filter(kept).count();
    text.push_str(&format!(
        "\n{count} of {} promises hold.\n",
        found.findings.len()
    ));
    text
}

fn text(doctor: &Doctor) -> String {
    let bold = show::bold();
    let mut text = format!(
        "{bold}motu {}{bold:#}, {}, state in {}\n",
        doctor.version,
        show::safe(&doctor.privilege),
        show::safe(&doctor.home)
    );
    for runtime in &doctor.runtimes {
        let health = match runtime.works {
            true => Health::Ok,
            false => Health::Failed,
        };
        let chosen = doctor.auto.as_deref() == Some(runtime.name.as_str());
        text.push_str(&format!(
            "\n{} {bold}runtime {}{bold:#} (isolation: {}){}: {}\n",
            mark(health),
            runtime.name,
            runtime.isolation,
            if chosen { ", the one `auto` picks" } else { "" },
            show::safe(&runtime.detail)
        ));
        for check in &runtime.checks {
            line(&mut text, check);
        }
    }
    text.push_str(&format!("\n{bold}host{bold:#}\n"));
    for check in &doctor.host {
        line(&mut text, check);
    }
    text.push_str(match doctor.healthy {
        true => "\nEverything needed is there.\n",
        false => "\nSandboxes cannot be made here yet.\n",
    });
    text
}

fn line(text: &mut String, check: &Check) {
    text.push_str(&format!(
        "  {} {}: {}\n",
        mark(check.health),
        show::safe(&check.name),
        show::safe(&check.detail)
    ));
    if let Some(fix) = &check.fix
        && check.health != Health::Ok
    {
        text.push_str(&format!("         fix: {}\n", show::safe(fix)));
    }
}

fn mark(health: Health) -> String {
    let (colour, word) = match health {
        Health::Ok => (show::GREEN, "ok  "),
        Health::Degraded => (show::YELLOW, "weak"),
        Health::Failed => (show::RED, "FAIL"),
    };
    let style = show::style(colour);
    format!("{style}{word}{style:#}")
}
