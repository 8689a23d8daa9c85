//! `motu terminal replay`: a recording, played here with its timing.

use super::given;
use crate::detach::SANE;
use crate::output::{Broken, Output, To};
use crate::{live, show, terminal};
use bytes::Bytes;
use futures_util::StreamExt;
use motu_api::Client;
use motu_core::terminal::{TerminalId, Terminals};
use motu_core::{Error, Result, limits};
use motu_terminal::record::{Cast, CastError, Code};
use std::fs::File;
use std::io::{BufReader, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest recording that is played.
const CAST_BYTES: u64 = 2 * limits::TERMINAL_TRANSCRIPT_BYTES.default;

/// Play a recording in this terminal
///
/// A file, or the recording of a session so far. q and Ctrl-C end it, the space bar
/// halts it and lets it go on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal replay build.cast
  motu terminal replay build --speed 4 --max-idle 1s")]
pub struct Args {
    /// An asciicast v3 file, or a session
    #[arg(value_name = "FILE|ID")]
    what: String,

    /// How many times as fast as it was
    #[arg(long, value_name = "N", default_value = "1", value_parser = given::speed)]
    speed: f64,

    /// The longest pause, in seconds or with a unit (500ms)
    #[arg(long, value_name = "TIME", value_parser = given::time)]
    max_idle: Option<Duration>,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        if json {
            return Err(Error::unsupported("there is no JSON of what is played")
                .hint("the recording itself is JSON, a line per event"));
        }
        let cast = match Path::new(&self.what) {
            path if path.exists() => of_file(path)?,
            path if path.extension().is_some_and(|kind| kind == "cast") => {
                return Err(Error::not_found(format!(
                    "{}: no such file",
                    path.display()
                )));
            }
            _ => of_session(client, &TerminalId::parse(&self.what)?).await?,
        };
        warn_of_size(&cast);
        let seated = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let raw = seated.then(terminal::Raw::enter).transpose()?;
        let (keys, pressed) = mpsc::channel(8);
        if seated {
            read_keys(keys.clone());
        }
        let played = play(&cast, self.speed, self.max_idle, pressed).await;
        drop(keys);
        if raw.is_some() {
            show::exact_error(SANE);
            // Discard this terminal's answers to queries in the recording, so that the next shell
            // does not read them.
            terminal::forget_input();
        }
        drop(raw);
        match played {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(broken) => live::unread(broken),
        }
    }
}

fn of_file(path: &Path) -> Result<Cast> {
    let name = path.display().to_string();
    let file =
        File::open(path).map_err(|error| Error::with_file(format!("read {name}"), &error))?;
    read(BufReader::new(file.take(CAST_BYTES + 1)), &name)
}

async fn of_session(client: &Client, id: &TerminalId) -> Result<Cast> {
    let mut recording = client.terminal_recording(id).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = recording.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() as u64 > CAST_BYTES {
            return Err(too_long(id.as_str()));
        }
    }
    read(&bytes[..], id.as_str())
}

fn read(reader: impl std::io::BufRead, name: &str) -> Result<Cast> {
    let mut counted = Counted { reader, bytes: 0 };
    let cast = Cast::read(&mut counted);
    if counted.bytes > CAST_BYTES {
        return Err(too_long(name));
    }
    cast.map_err(|error| match error {
        CastError::Io(error) => Error::io(format!("read {name}"), &error),
        CastError::Format { line, reason } => {
            Error::invalid(format!("{name}: line {line}: {reason}"))
                .hint("recordings are asciicast v3 files, as `motu terminal record` writes them")
                .details(serde_json::json!({"line": line}))
        }
    })
}

fn too_long(name: &str) -> Error {
    Error::limit(format!("{name}: longer than {CAST_BYTES} bytes"))
}

/// Counts what is read.
struct Counted<R> {
    reader: R,
    bytes: u64,
}

impl<R: std::io::BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.bytes += length as u64;
        Ok(length)
    }
}

impl<R: std::io::BufRead> std::io::BufRead for Counted<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.bytes += amount as u64;
        self.reader.consume(amount);
    }
}

