//! Looking: the screen, what is above it, and all that was printed.

use super::{Found, SESSION_ID, Unknown, with_session};
use crate::OUTPUT_BUDGET;
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::cut;
use crate::schema::{flag_on, integer, limited, one_of};
use crate::tool::{Effect, Tool, run};
use crate::tools::line;
use motu_core::limits;
use motu_core::terminal::{ReadScrollback, ReadTranscript, ScreenFormat, TerminalState};

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "get_screen",
        verb: "terminal_screen",
        about: "See the screen as a person would, always fresh: for full-screen programs, pagers, editors. \
                `png` is a picture.",
        fields: &[
            SESSION_ID,
            one_of("format", &ScreenFormat::NAMES).usually("text"),
        ],
        output: &[
            ("status", "string"),
            ("prompt", "string"),
            ("screen", "string"),
            ("cursor_x", "integer"),
            ("cursor_y", "integer"),
            ("rows", "integer"),
            ("cols", "integer"),
            ("vt100_ok", "boolean"),
            ("state_reason", "string"),
            ("confidence", "string"),
        ],
        effect: Effect::Reads,
        run: run!(get_screen),
    },
    Tool {
        name: "get_scrollback",
        verb: "terminal_scrollback",
        about: "Read the last `lines` rows, the screen included; 0 means all.",
        fields: &[
            SESSION_ID,
            limited("lines", &limits::TERMINAL_SCROLLBACK_LINES),
            flag_on("strip_ansi"),
        ],
        output: &[
            ("status", "string"),
            ("prompt", "string"),
            ("scrollback", "string"),
            ("rows", "integer"),
            ("cols", "integer"),
            ("truncated", "boolean"),
            ("rest", "string"),
            ("state_reason", "string"),
            ("confidence", "string"),
        ],
        effect: Effect::Reads,
        run: run!(get_scrollback),
    },
    Tool {
        name: "clear_scrollback",
        verb: "clear_terminal_scrollback",
        about: "Forget the rows above the screen. The transcript stays.",
        fields: &[SESSION_ID],
        output: &[
            ("status", "string"),
            ("prompt", "string"),
            ("state_reason", "string"),
            ("confidence", "string"),
        ],
        effect: Effect::Destroys,
        run: run!(clear_scrollback),
    },
    Tool {
        name: "transcript",
        verb: "terminal_transcript",
        about: "Where everything a session printed is kept; with `from` or `max_bytes` also a part of it. \
                Read on at next_cursor.",
        fields: &[
            SESSION_ID,
            integer("from", 0, u64::MAX >> 12).about("Byte offset."),
            integer("max_bytes", 1, limits::TERMINAL_OUTPUT_BYTES.max),
            flag_on("strip_ansi"),
        ],
        output: &[
            ("status", "string"),
            ("prompt", "string"),
            ("transcript", "string"),
            ("recording", "string"),
            ("metadata", "string?"),
            ("text", "string"),
            ("next_cursor", "integer"),
            ("end", "integer"),
            ("state_reason", "string"),
            ("confidence", "string"),
        ],
        effect: Effect::Reads,
        run: run!(transcript),
    },
];

fn standing(state: &TerminalState) -> String {
    format!("[{}: {}]\n", state.status.as_str(), state.state_reason)
}

async fn get_screen(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let format: ScreenFormat = arguments.text_or("format", "text").parse()?;
    let verb = || call.service().terminal_screen(&id, format.into());
    let screen = match with_session(call, &id, Unknown::Say, verb).await? {
        Found::Done(screen) => screen,
        Found::Nothing(answer) => return Ok(answer),
    };
    let mut answer = Answer::new(String::new(), &screen);
    if format == ScreenFormat::Png {
        // The picture is sent as content, so leave it out of the structured answer.
        answer.structured["screen"] = "".into();
        answer.image = Some(screen.screen);
    } else {
        answer.text = screen.screen.trim_end_matches('\n').to_string();
        line(&mut answer.text);
    }
    let (x, y) = (screen.cursor_x, screen.cursor_y);
    answer
        .text
        .push_str(&format!("[cursor at column {x}, row {y}]\n"));
    if let Some(hint) = &screen.hint {
        answer.text.push_str(&format!("[{hint}]\n"));
    }
    answer.text.push_str(&standing(&screen.state));
    Ok(answer)
}

async fn get_scrollback(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let usual = limits::TERMINAL_SCROLLBACK_LINES.default;
    let lines = arguments.integer("lines").unwrap_or(usual);
    let strip = arguments.flag_maybe("strip_ansi").unwrap_or(true);
    let verb = || {
        call.service().terminal_scrollback(
            &id,
            ReadScrollback {
                lines,
                strip_ansi: strip,
            },
        )
    };
    let mut back = match with_session(call, &id, Unknown::Say, verb).await? {
        Found::Done(back) => back,
        Found::Nothing(answer) => return Ok(answer),
    };
    // Scrollback is requested by number of rows, so its budget is larger.
    let cut = cut::middle(&back.scrollback, 2 * OUTPUT_BUDGET);
    back.scrollback = cut.text;
    let mut text = back.scrollback.trim_end_matches('\n').to_string();
    line(&mut text);
    text.push_str(&standing(&back.state));
    let mut answer = Answer::new(text, &back);
    answer.structured["truncated"] = (cut.missing > 0).into();
    if cut.missing > 0 {
        answer.structured["rest"] = crate::address::terminal(&id, "transcript").into();
    }
    Ok(answer)
}

async fn clear_scrollback(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let verb = || call.service().clear_terminal_scrollback(&id);
    Ok(match with_session(call, &id, Unknown::Say, verb).await? {
        Found::Done(terminal) => Answer::new(
            standing(&terminal.state),
            &super::sessions::known(call, &terminal),
        ),
        Found::Nothing(answer) => answer,
    })
}

async fn transcript(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let (from, max) = (arguments.integer("from"), arguments.integer("max_bytes"));
    let wanted = from.is_some() || max.is_some();
    let read = ReadTranscript {
        from,
        max_bytes: match wanted {
            true => max,
            false => Some(0),
        },
        strip_ansi: arguments.flag_maybe("strip_ansi"),
    };
    let verb = || call.service().terminal_transcript(&id, read);
    let kept = match with_session(call, &id, Unknown::Say, verb).await? {
        Found::Done(kept) => kept,
        Found::Nothing(answer) => return Ok(answer),
    };
    let mut text = kept.text.clone();
    line(&mut text);
    match wanted {
        true => text.push_str(&format!(
            "[bytes {} to {} of {}]\n",
            kept.from, kept.next_cursor, kept.end
        )),
        false => {
            let place = kept.transcript.as_deref().unwrap_or(&kept.directory);
            text.push_str(&format!("{place}: bytes {} to {}\n", kept.oldest, kept.end));
        }
    }
    Ok(Answer::new(text, &kept))
}
