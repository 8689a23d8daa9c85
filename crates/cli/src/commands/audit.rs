//! `motu audit`: what was asked of this host, and the proof of it.

use crate::context::Context;
use crate::show;
use crate::show::answer;
use futures_util::StreamExt;
use motu_audit::{Expected, PublicKey, View};
use motu_core::audit::{
    AuditId, AuditKey, AuditList, AuditVerified, FollowAudit, ListAudit, Receipt, VerifyAudit,
};
use motu_core::files::ByteStream;
use motu_core::{Error, Result, SandboxId, Service};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a verification that found something gives: the kind of a conflict.
const FOUND: u8 = 105;

/// See, check and prove what was asked of this host
///
/// Every call of every face is one entry: who, what, on which sandbox, how it went. Entries are
/// chained and signed; docs/audit.md describes the format and what it proves.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// The newest calls, oldest first
    List {
        #[command(flatten)]
        which: Which,
        /// How many
        #[arg(short = 'n', long, value_name = "N")]
        limit: Option<u64>,
        /// Only older ones than this number
        #[arg(long, value_name = "SEQ")]
        before: Option<u64>,
        /// Go on where a page ended: its `next_cursor`
        #[arg(long, value_name = "CURSOR", conflicts_with = "before")]
        cursor: Option<String>,
        /// Print the entries as JSON
        #[arg(long)]
        json: bool,
    },
    /// What is recorded of one call
    Show {
        /// Its id, such as in `audit_id` of an answer
        #[arg(value_parser = AuditId::parse)]
        id: AuditId,
        /// Print the entries as JSON
        #[arg(long)]
        json: bool,
    },
    /// Calls as they are recorded, one JSON object per line, until Ctrl-C
    Tail {
        /// How many of the newest come first [default: 10]
        #[arg(short = 'n', long, value_name = "N")]
        lines: Option<u64>,
    },
    /// Check the whole log: nothing changed, removed, moved or added, and its end is there
    ///
    /// Exits with 105 when something is wrong. With --dir the log is read without a daemon, such
    /// as a copy on another machine.
    #[command(after_help = "Examples:
  motu audit verify
  motu audit verify --expect 6f1c…        a `head` that was kept from before
  motu audit verify --dir ./copy --key 8a3e…")]
    Verify {
        /// The hash of an entry or checkpoint that must be in it
        #[arg(long, value_name = "HASH")]
        expect: Option<String>,
        /// A checkpoint, or the answer of an earlier verification, that must be in it
        #[arg(long, value_name = "FILE", conflicts_with = "expect")]
        since_checkpoint: Option<PathBuf>,
        /// The public key that must have signed it [default: that of this host]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// A copy of the directory `audit`, instead of this host's log
        #[arg(long, value_name = "DIR", requires = "key")]
        dir: Option<PathBuf>,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write the log as it is stored to standard output
    Export,
    /// One call as a receipt: a JSON object that proves itself
    Receipt {
        /// Its id, such as in `audit_id` of an answer
        #[arg(value_parser = AuditId::parse)]
        id: AuditId,
    },
    /// Check a receipt, without a daemon
    Check {
        /// What `motu audit receipt` printed
        #[arg(value_name = "FILE")]
        receipt: PathBuf,
        /// The public key that must have signed it
        #[arg(long, value_name = "KEY")]
        key: String,
    },
    /// The public key that signs the log
    Key {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Only of this sandbox or workspace
    #[arg(long, value_name = "ID", value_parser = SandboxId::parse)]
    sandbox: Option<SandboxId>,
    /// Only of this verb, such as exec
    #[arg(long)]
    verb: Option<String>,
    /// Only what failed or was abandoned
    #[arg(long)]
    failed: bool,
    /// Only what changes or runs something
    #[arg(long)]
    changes: bool,
}

impl Args {
    pub fn json(&self) -> bool {
        match self.command {
            Command::List { json, .. }
            | Command::Show { json, .. }
            | Command::Verify { json, .. }
            | Command::Key { json } => json,
            Command::Receipt { .. } => true,
            Command::Tail { .. } | Command::Export | Command::Check { .. } => false,
        }
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        match self.command {
            Command::List {
                which,
                limit,
                before,
                cursor,
                json,
            } => {
                let ask = ListAudit {
                    sandbox_id: which.sandbox,
                    verb: which.verb,
                    failed: which.failed,
                    changes: which.changes,
                    before_seq: before,
                    limit,
                    cursor,
                    ..ListAudit::default()
                };
                answer(json, &client.list_audit(ask).await?, list);
            }
            Command::Show { id, json } => answer(json, &client.get_audit(&id).await?, details),
            Command::Tail { lines } => {
                let follow = async {
                    let calls = client.follow_audit(FollowAudit { tail: lines }).await?;
                    pour(calls).await
                };
                tokio::select! {
                    poured = follow => poured?,
                    _ = tokio::signal::ctrl_c() => {}
                }
            }
            Command::Verify {
                expect,
                since_checkpoint,
                key,
                dir,
                json,
            } => {
                let expect = match since_checkpoint {
                    Some(path) => Some(kept(&path)?),
                    None => expect,
                };
                let found = match dir {
                    Some(dir) => verify_dir(&dir, key.as_deref(), expect.as_deref())?,
                    None => {
                        let ask = VerifyAudit {
                            expect,
                            public_key: key,
                        };
                        client.verify_audit(ask).await?
                    }
                };
                answer(json, &found, verified);
                if !found.ok {
                    return Ok(ExitCode::from(FOUND));
                }
            }
            Command::Export => pour(client.export_audit().await?).await?,
            Command::Receipt { id } => show::json(&client.audit_receipt(&id).await?),
            Command::Check { receipt, key } => check(&receipt, &key)?,
            Command::Key { json } => answer(json, &client.audit_key().await?, public_key),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes lines as they come. They are ours and have no control characters in them.
async fn pour(mut lines: ByteStream) -> Result<()> {
    while let Some(piece) = lines.next().await {
        if show::stream(&piece?)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read(path)
        .map_err(|error| Error::with_file(format_args!("read {}", path.display()), &error))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))
}

/// The hash in what an auditor kept: a checkpoint, a receipt, or the answer of a verification.
fn kept(path: &Path) -> Result<String> {
    let value = read_json(path)?;
    let places = [&value["head"], &value["checkpoint"]["hash"], &value["hash"]];
    let hash = places.into_iter().find_map(Value::as_str);
    hash.map(String::from).ok_or_else(|| {
        Error::invalid(format!("{} has no hash of a checkpoint", path.display()))
            .hint("keep a receipt, or what `motu audit verify --json` prints")
    })
}

fn verify_dir(dir: &Path, key: Option<&str>, expect: Option<&str>) -> Result<AuditVerified> {
    let expected = Expected::parse(key, expect)?;
    let view = View::of_dir(dir)
        .map_err(|error| Error::with_file(format_args!("read {}", dir.display()), &error))?;
    Ok(motu_audit::verify(&view, &expected))
}

fn check(path: &Path, key: &str) -> Result<()> {
    let key = PublicKey::parse(key)?;
    let receipt: Receipt = serde_json::from_value(read_json(path)?)
        .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
    motu_audit::check_receipt(&receipt, Some(&key))?;
    let field = |name: &str| text(&receipt.entry, name);
    show::print(&format!(
        "{} is signed by this key: {} by {}, {}\n",
        field("id"),
        field("verb"),
        text(&receipt.entry["caller"], "who"),
        field("outcome"),
    ));
    Ok(())
}

fn text(entry: &Value, field: &str) -> String {
    match &entry[field] {
        Value::Null => "-".to_string(),
        Value::String(text) => show::safe(text),
        other => other.to_string(),
    }
}

/// Milliseconds from nanoseconds as text.
fn took(entry: &Value) -> String {
    let nanos: f64 = text(entry, "duration_ns").parse().unwrap_or(0.0);
    format!("{:.1} ms", nanos / 1e6)
}

fn outcome(entry: &Value) -> String {
    match &entry["facts"]["exit_code"] {
        Value::Null => text(entry, "outcome"),
        code => format!("{}, exit {code}", text(entry, "outcome")),
    }
}

fn list(list: &AuditList) -> String {
    let row = |entry: &Value| {
        let time = text(entry, "time");
        vec![
            text(entry, "seq"),
            time.get(..19).unwrap_or(&time).replace('T', " "),
            text(&entry["caller"], "who"),
            text(entry, "verb"),
            text(entry, "sandbox_id"),
            outcome(entry),
            took(entry),
            text(entry, "id"),
        ]
    };
    let rows: Vec<Vec<String>> = list.entries.iter().map(row).collect();
    let headings = [
        "SEQ", "TIME", "WHO", "VERB", "SANDBOX", "OUTCOME", "TOOK", "ID",
    ];
    let mut shown = show::table(&headings, &rows);
    if let Some(before) = list.before_seq {
        shown.push_str(&format!("older ones: --before {before}\n"));
    }
    shown
}

fn details(list: &AuditList) -> String {
    let one = |entry: &Value| {
        let field = |name: &str| Some(text(entry, name));
        let facts = entry["facts"].as_object().into_iter().flatten();
        let facts: Vec<String> = facts
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        show::facts(&[
            ("id", field("id")),
            ("seq", field("seq")),
            ("stage", field("stage")),
            ("time", field("time")),
            ("who", Some(text(&entry["caller"], "who"))),
            ("face", Some(text(&entry["caller"], "face"))),
            ("verb", field("verb")),
            ("decision", field("decision")),
            ("sandbox", field("sandbox_id")),
            ("request", field("request")),
            ("outcome", field("outcome")),
            ("facts", Some(show::safe(&facts.join(" ")))),
            ("took", Some(took(entry))),
            ("hash", field("hash")),
        ])
    };
    let all: Vec<String> = list.entries.iter().map(one).collect();
    all.join("\n")
}

fn verified(found: &AuditVerified) -> String {
    let mut text = String::new();
    for problem in &found.problems {
        let seq = problem
            .seq
            .map(|seq| format!(" entry {seq}:"))
            .unwrap_or_default();
        let place = match problem.segment.as_str() {
            "" => "the log".to_string(),
            segment => format!("{} line {}", show::safe(segment), problem.line),
        };
        text.push_str(&format!("{place}:{seq} {}\n", show::safe(&problem.message)));
    }
    let state = if found.ok {
        "whole"
    } else {
        "not as it was written"
    };
    text.push_str(&format!(
        "the log is {state}: {} calls, {} records, {} checkpoints in {} segments\n",
        found.calls, found.records, found.checkpoints, found.segments
    ));
    if found.removed_through > 0 {
        text.push_str(&format!(
            "removed by retention: until {}\n",
            found.removed_through
        ));
    }
    text.push_str(&format!("head {}\nkey  {}\n", found.head, found.public_key));
    text
}

fn public_key(key: &AuditKey) -> String {
    format!("{}\n{}\n", key.public_key, key.fingerprint)
}
