//! Converts the state of a session to the service's types.

use super::owner::Owner;
use crate::store::TerminalRow;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use motu_core::terminal::*;
use motu_terminal::KernelFacts;
use motu_terminal::classify::Phase;
use motu_terminal::session::Outcome;
use motu_terminal::{View, render, screen};

/// A session that has a task.
pub fn terminal(owner: &Owner) -> Terminal {
    let row = owner.known.row();
    let session = &owner.session;
    let front = session
        .last_facts()
        .and_then(|facts| facts.front())
        .filter(|_| owner.ended.is_none());
    let size = session.screen().size();
    Terminal {
        state: owner.state().into(),
        alive: owner.ended.is_none(),
        cwd: cwd(owner).or_else(|| row.end.as_ref()?.cwd.clone()),
        pid: front
            .map(|front| front.pid)
            .or(owner.pid)
            .filter(|_| owner.ended.is_none()),
        foreground: front.map(|front| front.name.clone()),
        cols: size.cols(),
        rows: size.rows(),
        title: session.screen().title(),
        last_activity_at: match &row.end {
            Some(end) => end.at,
            None => owner.last_activity(),
        },
        cursor: session.end(),
        ..resting(&row)
    }
}

fn cwd(owner: &Owner) -> Option<String> {
    let session = &owner.session;
    let marked = session.cwd().map(str::to_string);
    if session.phase() == Phase::AtPrompt {
        // At a prompt the shell has just reported its directory, which may be on another host
        // (ssh).
        return marked.or(owner.cwd.clone());
    }
    let inner = session.last_facts().is_some_and(KernelFacts::shell);
    let seen = owner.front_cwd.clone().filter(|_| inner);
    seen.or(owner.cwd.clone()).or(marked)
}

/// A session without a task.
pub fn resting(row: &TerminalRow) -> Terminal {
    let end = row.end.as_ref();
    let state = match row.terminated {
        true => TerminalState::terminated(),
        false => TerminalState {
            status: Status::Eof,
            prompt: Prompt::None,
            state_reason: end.map_or("the shell has ended".to_string(), |end| end.reason.clone()),
            confidence: Confidence::Certain,
        },
    };
    Terminal {
        session_id: row.session_id.to_string(),
        state,
        alive: row.is_alive(),
        terminated: row.terminated,
        exit_code: end.and_then(|end| end.exit_code),
        sandbox_id: row.sandbox_id.clone(),
        runtime: row.runtime.clone(),
        isolation: row.isolation,
        command: row.command.clone(),
        cwd: end.and_then(|end| end.cwd.clone()),
        pid: None,
        foreground: None,
        cols: row.size.cols,
        rows: row.size.rows,
        title: None,
        started_at: row.started_at,
        last_activity_at: end.map_or_else(Timestamp::now, |end| end.at),
        description: row.description.clone(),
        prompt_regex: row.prompt_regex.clone(),
        quiescence_ms: row.quiescence_ms,
        cursor: end.map_or(0, |end| end.cursor),
    }
}

/// The answer to a request.
pub fn answer(outcome: Outcome) -> TerminalAnswer {
    let timed_out = outcome.timed_out();
    TerminalAnswer {
        state: outcome.state.into(),
        end: outcome.end,
        output: outcome.output.text,
        timed_out,
        output_truncated: outcome.output.truncated,
        dropped_bytes: outcome.output.omitted_bytes,
        rest_from: outcome.output.rest_from,
        rest_to: outcome.output.rest_to,
        exit_code: outcome.exit_code,
        duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        cwd: outcome.cwd,
        found: outcome.found.map(|found| TerminalMatch {
            index: found.index,
            text: found.text,
            groups: found.groups,
            before: found.before,
            next_cursor: found.after.to_string(),
        }),
        cursor: outcome.cursor,
        warnings: outcome.warnings.into_iter().map(str::to_string).collect(),
    }
}

