//! Measures seeding: `cargo run --release --example seed_speed -- SOURCE BASELINE`.
//! SOURCE is made with 50 000 files of 20 KiB if it does not exist; BASELINE is
//! removed again.
#![expect(clippy::unwrap_used, reason = "a failure ends the measurement")]

use std::{fs, path::Path, time::Instant};

use motu_workspaces::seed::{Options, seed};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (source, baseline) = (arguments.next().unwrap(), arguments.next().unwrap());
    let (source, baseline) = (Path::new(&source), Path::new(&baseline));
    if !source.exists() {
        let contents: Vec<u8> = (0..20 << 10).map(|byte| byte as u8).collect();
        for directory in 0..500 {
            let directory = source.join(format!("{}/{directory}", directory % 20));
            fs::create_dir_all(&directory).unwrap();
            for file in 0..100 {
                fs::write(directory.join(format!("file{file}.rs")), &contents).unwrap();
            }
        }
    }
    for _ in 0..1 {
        let start = Instant::now();
        let seeded = seed(
            Some(source),
            baseline,
            Options {
                owner: Some((1000, 1000)),
                ..Options::default()
            },
        )
        .unwrap();
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{} entries, {} MB in {seconds:.2} s: {:.0} MB/s",
            seeded.entry_count,
            seeded.bytes / 1_000_000,
            seeded.bytes as f64 / 1e6 / seconds
        );
        fs::remove_dir_all(baseline).unwrap();
    }
}
