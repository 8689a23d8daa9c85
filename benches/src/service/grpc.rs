//! A minimal blocking gRPC client for the daemon's socket: one connection, one call at a time.

use super::Fallible;
use crate::Outcome;
use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use motu_grpc::wire::{ExecRequest, ExecResponse, SERVICE};
use prost::Message;
use std::path::Path;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// A message's length and whether it is compressed come before it.
const PREFIX: usize = 5;

#[derive(Debug)]
pub struct Rpc {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
}

impl Rpc {
    pub fn connect(socket: &Path) -> Fallible<Rpc> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let sender = runtime.block_on(async {
            let stream = TokioIo::new(UnixStream::connect(socket).await?);
            let (sender, connection) = handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            Fallible::Ok(sender)
        })?;
        Ok(Rpc { runtime, sender })
    }

    /// Runs a command to its end; a non-zero exit is an error here.
    pub fn exec(&mut self, id: &str, command: &str) -> Outcome {
        let ask = ExecRequest {
            sandbox_id: id.to_string(),
            cmd: command.to_string(),
            ..ExecRequest::default()
        };
        let answer: ExecResponse = self.call("Exec", &ask)?;
        match answer.exit_code {
            0 => Ok(()),
            code => Err(format!("{command} failed: {code}").into()),
        }
    }

    fn call<A: Message + Default>(&mut self, method: &str, ask: &impl Message) -> Fallible<A> {
        let mut body = BytesMut::with_capacity(PREFIX + ask.encoded_len());
        body.put_u8(0);
        body.put_u32(ask.encoded_len() as u32);
        ask.encode(&mut body)?;
        let request = Request::post(format!("http://motu/{SERVICE}/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(body.freeze()))?;
        let Rpc { runtime, sender } = self;
        let whole = runtime.block_on(async {
            sender.ready().await?;
            let answer = sender.send_request(request).await?;
            let refused = answer.headers().get("grpc-status").cloned();
            let whole = answer.into_body().collect().await?;
            let told = whole.trailers().and_then(|all| all.get("grpc-status"));
            match told.cloned().or(refused) {
                Some(status) if status == "0" => Ok(whole.to_bytes()),
                other => Fallible::Err(format!("{method}: status {other:?}").into()),
            }
        })?;
        let message = whole.get(PREFIX..).ok_or("an answer without a message")?;
        Ok(A::decode(message)?)
    }
}
