//! `motu policy`: what sandboxes may reach and what calls may ask for.

use super::given::read;
use crate::context::Context;
use crate::show;
use crate::show::answer;
use futures_util::StreamExt;
use motu_core::policy::{
    CheckPolicy, ExplainPolicy, Explained, Policy, PolicySummary, ReadDecisions, SetPolicy,
};
use motu_core::{Error, Result, SandboxId, Service, limits};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// What the command exits with when a destination is refused.
const REFUSED: u8 = 1;

/// See and change what sandboxes may reach
///
/// A policy is a file, NAME.toml, in `policies` of the state directory; some are shipped. A sandbox
/// names one (`motu run --policy NAME`) and reaches what it allows, through a gateway outside of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu run debian:12 --policy packages -- pip install requests
  motu policy explain packages example.com:443
  motu policy log sb-3f9k2m7qx0ab --follow")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List policies: shipped, or files
    List {
        /// Print everything that is known of them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one policy: what it opens, and the bounds of calls under it
    Show {
        /// Its name
        #[arg(default_value = motu_core::policy::NONE)]
        name: String,
        /// Print its text as it is written
        #[arg(long, conflicts_with = "json")]
        text: bool,
        /// Print everything that is known of it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read a file as a policy, and say what is wrong with it
    Check {
        /// The file
        file: PathBuf,
        /// Print what was understood as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say whether a destination may be reached, by which rule, and why
    ///
    /// Exits with 1 when it may not. Nothing is resolved and nothing is connected to.
    Explain {
        /// The policy's name
        name: String,
        /// A name or an address, and a port [default port: 443]
        #[arg(value_name = "HOST[:PORT]")]
        destination: String,
        /// tcp, udp or icmp
        #[arg(long, default_value = "tcp")]
        protocol: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a running sandbox or workspace another policy
    ///
    /// It must have been made with a network. Connections that the new policy does not allow are cut.
    Set {
        /// The sandbox
        #[arg(value_name = "ID", value_parser = SandboxId::parse)]
        id: SandboxId,
        /// The policy's name
        name: String,
        /// Print what is known of the sandbox as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print every decision about a sandbox's traffic, one JSON value a line
    Log {
        /// The sandbox; also one that is gone, for a while
        #[arg(value_name = "ID", value_parser = SandboxId::parse)]
        id: SandboxId,
        /// Go on with those to come, until the sandbox is gone
        #[arg(short, long)]
        follow: bool,
    },
}

impl Args {
    pub fn json(&self) -> bool {
        match self.command {
            Command::List { json }
            | Command::Show { json, .. }
            | Command::Check { json, .. }
            | Command::Explain { json, .. }
            | Command::Set { json, .. } => json,
            Command::Log { .. } => false,
        }
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        match self.command {
            Command::List { json } => {
                answer(json, &client.list_policies().await?, |all| list(all));
            }
            Command::Show { name, text, json } => {
                let policy = client.get_policy(&name).await?;
                match text {
                    true => show::print(&policy.text),
                    false => answer(json, &policy, shown),
                }
            }
            Command::Check { file, json } => {
                let text = read(&file, &limits::POLICY_BYTES)?;
                let policy = client.check_policy(CheckPolicy { text }).await?;
                answer(json, &policy, |policy| {
                    format!("{} can be used\n\n{}", file.display(), shown(policy))
                });
            }
            Command::Explain {
                name,
                destination,
                protocol,
                json,
            } => {
                let ask = asked(&destination, protocol)?;
                let explained = client.explain_policy(&name, ask).await?;
                answer(json, &explained, said);
                if !explained.allowed {
                    return Ok(ExitCode::from(REFUSED));
                }
            }
            Command::Set { id, name, json } => {
                let sandbox = client
                    .set_policy(
                        &id,
                        SetPolicy {
                            policy: name,
                            ..SetPolicy::default()
                        },
                    )
                    .await?;
                answer(json, &sandbox, |sandbox| {
                    let policy = sandbox.policy.as_ref().map(|policy| policy.name.as_str());
                    format!("{}: {}\n", sandbox.sandbox_id, policy.unwrap_or("none"))
                });
            }
            Command::Log { id, follow } => {
                let mut lines = client
                    .read_decisions(&id, ReadDecisions { follow, from: 0 })
                    .await?;
                while let Some(piece) = lines.next().await {
                    if show::stream(&piece?)?.is_break() {
                        break;
                    }
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.
fn asked(destination: &str, protocol: String) -> Result<ExplainPolicy> {
    let usual = ExplainPolicy {
        protocol,
        ..ExplainPolicy::default()
    };
    let whole = |host: &str| ExplainPolicy {
        host: host.to_string(),
        ..usual.clone()
    };
    if destination.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(whole(destination));
    }
    let Some((host, port)) = destination.rsplit_once(':') else {
        return Ok(whole(destination));
    };
    let port = port
        .parse()
        .map_err(|_| Error::invalid(format!("{port:?} is not a port")).hint("HOST:PORT"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(ExplainPolicy {
        port,
        ..whole(host)
    })
}

fn list(policies: &[PolicySummary]) -> String {
    let row = |policy: &PolicySummary| {
        let about = match &policy.error {
            Some(error) => format!("cannot be used: {error}"),
            None => policy.description.clone(),
        };
        vec![
            policy.name.clone(),
            policy.source.clone(),
            policy.capabilities.len().to_string(),
            show::safe(&about),
        ]
    };
    let rows: Vec<Vec<String>> = policies.iter().map(row).collect();
    show::table(&["NAME", "SOURCE", "OPENS", "DESCRIPTION"], &rows)
}

fn said(explained: &Explained) -> String {
    let colour = match explained.allowed {
        true => show::style(show::GREEN),
        false => show::style(show::RED),
    };
    let word = if explained.allowed {
        "allowed"
    } else {
        "refused"
    };
    let message = show::safe(&explained.message);
    format!(
        "{colour}{word}{colour:#}: {message} ({})\n",
        explained.reason
    )
}

fn shown(policy: &Policy) -> String {
    let call = &policy.call;
    let languages = call.languages.iter();
    let languages: Vec<String> = languages
        .map(|(name, image)| format!("{name} ({image})"))
        .collect();
    let mut text = show::facts(&[
        ("name", Some(policy.name.clone())),
        ("description", Some(show::safe(&policy.description))),
        ("source", Some(policy.source.clone())),
        ("hash", Some(policy.hash.clone())),
        ("languages", Some(languages.join(", "))),
        ("images", Some(call.images.join(", "))),
        ("retention", Some(call.retention.join(", "))),
        (
            "secrets",
            Some(call.secrets.join(", ")).filter(|names| !names.is_empty()),
        ),
        (
            "isolation",
            Some(format!("{} or stronger", call.min_isolation)),
        ),
    ]);
    text.push('\n');
    let rows: Vec<Vec<String>> = policy
        .allow
        .iter()
        .flat_map(|allow| {
            let ports = match allow.ports.is_empty() {
                true => "any".to_string(),
                false => allow.ports.join(","),
            };
            allow.hosts.iter().map(move |host| {
                let line = [&allow.capability, host, &ports, &allow.protocol];
                line.map(|cell| show::safe(cell)).to_vec()
            })
        })
        .collect();
    match rows.is_empty() {
        true => text.push_str("It opens no network.\n"),
        false => text.push_str(&show::table(
            &["CAPABILITY", "HOST", "PORTS", "PROTOCOL"],
            &rows,
        )),
    }
    text.push('\n');
    let _ = write!(
        text,
        "{}",
        show::table(&["BOUND", "VALUE"], &bounds(policy))
    );
    text
}

fn bounds(policy: &Policy) -> Vec<Vec<String>> {
    let (call, network) = (&policy.call, &policy.network);
    [
        ("call files", call.files),
        ("bytes of a file", call.file_bytes),
        ("bytes of all files", call.all_files_bytes),
        ("bytes of output, each channel", call.max_output_bytes),
        ("seconds, unless asked", call.timeout_seconds),
        ("seconds at most", call.max_timeout_seconds),
        ("files given back", call.output_files),
        ("bytes of a file given back", call.output_file_bytes),
        ("seconds a state is kept, unless asked", call.ttl_seconds),
        ("seconds a state is kept at most", call.max_ttl_seconds),
        ("CPUs at most", call.max_vcpu_count),
        ("MiB of memory at most", call.max_mem_mib),
        ("MiB of disk at most", call.max_disk_mib),
        ("connections", network.connections),
        ("connections a second (0: any)", network.connects_per_second),
        ("bytes a second (0: any)", network.bytes_per_second),
        ("bytes in all (0: any)", network.bytes),
    ]
    .map(|(name, value)| vec![name.to_string(), value.to_string()])
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_as_people_write_them() {
        for (text, host, port) in [
            ("example.com", "example.com", 443),
            ("example.com:80", "example.com", 80),
            ("10.0.0.1:5432", "10.0.0.1", 5432),
            ("::1", "::1", 443),
            ("[::1]:80", "::1", 80),
        ] {
            let ask = asked(text, "tcp".to_string()).unwrap();
            assert_eq!((ask.host.as_str(), ask.port), (host, port), "{text}");
        }
        assert!(asked("example.com:http", "tcp".to_string()).is_err());
    }
}
