use super::*;
use crate::secret::Secret;
use crate::swap::tests::{PLACE, secret};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Default)]
struct Asked(Vec<(Request, Vec<String>)>);

impl Gate for Asked {
    fn ask(&mut self, request: &Request, used: &[String]) -> bool {
        self.0.push((request.clone(), used.to_vec()));
        request.path != "/no"
    }
}

fn place(secrets: Vec<Secret>) -> Place {
    Place {
        name: "api.example".to_owned(),
        port: 443,
        secrets: Arc::new(secrets),
    }
}

fn headers(all: &[(&str, &str)]) -> Vec<Header> {
    let header = |(name, value): &(&str, &str)| Header {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
        never: false,
    };
    all.iter().map(header).collect()
}

fn get<'a>(path: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let first = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "api.example"),
        (":path", path),
    ];
    [&first[..], more].concat()
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let head = Frame {
        length: payload.len(),
        kind,
        flags,
        stream: [0, 0, 0, stream],
    };
    head.write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn rewrite(bytes: &[u8], size: usize) -> Result<(Vec<u8>, Asked), Refusal> {
    let place = place(vec![secret("s3cret")]);
    let (mut rewriter, mut out, mut asked) =
        (Rewriter::default(), Out::default(), Asked::default());
    for part in bytes.chunks(size) {
        rewriter.feed(part, &place, &mut asked, &mut out)?;
    }
    assert!(rewriter.is_even());
    Ok((out.forward, asked))
}

fn one(list: &[(&str, &str)]) -> Result<(Vec<u8>, Asked), Refusal> {
    let block = hpack::encode(&[], &headers(list));
    let bytes = [
        PREFACE,
        &frame(HEADERS, END_HEADERS | END_STREAM, 1, &block),
    ]
    .concat();
    rewrite(&bytes, 100_000)
}

#[test]
fn headers_leave_with_values_and_everything_else_as_it_came() {
    let path = format!("/x?k={PLACE}");
    let bearer = format!("Bearer {PLACE}");
    let post = |path: &str, bearer: &str| {
        let mut list = get(path, &[]);
        list[0].1 = "POST";
        let mut list = headers(&list);
        list.extend(headers(&[("authorization", bearer)]));
        list
    };
    let block = hpack::encode(&[0, 4096], &post(&path, &bearer));
    let (one, two) = block.split_at(50);
    let padded = [&[3][..], &[0, 0, 0, 0, 7], one, &[0; 3]].concat();
    let settings = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let data = frame(DATA, 0, 1, PLACE.as_bytes());
    let unknown = frame(0x2a, 0, 1, b"nobody knows");
    let trailers = frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &hpack::encode(&[], &headers(&[("x-sum", "1")])),
    );
    let bytes = [
        PREFACE,
        &settings,
        &frame(HEADERS, PADDED | PRIORITY, 1, &padded),
        &frame(CONTINUATION, 0, 1, two),
        &frame(CONTINUATION, END_HEADERS, 1, &[]),
        &data,
        &unknown,
        &trailers,
    ]
    .concat();
    let mut wanted = post("/x?k=s3cret", "Bearer s3cret");
    wanted[3].never = true;
    wanted[4].never = true;
    let block = hpack::encode(&[0, 4096], &wanted);
    let payload = [&[0, 0, 0, 0, 7], &block[..]].concat();
    let wanted = [
        PREFACE,
        &settings,
        &frame(HEADERS, PRIORITY | END_HEADERS, 1, &payload),
        &data,
        &trailers,
    ]
    .concat();
    for size in 1..bytes.len() {
        let (found, asked) = rewrite(&bytes, size).unwrap();
        assert_eq!(found, wanted, "{size}");
        assert_eq!(asked.0.len(), 1);
        assert_eq!(asked.0[0].1, ["key"]);
        assert_eq!(asked.0[0].0.query, format!("k={PLACE}"));
    }
}

#[test]
fn a_long_block_leaves_in_several_frames() {
    let long = "y".repeat(40_000);
    let (found, _) = one(&get("/", &[("x-long", &long)])).unwrap();
    let mut rest = &found[PREFACE.len()..];
    let (mut block, mut kinds) = (Vec::new(), Vec::new());
    while let Some(frame) = Frame::read(rest) {
        assert!(frame.length <= PART);
        block.extend_from_slice(&rest[FRAME..FRAME + frame.length]);
        kinds.push((frame.kind, frame.flags));
        rest = &rest[FRAME + frame.length..];
    }
    assert_eq!(
        kinds,
        [
            (HEADERS, END_STREAM),
            (CONTINUATION, 0),
            (CONTINUATION, END_HEADERS)
        ]
    );
    let read = Decoder::default().decode(&block).unwrap();
    assert_eq!(read.headers.last().unwrap().value.len(), 40_000);
}