/// The answer of a session that was terminated.
pub fn terminated(row: &TerminalRow) -> TerminalAnswer {
    TerminalAnswer {
        state: TerminalState::terminated(),
        end: End::SessionEnded,
        output: String::new(),
        timed_out: false,
        output_truncated: false,
        dropped_bytes: 0,
        rest_from: None,
        rest_to: None,
        exit_code: None,
        duration_ms: 0,
        cwd: None,
        found: None,
        cursor: row.end.as_ref().map_or(0, |end| end.cursor),
        warnings: Vec::new(),
    }
}

/// A screen that is still to be rendered, which takes a while and is done outside of the session's
/// task.
pub struct Picture {
    view: View,
    screen: TerminalScreen,
}

pub fn picture(owner: &Owner, format: ScreenFormat) -> Picture {
    let view = owner.session.view();
    let screen = owner.session.screen();
    Picture {
        screen: TerminalScreen {
            state: owner.state().into(),
            format,
            screen: String::new(),
            cursor_x: view.cursor.col,
            cursor_y: view.cursor.row,
            cursor_visible: view.cursor.visible,
            cols: view.size.cols(),
            rows: view.size.rows(),
            title: view.title.clone(),
            modes: view.modes,
            vt100_ok: screen.rebuilt() == 0,
            scrollback_rows: screen.scrollback_rows() as u64,
            cursor: owner.session.end(),
            hint: None,
        },
        view,
    }
}

impl Picture {
    pub fn draw(mut self) -> TerminalScreen {
        self.screen.screen = match self.screen.format {
            ScreenFormat::Text => rows_of_text(&self.view),
            ScreenFormat::Ansi => render::ansi_lines(&self.view.lines),
            ScreenFormat::Html => render::html(&self.view),
            ScreenFormat::Svg => render::svg(&self.view),
            ScreenFormat::Png => {
                let drawn = render::picture(&self.view);
                self.screen.hint = missing_fonts(&drawn.missing);
                BASE64.encode(drawn.png)
            }
        };
        self.screen
    }
}

/// A note about characters that no font has.
fn missing_fonts(missing: &[char]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let points: Vec<String> = missing
        .iter()
        .map(|char| format!("U+{:04X}", u32::from(*char)))
        .collect();
    Some(format!(
        "no font of the host has {}: install fonts there, on Debian such as fonts-noto-cjk, \
         fonts-noto-color-emoji or fonts-freefont-ttf, and start the daemon again",
        points.join(", ")
    ))
}

/// The rows with text; at least down to the cursor's row, so that its number can be used.
fn rows_of_text(view: &View) -> String {
    let mut rows: Vec<&str> = view
        .lines
        .iter()
        .map(|line| line.text().trim_end())
        .collect();
    let used = rows.iter().rposition(|row| !row.is_empty());
    let used = used.map_or(0, |row| row + 1);
    rows.truncate(used.max(usize::from(view.cursor.row) + 1));
    rows.join("\n")
}

/// Scrollback and screen together.
pub fn scrollback(owner: &Owner, rows: usize, strip_ansi: bool) -> TerminalScrollback {
    let screen = owner.session.screen();
    let size = screen.size();
    let mut lines = screen.scrollback(0);
    // Blank rows below the text are dropped.
    let used = lines.iter().rposition(|line| !line.text().is_empty());
    let cursor = screen.scrollback_rows() + usize::from(screen.cursor().row);
    lines.truncate(used.map_or(0, |row| row + 1).max(cursor + 1));
    let total = lines.len();
    if rows > 0 {
        lines.drain(..total.saturating_sub(rows));
    }
    let text = match strip_ansi {
        true => screen::joined(&lines),
        false => render::ansi_lines(&lines),
    };
    TerminalScrollback {
        state: owner.state().into(),
        scrollback: text,
        lines: lines.len() as u64,
        total_lines: total as u64,
        cols: size.cols(),
        rows: size.rows(),
    }
}
