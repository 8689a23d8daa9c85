//! Redacts secrets from a session's output.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use motu_core::config::RedactionConfig;
use motu_core::exec::{ExecEvent, ExecRequest};
use motu_core::{Error, Result};
use motu_redaction::{Patterns, Redactor, Stream};
use std::collections::VecDeque;
use std::time::Duration;

/// How long output that may be the start of a secret is held back at a terminal.
const HOLD: Duration = Duration::from_millis(300);

/// Who reads a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A program, or a person who reads lines: output that may be the start of a secret is held
    /// back until that is decided, or until the end.
    Pipe,
    /// A person who types and wants an echo: output is held back only briefly. If it turns out to
    /// be a secret, only the rest of it is redacted.
    Terminal,
}

impl Pace {
    pub fn of(command: &ExecRequest) -> Pace {
        match command.tty {
            Some(_) => Pace::Terminal,
            None => Pace::Pipe,
        }
    }
}

type Events = BoxStream<'static, Result<ExecEvent>>;

/// The patterns that the operator has enabled.
pub fn patterns(config: &RedactionConfig) -> Result<Patterns> {
    if !config.patterns {
        return Ok(Patterns::none());
    }
    Patterns::without(&config.off).map_err(|unknown| {
        let names: Vec<_> = motu_redaction::kinds::names().collect();
        Error::invalid(format!("config.toml: redaction.off: {unknown}"))
            .hint(format!("one of: {}", names.join(", ")))
    })
}

/// A session's output, redacted.
pub fn redacted(redactor: &Redactor, events: Events, pace: Pace) -> Events {
    if redactor.is_idle() {
        return events;
    }
    let clean = Clean {
        events,
        redactor: redactor.clone(),
        pace,
        stdout: redactor.stream(),
        stderr: redactor.stream(),
        ready: VecDeque::new(),
    };
    unfold(clean, |mut clean| async move {
        let event = clean.next().await?;
        Some((event, clean))
    })
    .boxed()
}

/// An error whose texts are redacted.
pub fn clean_error(redactor: &Redactor, error: Error) -> Error {
    Error {
        message: redactor.text(&error.message),
        hint: error.hint.map(|hint| redactor.text(&hint)),
        next: error
            .next
            .into_iter()
            .map(|one| one.cleaned(&|text| redactor.text(text)))
            .collect(),
        ..error
    }
}

/// A session being redacted.
struct Clean {
    events: Events,
    redactor: Redactor,
    pace: Pace,
    stdout: Stream,
    stderr: Stream,
    ready: VecDeque<ExecEvent>,
}

impl Clean {
    async fn next(&mut self) -> Option<Result<ExecEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let waits = self.stdout.held() + self.stderr.held() > 0;
            let event = match waits && self.pace == Pace::Terminal {
                false => self.events.next().await,
                true => match tokio::time::timeout(HOLD, self.events.next()).await {
                    Ok(event) => event,
                    Err(_) => {
                        self.lapse();
                        continue;
                    }
                },
            };
            match event {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => return Some(Err(clean_error(&self.redactor, error))),
                None => {
                    self.flush();
                    return self.ready.pop_front().map(Ok);
                }
            }
        }
    }

    fn take(&mut self, event: ExecEvent) {
        match event {
            ExecEvent::Stdout(bytes) => {
                let shown = collected(|sink| self.stdout.push(&bytes, sink));
                self.show(shown, ExecEvent::Stdout);
            }
            ExecEvent::Stderr(bytes) => {
                let shown = collected(|sink| self.stderr.push(&bytes, sink));
                self.show(shown, ExecEvent::Stderr);
            }
            ExecEvent::Gap(_) | ExecEvent::Exited(_) => {
                self.flush();
                self.ready.push_back(event);
            }
            ExecEvent::Sandbox(_) | ExecEvent::Started(_) => self.ready.push_back(event),
        }
    }

    fn show(&mut self, bytes: Vec<u8>, of: fn(Bytes) -> ExecEvent) {
        if !bytes.is_empty() {
            self.ready.push_back(of(bytes.into()));
        }
    }

    /// Releases output that was held back for long enough.
    fn lapse(&mut self) {
        let stdout = collected(|sink| self.stdout.lapse(sink));
        self.show(stdout, ExecEvent::Stdout);
        let stderr = collected(|sink| self.stderr.lapse(sink));
        self.show(stderr, ExecEvent::Stderr);
    }

    /// Releases all output that was held back: nothing can complete it any more.
    fn flush(&mut self) {
        let stdout = std::mem::replace(&mut self.stdout, self.redactor.stream());
        let stdout = collected(|sink| stdout.finish(sink));
        self.show(stdout, ExecEvent::Stdout);
        let stderr = std::mem::replace(&mut self.stderr, self.redactor.stream());
        let stderr = collected(|sink| stderr.finish(sink));
        self.show(stderr, ExecEvent::Stderr);
    }
}

fn collected(give: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Vec<u8> {
    let mut out = Vec::new();
    give(&mut |piece| out.extend_from_slice(piece));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use motu_core::exec::Exited;
    use motu_redaction::{Forms, Known};

    fn redactor() -> Redactor {
        let known = Known {
            name: Some("TOKEN"),
            value: b"hunter2-hunter2",
            forms: Forms::All,
        };
        Redactor::new([known], &Patterns::none())
    }

    fn says(text: &'static str) -> Result<ExecEvent> {
        Ok(ExecEvent::Stdout(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn only_kinds_that_there_are_can_be_left_alone() {
        let mut config = RedactionConfig::default();
        config.off.push("url-password".to_string());
        let kinds = patterns(&config).expect("a kind").kinds();
        assert_eq!(kinds + 1, motu_redaction::kinds::names().count());
        config.off.push("nothing".to_string());
        let error = patterns(&config).expect_err("no kind");
        assert!(error.message.contains("nothing"), "{error}");
        config.patterns = false;
        assert_eq!(patterns(&config).expect("none").kinds(), 0);
    }

    #[tokio::test]
    async fn a_value_in_two_pieces_is_not_shown() {
        let events = stream::iter([
            says("say hunter2"),
            says("-hunter2 and hunt"),
            Ok(ExecEvent::Exited(Exited::default())),
        ]);
        let clean = redacted(&redactor(), events.boxed(), Pace::Pipe);
        let clean: Vec<_> = clean.collect().await;
        let mut text = Vec::new();
        for event in &clean {
            if let Ok(ExecEvent::Stdout(bytes)) = event {
                text.extend_from_slice(bytes);
            }
        }
        assert_eq!(text, b"say [redacted TOKEN] and hunt");
        assert!(matches!(clean.last(), Some(Ok(ExecEvent::Exited(_)))));
    }

    #[tokio::test(start_paused = true)]
    async fn who_types_sees_it_after_a_moment() {
        let events = stream::iter([says("$ hunt")]).chain(stream::pending());
        let mut clean = redacted(&redactor(), events.boxed(), Pace::Terminal);
        for shown in ["$ ", "hunt"] {
            let event = clean.next().await.expect("the session goes on");
            assert_eq!(event, says(shown));
        }
    }

    #[tokio::test]
    async fn the_text_of_an_error_shows_no_value() {
        let error = Error::internal("bad hunter2-hunter2").hint("not hunter2-hunter2");
        let mut clean = redacted(&redactor(), stream::iter([Err(error)]).boxed(), Pace::Pipe);
        let error = clean.next().await.expect("an event").expect_err("an error");
        assert_eq!(error.message, "bad [redacted TOKEN]");
        assert_eq!(error.hint.as_deref(), Some("not [redacted TOKEN]"));
    }
}
