//! `motu workspace diff`: what changed.

use super::Which;
use crate::show;
use motu_api::Client;
use motu_core::workspace::{DiffEntry, DiffOptions, DiffReport, DiffStatus, Workspaces};
use motu_core::{Error, Result, limits};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Show what changed under /workspace since the baseline
///
/// The patch is on standard output, in colours on a terminal; what it cannot show
/// (binary files, modes, what exceeds --max-bytes) and a summary on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace diff ws-3f9k2m7qx0ab
  motu workspace diff ws-3f9k2m7qx0ab > changes.patch")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    budget: Budget,
}

#[derive(Debug, clap::Args)]
pub struct Budget {
    /// Bytes of patch at most [default: 262144 on a terminal, else 16777216]
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
}

impl Budget {
    /// A person reads the beginning; a file or a program gets as much as there may be.
    pub fn options(&self, json: bool) -> DiffOptions {
        let whole = !json && !std::io::stdout().is_terminal();
        let usual = whole.then_some(limits::DIFF_BYTES.max);
        DiffOptions {
            max_bytes: self.max_bytes.or(usual),
        }
    }
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let options = self.budget.options(json);
        let report = client.diff_workspace(&self.which.id, options).await?;
        told(json, &report)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows a comparison. A patch that goes to a file is whole, or an error says that it is not.
pub fn told(json: bool, report: &DiffReport) -> Result<()> {
    if json {
        show::json(report);
    } else if std::io::stdout().is_terminal() {
        show::print(&coloured(&report.patch));
    } else {
        // Not a terminal: print the exact bytes, so that they can be applied.
        show::exact(&report.patch);
    }
    if !json {
        show::note(&summary(report));
    }
    if report.truncated && !json && !std::io::stdout().is_terminal() {
        return Err(
            Error::limit("the patch is cut: it is longer than --max-bytes")
                .hint("raise --max-bytes, or export the files: `motu workspace export`"),
        );
    }
    Ok(())
}

/// A patch with the usual colours.
fn coloured(patch: &str) -> String {
    let (bold, red, green, cyan) = (
        show::bold(),
        show::plain(show::RED),
        show::plain(show::GREEN),
        show::plain(show::CYAN),
    );
    let mut text = String::with_capacity(patch.len() + patch.len() / 8);
    // Inside a hunk "--- " is not a header.
    let mut hunk = Hunk::default();
    for line in patch.lines() {
        let style = match (hunk.inside(), line.as_bytes().first()) {
            (true, Some(b'+')) => green,
            (true, Some(b'-')) => red,
            (true, _) => anstyle::Style::new(),
            (false, Some(b'@')) => cyan,
            (false, _) => bold,
        };
        hunk.pass(line);
        let _ = writeln!(text, "{style}{}{style:#}", show::safe(line));
    }
    text
}

/// How much of a hunk is still to come on either side.
#[derive(Default)]
struct Hunk {
    before: u64,
    after: u64,
}

impl Hunk {
    fn inside(&self) -> bool {
        self.before > 0 || self.after > 0
    }

    fn pass(&mut self, line: &str) {
        if !self.inside() {
            *self = Hunk::begin(line).unwrap_or_default();
            return;
        }
        match line.as_bytes().first() {
            Some(b'+') => self.after = self.after.saturating_sub(1),
            Some(b'-') => self.before = self.before.saturating_sub(1),
            Some(b'\\') => {}
            _ => {
                self.before = self.before.saturating_sub(1);
                self.after = self.after.saturating_sub(1);
            }
        }
    }

    /// `@@ -1,2 +3,4 @@`
    fn begin(line: &str) -> Option<Hunk> {
        let mut words = line.strip_prefix("@@ ")?.split(' ');
        let count = |word: &str| match word.split_once(',') {
            Some((_, count)) => count.parse().ok(),
            None => Some(1),
        };
        let before = count(words.next()?.strip_prefix('-')?)?;
        let after = count(words.next()?.strip_prefix('+')?)?;
        Some(Hunk { before, after })
    }
}

/// What the patch does not show, and how much changed.
fn summary(report: &DiffReport) -> String {
    if !report.changed {
        return format!(
            "no changes between {} and {}\n",
            show::safe(&report.from),
            show::safe(&report.to)
        );
    }
    let mut text: String = report.entries.iter().filter_map(unseen).collect();
    let counts = [
        (report.added, "added"),
        (report.modified, "modified"),
        (report.deleted, "deleted"),
        (report.type_changed, "of another type"),
        (report.mode_changed, "with another mode"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let _ = writeln!(text, "{}", counts.join(", "));
    if report.truncated {
        text.push_str("this is not all of it (--max-bytes)\n");
    }
    text
}

/// A change that the patch has no text for.
fn unseen(entry: &DiffEntry) -> Option<String> {
    let path = show::safe(&entry.path);
    let status = entry.status.as_str();
    let modes = match (entry.mode_before, entry.mode_after) {
        (Some(before), Some(after)) if before != after => {
            format!(" ({before:04o} -> {after:04o})")
        }
        _ => String::new(),
    };
    let why = match entry {
        entry if entry.binary => "binary",
        entry if entry.omitted => "beyond --max-bytes",
        entry if entry.status == DiffStatus::ModeChanged => "mode",
        entry if entry.status == DiffStatus::TypeChanged => "type",
        _ => return None,
    };
    Some(format!("{path}: {status}{modes}, {why}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_a_hunk_are_changes() {
        let patch = "--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n--- x\n+y\n z\n--- a/g\n";
        let plain = anstyle::Style::new();
        let (bold, red, green, cyan) = (
            show::bold(),
            show::plain(show::RED),
            show::plain(show::GREEN),
            show::plain(show::CYAN),
        );
        let expected = format!(
            "{bold}--- a/f{bold:#}\n{bold}+++ b/f{bold:#}\n{cyan}@@ -1,2 +1 @@{cyan:#}\n\
             {red}--- x{red:#}\n{green}+y{green:#}\n{plain} z{plain:#}\n{bold}--- a/g{bold:#}\n"
        );
        assert_eq!(coloured(patch), expected);
    }

    #[test]
    fn nothing_in_a_patch_moves_the_terminal() {
        assert!(!coloured("@@ -0,0 +1 @@\n+\u{1b}]0;x\u{7}\n").contains('\u{7}'));
    }
}
