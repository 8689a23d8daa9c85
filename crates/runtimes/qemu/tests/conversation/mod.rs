//! A conversation with QEMU's control socket, as text.
//!
//! ```text
//!   # a remark
//!   < {"QMP": …}                   what QEMU says
//!   > {"execute": "stop", …}       what is said to it
//!   ! gone                         QEMU ends; `! hangs up`, and it goes on without this connection;
//!                                  `! long`, and it says more than anybody takes
//! ```
//!
//! Those in `tests/conversations` were recorded with a real QEMU (see `tests/machine/recordings.rs`). They are played back to
//! the client by its own tests, and by a program in the place of QEMU (`examples/fake-qemu.rs`).

use serde_json::Value;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Remark(String),
    /// A command and its arguments.
    Asked(Value),
    /// As it stands: it need not be JSON.
    Said(String),
    Gone,
    HangsUp,
    Long,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Conversation(pub Vec<Line>);

impl Conversation {
    /// # Panics
    ///
    /// With the line that is none.
    pub fn parse(text: &str) -> Conversation {
        let line = |line: &str| match line.split_once(' ') {
            Some(("#", remark)) => Line::Remark(remark.to_string()),
            Some((">", asked)) => Line::Asked(serde_json::from_str(asked).expect(asked)),
            Some(("<", said)) => Line::Said(said.to_string()),
            Some(("!", "gone")) => Line::Gone,
            Some(("!", "hangs up")) => Line::HangsUp,
            Some(("!", "long")) => Line::Long,
            _ => panic!("{line:?} is no line of a conversation"),
        };
        Conversation(text.lines().map(line).collect())
    }

    pub fn text(&self) -> String {
        let line = |line: &Line| match line {
            Line::Remark(remark) => format!("# {remark}\n"),
            Line::Asked(asked) => format!("> {asked}\n"),
            Line::Said(said) => format!("< {said}\n"),
            Line::Gone => "! gone\n".to_string(),
            Line::HangsUp => "! hangs up\n".to_string(),
            Line::Long => "! long\n".to_string(),
        };
        self.0.iter().map(line).collect()
    }

    /// The commands, in their order.
    pub fn asked(&self) -> Vec<&Value> {
        let asked = self.0.iter().filter_map(|line| match line {
            Line::Asked(asked) => Some(asked),
            _ => None,
        });
        asked.collect()
    }

    /// What comes after this many commands, up to the next one.
    pub fn after(&self, commands: usize) -> &[Line] {
        let is_asked = |line: &&Line| matches!(line, Line::Asked(_));
        let mut starts = self.0.iter().enumerate().filter(|(_, line)| is_asked(line));
        let start = match commands {
            0 => 0,
            more => starts.nth(more - 1).map_or(self.0.len(), |(at, _)| at + 1),
        };
        let rest = &self.0[start..];
        let length = rest.iter().position(|line| is_asked(&line));
        &rest[..length.unwrap_or(rest.len())]
    }
}
