//! Streams over a pipe: order, credit, resets, ends.

use super::write::write_batch;
use super::*;

fn pair() -> (Link, Incoming, Link, Incoming) {
    let (a, b) = tokio::io::duplex(64 * 1024);
    let (ar, aw) = tokio::io::split(a);
    let (br, bw) = tokio::io::split(b);
    let (host, host_in) = Link::start(ar, aw, false);
    let (guest, guest_in) = Link::start(br, bw, true);
    (host, host_in, guest, guest_in)
}

#[tokio::test]
async fn a_request_is_answered() {
    let (host, _, _guest, mut incoming) = pair();
    tokio::spawn(async move {
        let (request, stream) = incoming.next().await.unwrap();
        assert_eq!(&request[..], b"hi");
        stream
            .tx
            .message(Bytes::from_static(b"note"))
            .await
            .unwrap();
        stream.tx.data(1, Bytes::from_static(b"out")).await.unwrap();
        stream.tx.end(Bytes::from_static(b"done")).await.unwrap();
    });
    let mut stream = host.open(Bytes::from_static(b"hi")).await.unwrap();
    let mut events = Vec::new();
    while let Ok(event) = stream.rx.recv().await {
        events.push(event);
    }
    assert_eq!(
        events,
        [
            Event::Message(Bytes::from_static(b"note")),
            Event::Data {
                channel: 1,
                bytes: Bytes::from_static(b"out")
            },
            Event::End(Bytes::from_static(b"done")),
        ]
    );
}

#[tokio::test]
async fn a_stream_nobody_reads_does_not_hold_up_another() {
    let (host, _, _guest, mut incoming) = pair();
    tokio::spawn(async move {
        while let Some((request, stream)) = incoming.next().await {
            tokio::spawn(async move {
                if &request[..] == b"flood" {
                    while stream
                        .tx
                        .data(1, Bytes::from(vec![0; 100_000]))
                        .await
                        .is_ok()
                    {}
                } else {
                    stream.tx.end(Bytes::new()).await.unwrap();
                }
            });
        }
    });
    let _stuck = host.open(Bytes::from_static(b"flood")).await.unwrap();
    for _ in 0..100 {
        let mut quick = host.open(Bytes::from_static(b"quick")).await.unwrap();
        assert_eq!(quick.rx.recv().await.unwrap(), Event::End(Bytes::new()));
    }
}

#[tokio::test]
async fn much_more_than_a_window_arrives_in_order() {
    let (host, _, _guest, mut incoming) = pair();
    tokio::spawn(async move {
        let (_, stream) = incoming.next().await.unwrap();
        for round in 0..100u8 {
            stream
                .tx
                .data(1, Bytes::from(vec![round; 99_999]))
                .await
                .unwrap();
        }
        stream.tx.end(Bytes::new()).await.unwrap();
    });
    let mut stream = host.open(Bytes::new()).await.unwrap();
    let mut total = 0usize;
    while let Ok(event) = stream.rx.recv().await {
        if let Event::Data { bytes, .. } = event {
            assert!(bytes.iter().all(|&b| b as usize == total / 99_999
                || b as usize == (total + bytes.len() - 1) / 99_999));
            total += bytes.len();
        }
    }
    assert_eq!(total, 9_999_900);
}

#[tokio::test]
async fn dropping_a_stream_resets_it_at_the_peer() {
    let (host, _, _guest, mut incoming) = pair();
    let stream = host.open(Bytes::new()).await.unwrap();
    let (_, mut theirs) = incoming.next().await.unwrap();
    drop(stream);
    assert_eq!(theirs.rx.recv().await.unwrap(), Event::Reset);
    assert!(theirs.tx.data(1, Bytes::from_static(b"x")).await.is_err());
}

#[tokio::test]
async fn a_reset_does_not_overtake_the_opening() {
    let (host, _, _guest, mut incoming) = pair();
    let stream = host.open(Bytes::from_static(b"hi")).await.unwrap();
    stream
        .tx
        .data(0, Bytes::from_static(b"sent"))
        .await
        .unwrap();
    // No task has run since: open, data and reset all wait for the writer.
    drop(stream);
    let (_, mut theirs) = incoming.next().await.unwrap();
    assert!(matches!(
        theirs.rx.recv().await.unwrap(),
        Event::Data { .. }
    ));
    assert_eq!(theirs.rx.recv().await.unwrap(), Event::Reset);
}