fn warn_of_size(cast: &Cast) {
    let term = &cast.header.term;
    if let Ok(size) = terminal::size()
        && (size.cols < term.cols || size.rows < term.rows)
    {
        show::note(&format!(
            "motu: recorded at {}x{}, this terminal is {}x{}\n",
            term.cols, term.rows, size.cols, size.rows
        ));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Halt,
}

async fn play(
    cast: &Cast,
    speed: f64,
    max_idle: Option<Duration>,
    mut pressed: mpsc::Receiver<Key>,
) -> std::result::Result<(), Broken> {
    let mut output = Output::default();
    for (pause, event) in cast.replay(speed, max_idle) {
        if waited(pause, &mut pressed).await == Some(Key::Quit) {
            break;
        }
        if event.code == Code::Output {
            let bytes = Bytes::copy_from_slice(event.data.as_bytes());
            output.write(To::Stdout, bytes).await?;
        }
    }
    output.finish().await
}

/// Waits, longer if it is halted. Gives the key that ends it.
async fn waited(pause: Duration, pressed: &mut mpsc::Receiver<Key>) -> Option<Key> {
    let mut left = pause;
    loop {
        let begun = tokio::time::Instant::now();
        let key = tokio::select! {
            biased;
            Some(key) = pressed.recv() => key,
            () = tokio::time::sleep(left) => return None,
        };
        if key == Key::Quit {
            return Some(key);
        }
        left = left.saturating_sub(begun.elapsed());
        // Paused until the next key.
        if pressed.recv().await == Some(Key::Quit) {
            return Some(Key::Quit);
        }
    }
}

/// From a thread of its own, because a read of a terminal cannot be cancelled.
fn read_keys(keys: mpsc::Sender<Key>) {
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = [0; 256];
        let mut typed = Typed::default();
        loop {
            let bytes = match stdin.read(&mut buffer) {
                Ok(0) | Err(_) => &[INTERRUPT],
                Ok(length) => &buffer[..length],
            };
            for key in bytes.iter().filter_map(|byte| typed.key(*byte)) {
                if keys.blocking_send(key).is_err() || key == Key::Quit {
                    return;
                }
            }
        }
    });
}

/// Ctrl-C, which is a key like others here.
const INTERRUPT: u8 = 0x03;
const ESCAPE: u8 = 0x1b;

/// Tells keys from the sequences that a terminal sends by itself, as answers to what is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Typed {
    #[default]
    Plain,
    /// After the escape character.
    Escape,
    /// Up to a final byte.
    Control,
    /// Up to a terminator.
    Text,
}

impl Typed {
    fn key(&mut self, byte: u8) -> Option<Key> {
        if byte == INTERRUPT {
            return Some(Key::Quit);
        }
        *self = match (*self, byte) {
            (_, ESCAPE) => Typed::Escape,
            (Typed::Plain, b'q') => return Some(Key::Quit),
            (Typed::Plain, b' ') => return Some(Key::Halt),
            (Typed::Plain, _) => Typed::Plain,
            (Typed::Escape, b'[') => Typed::Control,
            (Typed::Escape, b']' | b'P' | b'_' | b'^' | b'X') => Typed::Text,
            (Typed::Escape, _) => Typed::Plain,
            (Typed::Control, b'@'..=b'~') => Typed::Plain,
            (Typed::Control, _) => Typed::Control,
            (Typed::Text, 0x07) => Typed::Plain,
            (Typed::Text, _) => Typed::Text,
        };
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_terminal_are_no_keys() {
        let keys = |bytes: &[u8]| {
            let mut typed = Typed::default();
            let keys = bytes.iter().filter_map(|byte| typed.key(*byte));
            keys.collect::<Vec<_>>()
        };
        assert_eq!(keys(b"aq"), [Key::Quit]);
        assert_eq!(
            keys(b"\x1b[?62;22c \x1b]11;rgb:q q\x1b\\q"),
            [Key::Halt, Key::Quit]
        );
        assert_eq!(keys(b"\x1b[1 q\x1bP1$r q\x07"), []);
        assert_eq!(keys(b"\x1b[\x03"), [Key::Quit]);
    }
}
