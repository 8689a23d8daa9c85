//! A person at a terminal elsewhere: keys there, output here, until the keys that leave.

use crate::output::{Broken, Output, To};
use crate::{show, terminal};
use bytes::Bytes;
use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, ExecInput, ExecSession, Exited};
use motu_core::{Error, Result};
use std::io::Read;
use std::str::FromStr;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Bytes read from the terminal at once.
const INPUT_BYTES: usize = 4096;
/// Ctrl-C, where it is not meant for a program.
const INTERRUPT: u8 = 0x03;
/// The most keys that leave.
const KEYS_MAX: usize = 8;
/// Undoes what a program elsewhere may have done to this terminal: the other screen, a hidden
/// cursor, application keys, mouse reports, bracketed paste, colours.
pub const SANE: &str = "\x1b[?1047l\x1b[?25h\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m\r\n";

/// How an attached terminal came to its end.
#[derive(Debug)]
pub enum Attached {
    /// The shell ended.
    Ended(Exited),
    /// The person left; the shell runs on.
    Left,
}

/// The keys that leave, one byte each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Vec<u8>);

impl FromStr for Keys {
    type Err = Error;

    /// `ctrl-p,ctrl-q`, or characters such as `~,.`.
    fn from_str(text: &str) -> Result<Keys> {
        let key = |word: &str| {
            let lower = word.to_ascii_lowercase();
            match (lower.strip_prefix("ctrl-"), word.as_bytes()) {
                (Some(key), _) => match key.as_bytes() {
                    [c @ b'a'..=b'z'] => Some(c - b'a' + 1),
                    [c @ (b'@' | b'[' | b'\\' | b']' | b'^' | b'_')] => Some(c - b'@'),
                    _ => None,
                },
                (None, [c @ b' '..=b'~']) => Some(*c),
                _ => None,
            }
        };
        let keys: Option<Vec<u8>> = text.split(',').map(key).collect();
        match keys {
            Some(keys) if keys.len() <= KEYS_MAX => Ok(Keys(keys)),
            _ => Err(
                Error::invalid(format!("{:?} are not keys to leave by", show::safe(text))).hint(
                    format!("up to {KEYS_MAX}, separated by commas: ctrl-a to ctrl-z, ctrl-], or characters"),
                ),
            ),
        }
    }
}

/// Looks for the keys that leave in what is typed.
#[derive(Debug)]
struct Scanner {
    keys: Vec<u8>,
    matched: usize,
}

impl Scanner {
    /// What of these bytes is to be passed on, and whether the keys are complete.
    fn scan(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len() + self.matched);
        for &byte in typed {
            if byte == self.keys[self.matched] {
                self.matched += 1;
                if self.matched == self.keys.len() {
                    return (passed, true);
                }
                continue;
            }
            // Pass the matched keys on, except those that may start the sequence again.
            let mut held: Vec<u8> = self.keys[..self.matched].to_vec();
            held.push(byte);
            while !self.keys.starts_with(&held) {
                passed.push(held.remove(0));
            }
            self.matched = held.len();
            if self.matched == self.keys.len() {
                return (passed, true);
            }
        }
        (passed, false)
    }
}

/// Joins this terminal to a session until it ends or the keys are pressed.
pub async fn attach(session: ExecSession, keys: Keys) -> Result<Attached> {
    join(session, keys, Part::Types).await
}

/// Shows a session on this terminal until it ends or the keys, or Ctrl-C, are pressed.
pub async fn watch(session: ExecSession, keys: Keys) -> Result<Attached> {
    join(session, keys, Part::Watches).await
}

/// What a person has to say in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Types,
    Watches,
}

async fn join(session: ExecSession, keys: Keys, part: Part) -> Result<Attached> {
    let raw = terminal::Raw::enter()?;
    let ExecSession {
        mut events, input, ..
    } = session;
    let (left, leaving) = oneshot::channel();
    pass_keys_on(input.clone(), keys, part, left);
    let shown = tokio::select! {
        shown = show_all(&mut events) => shown,
        // The sender is dropped unused when the shell takes no more input: its end comes next.
        Ok(()) = leaving => Ok(None),
        told = resize_until_told_to_go(input, part) => told.map(|()| None),
    };
    // Dropped first, so that the other side sees that the caller left, not the end of input.
    drop(events);
    show::exact_error(SANE);
    drop(raw);
    Ok(shown?.map_or(Attached::Left, Attached::Ended))
}