#[test]
fn what_is_no_clear_request_is_refused() {
    let base = get("/", &[]);
    let without = |name: &str| {
        let kept = base.iter().filter(|(own, _)| *own != name);
        kept.copied().collect::<Vec<_>>()
    };
    let with = |more: &[(&'static str, &'static str)]| get("/", more);
    let changed = |name: &str, value: &'static str| {
        let change = |(own, old): &(&'static str, &'static str)| {
            if *own == name {
                (*own, value)
            } else {
                (*own, *old)
            }
        };
        base.iter()
            .map(|one| change(&(one.0, one.1)))
            .collect::<Vec<_>>()
    };
    for (list, refusal) in [
        (without(":method"), Refusal::Malformed),
        (without(":authority"), Refusal::NameMismatch),
        (
            changed(":authority", "other.example"),
            Refusal::NameMismatch,
        ),
        (with(&[("host", "other.example")]), Refusal::NameMismatch),
        (changed(":scheme", "http"), Refusal::Malformed),
        (changed(":path", "x"), Refusal::Malformed),
        (changed(":path", "/no"), Refusal::NotAllowed),
        (changed(":method", "CONNECT"), Refusal::Upgrade),
        (with(&[(":protocol", "websocket")]), Refusal::Upgrade),
        (with(&[("x", "y"), (":path", "/")]), Refusal::Malformed),
        (with(&[("X", "y")]), Refusal::Malformed),
        (with(&[("x", "a\r\nb: c")]), Refusal::Malformed),
        (with(&[("connection", "close")]), Refusal::Malformed),
        (
            with(&[("transfer_encoding", "chunked")]),
            Refusal::Malformed,
        ),
        (with(&[("te", "gzip")]), Refusal::Malformed),
        (with(&[("content-length", "5")]), Refusal::Malformed),
        (
            with(&[("content-length", "0"), ("content-length", "0")]),
            Refusal::Malformed,
        ),
        (changed(":method", "TRACE"), Refusal::Echo),
        (changed(":path", "*"), Refusal::Malformed),
        (changed(":path", "/a#b"), Refusal::Malformed),
        (with(&[(":path", "/b")]), Refusal::Malformed),
    ] {
        assert_eq!(one(&list).map(|_| ()), Err(refusal), "{list:?}");
    }
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [PREFACE, &frame(PUSH_PROMISE, 4, 1, &[])].concat(),
        [PREFACE, &frame(CONTINUATION, 4, 1, &[])].concat(),
        [PREFACE, &frame(HEADERS, 0, 1, &[]), &frame(0, 0, 1, &[])].concat(),
        [
            PREFACE,
            &frame(HEADERS, 0, 1, &[]),
            &frame(CONTINUATION, 4, 3, &[]),
        ]
        .concat(),
        [PREFACE, &frame(HEADERS, PADDED, 1, &[9])].concat(),
    ] {
        assert_eq!(rewrite(&bytes, 900).map(|_| ()), Err(Refusal::Malformed));
    }
}

/// Servers and what is behind them differ in what they make of these.
#[test]
fn bodies_are_of_requests_and_as_long_as_they_said() {
    let request = |method: &'static str, more: &[(&'static str, &'static str)]| {
        let mut list = get("/", more);
        list[0].1 = method;
        hpack::encode(&[], &headers(&list))
    };
    let post = |length| request("POST", &[("content-length", length)]);
    let trailers = hpack::encode(&[], &headers(&[("x-sum", "1")]));
    let all = |frames: &[Vec<u8>]| {
        let bytes = [PREFACE, &frames.concat()].concat();
        rewrite(&bytes, 7).map(|_| ())
    };
    let begin = |stream, block: &[u8]| frame(HEADERS, END_HEADERS, stream, block);
    let ends = END_HEADERS | END_STREAM;
    assert_eq!(
        all(&[begin(1, &post("3")), frame(DATA, END_STREAM, 1, b"abc")]),
        Ok(())
    );
    let padded = frame(DATA, END_STREAM | PADDED, 1, b"\x02abc\0\0");
    assert_eq!(all(&[begin(1, &post("3")), padded.clone()]), Ok(()));
    for frames in [
        vec![begin(1, &post("3")), frame(DATA, END_STREAM, 1, b"abcd")],
        vec![begin(1, &post("3")), frame(DATA, END_STREAM, 1, b"ab")],
        vec![frame(HEADERS, ends, 1, &post("3"))],
        vec![begin(1, &post("4")), padded],
        vec![begin(1, &post("3")), frame(DATA, PADDED, 1, b"\x09ab")],
        vec![
            begin(1, &request("GET", &[])),
            frame(DATA, END_STREAM, 1, b"a"),
        ],
        // A body and trailers of no request, a request on a stream that has been, or on the host's.
        vec![frame(DATA, 0, 1, b"a")],
        vec![frame(HEADERS, ends, 1, &trailers)],
        vec![
            begin(1, &post("0")),
            frame(HEADERS, END_HEADERS, 1, &trailers),
        ],
        vec![begin(3, &post("0")), begin(1, &post("0"))],
        vec![begin(1, &post("0")), begin(1, &post("0"))],
        vec![begin(2, &post("0"))],
    ] {
        assert_eq!(all(&frames), Err(Refusal::Malformed), "{frames:?}");
    }
}

#[test]
fn the_host_is_named_once_and_in_one_form() {
    let list = [
        (":method", "GET"),
        (":path", "/"),
        (":scheme", "https"),
        ("host", "API.example.:443"),
        ("te", "trailers"),
    ];
    let (found, asked) = one(&list).unwrap();
    let wanted = [
        (":method", "GET"),
        (":path", "/"),
        (":authority", "api.example:443"),
        (":scheme", "https"),
        ("te", "trailers"),
    ];
    let block = hpack::encode(&[], &headers(&wanted));
    assert!(found.ends_with(&block));
    assert_eq!(asked.0[0].0.port, Some(443));
}

proptest! {
    #[test]
    fn any_bytes_are_passed_or_refused(
        frames in prop::collection::vec((0u8..12, any::<u8>(), 0u8..4, prop::collection::vec(any::<u8>(), 0..200)), 0..20),
        size in 1usize..100,
    ) {
        let place = place(vec![secret("v")]);
        let (mut rewriter, mut out, mut asked) = (Rewriter::default(), Out::default(), Asked::default());
        let mut bytes = PREFACE.to_vec();
        for (kind, flags, stream, payload) in frames {
            bytes.extend(frame(kind, flags, stream, &payload));
        }
        for part in bytes.chunks(size) {
            if rewriter.feed(part, &place, &mut asked, &mut out).is_err() {
                break;
            }
        }
    }
}
