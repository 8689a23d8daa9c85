//! Pulling an environment, with its progress on standard error.

use crate::failure::Reader;
use crate::show;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use motu_api::Client;
use motu_core::report::{Environment, ProgressEvent, not_installed};
use motu_core::{Error, Result, Service};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Whether an error says that an environment is known and only not installed.
pub fn would_help(error: &Error) -> bool {
    not_installed(error).is_some()
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
    Bars(Bars),
}

/// One line for the pull, and one for each layer of an image on its way.
struct Bars {
    all: MultiProgress,
    main: ProgressBar,
    layers: BTreeMap<String, ProgressBar>,
    begin: Instant,
}

/// Layers shown at once; more are only counted.
const LAYERS_SHOWN: usize = 12;

/// How much there is and was of a layer; nothing else is downloaded with a known size.
fn layer(step: &ProgressEvent) -> Option<(u64, u64)> {
    match (step.stage.as_str(), step.done, step.total) {
        ("download", Some(done), Some(total)) => Some((done, total)),
        _ => None,
    }
}

impl Bars {
    fn new(name: &str) -> Bars {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let main = all.add(ProgressBar::no_length());
        let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4} {wide_msg}");
        if let Ok(style) = style {
            main.set_style(style);
        }
        main.set_prefix(format!("pulling {name}"));
        main.enable_steady_tick(Duration::from_millis(100));
        Bars {
            all,
            main,
            layers: BTreeMap::new(),
            begin: Instant::now(),
        }
    }

    fn step(&mut self, step: &ProgressEvent) {
        if let Some((done, total)) = layer(step) {
            return self.layer(&step.message, done, total);
        }
        for (_, bar) in std::mem::take(&mut self.layers) {
            bar.finish_and_clear();
        }
        let message = show::safe(&step.message);
        self.main.set_message(match (step.done, step.total) {
            (Some(done), Some(total)) if total > 0 => {
                format!("{message} ({}%)", done.min(total) * 100 / total)
            }
            _ => message,
        });
    }

    fn layer(&mut self, name: &str, done: u64, total: u64) {
        if !self.layers.contains_key(name) && self.layers.len() < LAYERS_SHOWN {
            let bar = self.all.add(ProgressBar::new(total));
            let style =
                "  {prefix} {bar:30} {percent:>3}% {binary_bytes:>11} of {binary_total_bytes}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.set_prefix(show::safe(name));
            self.layers.insert(name.to_string(), bar);
        }
        if let Some(bar) = self.layers.get(name) {
            bar.set_position(done.min(total));
            if done >= total {
                bar.abandon();
            }
        }
        self.main.set_message("downloading layers");
    }

    fn end(self) {
        for bar in self.layers.values() {
            bar.finish_and_clear();
        }
        let prefix = self.main.prefix();
        self.main.finish_and_clear();
        let seconds = self.begin.elapsed().as_secs_f32();
        show::note(&format!("{prefix}: {seconds:.1} s\n"));
    }
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
        Progress::Bars(Bars::new(name))
    }

    fn step(&mut self, step: &ProgressEvent) {
        match self {
            Progress::Silent => {}
            // One line per stage, because this is a log.
            Progress::Lines { name, last } => {
                if *last != step.stage {
                    last.clone_from(&step.stage);
                    let message = match layer(step) {
                        Some(_) => "downloading layers".to_string(),
                        None => show::safe(&step.message),
                    };
                    show::note(&format!("pulling {name}: {message}\n"));
                }
            }
            Progress::Bars(bars) => bars.step(step),
        }
    }

    fn end(self) {
        if let Progress::Bars(bars) = self {
            bars.end();
        }
    }
}
