//! `motu key`: keys for callers of other hosts.

use super::page::{PageArgs, more};
use crate::context::Context;
use crate::show;
use crate::show::answer;
use jiff::Timestamp;
use motu_core::key::{CreateKey, Key, KeyCreated, KeyId};
use motu_core::{Bounds, Error, Result, Service, Size};
use std::process::ExitCode;

/// Make, list and revoke keys, by which callers of other hosts are known
///
/// A key belongs to a project and sees what is that project's, and nothing else of this host. What it
/// may do is in its scopes. It is shown once: the host keeps its hash.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu key create --project acme --name ci --expires 30d
  motu key create --project acme --scope read --scope commands:exec
  motu key create --project acme --policy packages --max-mem-mib 1024 --max-vcpu-count 2
  motu key list
  motu key revoke 3f9k2m7qx0ab")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a key, and show it this once
    Create {
        /// The project whose things it sees and makes [default: default]
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
        /// What it is for
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        name: Option<String>,
        /// What it may do: *, read, metrics, a family such as sandboxes:*, or one verb such as
        /// sandboxes:fork_sandbox [default: *]
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
        scopes: Vec<String>,
        /// How long it is good for: 90s, 45m, 12h, 30d [default: until it is revoked]
        #[arg(long = "expires", value_name = "TIME", value_parser = seconds)]
        expires_seconds: Option<u64>,
        /// How many calls it may make in a minute [default: any number]
        #[arg(long, value_name = "NUMBER")]
        calls_per_minute: Option<u64>,
        /// The only policies that its sandboxes, calls and builds may have [default: any]
        #[arg(long = "policy", value_name = "NAME", value_delimiter = ',')]
        policies: Vec<String>,
        /// CPUs that one of its machines has at most
        #[arg(long, value_name = "NUMBER")]
        max_vcpu_count: Option<u64>,
        /// Memory that one of its machines has at most
        #[arg(long, value_name = "MIB")]
        max_mem_mib: Option<u64>,
        /// Disk that one of its machines has at most
        #[arg(long, value_name = "MIB")]
        max_disk_mib: Option<u64>,
        /// Print it, and what may be said of it, as JSON
        #[arg(long)]
        json: bool,
    },
    /// List keys, without what callers send
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Print everything that may be said of them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a key good for nothing, at once and for ever
    Revoke {
        /// Its id, which is the part of it between the underscores
        id: String,
        /// Print what may be said of it as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Create { json, .. }
            | Command::List { json, .. }
            | Command::Revoke { json, .. } => *json,
        }
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        match self.command {
            Command::Create {
                project,
                name,
                scopes,
                expires_seconds,
                calls_per_minute,
                policies,
                max_vcpu_count,
                max_mem_mib,
                max_disk_mib,
                json,
            } => {
                let most = Size {
                    vcpu_count: max_vcpu_count,
                    mem_mib: max_mem_mib,
                    disk_mib: max_disk_mib,
                };
                let ask = CreateKey {
                    project,
                    name,
                    scopes,
                    expires_seconds,
                    calls_per_minute,
                    bounds: Bounds { policies, most },
                };
                created(json, &client.create_key(ask).await?);
            }
            Command::List { page, json } => {
                let all = client.list_keys(page.into()).await?;
                answer(json, &all, |all| list(all));
                more(json, all.next_cursor.as_deref());
            }
            Command::Revoke { id, json } => {
                let revoked = client.revoke_key(&KeyId::parse(&id)?).await?;
                answer(json, &revoked, |key| format!("{} is revoked\n", key.key_id));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The key alone goes where programs read it; what people should know goes beside.
fn created(json: bool, made: &KeyCreated) {
    if !json {
        let about = &made.about;
        show::note(&format!(
            "a key of the project {}, id {}; it is not shown again\n",
            about.project, about.key_id
        ));
    }
    answer(json, made, |made| format!("{}\n", made.key));
}

/// A time such as `30d`.
fn seconds(text: &str) -> Result<u64> {
    let wrong = || Error::invalid("a number and s, m, h or d, such as 30d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let (digits, factor) = match unit {
        's' => (&text[..text.len() - 1], 1),
        'm' => (&text[..text.len() - 1], 60),
        'h' => (&text[..text.len() - 1], 3600),
        'd' => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

fn list(keys: &[Key]) -> String {
    let now = Timestamp::now();
    let row = |key: &Key| {
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.as_str()).collect();
        let state = match (key.revoked_at, key.expires_at) {
            (Some(_), _) => "revoked".to_string(),
            (None, Some(at)) if at <= now => "expired".to_string(),
            (None, Some(at)) => format!("good until {at:.0}"),
            (None, None) => "good".to_string(),
        };
        vec![
            key.key_id.to_string(),
            key.project.to_string(),
            key.name.clone().unwrap_or("-".to_string()),
            scopes.join(","),
            state,
            key.last_used_at
                .map_or("never".to_string(), |at| show::ago(at, now)),
        ]
    };
    let rows: Vec<Vec<String>> = keys.iter().map(row).collect();
    show::table(&["ID", "PROJECT", "NAME", "SCOPES", "STATE", "USED"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, number) in [("90", 90), ("90s", 90), ("45m", 2700), ("30d", 2_592_000)] {
            assert_eq!(seconds(text), Ok(number), "{text}");
        }
        for wrong in ["", "d", "-1d", "1w", "1.5h", "999999999999999999d", "1ß"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
