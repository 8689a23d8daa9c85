//! A test service on loopback that speaks the E2B API: REST for machines, and for each machine an
//! agent that runs real processes. Machines are directories; everything else is the host's. It is
//! strict: requests that an official client would not send are refused.

use super::agent;
use super::sandbox::Sandbox;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;

const KEY: &str = "e2b_00ff00ff00ff";
/// The time limit of the service on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The behaviour of a service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// Supports only the older routes.
    pub old: bool,
    /// Forgets at once how a process ended.
    pub forgetful: bool,
    /// Does not support ranges of files.
    pub rangeless: bool,
    /// Gives machines internet access, whatever is requested.
    pub open: bool,
}

/// What all handlers know.
pub struct Service {
    pub kind: Kind,
    home: PathBuf,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// Every call, as method and path.
    calls: Mutex<Vec<String>>,
}

pub type Known = Arc<Service>;

impl Service {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sandbox>>> {
        self.sandboxes.lock().expect("not poisoned")
    }

    pub fn find(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.all().get(id).cloned()
    }

    pub fn note(&self, call: String) {
        self.calls.lock().expect("not poisoned").push(call);
    }

    fn end(&self, id: &str) -> bool {
        let found = self.all().remove(id);
        if let Some(sandbox) = &found {
            sandbox.end();
        }
        found.is_some()
    }
}

pub struct Served {
    pub dir: TempDir,
    address: SocketAddr,
    service: Known,
    leave: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn start(kind: Kind) -> Served {
        let dir = tempfile::Builder::new()
            .prefix("e2b-")
            .tempdir()
            .expect("a temporary directory");
        std::fs::write(dir.path().join("key"), KEY).expect("a key");
        let service = Arc::new(Service {
            kind,
            home: dir.path().join("machines"),
            sandboxes: Mutex::default(),
            calls: Mutex::default(),
        });
        let (leave, left) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let known = service.clone();
        let thread = std::thread::spawn(move || serve(known, left, tell));
        let address = told.recv_timeout(SOON).expect("the service is up");
        Served {
            dir,
            address,
            service,
            leave: Some(leave),
            thread: Some(thread),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn key_file(&self) -> PathBuf {
        self.dir.path().join("key")
    }

    /// How many machines the service has.
    pub fn count(&self) -> usize {
        self.service.all().len()
    }

    /// Kills a machine as a crash would.
    pub fn end(&self, id: &str) {
        assert!(self.service.end(id), "there is a machine to end");
    }

    /// Cuts every stream of every machine.
    pub fn cut(&self) {
        for sandbox in self.service.all().values() {
            sandbox.cut();
        }
    }

    /// How many calls began with this text.
    pub fn heard(&self, begins: &str) -> usize {
        let calls = self.service.calls.lock().expect("not poisoned");
        calls.iter().filter(|call| call.starts_with(begins)).count()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let left: Vec<String> = self.service.all().keys().cloned().collect();
        for id in &left {
            self.service.end(id);
        }
        drop(self.leave.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                assert!(ended.is_ok(), "the service fell over");
                assert!(
                    left.is_empty(),
                    "machines are left at the service: {left:?}"
                );
            }
        }
    }
}

fn serve(service: Known, left: oneshot::Receiver<()>, tell: mpsc::Sender<SocketAddr>) {
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a test can start threads");
    threads.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        tell.send(address).expect("somebody waits");
        let serving = axum::serve(listener, routes(service)).into_future();
        tokio::select! {
            served = serving => served.expect("it serves"),
            _ = left => {}
        }
    });
    threads.shutdown_timeout(Duration::from_secs(5));
}

fn routes(service: Known) -> Router {
    let newer = Router::new()
        .route("/v2/sandboxes", post(create).get(list))
        .route("/v2/sandboxes/{id}/connect", post(connect));
    let routes = Router::new()
        .route("/sandboxes", post(create))
        .route("/sandboxes/{id}", get(detail).delete(kill))
        .route("/sandboxes/{id}/connect", post(connect))
        .route("/sandboxes/{id}/pause", post(pause))
        .route("/sandboxes/{id}/timeout", post(timeout));
    let routes = match service.kind.old {
        true => routes.route("/v2/sandboxes", get(list)),
        false => routes.merge(newer),
    };
    let counted = axum::middleware::from_fn_with_state(service.clone(), admit);
    routes
        .layer(counted)
        .merge(agent::routes())
        .with_state(service)
}

/// Checks the key of every REST call.
async fn admit(
    State(service): State<Known>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    service.note(format!("{} {}", request.method(), request.uri().path()));
    let key = request.headers().get("x-api-key");
    match key.is_some_and(|key| key.as_bytes() == KEY.as_bytes()) {
        true => next.run(request).await,
        false => complaint(StatusCode::UNAUTHORIZED, "no such key"),
    }
}

