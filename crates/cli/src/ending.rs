//! SIGTERM ends this program, whatever it is doing.
//!
//! Commands that listen for the signal have a way out of their own: a command inside a machine
//! gets it first, open calls may end. This bounds that way out from a thread that depends on
//! nothing else, so neither a stuck call nor a full pipe can keep the program.

use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program that SIGTERM ended, as a shell gives it.
pub const TERMINATED: u8 = 143;
/// How long a command inside a machine may take to end before it is left.
pub const LEAVE: Duration = Duration::from_secs(10);
/// How much longer than its own way out the program may take.
const SLACK: Duration = Duration::from_secs(3);

/// From now on this program is gone soon after `way_out` is over, once it gets a SIGTERM.
pub fn bound(way_out: Duration) {
    let waiting = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let Ok(mut terminate) = signal(SignalKind::terminate()) else {
                return;
            };
            terminate.recv().await;
            tokio::time::sleep(way_out + SLACK).await;
            std::process::exit(TERMINATED.into());
        });
    };
    // If the thread cannot be started, the program still ends in the normal way.
    let _ = std::thread::Builder::new()
        .name("ending".to_string())
        .spawn(waiting);
}
