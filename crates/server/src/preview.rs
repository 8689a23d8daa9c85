//! What listens inside a sandbox, seen through the API: requests below
//! `/v1/sandboxes/{id}/ports/{port}/` go to that port, as HTTP/1.1.
//!
//! ```text
//!   request ──► headers that are this hop's, and keys of ours, taken out ──► gate: dial ──► the port
//!   answer  ◄── what is this hop's, ours, or about more than this port, taken out ◄──────┘
//! ```
//!
//! Whatever is paused because it was quiet goes on for it. A request that upgrades (a WebSocket) is joined with the port from then on. The other side is
//! hostile: it decides what is in the answer, and nothing else. By the name of its port it has an
//! origin to itself; below the API it shares the API's, so what it answers is a sandboxed document
//! there, and its cookies stay below its own address.

use crate::app::App;
use crate::capsules;
use crate::extract::{AddressParts, Introduced};
use crate::fault::Fault;
use crate::hosts;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use motu_core::runtime::Connection;
use motu_core::sandbox::{Sandbox, State as Life};
use motu_core::verb::{Dial, GetSandbox, ResumeSandbox, Verb as _};
use motu_core::{Error, ErrorKind, key};
use motu_gate::Caller;

/// Headers that are about one connection, not about the message.
const OF_ONE_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers with which an answer would be about more than itself: about other ports of the same host,
/// later visits, what the browser keeps, or a password that it asks for in the name of the host.
const OF_THE_HOST: [HeaderName; 14] = [
    header::STRICT_TRANSPORT_SECURITY,
    header::ALT_SVC,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("authentication-info"),
    HeaderName::from_static("proxy-authentication-info"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("public-key-pins"),
    HeaderName::from_static("expect-ct"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("set-cookie2"),
    HeaderName::from_static("set-login"),
    HeaderName::from_static("origin-policy"),
];
/// A page below the API has an origin of its own: it reads nothing of the API and registers nothing
/// there. It may still run.
const SANDBOXED: &str =
    "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads";
/// How a key of ours begins in `Authorization`, in capitals or not. It never reaches a sandbox.
const OUR_KEY: &[u8] = b"bearer motu_";
/// Headers of ours begin so; an answer from a sandbox has none.
const OUR_NAMES: &str = "motu-";
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

pub fn routes() -> Router<App> {
    Router::new()
        .route("/v1/sandboxes/{id}/ports/{port}/", any(preview))
        .route("/v1/sandboxes/{id}/ports/{port}/{*path}", any(preview))
}

async fn preview(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Result<Response, Fault> {
    let named: Vec<&str> = parts.iter().map(|(_, value)| value).collect();
    let named = named.get(..2).unwrap_or_default();
    let dial = Dial::read(named, Default::default())?;
    let [id, port] = named else {
        return Err(Error::internal("an address without a port").into());
    };
    let prefix = format!("/v1/sandboxes/{id}/ports/{port}");
    let connection = reached(&app, &caller, dial).await?;
    let inside = TokioIo::new(tokio::io::join(connection.read, connection.write));
    let (mut sender, served) = http1::handshake(inside)
        .await
        .map_err(|error| unanswered(port, &error))?;
    // The caller's own connection counts as a call until it is answered.
    let guard = app.activity.enter_open_ended();
    tokio::spawn(async move {
        let _guard = guard;
        // Its end is also that of the request or the answer, which say why.
        let _ = served.with_upgrades().await;
    });
    let by_name = hosts::by_name(&request);
    // Callers who came by the port's name see no prefix.
    let shown = if by_name { "" } else { &prefix[..] };
    let (request, outside) = inward(request, &prefix, shown, port)?;
    let mut answer = sender
        .send_request(request)
        .await
        .map_err(|error| unanswered(port, &error))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let inside = hyper::upgrade::on(&mut answer);
        join(&app, outside, inside);
    }
    Ok(outward(answer.map(Body::new), shown, port))
}

/// Connects to a port. A capsule that its caller has paused goes on for it, as one that was quiet
/// does anywhere.
async fn reached(app: &App, caller: &Caller, dial: Dial) -> Result<Connection, Error> {
    let (one, port) = (dial.id.clone(), dial.port);
    let refused = match app.gate.call(caller, dial, ()).await {
        Err(error) if error.kind == ErrorKind::Conflict => error,
        outcome => return outcome,
    };
    let (id, ask) = (one.clone(), Default::default());
    let again = caller.again();
    let found = app.gate.call(&again, GetSandbox { id, ask }, ()).await;
    let asleep = |one: &Sandbox| one.state == Life::Paused && capsules::is_capsule(one);
    if !found.is_ok_and(|found| asleep(&found)) {
        return Err(refused);
    }
    let (id, ask) = (one.clone(), Default::default());
    let resume = ResumeSandbox { id, ask };
    app.gate.call(&caller.again(), resume, ()).await?;
    let (id, ask) = (one, Default::default());
    app.gate
        .call(&caller.again(), Dial { id, port, ask }, ())
        .await
}

fn unanswered(port: &str, error: &hyper::Error) -> Fault {
    let error = Error::transport(format!("port {port} did not answer in HTTP: {error}"))
        .hint("see that what listens there speaks HTTP/1.1");
    error.into()
}

/// The request as the program inside gets it, and the caller's right to take the connection over.
fn inward(
    request: Request,
    prefix: &str,
    shown: &str,
    port: &str,
) -> Result<(http::Request<Body>, Option<OnUpgrade>), Error> {
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let protocol = parts.headers.get(header::UPGRADE).cloned();
    let whole = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = whole.strip_prefix(prefix).unwrap_or(whole);
    let path: Uri = path
        .parse()
        .map_err(|error| Error::invalid(format!("the address cannot be passed on: {error}")))?;
    let mut headers = parts.headers;
    strip_hop(&mut headers);
    let ours = headers.iter().filter(|(name, value)| is_ours(name, value));
    let ours: Vec<HeaderName> = ours.map(|(name, _)| name.clone()).collect();
    for name in ours {
        headers.remove(name);
    }
    if let Some(host) = headers.remove(header::HOST) {
        headers.insert(FORWARDED_HOST, host);
    }
    // Servers for developers take requests for themselves only.
    let host = format!("localhost:{port}");
    headers.remove(FORWARDED_PREFIX);
    let prefix = (FORWARDED_PREFIX, shown);
    let prefix = Some(prefix).filter(|_| !shown.is_empty());
    for (name, value) in [(header::HOST, &host[..])].into_iter().chain(prefix) {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    if let (Some(protocol), Some(_)) = (&protocol, &upgrade) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    let mut request = http::Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = path;
    *request.headers_mut() = headers;
    Ok((request, upgrade))
}

/// The answer as the caller gets it.
fn outward(mut answer: Response, prefix: &str, port: &str) -> Response {
    let switches = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    let protocol = answer.headers().get(header::UPGRADE).cloned();
    let headers = answer.headers_mut();
    strip_hop(headers);
    let ours = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OUR_NAMES));
    let ours: Vec<HeaderName> = ours.cloned().collect();
    for name in ours.iter().chain(&OF_THE_HOST) {
        headers.remove(name);
    }
    keep_cookies_here(headers, prefix);
    if !prefix.is_empty() && !switches {
        let sandboxed = HeaderValue::from_static(SANDBOXED);
        headers.append(header::CONTENT_SECURITY_POLICY, sandboxed);
    }
    if let Some(protocol) = protocol.filter(|_| switches) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    let location = headers.get(header::LOCATION);
    let location = location.and_then(|value| moved(value.to_str().ok()?, prefix, port));
    if let Some(location) = location.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::LOCATION, location);
    }
    answer
}

