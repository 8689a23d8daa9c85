//! Delivers requests when daemons are replaced.
//!
//! A killed daemon keeps its socket for a moment: the kernel accepts connections and resets them
//! unread. Such a request is sent again, to the next daemon, but only if it is certain that it had
//! no effect:
//!
//! - a read-only request may always be sent again;
//! - a reset or a broken pipe before the first byte of an answer means that part of the request was
//!   never read, and a request with a complete body takes effect only after all of it was read;
//! - a streamed body cannot be sent twice, so its connection is tested first.

use super::{Call, Client, Connection, Content, broken};
use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use motu_core::{Error, Result};
use std::time::Duration;

/// Attempts per request; each but the last met a dying daemon.
const ATTEMPTS: u32 = 8;
/// The pause after the first attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(5);

/// Why there is no answer.
pub(super) enum Unsent {
    /// The request had no effect.
    NotTaken(Error),
    /// The request may have had an effect.
    Unknown(Error),
}

impl Unsent {
    /// `came_back` means that nothing of the request was sent.
    pub(super) fn of(error: &hyper::Error, came_back: bool) -> Unsent {
        match came_back || was_reset(error) {
            true => Unsent::NotTaken(broken(error)),
            false => Unsent::Unknown(broken(error)),
        }
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Unsent::NotTaken(error) | Unsent::Unknown(error) => error,
        }
    }
}

/// Whether the other side closed the connection before it had read everything.
fn was_reset(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            return matches!(io.kind(), BrokenPipe | ConnectionReset);
        }
        cause = current.source();
    }
    false
}

impl Call {
    /// A copy to send again; `None` if the body is a stream.
    fn copy(&self) -> Option<Call> {
        match &self.content {
            Content::Whole(bytes) => Some(Call {
                method: self.method.clone(),
                target: self.target.clone(),
                content: Content::Whole(bytes.clone()),
                headers: self.headers.clone(),
            }),
            Content::Stream(_) => None,
        }
    }
}

impl Client {
    /// Sends a call to a live daemon, and reads the head of its answer.
    pub(super) async fn deliver(&self, call: Call) -> Result<(Response<Incoming>, Connection)> {
        let Some(mut again) = call.copy() else {
            let mut connection = self.tried().await?;
            let sent = connection.send(call.into_request(self)?).await;
            let response = sent.map_err(Unsent::into_error)?;
            return Ok((response, connection));
        };
        let asks = again.method == Method::GET || again.method == Method::HEAD;
        let mut pause = PAUSE;
        let mut left = ATTEMPTS;
        loop {
            let spare = again.copy();
            let mut connection = self.connection().await?;
            let error = match connection.send(again.into_request(self)?).await {
                Ok(response) => return Ok((response, connection)),
                Err(Unsent::NotTaken(error)) => error,
                Err(Unsent::Unknown(error)) if asks => error,
                Err(Unsent::Unknown(error)) => return Err(error),
            };
            left -= 1;
            again = match spare {
                Some(spare) if left > 0 => spare,
                _ => return Err(error),
            };
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// An idle connection, or a new one.
    async fn connection(&self) -> Result<Connection> {
        match self.kept.take() {
            Some(connection) => Ok(connection),
            None => Connection::open(self.dial.dial().await?).await,
        }
    }

    /// A connection on which a daemon has just answered.
    async fn tried(&self) -> Result<Connection> {
        let mut pause = PAUSE;
        let mut left = ATTEMPTS;
        loop {
            let mut connection = self.connection().await?;
            let question = Call::get("/v1/version").into_request(self)?;
            let error = match connection.send(question).await {
                Ok(response) => match response.into_body().collect().await {
                    Ok(_) => return Ok(connection),
                    Err(error) => broken(&error),
                },
                Err(unsent) => unsent.into_error(),
            };
            left -= 1;
            if left == 0 {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}
