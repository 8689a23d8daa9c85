//! The official conformance suite against this server, over HTTP, in the two newest revisions.
//!
//! `tools/setup test` installs the suite. What it names and we do not have is in [`fixture`];
//! everything that a revision requires must pass. `rest.txt` says why the others, which the suite
//! runs and does not count, do not.

mod fixture;

use crate::approve::Seal;
use crate::http::{Door, Http};
use crate::{Options, Profile, Server};
use fixture::Fixture;
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use motu_core::verb::Recorder;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "Bearer 0123456789abcdef";
const REST: &str = include_str!("rest.txt");

/// A file of the clients, if they are installed.
fn client(name: &str) -> Option<PathBuf> {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients");
    let path = clients.join(name);
    if path.exists() {
        return Some(path);
    }
    let missing = "the conformance suite is not installed; run tools/setup test";
    assert!(std::env::var_os("MOTU_NO_SKIP").is_none(), "{missing}");
    eprintln!("skipped: {missing}");
    None
}

/// Serves what the suite must be able to name; the suite has no token, so it is given one here.
async fn serving(stop: CancellationToken) -> u16 {
    let options = Options {
        profile: Profile::All,
        awake: Arc::new(|| false),
        ..Options::default()
    };
    let fixture = Fixture {
        inner: Server::new(Arc::new(Recorder::default()), options),
        seal: Arc::new(Seal::new()),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = Http {
        address: listener.local_addr().unwrap(),
        token: TOKEN.trim_start_matches("Bearer ").to_string(),
        hosts: Vec::new(),
        origins: Vec::new(),
    };
    let port = http.address.port();
    let door = Door::new(&http, http.address, stop.child_token(), move || {
        fixture.clone()
    });
    let door = Arc::new(door);
    let accepting = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let door = door.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                let token = HeaderValue::from_static(TOKEN);
                request.headers_mut().insert(header::AUTHORIZATION, token);
                let door = door.clone();
                async move { Ok::<_, Infallible>(door.answer(request).await) }
            });
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serving);
        }
    };
    tokio::spawn(stop.run_until_cancelled_owned(accepting));
    port
}

/// The scenarios of a summary that failed.
fn failed(printed: &str) -> BTreeSet<String> {
    let failed = printed.lines().filter_map(|line| line.strip_prefix("✗ "));
    let names = failed.filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.to_string()).collect()
}

async fn passes(revision: &'static str) {
    let (Some(node), Some(suite)) = (
        client("nodejs/node_modules/.bin/node"),
        client("conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"),
    ) else {
        return;
    };
    let stop = CancellationToken::new();
    let port = serving(stop.clone()).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let ran = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(node);
        command.arg(suite).args(["server", "--url", &url]);
        command.args(["--requirements", revision, "--timeout", "300000"]);
        command.output().unwrap()
    });
    let ran = ran.await.unwrap();
    stop.cancel();
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    let summary = printed.split("=== SUMMARY ===").nth(1).unwrap_or(&printed);
    println!("{summary}");
    let known = REST.lines().filter(|line| !line.starts_with('#'));
    let known = known.filter_map(|line| line.strip_prefix(revision)?.split_whitespace().next());
    let known: BTreeSet<String> = known.map(String::from).collect();
    assert_eq!(failed(summary), known, "{printed}");
    assert!(ran.status.success(), "{printed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_revision() {
    passes("2026-07-28").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_revision_before() {
    passes("2025-11-25").await;
}
