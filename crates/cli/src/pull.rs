//! Pulling an environment, with its progress on standard error.

use crate::failure::Reader;
use crate::show;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use motu_api::Client;
use motu_core::report::{Environment, ProgressEvent};
use motu_core::{Error, ErrorKind, Result, Service};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Whether an error says that an environment is known and only not installed.
pub fn would_help(error: &Error) -> bool {
    error.kind == ErrorKind::NotFound && error.details["installed"] == false
}

/// Pulls an environment and shows its steps to a person.
pub async fn pull(client: &Client, name: &str, reader: Reader) -> Result<Environment> {
    let (sink, mut steps) = mpsc::channel(64);
    let pulling = client.pull_environment(name, sink);
    let showing = async {
        let mut progress = Progress::new(name, reader);
        while let Some(step) = steps.recv().await {
            progress.step(&step);
        }
        progress.end();
    };
    tokio::join!(pulling, showing).0
}

/// How steps are shown.
enum Progress {
    Silent,
    Lines { name: String, last: String },
    Bar { bar: ProgressBar, begin: Instant },
}

impl Progress {
    fn new(name: &str, reader: Reader) -> Progress {
        if reader == Reader::Program {
            return Progress::Silent;
        }
        if !std::io::stderr().is_terminal() {
            return Progress::Lines {
                name: name.to_string(),
                last: String::new(),
            };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4} {wide_msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_prefix(format!("pulling {name}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress::Bar {
            bar,
            begin: Instant::now(),
        }
    }

    fn step(&mut self, step: &ProgressEvent) {
        match self {
            Progress::Silent => {}
            // One line per stage: a log is not a film.
            Progress::Lines { name, last } => {
                if *last != step.stage {
                    last.clone_from(&step.stage);
                    let message = show::safe(&step.message);
                    show::note(&format!("pulling {name}: {message}\n"));
                }
            }
            Progress::Bar { bar, .. } => {
                let message = show::safe(&step.message);
                bar.set_message(match (step.done, step.total) {
                    (Some(done), Some(total)) if total > 0 => {
                        format!("{message} ({}%)", done.min(total) * 100 / total)
                    }
                    _ => message,
                });
            }
        }
    }

    fn end(self) {
        if let Progress::Bar { bar, begin } = self {
            let prefix = bar.prefix();
            bar.finish_and_clear();
            let seconds = begin.elapsed().as_secs_f32();
            show::note(&format!("{prefix}: {seconds:.1} s\n"));
        }
    }
}
