//! From a request to a call and from its answer to a response: one way for every shape.
//!
//! The routes are made by walking over the list of verbs. No verb has a handler of its own,
//! except where one address serves several (`by_hand`).

mod answers;
mod by_hand;
mod dial;
mod etag;
mod files;

use crate::app::App;
use crate::extract::{self, AddressParts, Introduced, Upgrade};
use crate::fault::Fault;
use crate::stream::{Inbound, respond};
use crate::websocket::{self, Mode};
pub use by_hand::KILL_PATH;

use answers::{download, reply};
use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use futures_util::future::BoxFuture;
use motu_core::exec::ExecSession;
use motu_core::files::{ByteStream, FileEntry, ReadFile};
use motu_core::report::ProgressSink;
use motu_core::runtime::Connection;
use motu_core::verb::{self, Ask, Changes, Info, Method, Value, Verb, Visit};
use motu_gate::Caller;
use std::sync::Arc;

/// What a handler gives.
type Answer<T> = Result<T, Fault>;

/// Every verb at its address.
pub fn routes() -> Router<App> {
    let mut routes = Routes {
        router: by_hand::routes(),
    };
    verb::visit(&mut routes);
    routes.router
}

/// Makes a route of each verb that is shown to it.
struct Routes {
    router: Router<App>,
}

impl Routes {
    fn add<H, T>(&mut self, method: MethodFilter, path: &str, handler: H)
    where
        H: Handler<T, App>,
        T: 'static,
    {
        let router = std::mem::take(&mut self.router);
        self.router = router.route(path, on(method, handler));
    }

    fn verb<F, R>(&mut self, info: &Info, handler: F)
    where
        F: Fn(State<App>, Introduced, AddressParts, Request) -> R + Send + Sync + 'static,
        R: Future<Output: IntoResponse> + Send + 'static,
    {
        if !by_hand::serves(info) {
            self.handle(filter(info.method), info.path, boxed(handler));
        }
    }

    fn handle(&mut self, method: MethodFilter, path: &str, handling: Handling) {
        let handler = move |app: State<App>, caller: Introduced, parts: AddressParts, ask| {
            handling(app, caller, parts, ask)
        };
        self.add(method, path, handler);
    }
}

/// A handler whose type does not tell its verb: what the router makes of a handler is then
/// compiled once, and not for each of some hundred and fifty.
type Handling = Arc<
    dyn Fn(State<App>, Introduced, AddressParts, Request) -> BoxFuture<'static, Response>
        + Send
        + Sync,
>;

fn boxed<F, R>(handler: F) -> Handling
where
    F: Fn(State<App>, Introduced, AddressParts, Request) -> R + Send + Sync + 'static,
    R: Future<Output: IntoResponse> + Send + 'static,
{
    Arc::new(move |app, caller, parts, request| {
        let answer = handler(app, caller, parts, request);
        Box::pin(async move { answer.await.into_response() })
    })
}

fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}

impl Visit for Routes {
    fn value<V: Verb<Extra = (), Answer: Value>>(&mut self) {
        self.verb(&V::INFO, value::<V>);
    }

    fn text<V: Verb<Extra = (), Answer = String>>(&mut self) {
        self.verb(&V::INFO, text::<V>);
    }

    fn open<V: Verb<Extra = (), Answer = ExecSession>>(&mut self) {
        self.verb(&V::INFO, open::<V>);
        let path = format!("{}/ws", V::INFO.path);
        self.add(MethodFilter::GET, &path, open_ws::<V>);
    }

    fn attach<V: Verb<Extra = (), Answer = ExecSession>>(&mut self) {
        self.verb(&V::INFO, attach::<V>);
        self.handle(MethodFilter::GET, V::INFO.path, boxed(follow::<V>));
        let path = format!("{}/ws", V::INFO.path);
        self.add(MethodFilter::GET, &path, attach_ws::<V>);
    }

    fn bytes<V: Verb<Extra = (), Answer = ByteStream>>(&mut self) {
        self.verb(&V::INFO, bytes::<V>);
    }

    fn file<V: Verb<Extra = (), Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(&mut self) {
        self.verb(&V::INFO, files::file::<V>);
    }

    fn lines<V: Verb<Extra = (), Answer = Changes>>(&mut self) {
        self.verb(&V::INFO, files::lines::<V>);
    }

    fn dial<V: Verb<Extra = (), Answer = Connection>>(&mut self) {
        self.verb(&V::INFO, dial::dial::<V>);
    }

