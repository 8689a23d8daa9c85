//! Following: rings, gaps, lossless holds, broken links and stuck hosts.

use crate::support::*;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT};
use motu_link::message::*;

/// The bytes of `seq`, which are different at every offset that matters.
fn numbers(last: u32) -> Vec<u8> {
    (1..=last)
        .flat_map(|number| format!("{number}\n").into_bytes())
        .collect()
}

#[tokio::test]
async fn a_broken_link_loses_nothing() {
    let machine = Machine::start().await;
    let expected = numbers(1_000_000);
    let first = machine.another_link().await;
    let mut stream = open(
        &first,
        Verb::Start(Start {
            tag: "job".into(),
            ..sh("seq 1000000; printf end >&2")
        }),
    )
    .await;
    let mut got = Vec::new();
    while got.len() < 500_000 {
        if let Next::Data(CHANNEL_OUT, bytes) = next(&mut stream).await {
            got.extend_from_slice(&bytes);
        }
    }
    // Keep the stream: dropping it would send a reset, if that left before the link closed.
    let _first_stream = stream;
    first.close();
    // Break it once more, in the middle.
    let second = machine.another_link().await;
    let attach = |from: usize| Attach {
        process: by_tag("job"),
        out_from: from as u64,
        lossless: true,
        ..Attach::default()
    };
    let mut stream = open(&second, Verb::Attach(attach(got.len()))).await;
    match next(&mut stream).await {
        Next::Note(Said::Started(started)) => assert_eq!(started.out_from, got.len() as u64),
        other => panic!("{other:?}"),
    }
    let target = got.len() + 1_000_000;
    while got.len() < target {
        match next(&mut stream).await {
            Next::Data(CHANNEL_OUT, bytes) => got.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    let _second_stream = stream;
    second.close();
    let said = machine.call(Verb::Attach(attach(got.len()))).await.ok();
    assert!(said.gaps().is_empty());
    got.extend_from_slice(&said.out);
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
    assert_eq!(said.err, b"end");
    assert_eq!(said.exited().out_total, expected.len() as u64);
}

#[tokio::test]
async fn an_overflown_ring_says_exactly_what_is_missing() {
    let machine = Machine::start().await;
    let start = Start {
        follow: false,
        lossless: false,
        ring_bytes: 10_000,
        tag: "many".into(),
        ..sh("seq 100000; seq 100 >&2")
    };
    machine.call(Verb::Start(start)).await.ok();
    eventually("it ended", async || {
        machine
            .processes()
            .await
            .iter()
            .all(|process| process.exited.is_some())
    })
    .await;
    let expected = numbers(100_000);
    let said = machine
        .call(Verb::Attach(Attach {
            process: by_tag("many"),
            ..Attach::default()
        }))
        .await
        .ok();
    let kept = expected.len() - 10_000;
    assert_eq!(
        said.gaps(),
        [Gap {
            channel: u32::from(CHANNEL_OUT),
            from: 0,
            to: kept as u64
        }]
    );
    assert!(said.out == expected[kept..]);
    assert_eq!(said.err, numbers(100));
    assert_eq!(said.exited().out_total, expected.len() as u64);
    let oldest = Attach {
        process: by_tag("many"),
        from_oldest: true,
        ..Attach::default()
    };
    let said = machine.call(Verb::Attach(oldest)).await.ok();
    assert_eq!(
        (said.gaps().len(), said.started().out_from),
        (0, kept as u64)
    );
    let newest = Attach {
        process: by_tag("many"),
        from_newest: true,
        ..Attach::default()
    };
    assert!(machine.call(Verb::Attach(newest)).await.ok().out.is_empty());
    let beyond = Attach {
        process: by_tag("many"),
        out_from: u64::MAX,
        err_from: u64::MAX,
        ..Attach::default()
    };
    assert_eq!(
        machine
            .call(Verb::Attach(beyond))
            .await
            .ok()
            .started()
            .out_from,
        expected.len() as u64
    );
}

#[tokio::test]
async fn a_lossless_follower_holds_the_process_back_and_loses_nothing() {
    let machine = Machine::start().await;
    let mut stream = machine
        .open(Verb::Start(Start {
            ring_bytes: 4096,
            ..sh("seq 2000000")
        }))
        .await;
    let Next::Note(Said::Started(started)) = next(&mut stream).await else {
        panic!()
    };
    // Nothing is read here: the process must come to a halt with its output unfinished.
    let written = async || {
        let all = machine.processes().await;
        let found = all
            .into_iter()
            .find(|process| process.pid == started.pid)
            .unwrap();
        assert!(found.exited.is_none());
        found.out_total
    };
    let mut before = u64::MAX;
    eventually("it is held back", async || {
        let now = written().await;
        std::mem::replace(&mut before, now) == now && now > 0
    })
    .await;
    let said = finish(stream).await.ok();
    assert!(said.gaps().is_empty() && said.out == numbers(2_000_000));
}

#[tokio::test]
async fn a_stuck_follower_blocks_neither_another_stream_nor_an_unfollowed_process() {
    let machine = Machine::start().await;
    let _stuck = machine.open(Verb::Start(sh("cat /dev/zero"))).await;
    let _reader = machine
        .open(Verb::Read(Read {
            path: path("/big"),
            ..Read::default()
        }))
        .await;
    for _ in 0..50 {
        assert_eq!(machine.shell("echo quick").await.ok().out, b"quick\n");
    }
    let start = Start {
        follow: false,
        lossless: false,
        tag: "free".into(),
        ..sh("head -c 50000000 /dev/zero")
    };
    machine.call(Verb::Start(start)).await.ok();
    eventually("it never waits for a reader", async || {
        let all = machine.processes().await;
        all.iter().any(|process| {
            process.tag == "free" && process.exited.is_some() && process.out_total == 50_000_000
        })
    })
    .await;
}

#[tokio::test]
async fn a_follower_that_may_lose_gets_gaps_that_add_up() {
    let machine = Machine::start().await;
    let start = Start {
        lossless: false,
        ring_bytes: 8192,
        ..sh("seq 3000000; seq 10 >&2")
    };
    let said = machine.call(Verb::Start(start)).await.ok();
    let lost: u64 = said
        .gaps()
        .iter()
        .filter(|gap| gap.channel == 1)
        .map(|gap| gap.to - gap.from)
        .sum();
    let exited = said.exited();
    assert_eq!(said.out.len() as u64 + lost, exited.out_total);
    assert_eq!(exited.out_total, numbers(3_000_000).len() as u64);
    assert_eq!(said.err, numbers(10));
}

#[tokio::test]
async fn a_reset_kills_only_when_asked() {
    let machine = Machine::start().await;
    let alive = async |tag: &str| {
        let all = machine.processes().await;
        all.iter()
            .filter(|process| process.tag == tag)
            .map(|process| process.alive)
            .sum::<u32>()
    };
    for (tag, kill_on_reset) in [("kept", false), ("killed", true)] {
        let start = Start {
            tag: tag.into(),
            kill_on_reset,
            ..sh("echo up; setsid sleep 1000 & sleep 1000")
        };
        let mut stream = machine.open(Verb::Start(start)).await;
        read_until(&mut stream, "up").await;
        drop(stream);
    }
    eventually("the one is gone", async || alive("killed").await == 0).await;
    assert!(alive("kept").await >= 1);
    // A broken link is not a reset.
    let link = machine.another_link().await;
    let start = Start {
        tag: "linked".into(),
        kill_on_reset: true,
        ..sh("echo up; sleep 1000")
    };
    let mut stream = open(&link, Verb::Start(start)).await;
    read_until(&mut stream, "up").await;
    link.close();
    let _stream = stream;
    machine.call(Verb::Ping(Ping {})).await.ok();
    assert!(alive("linked").await >= 1);
}

#[tokio::test]
async fn single_bytes_are_cheap() {
    let machine = Machine::start().await;
    let memory = async || match machine
        .call(Verb::Metrics(MetricsRequest {}))
        .await
        .ok()
        .notes
        .pop()
    {
        Some(Said::Metrics(metrics)) => metrics.guest_rss_bytes,
        other => panic!("{other:?}"),
    };
    let before = memory().await;
    let start = Start {
        follow: false,
        lossless: false,
        ..sh("i=0; while [ $i -lt 20000 ]; do printf x; i=$((i+1)); done")
    };
    machine.call(Verb::Start(start)).await.ok();
    eventually("it ended", async || {
        machine
            .processes()
            .await
            .iter()
            .all(|process| process.exited.is_some())
    })
    .await;
    assert!(memory().await < before + 2 * 1024 * 1024);
}

#[tokio::test]
async fn both_channels_arrive() {
    let machine = Machine::start().await;
    let mut stream = machine
        .open(Verb::Start(sh("seq 50000 & seq 50000 >&2; wait")))
        .await;
    let (mut out, mut err) = (0, 0);
    loop {
        match next(&mut stream).await {
            Next::Data(CHANNEL_OUT, bytes) => out += bytes.len(),
            Next::Data(CHANNEL_ERR, bytes) => err += bytes.len(),
            Next::End(_) => break,
            _ => {}
        }
    }
    assert_eq!((out, err), (numbers(50_000).len(), numbers(50_000).len()));
}
