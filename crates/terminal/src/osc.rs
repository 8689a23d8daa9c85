//! Reports of the shell: OSC 133 (prompt, command, end) and OSC 7 (directory).
//!
//! A mark of our shell integration has the session's nonce and an increasing counter:
//! `133;D;3;k=NONCE;n=17`. The nonce is known to the shell and never passed to what it runs, so
//! output cannot forge a mark; the counter prevents the replay of a recorded one. Marks without
//! them are foreign: they may come from a shell on another machine, or from a hostile file, and are
//! only hints.

use crate::limits::NESTED_SHELLS;
use std::fmt;

/// The secret with which our shells sign their marks.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(..)")
    }
}

impl Nonce {
    /// A new one, of 128 random bits.
    pub fn random() -> Result<Nonce, getrandom::Error> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Nonce(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// An existing one: for tests, and for sessions restored after a restart. 16 to 64 letters and
    /// digits.
    pub fn new(text: &str) -> Option<Nonce> {
        let fits = (16..=64).contains(&text.len());
        (fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| Nonce(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// A: the prompt begins.
    PromptStart,
    /// B: the prompt is drawn; what follows is input.
    InputStart,
    /// P: the shell asks for the rest of a command.
    Continuation,
    /// C: a command begins; what follows is its output.
    CommandStart,
    /// D: the command has ended.
    CommandEnd { exit_code: Option<i32> },
}

/// One OSC 133.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub kind: MarkKind,
    /// Signed by our shell integration and not seen before.
    pub trusted: bool,
    /// The shell's number: 0 is the session's own, the others are nested.
    pub shell: usize,
    /// The number of the prompt in that shell; a redrawn prompt keeps its number.
    pub turn: u64,
    /// The directory, when the mark carries it.
    pub cwd: Option<String>,
}

/// What an operating system command meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Mark(Mark),
    /// OSC 7: a directory, unsigned.
    Cwd(String),
    /// Anything else; the screen handles it.
    Other,
}

/// Parses the operating system commands of one session.
#[derive(Debug)]
pub struct Listener {
    shells: Vec<Signer>,
    /// How many nested shells there were.
    met: usize,
}

/// A shell that signs its marks. Each has its own nonce: a nested shell, perhaps on another host,
/// cannot impersonate its parent.
#[derive(Debug)]
struct Signer {
    nonce: Option<Nonce>,
    /// The counter of the newest trusted mark, and its phase in the cycle.
    last: (u64, u8),
}

impl Listener {
    pub fn new(nonce: Option<Nonce>) -> Listener {
        let last = (0, 0);
        Listener {
            shells: vec![Signer { nonce, last }],
            met: 0,
        }
    }

    /// Registers a nested shell with this nonce; returns its number. The number of nested shells is
    /// bounded; the session's own always stays.
    pub fn meet(&mut self, nonce: Nonce) -> usize {
        if self.shells.len() > NESTED_SHELLS {
            // Reuse its number, so that the others keep theirs.
            let free = 1 + self.met % NESTED_SHELLS;
            self.met += 1;
            if let Some(signer) = self.shells.get_mut(free) {
                *signer = Signer {
                    nonce: Some(nonce),
                    last: (0, 0),
                };
            }
            return free;
        }
        self.met += 1;
        self.shells.push(Signer {
            nonce: Some(nonce),
            last: (0, 0),
        });
        self.shells.len() - 1
    }

    /// Distrusts further marks of this shell.
    pub fn disown(&mut self, shell: usize) {
        if let Some(signer) = self.shells.get_mut(shell) {
            signer.nonce = None;
        }
    }

    /// Whether a payload is a mark of this shell.
    pub fn is_of(&self, shell: usize, payload: &[u8]) -> bool {
        let Some(nonce) = self
            .shells
            .get(shell)
            .and_then(|signer| signer.nonce.as_ref())
        else {
            return false;
        };
        let key = |field: &[u8]| {
            field
                .strip_prefix(b"k=")
                .is_some_and(|key| same(nonce.as_str().as_bytes(), key))
        };
        payload.starts_with(b"133;") && payload.split(|byte| *byte == b';').any(key)
    }

    /// The nonces of the shells that were met, in order.
    pub fn met(&self) -> impl Iterator<Item = &Nonce> {
        let nonces = self.shells.iter().skip(1);
        nonces.filter_map(|signer| signer.nonce.as_ref())
    }

    /// Parses one payload. The second value replaces the payload in everything that is stored: the
    /// same mark without its nonce.
    pub fn hear(&mut self, payload: &[u8]) -> (Notice, Option<Vec<u8>>) {
        if let Some(rest) = payload.strip_prefix(b"133;") {
            let (mark, clean) = self.mark(rest);
            return (mark.map_or(Notice::Other, Notice::Mark), clean);
        }
        if let Some(rest) = payload.strip_prefix(b"7;") {
            return (file_url(rest).map_or(Notice::Other, Notice::Cwd), None);
        }
        (Notice::Other, None)
    }

    fn mark(&mut self, text: &[u8]) -> (Option<Mark>, Option<Vec<u8>>) {
        let Ok(text) = std::str::from_utf8(text) else {
            return (None, None);
        };
        let mut fields = text.split(';');
        let letter = fields.next().unwrap_or_default();
        let mut parsed = Fields::default();
        for field in fields {
            parsed.take(field);
        }
        let signed = |signer: &Signer| match (&signer.nonce, parsed.key) {
            (Some(nonce), Some(key)) => same(nonce.as_str().as_bytes(), key.as_bytes()),
            _ => false,
        };
        let shell = self.shells.iter().position(signed);
        let ours = shell.is_some();
        let shell = shell.unwrap_or(0);
        let clean = ours.then(|| without_key(text));
        let kind = match letter {
            "A" => MarkKind::PromptStart,
            "B" => MarkKind::InputStart,
            "P" => MarkKind::Continuation,
            "C" => MarkKind::CommandStart,
            "D" => MarkKind::CommandEnd {
                exit_code: parsed.exit_code,
            },
            _ => return (None, clean),
        };
        let trusted = ours && self.shells[shell].fresh(kind, parsed.counter);
        if ours && !trusted {
            // A replayed mark of ours is ignored completely.
            return (None, clean);
        }
        let cwd = parsed.cwd.and_then(unescape);
        let turn = parsed.counter.filter(|_| trusted).unwrap_or(0);
        let mark = Mark {
            kind,
            trusted,
            shell,
            turn,
            cwd,
        };
        (Some(mark), clean)
    }
}

impl Signer {
    /// Whether a mark is new. One cycle is D, A, B, C with the same or a greater counter; a prompt
    /// may be redrawn.
    fn fresh(&mut self, kind: MarkKind, counter: Option<u64>) -> bool {
        let Some(counter) = counter else { return false };
        let phase = match kind {
            MarkKind::PromptStart => 1,
            MarkKind::InputStart | MarkKind::Continuation => 2,
            MarkKind::CommandStart => 3,
            MarkKind::CommandEnd { .. } => 4,
        };
        let redrawn = phase <= 2 && self.last.1 <= 2;
        if counter > self.last.0 || (counter == self.last.0 && (phase > self.last.1 || redrawn)) {
            self.last = (counter, phase);
            return true;
        }
        false
    }
}

#[derive(Default)]
struct Fields<'a> {
    key: Option<&'a str>,
    counter: Option<u64>,
    cwd: Option<&'a str>,
    exit_code: Option<i32>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, field: &'a str) {
        match field.split_once('=') {
            Some(("k", value)) => self.key = Some(value),
            Some(("n", value)) => self.counter = value.parse().ok(),
            Some(("cwd", value)) => self.cwd = Some(value),
            Some(_) => {}
            None => self.exit_code = self.exit_code.or_else(|| field.parse().ok()),
        }
    }
}

