//! Forms with the parts `path` and `file`, read as they arrive: a file may have any size.
//!
//! ```text
//!   --MARK  head  path  --MARK  head  contents …  --MARK--
//! ```
//!
//! Everything from outside: a form that ends too early is an error, so that half a file is never
//! taken for one.

use crate::extract::{broken, limit};
use axum::body::{Body, BodyDataStream};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http::{HeaderMap, header};
use motu_core::files::ByteStream;
use motu_core::limits::PATH_BYTES;
use motu_core::{Error, Result};

/// The head of a part, and what may stand before the first mark.
const HEAD_BYTES: usize = 16 * 1024;

/// What separates the parts of a form.
pub fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let rest = kind.strip_prefix("multipart/form-data")?;
    let mark = rest
        .split(';')
        .find_map(|one| one.trim().strip_prefix("boundary="))?;
    Some(mark.trim_matches('"').to_string())
}

/// The path and the contents of a form. Contents that come before their path are kept until then, so
/// they are bounded; others are not.
pub async fn arriving(body: Body, boundary: &str) -> Result<(String, ByteStream)> {
    let mut form = Form {
        pieces: body.into_data_stream(),
        // The first mark stands at the beginning of a line, too.
        held: BytesMut::from("\r\n"),
        mark: format!("\r\n--{boundary}").into_bytes(),
    };
    let (mut path, mut early) = (None, None);
    form.until_mark(HEAD_BYTES).await?;
    while let Some(part) = form.part().await? {
        match (part.as_str(), path.take()) {
            ("path", _) => {
                let text = form.until_mark(PATH_BYTES.max as usize).await?;
                let text = String::from_utf8_lossy(&text).into_owned();
                if let Some(contents) = early {
                    let contents = futures_util::stream::once(async move { Ok(contents) });
                    return Ok((text, contents.boxed()));
                }
                path = Some(text);
            }
            ("file", Some(path)) => return Ok((path, form.contents())),
            ("file", None) => early = Some(form.until_mark(limit(true) as usize).await?),
            (_, known) => {
                form.until_mark(HEAD_BYTES).await?;
                path = known;
            }
        }
    }
    Err(wrong(match path {
        Some(_) => "it has no file",
        None => "it has no path",
    }))
}

fn wrong(why: &str) -> Error {
    Error::invalid(format!("the form cannot be read: {why}"))
        .hint("send the parts `path` and `file`; a large file after its path")
}

/// A form that is being read. What is held is the beginning of what comes next.
struct Form {
    pieces: BodyDataStream,
    held: BytesMut,
    mark: Vec<u8>,
}

impl Form {
    async fn more(&mut self) -> Result<()> {
        match self.pieces.next().await {
            Some(Ok(piece)) => {
                self.held.extend_from_slice(&piece);
                Ok(())
            }
            Some(Err(error)) => Err(broken("upload", &error)),
            None => Err(wrong("it ends too early")),
        }
    }

    /// What stands before a text, which is dropped; at most so many bytes.
    async fn until(&mut self, text: &[u8], most: usize) -> Result<Bytes> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.held, text) {
                let found = self.held.split_to(at).freeze();
                self.held.advance(text.len());
                return match found.len() > most {
                    true => Err(wrong("a part is too long")),
                    false => Ok(found),
                };
            }
            if self.held.len() > most + text.len() {
                return Err(wrong("a part is too long"));
            }
            self.more().await?;
        }
    }

    async fn until_mark(&mut self, most: usize) -> Result<Bytes> {
        let mark = self.mark.clone();
        self.until(&mark, most).await
    }

    /// The name of the part after a mark; none after the last.
    async fn part(&mut self) -> Result<Option<String>> {
        while self.held.len() < 2 {
            self.more().await?;
        }
        if self.held.starts_with(b"--") {
            return Ok(None);
        }
        let head = self.until(b"\r\n\r\n", HEAD_BYTES).await?;
        Ok(Some(name(&head).unwrap_or_default()))
    }

    /// The rest of a part, as it arrives.
    fn contents(self) -> ByteStream {
        let pieces = unfold(Some(self), |form| async move {
            let mut form = form?;
            loop {
                if let Some(at) = memchr::memmem::find(&form.held, &form.mark) {
                    let last = form.held.split_to(at).freeze();
                    return Some((Ok(last), None));
                }
                // Its end may be the beginning of the mark.
                let sure = form.held.len().saturating_sub(form.mark.len() - 1);
                if sure > 0 {
                    let piece = form.held.split_to(sure).freeze();
                    return Some((Ok(piece), Some(form)));
                }
                if let Err(error) = form.more().await {
                    return Some((Err(error), None));
                }
            }
        });
        pieces.boxed()
    }
}

/// The name in the head of a part.
fn name(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let line = head.lines().find(|line| {
        line.to_ascii_lowercase()
            .starts_with("content-disposition:")
    })?;
    let name = line.split(';').find_map(|one| {
        let one = one.trim();
        one.strip_prefix("name=")
    })?;
    Some(name.trim_matches('"').to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;

    const WHOLE: &[u8] = b"--xx\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n/tmp/a\r\n--xx\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"path\"\r\n\r\n\x00\r\n--xy\r\nb\r\n--xx--\r\n";

    async fn read(form: &[u8], piece: usize) -> Result<(String, Vec<u8>)> {
        let pieces = form.chunks(piece).map(Bytes::copy_from_slice);
        let pieces: Vec<std::result::Result<Bytes, std::io::Error>> = pieces.map(Ok).collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let (path, contents) = arriving(body, "xx").await?;
        let contents: Vec<Bytes> = contents.try_collect().await?;
        Ok((path, contents.concat()))
    }

    #[tokio::test]
    async fn a_form_is_the_same_however_it_arrives() {
        for piece in [1, 2, 3, 7, 50, 1000] {
            let (path, file) = read(WHOLE, piece).await.unwrap();
            assert_eq!(
                (path.as_str(), &file[..]),
                ("/tmp/a", &b"\x00\r\n--xy\r\nb"[..])
            );
        }
    }

    #[tokio::test]
    async fn a_form_that_ends_too_early_is_no_file() {
        for length in [0, 3, 10, 40, 60, 90, 135, WHOLE.len() - 10] {
            assert!(read(&WHOLE[..length], 9).await.is_err(), "{length}");
        }
        let file = "--xx\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\na\r\n--xx";
        let error = read(format!("{file}--\r\n").as_bytes(), 100).await;
        assert!(error.unwrap_err().message.contains("no path"));
        // A small file may come before its path.
        let path = "\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n/b\r\n--xx--\r\n";
        let both = read(format!("{file}{path}").as_bytes(), 5).await.unwrap();
        assert_eq!(both, ("/b".to_string(), b"a".to_vec()));
    }
}
