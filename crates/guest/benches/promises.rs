//! The guest's promises as numbers: size, memory, start time, throughput.
//!
//! `cargo bench -p motu-guest --profile guest`

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on has failed"
)]

#[path = "../tests/support/mod.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use motu_link::message::*;
use std::time::{Duration, Instant};
use support::*;

const GIGABYTE: u64 = 1_000_000_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let binary = std::fs::metadata(env!("CARGO_BIN_EXE_motu-guest")).unwrap();
    println!("program: {} KiB", binary.len() / 1024);
    let machine = Machine::start().await;
    println!("idle memory: {} KiB", memory(&machine).await / 1024);
    println!("start to exit: {:?}", start_time(&machine, true).await);
    println!("start to started: {:?}", start_time(&machine, false).await);
    let file = machine.file("big");
    let script = format!("head -c {GIGABYTE} /dev/zero > {}", file.display());
    machine.shell(&script).await.ok();
    let read = Read {
        path: path("/big"),
        ..Read::default()
    };
    rate("file read", &machine, Verb::Read(read)).await;
    rate(
        "tree out",
        &machine,
        Verb::TreeOut(TreeOut {
            path: path("/big"),
            ..Default::default()
        }),
    )
    .await;
    rate(
        "output",
        &machine,
        Verb::Start(sh(&format!("head -c {GIGABYTE} /dev/zero"))),
    )
    .await;
    rate(
        "output of cat",
        &machine,
        Verb::Start(sh(&format!("cat {}", file.display()))),
    )
    .await;
    write_rate(&machine).await;
    println!("memory after: {} KiB", memory(&machine).await / 1024);
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("memory at rest: {} KiB", memory(&machine).await / 1024);
}

async fn memory(machine: &Machine) -> u64 {
    match machine
        .call(Verb::Metrics(MetricsRequest {}))
        .await
        .ok()
        .notes
        .pop()
    {
        Some(Said::Metrics(metrics)) => metrics.guest_rss_bytes,
        other => panic!("{other:?}"),
    }
}

async fn start_time(machine: &Machine, follow: bool) -> Duration {
    const ROUNDS: u32 = 200;
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        let start = Start {
            follow,
            lossless: follow,
            forget: follow,
            ..argv(&["/bin/true"])
        };
        machine.call(Verb::Start(start)).await.ok();
    }
    begin.elapsed() / ROUNDS
}

async fn rate(what: &str, machine: &Machine, verb: Verb) {
    let begin = Instant::now();
    let mut stream = machine.open(verb).await;
    let mut total = 0;
    loop {
        match next(&mut stream).await {
            Next::Data(_, bytes) => total += bytes.len() as u64,
            Next::End(_) => break,
            _ => {}
        }
    }
    print_rate(what, total, begin.elapsed());
}

async fn write_rate(machine: &Machine) {
    let begin = Instant::now();
    let write = Write {
        path: path("/written"),
        ..Write::default()
    };
    let stream = machine.open(Verb::Write(write)).await;
    let piece = bytes::Bytes::from(vec![0; 1_000_000]);
    for _ in 0..GIGABYTE / 1_000_000 {
        stream.tx.data(0, piece.clone()).await.unwrap();
    }
    stream.tx.eof().await.unwrap();
    finish(stream).await.ok();
    print_rate("file write", GIGABYTE, begin.elapsed());
}

fn print_rate(what: &str, bytes: u64, time: Duration) {
    let rate = bytes as f64 / time.as_secs_f64() / 1e6;
    println!("{what}: {rate:.0} MB/s");
}
