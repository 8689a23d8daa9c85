//! Interprets the screen's text around the cursor.
//!
//! A prompt is text that ends just before the cursor, on its line. Words elsewhere on the screen
//! are history.

use super::Prompt;
use crate::screen::View;
use regex::Regex;
use std::sync::LazyLock;

pub(super) struct Screen<'a> {
    /// The cursor's line up to the cursor.
    before: String,
    /// The same without trailing blanks.
    line: String,
    /// Whether there is text to the right of the cursor.
    text_after: bool,
    /// Non-empty lines above the cursor's, nearest first, at most three.
    above: Vec<&'a str>,
    bottom: &'a str,
    /// The cursor is after the last row's text, which is drawn in inverse.
    status_line: bool,
    menu: bool,
    asked: bool,
}

impl<'a> Screen<'a> {
    pub fn new(view: &'a View, prompt_regex: Option<&Regex>) -> Screen<'a> {
        let row = usize::from(view.cursor.row);
        let (before, text_after) =
            split_at_column(view.cursor_line(), usize::from(view.cursor.col));
        let above = view.lines[..row.min(view.lines.len())]
            .iter()
            .rev()
            .map(|line| line.text().trim_end())
            .filter(|line| !line.is_empty())
            .take(3)
            .collect();
        let bottom = view
            .lines
            .iter()
            .rev()
            .map(|line| line.text().trim_end())
            .find(|line| !line.is_empty())
            .unwrap_or_default();
        let line = before.trim_end().to_owned();
        let asked =
            prompt_regex.is_some_and(|regex| regex.is_match(&before) || regex.is_match(&line));
        Screen {
            before,
            line,
            text_after,
            above,
            bottom,
            status_line: status_line(view),
            menu: view.lines.iter().any(|line| MENU.is_match(line.text())),
            asked,
        }
    }

    /// Whether the caller's own regular expression matches.
    pub fn asked_for(&self) -> bool {
        self.asked
    }

    /// The interpreter whose prompt is before the cursor.
    pub fn repl(&self) -> Option<Prompt> {
        REPLS
            .iter()
            .find(|(regex, _)| regex.is_match(&self.before))
            .map(|(_, prompt)| *prompt)
    }

    /// Whether the text before the cursor looks like a shell's prompt.
    pub fn prompt_like(&self) -> bool {
        self.asked || (!self.text_after && SHELL.is_match(&self.before))
    }

    /// Whether anything is before the cursor on its line.
    pub fn has_text(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether it looks like a question.
    pub fn question_like(&self) -> bool {
        !self.text_after && self.line.ends_with(['?', ':'])
    }

    /// Whether the screen shows a list to choose from with keys.
    pub fn menu(&self) -> bool {
        self.menu
    }

    /// Whether it is the prompt of a common shell: only there is anything typed into a shell on
    /// another host.
    pub fn usual_shell(&self) -> bool {
        !self.text_after && USUAL.is_match(&self.before)
    }

    pub fn password(&self) -> bool {
        // A question is on the cursor's line, or on the line above if the cursor's is empty.
        let asked = if self.line.is_empty() {
            self.above.first().copied().unwrap_or_default()
        } else {
            &self.line
        };
        !self.text_after && PASSWORD.is_match(asked)
    }

    pub fn confirm(&self) -> bool {
        !self.text_after && !self.line.is_empty() && CONFIRM.is_match(&self.line)
    }

    pub fn pager(&self) -> bool {
        let status = if self.line.is_empty() {
            self.bottom
        } else {
            &self.line
        };
        PAGER.is_match(status.trim_end()) || self.status_line
    }
}

/// Whether the last row looks like the status line of `less`.
fn status_line(view: &View) -> bool {
    let last = view.lines.len().saturating_sub(1);
    let row = usize::from(view.cursor.row);
    let Some(line) = view.lines.get(row).filter(|_| row == last && row > 0) else {
        return false;
    };
    view.modes.alternate_screen && !line.text().trim().is_empty() && line.stands_out()
}

/// Splits a line at a column of cells: the text before it, and whether any is after it.
fn split_at_column(line: &str, column: usize) -> (String, bool) {
    use unicode_width::UnicodeWidthChar as _;
    let mut cells = 0;
    let mut before = String::new();
    let mut after = String::new();
    for char in line.chars() {
        if cells < column || (char.width() == Some(0) && after.is_empty()) {
            before.push(char);
        } else {
            after.push(char);
        }
        cells += char.width().unwrap_or(0);
    }
    // Trailing blanks are not stored; the cursor's column shows that they exist.
    while cells < column {
        before.push(' ');
        cells += 1;
    }
    (before, !after.trim().is_empty())
}

fn compiled(source: &str) -> Regex {
    Regex::new(source).expect("a regular expression of ours compiles")
}

/// Prompts of interpreters: at the start of the line, with the cursor right after.
static REPLS: LazyLock<Vec<(Regex, Prompt)>> = LazyLock::new(|| {
    [
        (r"^(>>> |\.\.\. +)[^\n]*$", Prompt::Python),
        (r"^\(i?[Pp]db(\+\+)?\) |^ipdb> |^\(Pdb\+*\) ", Prompt::Pdb),
        (r"^\s*(In \[\d+\]: |   \.\.\.: )", Prompt::Ipython),
        (r"^[\w.@-]*[=\-'(!*^][#>] ", Prompt::Psql),
        (r"^(mysql|MariaDB \[[^\]]*\])> |^    -> ", Prompt::Mysql),
        (r"^sqlite> |^   \.\.\.> ", Prompt::Sqlite),
        (r"^\(gdb\) ", Prompt::Gdb),
        (r"^\(lldb\) ", Prompt::Lldb),
        (
            r"^(irb|pry)\([^)]*\)[^>]*> |^\[\d+\] pry\([^)]*\)> ",
            Prompt::Ruby,
        ),
        (
            r"^(\d{1,3}(\.\d{1,3}){3}|[\w.-]+):\d+(\[\d+\])?> ",
            Prompt::Redis,
        ),
        (r"^julia> ", Prompt::Julia),
        (r"^(ghci|Prelude[^>]*)> |^[\w.]+ \| ", Prompt::Ghci),
        (r"^iex\([^)]*\)> ", Prompt::Elixir),
        (r"^\d+> ", Prompt::Erlang),
        (r"^scala> ", Prompt::Scala),
        (r"^jshell> ", Prompt::Java),
        (r"^\([A-Za-z][\w .-]*\) $", Prompt::Other),
        (r"^php > ", Prompt::Php),
        (
            r"^(s?ftp|test|admin|local|gnuplot|octave:\d+|lftp [^>]*)> ",
            Prompt::Other,
        ),
    ]
    .into_iter()
    .map(|(source, prompt)| (compiled(source), prompt))
    .collect()
});

/// Ends of shell prompts: the usual characters and theme arrows, a blank, the cursor. A number
/// before `%` is a progress display, not a prompt.
static SHELL: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"((^|[\w\s)\]}~/:✗✔%-])[$#>❯➜»λ▶⟩✗✔]|(^|[^\d\s])%|^[\w.-]*[A-Za-z][\w.-]*%) $")
});

