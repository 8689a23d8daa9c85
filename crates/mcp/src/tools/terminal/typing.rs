//! Typing and waiting.

use super::{Found, SESSION_ID, Unknown, with_session};
use crate::answer::{Answer, value};
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::progress::{EVERY, Seen};
use crate::schema::{Field, command, flag, flag_on, integer, seconds, text, texts};
use crate::tool::{Effect, Tool, run};
use crate::tools::line;
use motu_core::Result as Outcome;
use motu_core::limits;
use motu_core::terminal::{
    End, ExpectInTerminal, PollTerminal, RunInTerminal, SendToTerminal, SignalTerminal,
    TerminalAnswer, TerminalId, TerminalPassword, Wait,
};
use serde_json::json;

const LONGEST: f64 = limits::TERMINAL_TIMEOUT_SECONDS.max as f64;
const STRIP_ANSI: Field = flag_on("strip_ansi");
const MAX_OUTPUT_BYTES: Field = integer(
    "max_output_bytes",
    limits::TERMINAL_OUTPUT_BYTES.min,
    limits::TERMINAL_OUTPUT_BYTES.max,
)
.usually_number(limits::TERMINAL_OUTPUT_BYTES.default);

const fn timeout(usual: f64) -> Field {
    seconds("timeout", usual, LONGEST)
}

const ANSWER: &[(&str, &str)] = &[
    ("status", "string"),
    ("prompt", "string"),
    ("output", "string"),
    ("exit_code", "integer"),
    ("timed_out", "boolean"),
    ("output_truncated", "boolean"),
    ("dropped_bytes", "integer"),
    ("rest", "string"),
    ("state_reason", "string"),
    ("confidence", "string"),
    ("end", "string"),
    ("duration_ms", "integer"),
    ("cwd", "string"),
    ("cursor", "integer"),
];

