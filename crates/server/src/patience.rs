//! Bodies that may not pause for long.

use bytes::Bytes;
use http::{Request, header};
use http_body::{Body, Frame};
use motu_api::wire::STREAM_TYPE;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Whether a request is a live session, whose caller may say nothing for as long as they like.
pub fn is_live<B>(request: &Request<B>) -> bool {
    let says = |name: header::HeaderName, kind: &str| {
        let value = request.headers().get(name);
        value.is_some_and(|value| value.as_bytes().starts_with(kind.as_bytes()))
    };
    let path = request.uri().path();
    says(header::ACCEPT, STREAM_TYPE)
        || says(header::CONTENT_TYPE, "application/grpc")
        || path.ends_with("/stream")
        || (path.contains("/processes/") && path.ends_with("/input"))
}

/// Nothing came in its time.
#[derive(Debug)]
pub struct Late(Duration);

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = motu_core::limits::LISTEN_BODY_SECONDS.name;
        write!(f, "nothing came for {} s ({limit})", self.0.as_secs())
    }
}

impl std::error::Error for Late {}

/// A body that fails when nothing of it comes for too long while somebody waits for more.
#[derive(Debug)]
pub struct Patient<B> {
    body: B,
    most: Duration,
    /// Since somebody waits.
    wait: Option<Pin<Box<Sleep>>>,
}

impl<B> Patient<B> {
    pub fn new(body: B, most: Duration) -> Patient<B> {
        Patient {
            body,
            most,
            wait: None,
        }
    }
}

impl<B> Body for Patient<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.wait = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let most = this.most;
        let wait = this.wait.get_or_insert_with(|| Box::pin(sleep(most)));
        if wait.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        wait.as_mut().reset(Instant::now() + most);
        Poll::Ready(Some(Err(Late(most).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    /// A body that says something once and then nothing.
    struct Silent(bool);

    impl Body for Silent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            match std::mem::replace(&mut self.0, true) {
                false => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x"))))),
                true => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_pauses_too_long_fails() {
        let mut body = Patient::new(Silent(false), Duration::from_secs(3));
        assert!(body.frame().await.unwrap().is_ok());
        let begin = Instant::now();
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("listen_body_seconds"), "{error}");
        assert_eq!(begin.elapsed().as_secs(), 3);
    }

    #[test]
    fn live_sessions_may_pause() {
        let live = |path: &str, accept: &str| {
            let request = Request::builder().uri(path).header(header::ACCEPT, accept);
            is_live(&request.body(()).unwrap())
        };
        assert!(live("/v1/sandboxes/a/exec", STREAM_TYPE));
        assert!(live("/v1/terminals/a/stream", "*/*"));
        assert!(!live("/v1/sandboxes/a/exec", "*/*"));
        assert!(!live("/v1/sandboxes/a/files/content", "*/*"));
    }
}
