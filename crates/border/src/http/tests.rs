use super::*;
use proptest::prelude::*;

/// The requests of a stream that is given in parts of `size`, and all of it written anew.
fn requests(text: &str, size: usize) -> Result<(Vec<Request>, String), Malformed> {
    let (mut reader, mut held, mut found) = (Reader::default(), Vec::new(), Vec::new());
    let mut anew = Vec::new();
    for part in text.as_bytes().chunks(size) {
        held.extend_from_slice(part);
        loop {
            let read = match reader.step(&held)? {
                Step::Need => break,
                Step::Body(count) => {
                    anew.extend_from_slice(&held[..count]);
                    count
                }
                Step::Framing { length, anew: text } => {
                    anew.extend_from_slice(text.as_bytes());
                    length
                }
                Step::Head { length, head } => {
                    head.write(&mut anew);
                    found.push(head.request);
                    length
                }
            };
            held.drain(..read);
        }
    }
    Ok((found, String::from_utf8(anew).unwrap()))
}

/// One request, written anew.
fn anew(text: &str) -> Result<String, Malformed> {
    requests(text, text.len().max(1)).map(|(_, anew)| anew)
}

#[test]
fn every_request_of_a_connection_is_seen() {
    let text = "POST /a?x=1 HTTP/1.1\r\nHost: A.example:8080\r\nContent-Length: 5\r\n\r\nGET /\
                GET /b HTTP/1.1\r\nHost: b.example\r\n\r\n\
                PUT /c HTTP/1.1\r\nhost:c.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                4;x=y\r\nGET \r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n\
                GET http://d.example/d HTTP/1.1\r\nHost: d.example\r\n\r\n";
    let wanted = "POST /a?x=1 HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: 5\r\n\r\nGET /\
                  GET /b HTTP/1.1\r\nHost: b.example\r\n\r\n\
                  PUT /c HTTP/1.1\r\nHost: c.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                  4\r\nGET \r\na\r\n0123456789\r\n0\r\n\r\n\
                  GET /d HTTP/1.1\r\nHost: d.example\r\n\r\n";
    for size in [1, 2, 3, 17, 5000] {
        let (found, anew) = requests(text, size).unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|one| (one.method.as_str(), one.path.as_str(), one.host.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [
                ("POST", "/a", Some("a.example")),
                ("GET", "/b", Some("b.example")),
                ("PUT", "/c", Some("c.example")),
                ("GET", "/d", Some("d.example")),
            ]
        );
        assert_eq!(
            (found[0].query.as_str(), found[0].port),
            ("x=1", Some(8080))
        );
        assert_eq!(anew, wanted);
    }
}

#[test]
fn what_is_written_has_one_form() {
    for (given, wanted) in [
        (
            "GET / HTTP/1.1\r\nX-A:  b\t\r\nHOST: A.Example.\r\nAccept:*/*\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nX-A: b\r\nAccept: */*\r\n\r\n",
        ),
        (
            "GET http://A.example:81?q HTTP/1.1\r\nHost: a.example.:81\r\n\r\n",
            "GET /?q HTTP/1.1\r\nHost: a.example:81\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: [2600:0::1]:80\r\nConnection: keep-alive, TE\r\nTE: gzip\r\n\
             Keep-Alive: 5\r\nContent-Length: 000\r\nExpect: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: [2600::1]:80\r\n\r\n",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 002\r\nExpect: 100-Continue\r\n\r\nhi",
            "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\nhi",
        ),
        (
            "GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\nGET /3",
            "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n\
             GET /2 HTTP/1.0\r\nConnection: close\r\n\r\n",
        ),
        // What follows the last request of a connection is sent to nobody.
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ),
        // A body that some servers do not read ends the connection.
        (
            "DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "DELETE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nGET",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
    ] {
        assert_eq!(anew(given).as_deref(), Ok(wanted), "{given:?}");
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_malformed() {
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\n";
    for rest in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "Content-Length: +5\r\n\r\n",
        "Content-Length: 5, 5\r\n\r\n",
        "Content-Length: 99999999999999999999\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n",
        "Transfer_Encoding: chunked\r\n\r\n",
        "Content.Length: 5\r\n\r\n",
        "Host: b.example\r\n\r\n",
        "X: a\r\n folded\r\n\r\n",
        "Content-Length : 5\r\n\r\n",
        "X: a\nHost: b.example\r\n\r\n",
        "X: a\rb\r\n\r\n",
        "X: a\u{7f}b\r\n\r\n",
        "Connection: close, Content-Length\r\nContent-Length: 5\r\n\r\n",
        "Connection: X-Team\r\nX-Team: red\r\n\r\n",
        "Expect: 200-ok\r\nContent-Length: 5\r\n\r\n",
        "Expect: y 100-continue\r\nContent-Length: 5\r\n\r\n",
    ] {
        assert_eq!(anew(&format!("{head}{rest}")), Err(Malformed), "{rest:?}");
    }
    for text in [
        "GET  / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1 \r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET /\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET http://a.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET ftp://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET x://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http:b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http:/// HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a@b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /a#/../b HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [a.example]\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:99999\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n",
    ] {
        assert_eq!(anew(text), Err(Malformed), "{text:?}");
    }
    let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for rest in [
        "-1\r\n",
        "0x5\r\n",
        "\r\n",
        "5\nhello\r\n",
        "5\r\nhelloX",
        "fffffffffffffffff\r\n",
        "0\r\nX : y\r\n",
    ] {
        assert_eq!(
            anew(&format!("{chunked}{rest}")),
            Err(Malformed),
            "{rest:?}"
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(text in "(GET / HTTP/1.1\r\n|POST / HTTP/1.[01]\r\n|Host: a\r\n|\r\n|[0-9a-f\r\n;: ]|Transfer-Encoding: chunked\r\n|Content-Length: 3\r\n|Connection: (close|keep-alive)\r\n){0,40}", size in 1usize..50) {
        let whole = requests(&text, text.len().max(1));
        // The same requests are parsed, however the bytes are split.
        if let Ok((found, anew)) = whole {
            prop_assert_eq!(requests(&text, size), Ok((found.clone(), anew.clone())));
            // What was written is read as what was understood, and written again as it is.
            let (again, twice) = requests(&anew, anew.len().max(1)).unwrap();
            prop_assert_eq!(again.len(), found.len());
            prop_assert_eq!(twice, anew);
        }
    }
}
