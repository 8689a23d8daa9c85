//! What people see while they wait: what is done, and for how long already.

use crate::failure::Reader;
use crate::show;
use bytes::Bytes;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use motu_core::Result;
use motu_core::files::ByteStream;
use std::fmt::Write;
use std::io::IsTerminal;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nothing is said of what is done sooner.
const PATIENCE: Duration = Duration::from_secs(1);
/// When somebody wonders whether it always takes this long.
const LONG: Duration = Duration::from_secs(4);
/// What a virtual machine takes its time for.
const FIRST: &str = "the first of its kind is prepared once; the next one starts in a moment";

/// Waits for work, and says so to a person on a terminal when it takes long. Programs and logs
/// see nothing.
pub async fn told<T>(what: &str, reader: Reader, work: impl Future<Output = T>) -> T {
    watched(what, "", reader, work).await
}

/// The same for work that makes a machine.
pub async fn machine<T>(what: &str, reader: Reader, work: impl Future<Output = T>) -> T {
    watched(what, FIRST, reader, work).await
}

/// Bytes that were moved so far: counted by the work, shown by whoever waits for it.
#[derive(Clone, Debug, Default)]
pub struct Moved(Arc<AtomicU64>);

impl Moved {
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts the bytes of a stream on their way.
    pub fn counting(&self, stream: ByteStream) -> ByteStream {
        let moved = self.clone();
        let count = move |piece: &Result<Bytes>| {
            moved.add(piece.as_ref().map_or(0, |piece| piece.len() as u64));
        };
        stream.inspect(count).boxed()
    }
}

/// The same for work that moves bytes, which are shown.
pub async fn moving<T>(
    what: &str,
    reader: Reader,
    moved: &Moved,
    work: impl Future<Output = T>,
) -> T {
    let moved = moved.clone();
    let shown = move |_: &ProgressState, out: &mut dyn Write| {
        // Writing into a line in memory does not fail.
        let _ = write!(out, "{}", show::bytes(moved.0.load(Ordering::Relaxed)));
    };
    let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4} {moved}");
    let style = style.map(|style| style.with_key("moved", shown)).ok();
    drawn(what, "", (reader, style), work).await
}

async fn watched<T>(what: &str, why: &str, reader: Reader, work: impl Future<Output = T>) -> T {
    let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4} {wide_msg}").ok();
    drawn(what, why, (reader, style), work).await
}

async fn drawn<T>(
    what: &str,
    why: &str,
    (reader, style): (Reader, Option<ProgressStyle>),
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    if reader == Reader::Program || !std::io::stderr().is_terminal() {
        return work.await;
    }
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_elapsed(PATIENCE);
    if let Some(style) = style {
        bar.set_style(style);
    }
    bar.set_prefix(show::safe(what));
    bar.enable_steady_tick(Duration::from_millis(100));
    let done = match tokio::time::timeout(LONG, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            bar.set_message(why.to_string());
            work.await
        }
    };
    bar.finish_and_clear();
    done
}