#[tokio::test]
async fn a_sender_learns_of_a_reset_behind_unread_data() {
    let (host, _, _guest, mut incoming) = pair();
    let stream = host.open(Bytes::new()).await.unwrap();
    let (_, theirs) = incoming.next().await.unwrap();
    stream
        .tx
        .data(0, Bytes::from_static(b"unread"))
        .await
        .unwrap();
    drop(stream);
    assert_eq!(theirs.tx.closed().await, LinkError::Reset);
    let second = host.open(Bytes::new()).await.unwrap();
    host.close();
    assert_eq!(second.tx.closed().await, LinkError::Closed);
}

#[tokio::test]
async fn a_guest_that_overruns_its_credit_loses_the_link() {
    let (a, mut b) = tokio::io::duplex(64 * 1024);
    let (ar, aw) = tokio::io::split(a);
    let (host, _incoming) = Link::start(ar, aw, false);
    let mut stream = host.open(Bytes::new()).await.unwrap();
    let flood = tokio::spawn(async move {
        let frame = Frame {
            channel: 1,
            payload: Bytes::from(vec![0; MAX_PAYLOAD]),
            ..Frame::bare(1, Kind::Data)
        };
        for _ in 0..6 {
            if write_batch(&mut b, std::slice::from_ref(&frame))
                .await
                .is_err()
            {
                break;
            }
        }
    });
    assert!(matches!(host.closed().await, LinkError::Protocol(_)));
    flood.abort();
    while stream.rx.recv().await.is_ok() {}
    assert!(host.open(Bytes::new()).await.is_err());
}

#[tokio::test]
async fn a_guest_may_not_open_streams() {
    let (host, _host_in, guest, _guest_in) = pair();
    let _stream = guest.open(Bytes::new()).await;
    assert!(matches!(host.closed().await, LinkError::Protocol(_)));
}

#[tokio::test]
async fn closing_wakes_everyone() {
    let (host, _, guest, _incoming) = pair();
    let mut stream = host.open(Bytes::new()).await.unwrap();
    guest.close();
    assert!(stream.rx.recv().await.is_err());
    host.closed().await;
}

/// A host's link with a simulated peer, and one open stream.
async fn hosted() -> (Link, Stream, tokio::io::DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (read, write) = tokio::io::split(ours);
    let (link, _) = Link::start(read, write, false);
    let stream = link.open(Bytes::from_static(b"hi")).await.unwrap();
    (link, stream, theirs)
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_loses_the_link() {
    let payload = |kind, bytes: &'static [u8]| Frame {
        payload: Bytes::from_static(bytes),
        ..Frame::bare(1, kind)
    };
    let cases = [
        ("data without a byte", vec![payload(Kind::Data, b"")]),
        (
            "a second end of data",
            vec![payload(Kind::Eof, b""), payload(Kind::Eof, b"")],
        ),
        (
            "a second end of a stream",
            vec![payload(Kind::End, b""), payload(Kind::End, b"")],
        ),
        (
            "a frame of a stream that nobody opened",
            vec![Frame::bare(77, Kind::End)],
        ),
        (
            "too many unread messages",
            vec![payload(Kind::Message, b"m"); MAX_QUEUED_MESSAGES + 1],
        ),
    ];
    for (what, frames) in cases {
        let (link, stream, mut peer) = hosted().await;
        // The link may close before all of it is sent.
        let _ = write_batch(&mut peer, &frames).await;
        assert_eq!(link.closed().await, LinkError::Protocol(what.to_string()));
        drop(stream);
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_not_waited_for_without_end() {
    let (link, stream, _peer) = hosted().await;
    // The pipe buffers some of it; the rest exceeds the queue.
    while !link.is_closed() {
        link.inner.control(Frame::bare(1, Kind::Reset));
    }
    assert!(matches!(link.closed().await, LinkError::Protocol(_)));
    drop(stream);
}

#[tokio::test]
async fn an_end_of_data_is_said_once() {
    let (host, _, _guest, mut incoming) = pair();
    let stream = host.open(Bytes::from_static(b"hi")).await.unwrap();
    for _ in 0..3 {
        stream.tx.eof().await.unwrap();
        stream
            .tx
            .data(0, Bytes::from_static(b"late"))
            .await
            .unwrap();
    }
    stream
        .tx
        .message(Bytes::from_static(b"last"))
        .await
        .unwrap();
    let (_, mut theirs) = incoming.next().await.unwrap();
    assert_eq!(theirs.rx.recv().await.unwrap(), Event::Eof);
    let last = Event::Message(Bytes::from_static(b"last"));
    assert_eq!(theirs.rx.recv().await.unwrap(), last);
}
