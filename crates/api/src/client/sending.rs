//! Delivers requests when daemons are replaced.
//!
//! A killed daemon keeps its socket for a moment: the kernel accepts connections and resets them
//! unread. Such a request is sent again, to the next daemon, but only if it is certain that it had
//! no effect:
//!
//! - a read-only request may always be sent again;
//! - a reset or a broken pipe before the first byte of an answer means that part of the request was
//!   never read, and a request with a complete body takes effect only after all of it was read;
//! - of a stream that begins with a request, nothing but the request is sent before the answer
//!   begins; if that is small, a daemon of this host reads it at once or not at all;
//! - any other streamed body cannot be sent twice, so its connection is tested first.

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
    /// A copy to send again; `None` if the body can be sent only once.
    fn copy(&self) -> Option<Call> {
        let content = match &self.content {
            Content::Whole(bytes) => Content::Whole(bytes.clone()),
            Content::Opening(opening) if opening.is_small() => Content::Opening(opening.clone()),
            Content::Opening(_) | Content::Stream(_) => return None,
        };
        Some(Call {
            method: self.method.clone(),
            target: self.target.clone(),
            content,
            headers: self.headers.clone(),
        })
    }
}

impl Client {
    /// Sends a call to a live daemon, and reads the head of its answer.
    pub(super) async fn deliver(&self, call: Call) -> Result<(Response<Incoming>, Connection)> {
        let Some(mut again) = self.again(&call) else {
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

    /// What is sent again if nobody took the call. To another host a request may go in pieces, so
    /// that one whose last bytes were not read may have begun a stream all the same.
    fn again(&self, call: &Call) -> Option<Call> {
        match &call.content {
            Content::Opening(_) if self.is_elsewhere() => None,
            _ => call.copy(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::session::Opening;
    use crate::client::{Dial, Duplex};
    use motu_core::exec::{ExecEvent, ExecInput};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    /// Daemons one after another: the first of them die at the first byte, unread.
    #[derive(Clone, Debug, Default)]
    struct Daemons {
        dying: usize,
        dialled: Arc<AtomicUsize>,
        /// What the living one was told before it answered, and after.
        heard: Arc<Mutex<[String; 2]>>,
    }

    #[async_trait::async_trait]
    impl Dial for Daemons {
        async fn dial(&self) -> Result<Box<dyn Duplex>> {
            let (ours, theirs) = UnixStream::pair().unwrap();
            match self.dialled.fetch_add(1, Ordering::SeqCst) < self.dying {
                true => drop(tokio::spawn(async move { theirs.readable().await })),
                false => drop(tokio::spawn(self.clone().live(theirs))),
            }
            Ok(Box::new(ours))
        }
    }

    async fn read_until(stream: &mut UnixStream, end: &str) -> String {
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains(end) {
            assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0, "{heard:?}");
        }
        String::from_utf8_lossy(&heard).into_owned()
    }

    impl Daemons {
        async fn live(self, mut stream: UnixStream) {
            let before = read_until(&mut stream, "request!").await;
            // Whatever else comes before the answer would have come with it.
            tokio::task::yield_now().await;
            let head = "HTTP/1.1 200 OK\r\nmotu-api: 1\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let after = read_until(&mut stream, "input!").await;
            *self.heard.lock().unwrap() = [before, after];
            let mut frame = crate::frame::Headers::default();
            let header = frame.next(crate::frame::Kind::Data, 4);
            stream.write_all(&header).await.unwrap();
            stream.write_all(b"done").await.unwrap();
        }
    }

    async fn talk(dying: usize, request: &str) -> (Daemons, Vec<ExecEvent>) {
        use futures_util::TryStreamExt;
        let daemons = Daemons {
            dying,
            ..Daemons::default()
        };
        let client = Client::new(daemons.clone());
        let opened = client.open_with("/v1/x".to_string(), &request).await;
        let session = opened.unwrap();
        let input = ExecInput::Stdin("input!".into());
        session.input.send(input).await.unwrap();
        let events = session.events.try_collect().await.unwrap();
        (daemons, events)
    }

    #[test]
    fn a_stream_of_another_host_is_opened_once() {
        let here = Client::new(Daemons::default());
        let there = here.clone().with_key("motu_key").unwrap();
        let small = || Opening::new(Some("{}".into())).0;
        let large = || Opening::new(Some(vec![b' '; 5000].into())).0;
        let opens = |opening| Call::post("/v1/x").opening(opening);
        assert!(here.again(&opens(small())).is_some());
        assert!(here.again(&opens(large())).is_none());
        assert!(there.again(&opens(small())).is_none());
        assert!(there.again(&Call::post("/v1/x")).is_some());
    }

    #[tokio::test]
    async fn a_stream_that_begins_with_a_request_is_opened_at_the_next_daemon() {
        for dying in [0, 1, 3] {
            let (daemons, events) = talk(dying, "request!").await;
            assert_eq!(events, [ExecEvent::Stdout("done".into())]);
            assert_eq!(daemons.dialled.load(Ordering::SeqCst), dying + 1);
            let [before, after] = daemons.heard.lock().unwrap().clone();
            assert!(before.starts_with("POST /v1/x"), "{before}");
            assert_eq!(before.matches("request!").count(), 1);
            assert!(!before.contains("input!"), "{before}");
            assert!(!after.contains("request!"), "{after}");
        }
    }
}