const EXPECTED: &[(&str, &str)] = &[
    ("status", "string"),
    ("prompt", "string"),
    ("matched", "boolean"),
    ("match", "string"),
    ("groups", "array"),
    ("index", "integer"),
    ("before", "string"),
    ("next_cursor", "string"),
    ("output", "string"),
    ("timed_out", "boolean"),
    ("state_reason", "string"),
    ("confidence", "string"),
    ("end", "string"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "run",
        verb: "run_in_terminal",
        about: "Run a command line in a session, or give a line to the program in front (a REPL, a \
                question). Answers when the command has ended, with exit_code and its output alone; when it \
                waits for input; or after `timeout` seconds, while it runs on. Example: {\"session_id\": \
                \"build\", \"command\": \"make test\", \"timeout\": 300}",
        fields: &[
            SESSION_ID,
            command().about("A line; or its words as a list, which are quoted."),
            timeout(RunInTerminal::TIMEOUT),
            STRIP_ANSI,
            flag("force").about(
                "Type it even if a program that reads nothing, or asks for a secret, is in front.",
            ),
            MAX_OUTPUT_BYTES,
        ],
        output: ANSWER,
        effect: Effect::Runs,
        run: run!(run_line),
    },
    Tool {
        name: "send_input",
        verb: "send_to_terminal",
        about: "Type text as it is, without a newline: an answer to a question, keys of a pager.",
        fields: &[
            SESSION_ID,
            text("text", limits::TERMINAL_INPUT_BYTES.max).required(),
            timeout(SendToTerminal::TIMEOUT),
            STRIP_ANSI,
        ],
        output: ANSWER,
        effect: Effect::Runs,
        run: run!(send_input),
    },
    Tool {
        name: "send_keys",
        verb: "send_to_terminal",
        about: "Press named keys, or paste a text in one piece. Keys: Enter, Tab, Esc, Up, PageDown, F5, \
                Ctrl-C, Alt-x, a letter, or the mouse: Click:COLUMN,ROW, ScrollDown:COLUMN,ROW (from 0). Example: {\"session_id\": \"edit\", \"keys\": [\"Esc\", \":\", \
                \"w\", \"q\", \"Enter\"]}",
        fields: &[
            SESSION_ID,
            texts("keys", 256),
            text("paste", limits::TERMINAL_INPUT_BYTES.max),
            timeout(SendToTerminal::CONTROL_TIMEOUT),
            STRIP_ANSI,
        ],
        output: ANSWER,
        effect: Effect::Runs,
        run: run!(send_keys),
    },
    Tool {
        name: "send_control",
        verb: "send_to_terminal",
        about: "Press Ctrl and a letter: c interrupts, d ends input, z suspends; [ is Escape. Works while \
                a run waits.",
        fields: &[
            SESSION_ID,
            text("key", 16).required(),
            timeout(SendToTerminal::CONTROL_TIMEOUT),
            STRIP_ANSI,
        ],
        output: ANSWER,
        effect: Effect::Runs,
        run: run!(send_control),
    },
    Tool {
        name: "send_password",
        verb: "send_terminal_password",
        about: "Type a secret and Enter where status is password. It is kept out of the transcript, the \
                screen and this answer; refused where it would be shown.",
        fields: &[
            SESSION_ID,
            text("password", limits::TERMINAL_PASSWORD_BYTES.max).required(),
            timeout(TerminalPassword::TIMEOUT),
            flag("force").about("Send it even where it may be shown."),
        ],
        output: ANSWER,
        effect: Effect::Runs,
        run: run!(send_password),
    },
    Tool {
        name: "send_signal",
        verb: "signal_terminal",
        about: "Send a signal (TERM, KILL, HUP or a number) to the process group in front.",
        fields: &[SESSION_ID, text("signal", 16).required(), STRIP_ANSI],
        output: ANSWER,
        effect: Effect::Runs,
        run: run!(send_signal),
    },
    Tool {
        name: "poll_output",
        verb: "poll_terminal",
        about: "Wait up to `timeout` seconds for new output without typing anything.",
        fields: &[
            SESSION_ID,
            timeout(PollTerminal::TIMEOUT),
            STRIP_ANSI,
            MAX_OUTPUT_BYTES,
        ],
        output: ANSWER,
        effect: Effect::Changes,
        run: run!(poll_output),
    },
    Tool {
        name: "expect",
        verb: "expect_in_terminal",
        about: "Wait until what is printed matches a regular expression, or the first of several. Looks at \
                what is on the screen too, never at the echo of what was typed. Example: \
                {\"session_id\": \"srv\", \"pattern\": \"listening on (\\\\d+)\", \"timeout\": 60}",
        fields: &[
            SESSION_ID,
            text("pattern", limits::TERMINAL_PATTERN_BYTES.max),
            texts("patterns", limits::TERMINAL_PATTERNS.max)
                .about("Several; `index` says which matched."),
            timeout(ExpectInTerminal::TIMEOUT),
            STRIP_ANSI,
            text("from_cursor", 64)
                .about("next_cursor of an earlier answer; \"0\" is the beginning."),
            flag("literal").about("Not regular expressions."),
            flag("echo").about("Let what was typed match."),
        ],
        output: EXPECTED,
        effect: Effect::Changes,
        run: run!(expect),
    },
    Tool {
        name: "expect_prompt",
        verb: "expect_terminal_prompt",
        about: "Wait until a shell waits for a command, for example after ssh.",
        fields: &[SESSION_ID, timeout(30.0)],
        output: EXPECTED,
        effect: Effect::Changes,
        run: run!(expect_prompt),
    },
];

fn wait(arguments: &Arguments) -> Wait {
    Wait {
        timeout: arguments.number("timeout"),
        strip_ansi: arguments.flag_maybe("strip_ansi"),
        max_output_bytes: arguments.integer("max_output_bytes"),
    }
}

