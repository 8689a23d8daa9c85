//! `motu demo`: what a sandbox is, shown on a real one.

mod model;
mod ollama;
mod tools;

use crate::context::Context;
use crate::failure::Reader;
use crate::{pull, show};
use futures_util::{StreamExt, stream};
use motu_api::Client;
use motu_core::exec::{ExecRequest, ExecResult};
use motu_core::files::{GuestPath, ReadFile, ReadRange, WriteFile, WriteOptions};
use motu_core::sandbox::{CreateSandbox, Sandbox};
use motu_core::{Program, Result, SandboxId, Service, Size};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// See what it does: a tour of one sandbox, in a few seconds
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// The environment to start from
    #[arg(long, value_name = "NAME", default_value = "busybox")]
    environment: String,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Ollama(ollama::Args),
}

/// Processes the tour's sandbox may have; the fork bomb meets this.
const PIDS: u64 = 64;
/// Commands whose latency is measured.
const ROUNDS: u32 = 20;

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        if let Some(Command::Ollama(args)) = self.command {
            return args.run(context).await;
        }
        let client = context.client();
        let begin = Instant::now();
        let (sandbox, started) = make(&client, &self.environment).await?;
        say("A machine of its own");
        fact(&format!(
            "{} from {}, by {}, ready in {}",
            sandbox.sandbox_id,
            sandbox.environment,
            show::made_by(
                &sandbox.runtime,
                sandbox.isolation,
                sandbox.accelerator.as_deref()
            ),
            milliseconds(started)
        ));
        let toured = tour(&client, &sandbox.sandbox_id).await;
        // Destroy the sandbox even if the tour failed.
        let ending = Instant::now();
        let destroyed = client.destroy_sandbox(&sandbox.sandbox_id).await;
        toured?;
        destroyed?;
        say("Thrown away");
        fact(&format!(
            "nothing is left, after {}",
            milliseconds(ending.elapsed())
        ));
        let total = begin.elapsed().as_secs_f32();
        show::print(&format!(
            "\nThat was the whole life of a machine, in {total:.1} s. Next:\n\
             \n  motu run debian:12 -- python3 -c 'print(6 * 7)'   one command\
             \n  motu create debian:12                             a machine that stays\
             \n  motu env list                                     what machines start from\
             \n  motu doctor                                       what this host can do\n"
        ));
        Ok(ExitCode::SUCCESS)
    }
}

async fn make(client: &Client, environment: &str) -> Result<(Sandbox, Duration)> {
    let request = CreateSandbox {
        environment: environment.to_string(),
        pids_max: Some(PIDS),
        size: Size {
            mem_mib: Some(128),
            ..Size::default()
        },
        ttl_seconds: Some(120),
        ..CreateSandbox::default()
    };
    let begin = Instant::now();
    match client.create_sandbox(request.clone()).await {
        Err(error) if pull::would_help(&error) => {
            pull::pull(client, environment, Reader::Person).await?;
            let begin = Instant::now();
            Ok((client.create_sandbox(request).await?, begin.elapsed()))
        }
        outcome => Ok((outcome?, begin.elapsed())),
    }
}

async fn tour(client: &Client, id: &SandboxId) -> Result<()> {
    say("It sees nothing of this host");
    shell(client, id, "hostname; id -un; echo /*").await?;
    shell(client, id, "ps | head -5").await?;
    shell(client, id, "nc -w 2 192.0.2.1 80 || echo no network").await?;

    say("Files go in and out");
    let path = GuestPath::new(&b"/tmp/greeting.txt"[..])?;
    let content = stream::iter([Ok("hello from the host\n".into())]).boxed();
    client
        .write_file(
            id,
            WriteFile::new(path.clone(), WriteOptions::default()),
            content,
        )
        .await?;
    shell(
        client,
        id,
        "tr a-z A-Z < /tmp/greeting.txt > /tmp/answer.txt; rm /tmp/greeting.txt",
    )
    .await?;
    let path = GuestPath::new(&b"/tmp/answer.txt"[..])?;
    let (_, mut content) = client
        .read_file(id, ReadFile::new(path, ReadRange::default()))
        .await?;
    while let Some(chunk) = content.next().await {
        fact(&format!(
            "read back: {}",
            String::from_utf8_lossy(&chunk?).trim_end()
        ));
    }

    say("Commands are quick");
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        exec(client, id, "true", 10).await?;
    }
    fact(&format!(
        "{ROUNDS} commands, {} each",
        milliseconds(begin.elapsed() / ROUNDS)
    ));

    // Last, because its processes fill the machine until the machine is destroyed.
    say("Limits hold: processes without end");
    let endless = "sh -c 'while :; do sleep 9 & done'; echo the shell is still here";
    shell(client, id, endless).await?;
    let metrics = client.metrics(id).await?;
    fact(&format!(
        "{} processes now; the limit is {PIDS}",
        metrics.processes
    ));
    Ok(())
}

async fn exec(client: &Client, id: &SandboxId, script: &str, timeout: u64) -> Result<ExecResult> {
    let request = ExecRequest::from(Program {
        timeout_seconds: Some(timeout),
        ..Program::argv(["/bin/sh", "-c", script])
    });
    client.exec(id, request).await
}

/// Runs a script and shows what it says.
async fn shell(client: &Client, id: &SandboxId, script: &str) -> Result<()> {
    let dim = show::dim();
    show::print(&format!("  {dim}$ {script}{dim:#}\n"));
    let result = exec(client, id, script, 5).await?;
    for line in result.stdout.lines().chain(result.stderr.lines()).take(5) {
        show::print(&format!("  {}\n", show::safe(line)));
    }
    if result.timed_out {
        fact("it was stopped at its time limit, with everything it had started");
    }
    Ok(())
}

fn say(title: &str) {
    let style = show::style(show::CYAN);
    show::print(&format!("\n{style}{title}{style:#}\n"));
}

fn fact(text: &str) {
    show::print(&format!("  {}\n", show::safe(text)));
}

fn milliseconds(length: Duration) -> String {
    format!("{:.1} ms", length.as_secs_f64() * 1000.0)
}