async fn show_all(
    events: &mut futures_util::stream::BoxStream<'static, Result<ExecEvent>>,
) -> Result<Option<Exited>> {
    let mut output = Output::default();
    let failed = |Broken(errno)| Error::io("write to the terminal", &errno.into());
    while let Some(event) = events.next().await {
        match event? {
            ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => {
                output.write(To::Stdout, bytes).await.map_err(failed)?;
            }
            ExecEvent::Exited(exited) => {
                output.finish().await.map_err(failed)?;
                return Ok(Some(exited));
            }
            ExecEvent::Sandbox(_) | ExecEvent::Started(_) | ExecEvent::Gap(_) => {}
        }
    }
    Err(Error::transport("the session ended before its shell did"))
}

/// From a thread of its own, because a read of a terminal cannot be cancelled.
fn pass_keys_on(input: mpsc::Sender<ExecInput>, keys: Keys, part: Part, left: oneshot::Sender<()>) {
    std::thread::spawn(move || {
        let mut scanner = Scanner {
            keys: keys.0,
            matched: 0,
        };
        let mut stdin = std::io::stdin().lock();
        let mut buffer = [0; INPUT_BYTES];
        loop {
            let typed = match stdin.read(&mut buffer) {
                // The terminal is gone.
                Ok(0) => break,
                Ok(length) => &buffer[..length],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let (passed, done) = scanner.scan(typed);
            if part == Part::Watches {
                if done || passed.contains(&INTERRUPT) {
                    break;
                }
                continue;
            }
            let sent = match passed.is_empty() {
                true => Ok(()),
                false => input.blocking_send(ExecInput::Stdin(Bytes::from(passed))),
            };
            if sent.is_err() {
                return;
            }
            if done {
                break;
            }
        }
        let _ = left.send(());
    });
}

/// Tells the other side the size of this terminal whenever it changes, if it has a say in it. Returns
/// when we are told to end, which leaves the shell alone.
async fn resize_until_told_to_go(input: mpsc::Sender<ExecInput>, part: Part) -> Result<()> {
    let listen = |kind| signal(kind).map_err(|error| Error::io("listen for signals", &error));
    crate::ending::bound(Duration::ZERO);
    let mut resized = listen(SignalKind::window_change())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = resized.recv() => if part == Part::Types && let Ok(size) = terminal::size() {
                let _ = input.try_send(ExecInput::Resize(size));
            },
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(keys: &str, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let Keys(keys) = keys.parse().unwrap();
        let mut scanner = Scanner { keys, matched: 0 };
        let mut all = Vec::new();
        for piece in pieces {
            let (passed, done) = scanner.scan(piece);
            all.extend(passed);
            if done {
                return (all, true);
            }
        }
        (all, false)
    }

    #[test]
    fn keys_have_names() {
        assert_eq!(
            "ctrl-p,CTRL-q,ctrl-]".parse(),
            Ok(Keys(vec![0x10, 0x11, 0x1d]))
        );
        assert_eq!("~,.".parse(), Ok(Keys(b"~.".to_vec())));
        for text in ["", "ctrl-", "ctrl-1", "ab", "a,,b", "a,b,c,d,e,f,g,h,i"] {
            assert!(text.parse::<Keys>().is_err(), "{text}");
        }
    }

    #[test]
    fn leaving_needs_all_the_keys_in_a_row() {
        let keys = "ctrl-p,ctrl-q";
        assert_eq!(scan(keys, &[b"ls\x10\x11x"]), (b"ls".to_vec(), true));
        assert_eq!(scan(keys, &[b"\x10", b"\x11"]), (b"".to_vec(), true));
        assert_eq!(scan(keys, &[b"\x10a\x11"]), (b"\x10a\x11".to_vec(), false));
        assert_eq!(scan(keys, &[b"\x10\x10\x11"]), (b"\x10".to_vec(), true));
        assert_eq!(scan("a,a,b", &[b"aaab"]), (b"a".to_vec(), true));
        assert_eq!(scan("~", &[b"a~b"]), (b"a".to_vec(), true));
    }
}