    fn upload<V: Verb<Extra = ByteStream, Answer: Value>>(&mut self) {
        self.verb(&V::INFO, files::upload::<V>);
    }

    fn steps<V: Verb<Extra = ProgressSink, Answer: Value>>(&mut self) {
        self.verb(&V::INFO, answers::steps::<V>);
    }
}

/// A call from the parts of its address and its query.
fn from_address<V: Verb>(parts: &AddressParts, query: Option<&str>) -> Answer<V> {
    let ask = motu_api::address::from_query(query.unwrap_or_default())?;
    with_ask(parts, ask)
}

fn with_ask<V: Verb>(parts: &AddressParts, ask: V::Ask) -> Answer<V> {
    let parts: Vec<&str> = parts.iter().map(|(_, value)| value).collect();
    Ok(V::read(&parts, ask)?)
}

/// A call from its address and, where it says so, its body.
async fn whole<V: Verb>(parts: &AddressParts, request: Request) -> Answer<V> {
    if V::INFO.asks_in_query() {
        return from_address(parts, request.uri().query());
    }
    let most = extract::limit(V::Ask::LONG);
    let body = extract::read_limited(request.into_body(), most).await;
    let ask = body.and_then(|body| motu_api::address::from_body(&body));
    with_ask(
        parts,
        ask.or_else(|error| V::Ask::misread(&error).ok_or(error))?,
    )
}

async fn value<V: Verb<Extra = (), Answer: Value>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let asked = (V::INFO.method == Method::Get).then(|| request.headers().clone());
    let call: V = whole(&parts, request).await?;
    let answer = app.gate.call(&caller, call, ()).await?;
    match asked {
        Some(headers) => etag::json(&headers, &answer),
        None => reply::<V>(&answer),
    }
}

async fn text<V: Verb<Extra = (), Answer = String>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<String> {
    let call: V = whole(&parts, request).await?;
    Ok(app.gate.call(&caller, call, ()).await?)
}

async fn open<V: Verb<Extra = (), Answer = ExecSession>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let mut inbound = Inbound::new(request.into_body());
    let call: V = with_ask(&parts, inbound.request().await?)?;
    let session = app.gate.call(&caller, call, ()).await?;
    Ok(respond(&app, session, inbound))
}

async fn open_ws<V: Verb<Extra = (), Answer = ExecSession>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    uri: http::Uri,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let (mode, _) = Mode::read(uri.query().unwrap_or_default())?;
    let gate = app.gate.clone();
    let parts: Vec<String> = parts.iter().map(|(_, value)| value.to_string()).collect();
    let open = |ask: V::Ask| async move {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        gate.call(&caller, V::read(&parts, ask)?, ()).await
    };
    Ok(websocket::serve(&app, upgrade, mode, open))
}

/// What runs on without its callers, as one of them sees it: until the server leaves, too.
async fn attached<V: Verb<Extra = (), Answer = ExecSession>>(
    app: &App,
    caller: &Caller,
    call: V,
) -> Answer<ExecSession> {
    let mut session = app.gate.call(caller, call, ()).await?;
    session.events = app.while_serving(session.events);
    Ok(session)
}

async fn attach<V: Verb<Extra = (), Answer = ExecSession>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let call: V = from_address(&parts, request.uri().query())?;
    let session = attached(&app, &caller, call).await?;
    Ok(respond(&app, session, Inbound::new(request.into_body())))
}

/// A live session that is only listened to: `GET`, without a body.
async fn follow<V: Verb<Extra = (), Answer = ExecSession>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let call: V = from_address(&parts, request.uri().query())?;
    let session = attached(&app, &caller, call).await?;
    Ok(respond(&app, session, Inbound::none()))
}

async fn attach_ws<V: Verb<Extra = (), Answer = ExecSession>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    uri: http::Uri,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let (mode, query) = Mode::read(uri.query().unwrap_or_default())?;
    let call: V = from_address(&parts, Some(&query))?;
    let session = attached(&app, &caller, call).await?;
    Ok(websocket::serve_attached(&app, upgrade, mode, session))
}

async fn bytes<V: Verb<Extra = (), Answer = ByteStream>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let call: V = from_address(&parts, request.uri().query())?;
    let content = app.gate.call(&caller, call, ()).await?;
    let kind = answers::content_type(V::INFO.content);
    let response = ([kind], download(content).await?).into_response();
    // A download has an end to wait for, the audit log has none.
    Ok(match V::INFO.name == verb::FollowAudit::INFO.name {
        true => app.body_while_serving(response),
        false => response,
    })
}
