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
    let block = hpack::encode(
        &[0, 4096],
        &headers(&get(&path, &[("authorization", &bearer)])),
    );
    let (one, two) = block.split_at(50);
    let padded = [&[3][..], &[0, 0, 0, 0, 7], one, &[0; 3]].concat();
    let settings = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let data = frame(0, 1, 1, PLACE.as_bytes());
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
        &trailers,
    ]
    .concat();
    let mut wanted = headers(&get("/x?k=s3cret", &[("authorization", "Bearer s3cret")]));
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