/// The last alternative is fish's: `person@host ~> `.
static USUAL: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"[\w\s)\]}~/:][$#%] $|^[\w.-]+@[\w.-]+ [~/]\S*> $"));

/// A list with one entry selected by arrow keys.
static MENU: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"^\s*(\? \S.*(\(Use arrow keys\)|›|»)?|[❯▸►›➤] \S.*|[◉◯●○☐☑] \S.*)$")
});

static PASSWORD: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?i)(\bpass ?(word|phrase|code)\b[^:?]*[:?]|\b(pin|token|otp|secret|verification code)\b( \w+)?( for [^:]+)?:)\s*$|^\[sudo\] ",
    )
});

static CONFIRM: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?ix)
        [\[(] \s* (y(es)?\s*[/|]\s*n(o)?|n(o)?\s*[/|]\s*y(es)?) ([/|][^\])]*)? \s* [\])] \s* \S? \s* $
        | \b(continue|proceed|sure|overwrite|replace|remove|delete)\b .* \? \s* ([\[(][^\])]*[\])])? \s* $
        | \(yes/no(/\[fingerprint\])?\)\?? \s* $
        | press\ (any\ key|enter|return) .* $
        | \[(ync|ynaq|y,n[^\]]*)[^\]]*\]\?? \s* $",
    )
});

static PAGER: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"^:$|\(END\)\s*$|^--More--|^Manual page |^lines \d+-\d+|\(press h for help or q to quit\)|^~$|\blines? \d+-\d+(/\d+)?( \d+%)?\s*(\(END\))?$",
    )
});