/// Whether a header of a request has a key of ours, which is not for what runs inside.
fn is_ours(name: &HeaderName, value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let begins = |with: &[u8]| {
        let begins = bytes.get(..with.len());
        begins.is_some_and(|begins| begins.eq_ignore_ascii_case(with))
    };
    if key::is_in(bytes) {
        return true;
    }
    match name.as_str() {
        "authorization" => {
            let login = begins(b"basic ").then(|| hosts::password(value.to_str().ok()?.get(6..)?));
            begins(OUR_KEY)
                || login
                    .flatten()
                    .is_some_and(|key| key::is_in(key.as_bytes()))
        }
        "x-api-key" => begins(key::PREFIX.as_bytes()),
        _ => false,
    }
}

/// Keeps the cookies of an answer to the port that sets them: to its name, or to its address below
/// the API.
fn keep_cookies_here(headers: &mut HeaderMap, prefix: &str) {
    let set = headers.get_all(header::SET_COOKIE).iter();
    let set: Vec<HeaderValue> = set.filter_map(|cookie| kept_here(cookie, prefix)).collect();
    headers.remove(header::SET_COOKIE);
    for cookie in set {
        headers.append(header::SET_COOKIE, cookie);
    }
}

fn kept_here(cookie: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
    let mut parts = cookie.as_bytes().split(|byte| *byte == b';');
    let mut kept = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (name, value) = match memchr::memchr(b'=', part) {
            Some(at) => (&part[..at], &part[at + 1..]),
            None => (part, &[][..]),
        };
        let name = name.trim_ascii();
        if name.eq_ignore_ascii_case(b"domain") {
            continue;
        }
        kept.push(b';');
        let path = value.trim_ascii();
        let beside = !prefix.is_empty() && !is_below(path, prefix);
        match name.eq_ignore_ascii_case(b"path") && beside {
            false => kept.extend_from_slice(part),
            true => {
                kept.extend_from_slice(b" Path=");
                kept.extend_from_slice(prefix.as_bytes());
                // Without a path of its own it is for all of the port.
                kept.extend_from_slice(if path.starts_with(b"/") { path } else { b"/" });
            }
        }
    }
    HeaderValue::from_bytes(&kept).ok()
}

