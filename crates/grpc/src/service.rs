//! Dispatches gRPC methods to their handlers: the list of methods, and one function per shape.

use crate::agent::Agent;
use crate::status::status;
use axum::body::Body;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use http::{Request, Response};
use motu_core::limits;
use motu_core::{Error, Result};
use prost::Message;
use std::panic::AssertUnwindSafe;
use tonic::server::{ClientStreamingService, Grpc, ServerStreamingService, UnaryService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

/// A stream of messages to a client.
pub type Outgoing<T> = BoxStream<'static, Result<T>>;

/// Declares the methods: shape, name in the `.proto`, handler.
macro_rules! methods {
    ($methods:ident, $dispatch:ident, $($shape:ident $name:literal = $handler:ident;)*) => {
        /// The names of all methods, as in the `.proto`.
        pub const $methods: &[&str] = &[$($name),*];

        async fn $dispatch(agent: Agent, request: Request<Body>) -> Response<tonic::body::Body> {
            let path = request.uri().path();
            let method = path.rsplit_once('/').map_or("", |(_, method)| method);
            match method {
                $($name => {
                    let handler = move |ask| agent.clone().$handler(ask);
                    methods!(@call $shape)(Handler(handler), request).await
                })*
                _ => unknown(method).into_http(),
            }
        }
    };
    (@call unary) => { unary };
    (@call server_stream) => { server_stream };
    (@call client_stream) => { client_stream };
}

methods! {
    METHODS, dispatch,
    unary "CreateSandbox" = create_sandbox_by_message;
    unary "DestroySandbox" = destroy;
    unary "PauseSandbox" = pause;
    unary "ResumeSandbox" = resume;
    unary "Exec" = run_command;
    unary "ListSandboxes" = list;
    unary "WriteFile" = write_whole_file;
    unary "ReadFile" = read_whole_file;
    unary "ListDir" = list_dir;
    unary "MakeDir" = make_dir;
    unary "RemovePath" = remove_path;
    unary "CreateSnapshot" = save_sandbox;
    unary "DeleteSnapshot" = delete_template;
    server_stream "ExecStream" = follow_command;
    client_stream "WriteFileStream" = write_file_stream;
    server_stream "ReadFileStream" = read_file_stream;
    unary "PingSandbox" = ping;
    unary "Terminate" = terminate;
    unary "GetSandboxMetrics" = get_metrics;
    unary "FlushSandboxMetrics" = flush;
    unary "FlattenRootfs" = flatten;
    server_stream "PtyAttach" = pty_attach;
    unary "PtySendInput" = pty_input;
    unary "PtyResize" = pty_resize;
    unary "PtyKill" = pty_kill;
    unary "StartBackground" = start_background;
    unary "ListProcesses" = list_running;
    unary "KillProcess" = kill_process;
    server_stream "ConnectProcess" = connect_process;
}

methods! {
    EVENT_METHODS, dispatch_events,
    server_stream "Watch" = watch_events;
}

/// Answers one request of the host agent's API.
pub async fn serve(agent: Agent, request: Request<Body>) -> Response<Body> {
    answered(dispatch(agent, request)).await
}

/// Answers one request for events.
pub async fn serve_events(agent: Agent, request: Request<Body>) -> Response<Body> {
    answered(dispatch_events(agent, request)).await
}

/// The answer of a handler; of one that panics it is an error.
async fn answered(dispatched: impl Future<Output = Response<tonic::body::Body>>) -> Response<Body> {
    let answer = AssertUnwindSafe(dispatched).catch_unwind();
    let response = answer.await.unwrap_or_else(|_| {
        let error = Error::internal("the call ended in a bug").hint("`daemon.log` says where");
        status(&error).into_http()
    });
    response.map(Body::new)
}

fn unknown(method: &str) -> Status {
    let error = Error::unsupported(format!("there is no method {method:?}"));
    status(&error.hint("the `.proto` of this version has the methods; reflection gives it"))
}

/// A handler as a tonic service.
struct Handler<F>(F);

fn grpc<A, B>() -> Grpc<ProstCodec<B, A>>
where
    A: Message + Default + 'static,
    B: Message + 'static,
{
    Grpc::new(ProstCodec::default())
        .max_decoding_message_size(limits::GRPC_MESSAGE_BYTES.max as usize)
        .max_encoding_message_size(usize::MAX)
}

async fn unary<A, B, F, T>(
    handler: Handler<F>,
    request: Request<Body>,
) -> Response<tonic::body::Body>
where
    A: Message + Default + 'static,
    B: Message + 'static,
    F: FnMut(A) -> T,
    T: Future<Output = Result<B>> + Send + 'static,
{
    grpc().unary(handler, request).await
}

async fn server_stream<A, B, F, T>(
    handler: Handler<F>,
    request: Request<Body>,
) -> Response<tonic::body::Body>
where
    A: Message + Default + 'static,
    B: Message + 'static,
    F: FnMut(A) -> T,
    T: Future<Output = Result<Outgoing<B>>> + Send + 'static,
{
    grpc().server_streaming(handler, request).await
}

async fn client_stream<A, B, F, T>(
    handler: Handler<F>,
    request: Request<Body>,
) -> Response<tonic::body::Body>
where
    A: Message + Default + 'static,
    B: Message + 'static,
    F: FnMut(Streaming<A>) -> T,
    T: Future<Output = Result<B>> + Send + 'static,
{
    grpc().client_streaming(handler, request).await
}

type Answer<T> = BoxFuture<'static, std::result::Result<tonic::Response<T>, Status>>;

impl<A, B, F, T> UnaryService<A> for Handler<F>
where
    F: FnMut(A) -> T,
    T: Future<Output = Result<B>> + Send + 'static,
{
    type Response = B;
    type Future = Answer<B>;

    fn call(&mut self, request: tonic::Request<A>) -> Self::Future {
        answer((self.0)(request.into_inner()))
    }
}

impl<A, B, F, T> ClientStreamingService<A> for Handler<F>
where
    F: FnMut(Streaming<A>) -> T,
    T: Future<Output = Result<B>> + Send + 'static,
{
    type Response = B;
    type Future = Answer<B>;

    fn call(&mut self, request: tonic::Request<Streaming<A>>) -> Self::Future {
        answer((self.0)(request.into_inner()))
    }
}

impl<A, B, F, T> ServerStreamingService<A> for Handler<F>
where
    B: 'static,
    F: FnMut(A) -> T,
    T: Future<Output = Result<Outgoing<B>>> + Send + 'static,
{
    type Response = B;
    type ResponseStream = BoxStream<'static, std::result::Result<B, Status>>;
    type Future = Answer<Self::ResponseStream>;

    fn call(&mut self, request: tonic::Request<A>) -> Self::Future {
        let opening = (self.0)(request.into_inner());
        answer(opening.map(|opened| {
            let messages = opened?;
            Ok(messages
                .map(|message| message.map_err(|error| status(&error)))
                .boxed())
        }))
    }
}

fn answer<B>(call: impl Future<Output = Result<B>> + Send + 'static) -> Answer<B> {
    Box::pin(call.map(|done| {
        done.map(tonic::Response::new)
            .map_err(|error| status(&error))
    }))
}
