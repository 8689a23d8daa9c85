//! A guest that was taken over floods the daemon in every way we know. The daemon's memory stays
//! bounded, and after the third breach the machine must be ended.

use super::Guest;
use bytes::{Bytes, BytesMut};
use motu_core::files::{GuestPath, ListOptions};
use motu_core::runtime::{Ask, Machine, MachineLimits, MachineSpec};
use motu_core::{Accel, ErrorKind, Runtime, SandboxId};
use motu_fake::{Fake, Play};
use motu_link::frame::{Frame, Kind, Taken};
use motu_link::message::{Changed, ChangedEntry, Entries, Entry, Note, Ping, Said, Verb};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Bytes that a flood sends: many times what the daemon may buffer.
const FLOOD: usize = 96 << 20;
/// How much this process, which is daemon and guest at once, may grow.
const GROWTH_KIB: u64 = 80 << 10;
const SOON: Duration = Duration::from_secs(60);

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Shakes hands, waits for a request and answers it with the same frames again and again.
fn flooding(frames: impl Fn(u32) -> Vec<Frame> + Send + Sync + 'static) -> Play {
    let frames = Arc::new(frames);
    Arc::new(move |io| {
        let frames = frames.clone();
        Box::pin(async move {
            flood(io, &*frames).await;
        })
    })
}

async fn flood(mut io: DuplexStream, frames: &(impl Fn(u32) -> Vec<Frame> + ?Sized)) -> Option<()> {
    motu_link::hello::guest(&mut io).await.ok()?;
    let mut heard = BytesMut::new();
    let stream = loop {
        match Frame::take(&mut heard).ok()? {
            Taken::Frame(frame) if frame.kind == Kind::Open => break frame.stream,
            Taken::Frame(_) => {}
            Taken::Missing(_) => {
                io.read_buf(&mut heard)
                    .await
                    .ok()
                    .filter(|count| *count > 0)?;
            }
        }
    };
    let mut bytes = Vec::new();
    while bytes.len() < 64 << 10 {
        for frame in frames(stream) {
            bytes.extend_from_slice(&frame.header());
            bytes.extend_from_slice(&frame.payload);
        }
    }
    let mut sent = 0;
    while sent < FLOOD {
        io.write_all(&bytes).await.ok()?;
        sent += bytes.len();
    }
    // The host must end the stream: this guest never does.
    std::future::pending().await
}

fn frame(stream: u32, kind: Kind, payload: impl Into<Bytes>) -> Frame {
    Frame {
        payload: payload.into(),
        ..Frame::bare(stream, kind)
    }
}

fn note(said: Said) -> Bytes {
    Note { said: Some(said) }.encode_to_vec().into()
}

/// A machine whose guest is played by the test.
async fn machine(play: Play) -> (Arc<Fake>, Arc<Guest>) {
    let fake = Fake::new();
    let some = Ask {
        value: 64,
        explicit: false,
    };
    let spec = MachineSpec {
        id: SandboxId::parse("sb-hostile").unwrap(),
        hostname: "hostile".to_string(),
        dir: "/nowhere".into(),
        environment: "test".into(),
        root: "/nowhere".into(),
        wants_sudo: false,
        limits: MachineLimits {
            vcpu_count: some,
            mem_mib: some,
            disk_mib: some,
            pids_max: some,
            nofile: some,
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        },
        accel: Accel::default(),
        kept: None,
        network: None,
    };
    let machine: Machine = fake.create(&spec).await.unwrap();
    fake.play_guest(play);
    let runtime: Arc<dyn Runtime> = fake.clone();
    let bounds = super::Bounds {
        silence: SOON,
        call: SOON,
    };
    (fake, Guest::new(runtime, machine, bounds))
}

/// Floods a stream that nobody reads; three times, and the machine must be ended.
async fn unread(what: &str, frames: impl Fn(u32) -> Vec<Frame> + Send + Sync + 'static) {
    let (_fake, guest) = machine(flooding(frames)).await;
    let before = resident_kib();
    for _ in 0..super::MAX_BREACHES {
        let stream = guest.open(Verb::Ping(Ping {})).await.unwrap();
        let link = guest.link.lock().await.clone().unwrap();
        let closed = tokio::time::timeout(SOON, link.closed()).await.unwrap();
        assert!(closed.to_string().contains(what), "{closed}");
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < GROWTH_KIB, "{what}: {grown} KiB more");
        drop(stream);
    }
    let why = tokio::time::timeout(SOON, guest.misbehaved())
        .await
        .unwrap();
    assert!(why.contains(what), "{why}");
}

/// A call that waits for a machine without space is answered, one that waits for a pause is not.
#[tokio::test(start_paused = true)]
async fn a_call_in_flight_does_not_wait_for_space_for_ever() {
    let about = super::call::About::new(
        SandboxId::parse("sb-full").unwrap(),
        super::Bounds {
            silence: SOON,
            call: SOON,
        },
    );
    let waits = tokio::time::timeout(SOON * 3, about.starved()).await;
    assert!(waits.is_err(), "{waits:?}");
    about.starve("the host's disk is nearly full");
    let begun = tokio::time::Instant::now();
    let error = tokio::time::timeout(SOON * 3, about.starved())
        .await
        .unwrap();
    assert!(begun.elapsed() >= SOON);
    assert_eq!(error.kind, motu_core::ErrorKind::Limit);
    assert!(error.message.contains("disk is nearly full"), "{error}");
    assert!(error.hint.is_some());
}