fn is_below(path: &[u8], prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Where an answer sends the caller on to, if that is below the same port.
fn moved(location: &str, prefix: &str, port: &str) -> Option<String> {
    let itself = format!("http://localhost:{port}");
    let path = location.strip_prefix(&itself).unwrap_or(location);
    let path = if path.is_empty() { "/" } else { path };
    (path.starts_with('/') && !path.starts_with("//")).then(|| format!("{prefix}{path}"))
}

/// Takes out what is about one connection, also what `Connection` says is.
fn strip_hop(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::CONNECTION).iter();
    let listed = listed.filter_map(|value| value.to_str().ok());
    let listed = listed.flat_map(|value| value.split(','));
    let listed = listed.filter_map(|name| HeaderName::try_from(name.trim()).ok());
    let listed: Vec<HeaderName> = listed.collect();
    for name in listed.iter().chain(&OF_ONE_HOP) {
        headers.remove(name);
    }
}

/// Joins the caller's connection with the one inside, until both have ended.
fn join(app: &App, outside: Option<OnUpgrade>, inside: OnUpgrade) {
    let guard = app.activity.enter_open_ended();
    tokio::spawn(async move {
        let _guard = guard;
        let Some(outside) = outside else { return };
        let (Ok(outside), Ok(inside)) = tokio::join!(outside, inside) else {
            return;
        };
        let (mut outside, mut inside) = (TokioIo::new(outside), TokioIo::new(inside));
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;

    const PREFIX: &str = "/v1/sandboxes/sb/ports/8000";

    fn asked(headers: &[(&str, &str)]) -> http::Request<Body> {
        let address = format!("{PREFIX}/a%20b/?c=d%2F");
        let mut request = http::Request::builder().uri(address);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        inward(request, PREFIX, PREFIX, "8000").unwrap().0
    }

    #[test]
    fn the_address_is_passed_on_as_it_was_written() {
        let request = asked(&[("host", "motu.example")]);
        assert_eq!(request.uri(), "/a%20b/?c=d%2F");
        assert_eq!(request.headers()["host"], "localhost:8000");
        assert_eq!(request.headers()["x-forwarded-host"], "motu.example");
        assert_eq!(request.headers()["x-forwarded-prefix"], PREFIX);
    }

    #[test]
    fn our_key_stays_outside_and_others_go_in() {
        let key = ("authorization", "Bearer motu_k1_abc");
        let other = ("authorization", "Basic dTpw");
        for sent in [
            &[key][..],
            &[("authorization", "bearer motu_k1_abc")],
            &[other, key],
        ] {
            let request = asked(sent);
            assert!(!request.headers().contains_key("authorization"), "{sent:?}");
        }
        let request = asked(&[("authorization", "Basic dTpw")]);
        assert_eq!(request.headers()["authorization"], "Basic dTpw");
    }

    #[test]
    fn headers_of_one_hop_end_there() {
        let listed = [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("x-other", "2"),
        ];
        let request = asked(&listed);
        let mut left: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "x-forwarded-prefix", "x-other"]);
    }

    #[test]
    fn an_answer_has_no_headers_of_ours_and_stays_below_its_port() {
        let answer = http::Response::builder()
            .status(302)
            .header("motu-audit-id", "forged")
            .header("location", "/next?x")
            .header("connection", "close")
            .body(Body::empty())
            .unwrap();
        let answer = outward(answer, PREFIX, "8000");
        let names: Vec<&str> = answer.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["location", "content-security-policy"]);
        assert_eq!(answer.headers()["location"], format!("{PREFIX}/next?x"));
    }

    #[test]
    fn no_key_of_ours_goes_in_by_any_header() {
        let key = format!("motu_abcdefghijkl_{}", "0".repeat(64));
        let login = base64::engine::general_purpose::STANDARD.encode(format!("me:{key}"));
        let sent = [
            ("proxy-authorization", "Basic dTpw".to_string()),
            ("x-api-key", key.clone()),
            ("authorization", format!("Basic {login}")),
            ("cookie", format!("a=b; token={key}")),
            ("x-mine", format!("<{key}>")),
        ];
        for (name, value) in &sent {
            let request = asked(&[(name, value)]);
            assert!(!request.headers().contains_key(*name), "{name}");
        }
        for (name, value) in [("x-api-key", "sk-theirs"), ("cookie", "a=motu_b")] {
            assert_eq!(asked(&[(name, value)]).headers()[name], value);
        }
    }

    /// The headers of an answer as its caller gets them.
    fn answered(headers: &[(&str, &str)], prefix: &str) -> HeaderMap {
        let mut answer = http::Response::builder();
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        let answer = answer.body(Body::empty()).unwrap();
        outward(answer, prefix, "8000").headers().clone()
    }

    #[test]
    fn an_answer_is_about_nothing_but_its_own_port() {
        let names = OF_THE_HOST;
        let sent: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert!(answered(&sent, "").is_empty());
        let csp = ("content-security-policy", "default-src 'self'");
        assert_eq!(answered(&[csp], "").len(), 1);
        let both = answered(&[csp], PREFIX);
        let both: Vec<_> = both.get_all(csp.0).iter().collect();
        assert_eq!(both, [csp.1, SANDBOXED]);
        assert!(!SANDBOXED.contains("allow-same-origin"));
    }

    #[test]
    fn cookies_stay_with_the_port_that_sets_them() {
        let set = |cookie: &str, prefix: &str| {
            let headers = answered(&[("set-cookie", cookie), ("set-cookie", "z=1")], prefix);
            let all: Vec<_> = headers.get_all("set-cookie").iter().collect();
            assert_eq!(all[1], "z=1");
            all[0].to_str().unwrap().to_string()
        };
        let wide = "a=b=c; Domain=.example.com; Path=/; Secure; domain =x; DOMAIN";
        assert_eq!(set(wide, ""), "a=b=c; Path=/; Secure");
        assert_eq!(set(wide, PREFIX), format!("a=b=c; Path={PREFIX}/; Secure"));
        assert_eq!(
            set("a=1; path= /x ", PREFIX),
            format!("a=1; Path={PREFIX}/x")
        );
        assert_eq!(set("a=1; Path", PREFIX), format!("a=1; Path={PREFIX}/"));
        let own = format!("a=1; Path={PREFIX}/x");
        assert_eq!(set(&own, PREFIX), own);
        let beside = format!("{PREFIX}1/x");
        let kept = set(&format!("a=1; Path={beside}"), PREFIX);
        assert_eq!(kept, format!("a=1; Path={PREFIX}{beside}"));
        assert_eq!(set("a=1; HttpOnly", PREFIX), "a=1; HttpOnly");
    }

    #[test]
    fn only_addresses_of_the_port_itself_are_moved() {
        let to = |location| moved(location, PREFIX, "8000");
        assert_eq!(to("/a"), Some(format!("{PREFIX}/a")));
        assert_eq!(to("http://localhost:8000"), Some(format!("{PREFIX}/")));
        assert_eq!(to("http://localhost:8000/x"), Some(format!("{PREFIX}/x")));
        assert_eq!(to("//elsewhere/a"), None);
        assert_eq!(to("https://elsewhere/a"), None);
        assert_eq!(to("relative"), None);
        assert_eq!(to("http://localhost:80001/x"), None);
    }
}
