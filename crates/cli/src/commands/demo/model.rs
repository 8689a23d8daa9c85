//! A model behind an endpoint that speaks as Ollama does: `POST BASE/chat/completions`.
//!
//! What it says is foreign: it is bounded here, and shown only after it was made safe.

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use motu_core::{Error, ErrorKind, Result};
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;

/// The longest answer of a model that is read.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Where a model is.
#[derive(Clone, Debug)]
pub struct Endpoint {
    base: String,
    /// Where completions are asked for.
    path: String,
    host: String,
    port: u16,
}

impl std::str::FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint> {
        let wrong = |why: &str| {
            Error::invalid(format!("{text:?} is no endpoint: {why}"))
                .hint("write http://HOST:PORT/v1")
        };
        let uri: Uri = text.parse().map_err(|_| wrong("it is no URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("only a model in reach of plain HTTP is asked")),
            _ => return Err(wrong("it does not begin with http://")),
        }
        let host = uri.host().ok_or_else(|| wrong("it names no host"))?;
        Ok(Endpoint {
            path: format!("{}/chat/completions", uri.path().trim_end_matches('/')),
            base: text.trim_end_matches('/').to_string(),
            // An IPv6 address is in brackets.
            host: host.trim_matches(['[', ']']).to_string(),
            port: uri.port_u16().unwrap_or(80),
        })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.base)
    }
}

impl Endpoint {
    /// Sends a conversation and answers with what the model adds to it.
    pub async fn ask(&self, conversation: &Value, patience: Duration) -> Result<Value> {
        let asked = tokio::time::timeout(patience, self.exchange(conversation));
        let answer = asked.await.map_err(|_| {
            Error::new(ErrorKind::Timeout, "the model has not answered in time")
                .hint("give it longer with --timeout-seconds, or take a smaller model")
        })??;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| self.broken("its answer is not JSON".to_string()))?;
        match answer.pointer("/choices/0/message") {
            Some(message) if message.is_object() => Ok(message.clone()),
            _ => Err(self.broken("its answer has no message".to_string())),
        }
    }

    async fn exchange(&self, conversation: &Value) -> Result<Bytes> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| {
            Error::unavailable(format!("no model is at {self}: {error}"))
                .hint("start it with `ollama serve`, or say where it is with --base-url")
        })?;
        let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = made.map_err(|error| self.broken(error.to_string()))?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(conversation.to_string())))
            .map_err(|error| self.broken(error.to_string()))?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| self.broken(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES).collect();
        let body = body.await.map_err(|error| self.broken(error.to_string()))?;
        connection.abort();
        let body = body.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let said: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        Err(
            Error::unavailable(format!("the model's server answers {status}: {said}"))
                .hint("`ollama list` shows which models there are; name one with --model"),
        )
    }

    fn broken(&self, why: String) -> Error {
        Error::transport(format!("{self} does not speak as Ollama does: {why}"))
            .hint("the address of Ollama ends with /v1: http://localhost:11434/v1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_plain_address() {
        let endpoint: Endpoint = "http://[::1]:11434/v1/".parse().expect("an endpoint");
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 11434));
        assert_eq!(endpoint.to_string(), "http://[::1]:11434/v1");
        assert_eq!(endpoint.path, "/v1/chat/completions");
        for wrong in ["https://model.test/v1", "localhost:11434", "ftp://a", ""] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