#[tokio::test]
async fn empty_data_is_cut_off() {
    unread("data without a byte", |stream| {
        vec![Frame::bare(stream, Kind::Data)]
    })
    .await;
}

#[tokio::test]
async fn second_ends_are_cut_off() {
    unread("a second end of data", |stream| {
        vec![Frame::bare(stream, Kind::Eof)]
    })
    .await;
    unread("a second end of a stream", |stream| {
        vec![Frame::bare(stream, Kind::End)]
    })
    .await;
}

#[tokio::test]
async fn large_notes_that_nobody_reads_are_cut_off() {
    let large = Bytes::from(vec![7; 250_000]);
    unread("too many unread messages", move |stream| {
        vec![frame(stream, Kind::Message, large.clone())]
    })
    .await;
}

#[tokio::test]
async fn small_notes_that_nobody_reads_are_cut_off() {
    unread("too many unread messages", |stream| {
        vec![Frame::bare(stream, Kind::Message)]
    })
    .await;
}

#[tokio::test]
async fn single_bytes_that_nobody_reads_are_cut_off() {
    unread("more data than there was credit for", |stream| {
        let byte = |channel| Frame {
            channel,
            ..frame(stream, Kind::Data, &b"x"[..])
        };
        vec![byte(1), byte(2)]
    })
    .await;
}

/// A call that is answered without end; three times, and the machine must be ended.
async fn answered(
    frames: impl Fn(u32) -> Vec<Frame> + Send + Sync + 'static,
    call: impl AsyncFn(&Guest) -> motu_core::Error,
) {
    let (_fake, guest) = machine(flooding(frames)).await;
    let before = resident_kib();
    for _ in 0..super::MAX_BREACHES {
        let error = tokio::time::timeout(SOON, call(&*guest)).await.unwrap();
        assert_eq!(error.kind, ErrorKind::Transport, "{error:?}");
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 4 * GROWTH_KIB, "{grown} KiB more");
    }
    tokio::time::timeout(SOON, guest.misbehaved())
        .await
        .unwrap();
}

#[tokio::test]
async fn changes_without_end_are_cut_off() {
    let entry = ChangedEntry {
        path: Bytes::from(vec![b'x'; 4000]),
        ..ChangedEntry::default()
    };
    let entries = vec![entry; 60];
    let long = note(Said::Changed(Changed { entries }));
    // Too many changes may be an honest answer: the call is refused, and the machine goes on.
    let flood = flooding(move |stream| vec![frame(stream, Kind::Message, long.clone())]);
    let (_fake, guest) = machine(flood).await;
    let before = resident_kib();
    let told = tokio::time::timeout(SOON, guest.changes(2_000_000)).await;
    assert_eq!(told.unwrap().unwrap_err().kind, ErrorKind::Limit);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 4 * GROWTH_KIB, "{grown} KiB more");
    drop(guest);

    let empty = note(Said::Changed(Changed::default()));
    answered(
        move |stream| vec![frame(stream, Kind::Message, empty.clone())],
        async |guest| guest.changes(2_000_000).await.unwrap_err(),
    )
    .await;
}

#[tokio::test]
async fn pages_without_end_are_cut_off() {
    let place = GuestPath::new(b"/x".to_vec()).unwrap();
    let empty = note(Said::Entries(Entries {
        entries: Vec::new(),
        next: Bytes::from_static(b"/x/y"),
    }));
    let end = motu_link::message::Outcome::ok().encode_to_vec();
    let page = empty.clone();
    let listing = place.clone();
    answered(
        move |stream| {
            vec![
                frame(stream, Kind::Message, page.clone()),
                frame(stream, Kind::End, end.clone()),
            ]
        },
        async |guest| {
            let page = guest
                .files(None)
                .list(&listing, ListOptions::default())
                .await;
            page.unwrap_err()
        },
    )
    .await;
    answered(
        move |stream| vec![frame(stream, Kind::Message, empty.clone())],
        async |guest| guest.files(None).glob(&place, None).await.unwrap_err(),
    )
    .await;
    let crowd = note(Said::Entries(Entries {
        entries: vec![Entry::default(); 100_000],
        next: Bytes::new(),
    }));
    let place = GuestPath::new(b"/x".to_vec()).unwrap();
    answered(
        move |stream| vec![frame(stream, Kind::Message, crowd.clone())],
        async |guest| guest.files(None).glob(&place, None).await.unwrap_err(),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_not_waited_for_without_end() {
    let silent: Play = Arc::new(|io| {
        Box::pin(async move {
            let _held = io;
            std::future::pending().await
        })
    });
    let (_fake, guest) = machine(silent).await;
    let error = guest.open(Verb::Ping(Ping {})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
}
