//! What people see while they wait: what is done, and for how long already.

use crate::failure::Reader;
use crate::show;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::pin::pin;
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

async fn watched<T>(what: &str, why: &str, reader: Reader, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if reader == Reader::Program || !std::io::stderr().is_terminal() {
        return work.await;
    }
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_elapsed(PATIENCE);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4} {wide_msg}") {
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