pub fn complaint(status: StatusCode, message: &str) -> Response {
    let body = json!({ "code": status.as_u16(), "message": message });
    (status, axum::Json(body)).into_response()
}

fn unknown() -> Response {
    complaint(StatusCode::NOT_FOUND, "sandbox was not found")
}

fn made(sandbox: &Sandbox) -> Value {
    json!({
        "templateID": sandbox.template, "sandboxID": sandbox.id, "clientID": "test",
        "envdVersion": "0.6.13", "envdAccessToken": sandbox.token, "domain": null,
    })
}

async fn create(State(service): State<Known>, headers: HeaderMap, body: String) -> Response {
    const FIELDS: [&str; 5] = [
        "templateID",
        "timeout",
        "metadata",
        "allow_internet_access",
        "secure",
    ];
    let asked: Value = serde_json::from_str(&body).unwrap_or_default();
    let strange = asked
        .as_object()
        .is_none_or(|fields| fields.keys().any(|name| !FIELDS.contains(&name.as_str())));
    let json = headers
        .get("content-type")
        .is_some_and(|kind| kind == "application/json");
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok());
    let closed = asked["allow_internet_access"] == false;
    if strange || !json || !closed || (key.is_none() && asked["secure"] != true) {
        return complaint(StatusCode::BAD_REQUEST, &format!("not understood: {body}"));
    }
    let (Some(template), Some(seconds)) = (asked["templateID"].as_str(), asked["timeout"].as_u64())
    else {
        return complaint(
            StatusCode::BAD_REQUEST,
            "a template and a timeout are needed",
        );
    };
    if template == "no-such-template" {
        return complaint(StatusCode::NOT_FOUND, "template was not found");
    }
    let id = format!("i{}", motu_core::id::random_name(19));
    let sandbox = Sandbox::new(
        &service.home,
        id.clone(),
        template,
        asked["metadata"].clone(),
    );
    sandbox.prolong(seconds);
    let answer = made(&sandbox);
    service.all().insert(id, Arc::new(sandbox));
    (StatusCode::CREATED, axum::Json(answer)).into_response()
}

async fn detail(State(service): State<Known>, Path(id): Path<String>) -> Response {
    let Some(sandbox) = service.find(&id) else {
        return unknown();
    };
    let mut answer = made(&sandbox);
    let state = if sandbox.is_paused() {
        "paused"
    } else {
        "running"
    };
    answer["state"] = state.into();
    answer["cpuCount"] = 2.into();
    answer["memoryMB"] = 512.into();
    answer["diskSizeMB"] = 1024.into();
    answer["allowInternetAccess"] = service.kind.open.into();
    axum::Json(answer).into_response()
}

/// Machines with all of this metadata.
async fn list(State(service): State<Known>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let wanted = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("metadata="));
    let wanted = wanted
        .map(|text| text.replace("%3D", "="))
        .unwrap_or_default();
    let has = |sandbox: &Sandbox| match wanted.split_once('=') {
        None => true,
        Some((name, value)) => sandbox.metadata[name] == value,
    };
    let all = service.all();
    let found: Vec<Value> = all
        .values()
        .filter(|one| has(one))
        .map(|one| made(one))
        .collect();
    axum::Json(Value::from(found)).into_response()
}

async fn kill(State(service): State<Known>, Path(id): Path<String>) -> Response {
    match service.end(&id) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => unknown(),
    }
}

async fn pause(State(service): State<Known>, Path(id): Path<String>) -> Response {
    let Some(sandbox) = service.find(&id) else {
        return unknown();
    };
    match sandbox.pause() {
        true => StatusCode::NO_CONTENT.into_response(),
        false => complaint(StatusCode::CONFLICT, "sandbox is paused already"),
    }
}

async fn connect(State(service): State<Known>, Path(id): Path<String>, body: String) -> Response {
    let Some(sandbox) = service.find(&id) else {
        return unknown();
    };
    let asked: Value = serde_json::from_str(&body).unwrap_or_default();
    let Some(seconds) = asked["timeout"].as_u64() else {
        return complaint(StatusCode::BAD_REQUEST, "a timeout is needed");
    };
    sandbox.prolong(seconds);
    let status = match sandbox.resume() {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    (status, axum::Json(made(&sandbox))).into_response()
}

async fn timeout(State(service): State<Known>, Path(id): Path<String>, body: String) -> Response {
    let Some(sandbox) = service.find(&id) else {
        return unknown();
    };
    let asked: Value = serde_json::from_str(&body).unwrap_or_default();
    match asked["timeout"].as_u64() {
        Some(seconds) => sandbox.prolong(seconds),
        None => return complaint(StatusCode::BAD_REQUEST, "a timeout is needed"),
    }
    Response::builder()
        .status(StatusCode::NO_CONTENT)
        .body(Body::empty())
        .expect("an answer")
}
