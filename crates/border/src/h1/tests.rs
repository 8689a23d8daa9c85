use super::*;
use crate::secret::Secret;
use crate::swap::tests::{PLACE, secret};
use proptest::prelude::*;
use std::sync::Arc;

/// Allows everything but one path, and records what it was asked.
#[derive(Default)]
struct Asked(Vec<(String, Vec<String>)>);

impl Gate for Asked {
    fn ask(&mut self, request: &Request, used: &[String]) -> bool {
        self.0.push((request.path.clone(), used.to_vec()));
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

fn rewrite(text: &[u8], size: usize, place: &Place) -> Result<(Out, Asked, Rewriter), Refusal> {
    let (mut rewriter, mut out, mut asked) =
        (Rewriter::default(), Out::default(), Asked::default());
    for part in text.chunks(size) {
        rewriter.feed(part, Some(place), &mut asked, &mut out)?;
    }
    Ok((out, asked, rewriter))
}

fn forward(text: &str, size: usize, place: &Place) -> Result<String, Refusal> {
    let (out, ..) = rewrite(text.as_bytes(), size, place)?;
    Ok(String::from_utf8(out.forward).unwrap())
}

#[test]
fn placeholders_leave_as_values_wherever_the_stream_is_cut() {
    let place = place(vec![secret("s3cret &")]);
    let text = format!(
        "GET /a/{PLACE}?k={PLACE} HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer {PLACE}\r\n\r\n\
         POST /b HTTP/1.1\r\nhost: api.example:443\r\nX-Key:{PLACE}\r\nContent-Length: 49\r\n\r\n{PLACE}\
         PUT /c HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    );
    let wanted = format!(
        "GET /a/{PLACE}?k=s3cret%20%26 HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer s3cret &\r\n\r\n\
         POST /b HTTP/1.1\r\nHost: api.example:443\r\nX-Key: s3cret &\r\nContent-Length: 49\r\n\r\n{PLACE}\
         PUT /c HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    );
    for size in 1..text.len() {
        assert_eq!(forward(&text, size, &place).unwrap(), wanted, "{size}");
    }
    let (_, asked, rewriter) = rewrite(text.as_bytes(), 7, &place).unwrap();
    assert!(rewriter.is_even());
    let key = vec!["key".to_owned()];
    assert_eq!(
        asked.0,
        [
            (format!("/a/{PLACE}"), key.clone()),
            ("/b".to_owned(), key),
            ("/c".to_owned(), vec![]),
        ]
    );
}

#[test]
fn bodies_are_rewritten_for_those_who_asked_for_it() {
    let place = place(vec![Secret {
        body: true,
        ..secret("a\"b")
    }]);
    let body = format!("{{\"k\":\"{PLACE}\"}}");
    let length = body.len();
    let with = |framing: &str, body: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\n{framing}\r\n\r\n{body}"
        )
    };
    let wanted = with("Content-Length: 12", "{\"k\":\"a\\\"b\"}");
    let plain = with(&format!("Content-Length: {length}"), &body);
    let (one, two) = body.split_at(20);
    let chunks = format!(
        "{:x}\r\n{one}\r\n{:x};x=y\r\n{two}\r\n0\r\nT: u\r\n\r\n",
        one.len(),
        two.len()
    );
    let chunked = with("Transfer-Encoding: chunked", &chunks);
    let expects = with(
        &format!("Expect: 100-continue\r\nContent-Length: {length}"),
        &body,
    );
    for size in 1..plain.len() {
        assert_eq!(forward(&plain, size, &place).unwrap(), wanted);
        assert_eq!(forward(&chunked, size, &place).unwrap(), wanted);
        assert_eq!(forward(&expects, size, &place).unwrap(), wanted);
    }
    let (out, ..) = rewrite(expects.as_bytes(), 900, &place).unwrap();
    assert_eq!(out.back, b"HTTP/1.1 100 Continue\r\n\r\n");
    let large = with(&format!("Content-Length: {}", BODY + 1), "");
    assert_eq!(forward(&large, 900, &place), Err(Refusal::TooLarge));
    let grows = with("Transfer-Encoding: chunked", "8000\r\n");
    let mut grows = grows.into_bytes();
    for _ in 0..=BODY / 0x8000 {
        grows.extend(vec![b'x'; 0x8000]);
        grows.extend_from_slice(b"\r\n8000\r\n");
    }
    assert_eq!(
        rewrite(&grows, 10_000, &place).err(),
        Some(Refusal::TooLarge)
    );
}

#[test]
fn what_two_servers_could_read_in_two_ways_is_refused() {
    let place = place(vec![secret("v")]);
    let with = |headers: &str| format!("POST / HTTP/1.1\r\nHost: api.example\r\n{headers}\r\n\r\n");
    for headers in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Content-Length: 1\r\nContent-Length: 1",
        "Transfer-Encoding: gzip, chunked",
        "A: b\r\n c",
        "A : b",
        "A: b\nC: d",
        "Host: api.example",
    ] {
        assert_eq!(
            forward(&with(headers), 900, &place),
            Err(Refusal::Malformed),
            "{headers}"
        );
    }
    let chunk = "Transfer-Encoding: chunked\r\n\r\nxyz\r\n";
    assert_eq!(forward(&with(chunk), 900, &place), Err(Refusal::Malformed));
    for (text, refusal) in [
        (
            "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
            Refusal::NameMismatch,
        ),
        (
            "GET / HTTP/1.1\r\nHost: api.example:80\r\n\r\n",
            Refusal::NameMismatch,
        ),
        ("GET / HTTP/1.1\r\n\r\n", Refusal::NameMismatch),
        (
            "GET https://api.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
            Refusal::Malformed,
        ),
        (
            "GET / HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\n\r\n",
            Refusal::Upgrade,
        ),
        (
            "CONNECT / HTTP/1.1\r\nHost: api.example\r\n\r\n",
            Refusal::Upgrade,
        ),
        (
            "GET http://api.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
            Refusal::Malformed,
        ),
        (
            "TRACE / HTTP/1.1\r\nHost: api.example\r\n\r\n",
            Refusal::Echo,
        ),
        (
            "Track / HTTP/1.1\r\nHost: api.example\r\n\r\n",
            Refusal::Echo,
        ),
        (
            "GET /no HTTP/1.1\r\nHost: api.example\r\n\r\n",
            Refusal::NotAllowed,
        ),
    ] {
        assert_eq!(forward(text, 900, &place), Err(refusal), "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_passed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000), size in 1usize..50, body: bool) {
        let place = place(vec![Secret { body, ..secret("v") }]);
        let _ = rewrite(&bytes, size, &place);
        let mut request = b"POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n".to_vec();
        request.extend(bytes);
        let _ = rewrite(&request, size, &place);
    }

    #[test]
    fn without_placeholders_a_body_leaves_as_it_came(body in prop::collection::vec(any::<u8>(), 0..3000), size in 1usize..500) {
        let place = place(vec![secret("v")]);
        let mut text = format!("POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        text.extend(&body);
        let (out, ..) = rewrite(&text, size, &place).unwrap();
        prop_assert_eq!(out.forward, text);
    }
}

/// Without a place, as on a connection that is not encrypted, the gate alone decides.
#[test]
fn without_a_place_requests_are_written_anew_and_nothing_is_inserted() {
    let text = format!(
        "GET http://A.example/a HTTP/1.1\r\nHost: a.example.\r\nX-Key: {PLACE}\r\n\r\n\
         GET /no HTTP/1.1\r\nHost: a.example\r\n\r\n"
    );
    let (mut rewriter, mut out, mut asked) =
        (Rewriter::default(), Out::default(), Asked::default());
    let fed = rewriter.feed(text.as_bytes(), None, &mut asked, &mut out);
    assert_eq!(fed, Err(Refusal::NotAllowed));
    let wanted = format!("GET /a HTTP/1.1\r\nHost: a.example\r\nX-Key: {PLACE}\r\n\r\n");
    assert_eq!(String::from_utf8(out.forward).unwrap(), wanted);
    assert_eq!(asked.0.len(), 2);
}
