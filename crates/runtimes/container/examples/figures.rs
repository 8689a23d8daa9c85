//! Measures the runtime on this host: `cargo run --release --example figures -- [count] [kept]`.
//!
//! Prints the time from the call to an answering guest, to the end of the first command, and to the
//! removal. With `kept`, every machine starts on the disks of the previous one.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step ends the program, and should"
)]

#[path = "../tests/machine/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use motu_core::Runtime;
use motu_core::runtime::Kept;
use std::time::{Duration, Instant};
use support::World;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let count: usize = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(50);
    let world = World::new();
    world.runtime.warm().await;
    let kept = std::env::args()
        .any(|argument| argument == "kept")
        .then(|| Kept {
            dir: world.home.path().join("kept"),
            baseline: world.home.path().join("baseline"),
        });
    for dir in kept.iter().flat_map(|kept| [&kept.dir, &kept.baseline]) {
        std::fs::create_dir(dir).unwrap();
    }
    let [mut created, mut answered, mut ran, mut gone] = [(); 4].map(|()| Vec::new());
    for _ in 0..count {
        let mut spec = world.spec();
        spec.kept.clone_from(&kept);
        let start = Instant::now();
        let machine = world.runtime.create(&spec).await.unwrap();
        created.push(start.elapsed());
        let guest = world.connect(&machine).await;
        guest.ping().await;
        answered.push(start.elapsed());
        assert_eq!(guest.sh("root", "true").await.code, 0);
        ran.push(start.elapsed());
        let end = Instant::now();
        world.runtime.destroy(&machine).await.unwrap();
        gone.push(end.elapsed());
        // Real machines do not arrive in a closed loop; let the next disk be prepared.
        world.runtime.warm().await;
    }
    for (name, times) in [
        ("create returned", &mut created),
        ("guest answered", &mut answered),
        ("first command ended", &mut ran),
        ("destroyed", &mut gone),
    ] {
        times.sort_unstable();
        let at = |part: usize| ms(times[(times.len() * part / 100).min(times.len() - 1)]);
        println!(
            "{name:20} best {} ms  p50 {} ms  p90 {} ms  max {} ms",
            at(0),
            at(50),
            at(90),
            at(100)
        );
    }
}

fn ms(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1e3)
}