fn without_key(text: &str) -> Vec<u8> {
    let mut out = b"133".to_vec();
    for field in text.split(';').filter(|field| !field.starts_with("k=")) {
        out.push(b';');
        out.extend_from_slice(field.as_bytes());
    }
    out
}

/// Compares in constant time.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// The path of a `file://host/path` address.
fn file_url(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let rest = text
        .strip_prefix("file://")
        .or_else(|| text.strip_prefix("kitty-shell-cwd://"))?;
    unescape(&rest[rest.find('/')?..])
}

/// Decodes a percent-encoded absolute path; control characters are refused.
fn unescape(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    let path = String::from_utf8(out).ok()?;
    (path.starts_with('/') && !path.contains(char::is_control)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef";

    fn listener() -> Listener {
        Listener::new(Nonce::new(KEY))
    }

    fn mark(listener: &mut Listener, text: &str) -> Option<Mark> {
        match listener.hear(text.as_bytes()).0 {
            Notice::Mark(mark) => Some(mark),
            _ => None,
        }
    }

    #[test]
    fn a_signed_cycle_is_trusted_and_its_key_is_not_kept() {
        let mut listener = listener();
        let prompt = mark(
            &mut listener,
            &format!("133;A;k={KEY};n=1;cwd=/src/a%20b%C3%A9"),
        )
        .unwrap();
        assert!(prompt.trusted);
        assert_eq!(prompt.cwd.as_deref(), Some("/src/a bé"));
        assert!(
            mark(&mut listener, &format!("133;B;k={KEY};n=1"))
                .unwrap()
                .trusted
        );
        assert!(
            mark(&mut listener, &format!("133;C;k={KEY};n=1"))
                .unwrap()
                .trusted
        );
        let (notice, clean) = listener.hear(format!("133;D;3;k={KEY};n=1").as_bytes());
        let Notice::Mark(end) = notice else { panic!() };
        assert_eq!(end.kind, MarkKind::CommandEnd { exit_code: Some(3) });
        assert!(end.trusted);
        assert_eq!(clean.unwrap(), b"133;D;3;n=1");
    }

    #[test]
    fn forged_and_replayed_marks_are_not_believed() {
        let mut listener = listener();
        assert!(!mark(&mut listener, "133;D;0").unwrap().trusted);
        assert!(
            !mark(&mut listener, "133;D;0;k=ffffffffffffffff;n=9")
                .unwrap()
                .trusted
        );
        let command = format!("133;C;k={KEY};n=4");
        assert!(mark(&mut listener, &command).unwrap().trusted);
        // The same bytes again, as from a recording, are ignored.
        assert_eq!(mark(&mut listener, &command), None);
        assert_eq!(mark(&mut listener, &format!("133;D;0;k={KEY};n=3")), None);
        assert_eq!(mark(&mut listener, &format!("133;D;0;k={KEY}")), None);
    }

    #[test]
    fn a_prompt_may_be_drawn_again() {
        let mut listener = listener();
        for _ in 0..3 {
            assert!(
                mark(&mut listener, &format!("133;A;k={KEY};n=2"))
                    .unwrap()
                    .trusted
            );
            assert!(
                mark(&mut listener, &format!("133;B;k={KEY};n=2"))
                    .unwrap()
                    .trusted
            );
        }
    }

    #[test]
    fn directories_of_others_are_paths_or_nothing() {
        let mut listener = listener();
        let mut cwd = |text: &str| match listener.hear(text.as_bytes()).0 {
            Notice::Cwd(path) => Some(path),
            _ => None,
        };
        assert_eq!(cwd("7;file://host/tmp/x%3By"), Some("/tmp/x;y".into()));
        assert_eq!(cwd("7;file:///tmp"), Some("/tmp".into()));
        assert_eq!(cwd("7;file://host"), None);
        assert_eq!(cwd("7;http://host/tmp"), None);
        assert_eq!(cwd("7;file:///a%0Ab"), None);
        assert_eq!(cwd("7;file:///a%ffb"), None);
    }
}