/// How it stands, in one line.
fn standing(answer: &TerminalAnswer) -> String {
    let state = &answer.state;
    let mut text = format!("[{}", state.status.as_str());
    if let Some(code) = answer.exit_code {
        text.push_str(&format!(", exit code {code}"));
    }
    text.push_str(&format!(", {} ms", answer.duration_ms));
    if answer.timed_out {
        text.push_str(", timed out");
    }
    if let Some(cwd) = &answer.cwd {
        text.push_str(&format!(", {cwd}"));
    }
    // A command that has ended at a prompt needs no explanation.
    if answer.end != End::CommandEnded && !state.state_reason.is_empty() {
        text.push_str(&format!(": {}", state.state_reason));
    }
    text.push_str("]\n");
    text
}

fn told(id: &TerminalId, found: Found<TerminalAnswer>) -> Answer {
    let answer = match found {
        Found::Done(answer) => answer,
        Found::Nothing(answer) => return answer,
    };
    let mut text = answer.output.clone();
    line(&mut text);
    if let Some(from) = answer.rest_from {
        let dropped = answer.dropped_bytes;
        text.push_str(&format!(
            "[{dropped} bytes left out: transcript with from={from}]\n"
        ));
    }
    for warning in &answer.warnings {
        text.push_str(&format!("[{warning}]\n"));
    }
    text.push_str(&standing(&answer));
    let mut told = Answer::new(text, &answer);
    if let Some(from) = answer.rest_from {
        let uri = crate::address::terminal(id, "transcript");
        told.structured["rest"] = format!("{uri}?offset={from}").into();
    }
    told
}

/// The answer of a wait, with what was found beside the rest.
fn expected(
    id: &TerminalId,
    found: Found<TerminalAnswer>,
    matched: impl Fn(&TerminalAnswer) -> bool,
) -> Answer {
    let done = match found {
        Found::Done(done) => done,
        Found::Nothing(mut answer) => {
            answer.structured["matched"] = false.into();
            return answer;
        }
    };
    let is = matched(&done);
    let mut answer = told(id, Found::Done(done.clone()));
    let structured = &mut answer.structured;
    structured["matched"] = is.into();
    if let Some(found) = &done.found {
        structured["match"] = found.text.clone().into();
        structured["groups"] = value(&json!(found.groups));
        structured["index"] = found.index.into();
        structured["before"] = found.before.clone().into();
        structured["next_cursor"] = found.next_cursor.clone().into();
        let text = &found.text;
        answer.text = format!("matched {text:?}\n{}", standing(&done));
    } else if !is {
        answer.text.insert_str(0, "no match\n");
    }
    answer
}

/// Interrupts what runs in a session when nobody waits for it any more.
struct Interrupt<'a> {
    call: &'a Call,
    id: Option<TerminalId>,
}

impl Drop for Interrupt<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let service = self.call.shared.service.clone();
        self.call.chore(async move {
            let interrupt = SendToTerminal {
                control: Some("c".to_string()),
                wait: Wait {
                    timeout: Some(0.0),
                    ..Wait::default()
                },
                ..SendToTerminal::default()
            };
            // The caller is gone, so a failure cannot be reported.
            let _ = service.send_to_terminal(&id, interrupt).await;
        });
    }
}

async fn run_line(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let run = RunInTerminal {
        command: arguments.command_line(),
        force: arguments.flag("force"),
        wait: wait(&arguments),
    };
    let mut interrupt = Interrupt {
        call,
        id: Some(id.clone()),
    };
    let verb = || call.service().run_in_terminal(&id, run.clone());
    let seen = Seen::default();
    let work = with_session(call, &id, Unknown::Open, verb);
    let found = match call.is_followed() {
        false => work.await,
        true => {
            // Read the position before the command runs; otherwise its first output would be
            // missed.
            let before = printed(call, &id).await.unwrap_or(0);
            let work = async {
                tokio::select! {
                    found = work => found,
                    never = count(call, &id, &seen, before) => match never {},
                }
            };
            call.told(&seen, work).await
        }
    };
    interrupt.id = None;
    Ok(told(&id, found?))
}

/// How much a session has printed.
async fn printed(call: &Call, id: &TerminalId) -> Option<u64> {
    Some(call.service().get_terminal(id).await.ok()?.cursor)
}

