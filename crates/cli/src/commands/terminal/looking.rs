//! `motu terminal screen`, `scrollback` and `transcript`: what a session shows, and has shown.

use super::Which;
use super::given::Out;
use crate::commands::shape::word;
use crate::show;
use crate::show::answer;
use motu_api::Client;
use motu_core::files::decode_base64;
use motu_core::terminal::{ReadScrollback, ReadTranscript, ScreenFormat, Terminals};
use motu_core::{Error, Result, limits};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the screen of a session as it is now
///
/// As text, as text with colours (ansi), as a page (html) or as a picture (svg, png).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal screen build
  motu terminal screen editor --format ansi
  motu terminal screen editor --format png -o editor.png")]
pub struct ScreenArgs {
    #[command(flatten)]
    which: Which,

    /// text, ansi, html, svg or png
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = word::<ScreenFormat>)]
    format: ScreenFormat,

    /// Write it to a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,

    /// Replace a plain file that is there
    #[arg(long, requires = "output")]
    force: bool,
}

impl ScreenArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let picture = self.format == ScreenFormat::Png;
        if picture && !json && self.output.is_none() && std::io::stdout().is_terminal() {
            return Err(Error::invalid("a picture cannot be shown here")
                .hint("write it to a file with -o FILE, or use --format ansi"));
        }
        let screen = client
            .terminal_screen(&self.which.id, self.format.into())
            .await?;
        if json {
            show::json(&screen);
            return Ok(ExitCode::SUCCESS);
        }
        if picture {
            let bytes = decode_base64(&screen.screen)?;
            Out::create(self.output.as_deref(), self.force.into())?.write(&bytes)?;
            if let Some(hint) = &screen.hint {
                show::note(&format!("note: {hint}\n"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = screen.screen;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match (&self.output, self.format) {
            (None, ScreenFormat::Text) => show::foreign(&text),
            (path, _) => {
                Out::create(path.as_deref(), self.force.into())?.write(text.as_bytes())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Print the screen of a session and what is above it
#[derive(Debug, clap::Args)]
pub struct ScrollbackArgs {
    #[command(flatten)]
    which: Which,

    /// The last so many rows; 0 for all
    #[arg(long, value_name = "N", default_value_t = limits::TERMINAL_SCROLLBACK_LINES.default)]
    lines: u64,

    /// With colours and attributes
    #[arg(long)]
    ansi: bool,

    /// Forget what is above the screen, instead of printing it
    #[arg(long, conflicts_with_all = ["lines", "ansi"])]
    clear: bool,
}

impl ScrollbackArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let id = &self.which.id;
        if self.clear {
            let terminal = client.clear_terminal_scrollback(id).await?;
            answer(json, &terminal, |_| String::new());
            return Ok(ExitCode::SUCCESS);
        }
        let rows = client.terminal_scrollback(
            id,
            ReadScrollback {
                lines: self.lines,
                strip_ansi: !self.ansi,
            },
        );
        let rows = rows.await?;
        match (json, self.ansi) {
            (true, _) => show::json(&rows),
            (false, true) => show::exact(&rows.scrollback),
            (false, false) => show::foreign(&rows.scrollback),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Print what a session has printed, and where it is kept
///
/// Everything a session prints is kept on disk, the oldest of it only up to a limit.
/// The place to go on from is the last line on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal transcript build
  motu terminal transcript build --from 0 --max-bytes 100000
  motu terminal transcript build --paths")]
pub struct TranscriptArgs {
    #[command(flatten)]
    which: Which,

    /// Where to begin, in bytes [default: near the end]
    #[arg(long, value_name = "N")]
    from: Option<u64>,

    /// Print at most so many bytes [default: 16384]
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,

    /// Keep control sequences
    #[arg(long)]
    raw: bool,

    /// Print only where the files are
    #[arg(long, conflicts_with_all = ["from", "max_bytes", "raw"])]
    paths: bool,
}

impl TranscriptArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let read = ReadTranscript {
            from: self.from,
            max_bytes: if self.paths { Some(0) } else { self.max_bytes },
            strip_ansi: self.raw.then_some(false),
        };
        let transcript = client.terminal_transcript(&self.which.id, read).await?;
        if json {
            show::json(&transcript);
        } else if self.paths {
            show::print(&show::facts(&[
                ("directory", Some(transcript.directory)),
                ("transcript", transcript.transcript),
                ("recording", Some(transcript.recording)),
                ("interactions", Some(transcript.interactions)),
                ("metadata", transcript.metadata),
            ]));
        } else {
            show::foreign(&transcript.text);
            if !transcript.text.is_empty() && !transcript.text.ends_with('\n') {
                show::note("\n");
            }
            show::note(&format!(
                "bytes {} to {} of {} to {}\n",
                transcript.from, transcript.next_cursor, transcript.oldest, transcript.end
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}