/// Counts what a session prints, for a client that follows. Nothing else tells: the answer of
/// the command comes at its end.
async fn count(call: &Call, id: &TerminalId, seen: &Seen, before: u64) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Some(now) = printed(call, id).await {
            seen.total(now.saturating_sub(before));
        }
    }
}

/// Types something and answers with what came of it.
async fn send(call: &Call, arguments: &Arguments, send: SendToTerminal) -> Result<Answer, Stop> {
    let id = call.session(arguments)?;
    let verb = || call.service().send_to_terminal(&id, send.clone());
    let work = with_session(call, &id, Unknown::Open, verb);
    Ok(told(&id, call.told(&Seen::default(), work).await?))
}

async fn send_input(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let typed = SendToTerminal {
        text: arguments.text("text"),
        wait: wait(&arguments),
        ..SendToTerminal::default()
    };
    send(call, &arguments, typed).await
}

async fn send_keys(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let mut limit = wait(&arguments);
    limit.timeout = limit.timeout.or(Some(SendToTerminal::CONTROL_TIMEOUT));
    let typed = SendToTerminal {
        paste: arguments.text("paste"),
        keys: arguments.has("keys").then(|| arguments.texts("keys")),
        wait: limit,
        ..SendToTerminal::default()
    };
    send(call, &arguments, typed).await
}

async fn send_control(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let mut limit = wait(&arguments);
    limit.timeout = limit.timeout.or(Some(SendToTerminal::CONTROL_TIMEOUT));
    let typed = SendToTerminal {
        control: arguments.text("key"),
        wait: limit,
        ..SendToTerminal::default()
    };
    send(call, &arguments, typed).await
}

async fn send_password(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let password = TerminalPassword {
        password: arguments.text_or("password", ""),
        force: arguments.flag("force"),
        wait: wait(&arguments),
    };
    let verb = || call.service().send_terminal_password(&id, password.clone());
    let work = with_session(call, &id, Unknown::Open, verb);
    Ok(told(&id, call.told(&Seen::default(), work).await?))
}

async fn send_signal(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let signal = SignalTerminal {
        signal: arguments.text_or("signal", ""),
        wait: wait(&arguments),
    };
    let verb = || call.service().signal_terminal(&id, signal.clone());
    Ok(told(
        &id,
        with_session(call, &id, Unknown::Say, verb).await?,
    ))
}

async fn poll_output(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let poll = PollTerminal {
        wait: wait(&arguments),
    };
    let verb = || call.service().poll_terminal(&id, poll);
    let work = with_session(call, &id, Unknown::Open, verb);
    Ok(told(&id, call.told(&Seen::default(), work).await?))
}

fn patterns(arguments: &Arguments) -> Outcome<Vec<String>> {
    let mut all: Vec<String> = arguments.text("pattern").into_iter().collect();
    all.extend(arguments.texts("patterns"));
    match all.is_empty() {
        true => Err(motu_core::Error::invalid("pattern is missing")
            .hint("a regular expression as pattern, or several as patterns")),
        false => Ok(all),
    }
}

async fn expect(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let expect = ExpectInTerminal {
        patterns: patterns(&arguments)?,
        literal: arguments.flag("literal"),
        from: arguments.text("from_cursor"),
        raw: false,
        echo: arguments.flag("echo"),
        wait: wait(&arguments),
    };
    let verb = || call.service().expect_in_terminal(&id, expect.clone());
    let work = with_session(call, &id, Unknown::Open, verb);
    let found = call.told(&Seen::default(), work).await?;
    Ok(expected(&id, found, |done| done.found.is_some()))
}

async fn expect_prompt(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let limit = wait(&arguments);
    let verb = || call.service().expect_terminal_prompt(&id, limit);
    let work = with_session(call, &id, Unknown::Say, verb);
    let found = call.told(&Seen::default(), work).await?;
    let ready = |done: &TerminalAnswer| done.state.status == motu_core::terminal::Status::Ready;
    Ok(expected(&id, found, ready))
}
