//! Files of a capsule.

use super::shapes::{CapsuleAt, Entry};
use super::{Answer, desk, id};
use crate::app::App;
use crate::extract::{At, Introduced, broken, limit, read_json, read_limited};
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode, header};
use motu_core::files::{
    ByteStream, GuestPath, ListFiles, ListOptions, MakeDirectory, ReadFile, RemoveFile, WriteFile,
    WriteOptions,
};
use motu_core::limits::LIST_ENTRIES;
use motu_core::shown::misread;
use motu_core::{Error, Result, verb};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Query {
    path: Option<String>,
}

/// A form with the parts `path` and `file`, or, for files of any size, the content alone with the
/// path in the query.
pub async fn write(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    request: Request,
) -> Answer<StatusCode> {
    let query: axum::extract::Query<Query> = axum::extract::Query::try_from_uri(request.uri())
        .map_err(|error| Error::invalid(format!("the query cannot be read: {}", misread(error))))?;
    let boundary = boundary(request.headers());
    let (path, content): (String, ByteStream) = match (query.0.path, boundary) {
        (Some(path), _) => (path, arriving(request.into_body())),
        (None, Some(boundary)) => {
            let body = read_limited(request.into_body(), limit(true)).await?;
            let (path, content) = form(&body, &boundary)?;
            let content = futures_util::stream::once(async move { Ok(content) });
            (path, content.boxed())
        }
        (None, None) => return Err(unnamed().into()),
    };
    let (id, path) = (id(&one)?, GuestPath::new(path.into_bytes())?);
    let call = verb::Write {
        id,
        ask: WriteFile::new(path, WriteOptions::default()),
    };
    let desk = desk(app, caller);
    desk.app.gate.call(&desk.caller, call, content).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn arriving(body: Body) -> ByteStream {
    let pieces = body.into_data_stream();
    pieces
        .map(|piece| piece.map_err(|error| broken("upload", &error)))
        .boxed()
}

fn unnamed() -> Error {
    Error::invalid("no path is given")
        .hint("send a form with `path` and `file`, or `path` in the query")
}

/// What separates the parts of a form.
fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let rest = kind.strip_prefix("multipart/form-data")?;
    let mark = rest
        .split(';')
        .find_map(|one| one.trim().strip_prefix("boundary="))?;
    Some(mark.trim_matches('"').to_string())
}

/// The path and the file of a form.
fn form(body: &Bytes, boundary: &str) -> Result<(String, Bytes)> {
    let wrong = || Error::invalid("the form cannot be read").hint("parts named `path` and `file`");
    let mark = format!("--{boundary}");
    let (mut path, mut file) = (None, None);
    let mut starts = memchr::memmem::find_iter(body, mark.as_bytes());
    let mut begin = starts.next().ok_or_else(wrong)? + mark.len();
    for end in starts {
        let part = body.slice(begin..end);
        begin = end + mark.len();
        let head = memchr::memmem::find(&part, b"\r\n\r\n").ok_or_else(wrong)?;
        let names = String::from_utf8_lossy(&part[..head]).into_owned();
        let content = part.slice(head + 4..part.len().saturating_sub(2).max(head + 4));
        if names.contains("name=\"path\"") {
            path = Some(String::from_utf8_lossy(&content).into_owned());
        } else if names.contains("name=\"file\"") {
            file = Some(content);
        }
    }
    Ok((path.ok_or_else(unnamed)?, file.ok_or_else(wrong)?))
}

pub async fn read(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    body: Body,
) -> Answer<Response> {
    let at: CapsuleAt = read_json(body).await?;
    let ask = ReadFile {
        path: at.path()?,
        offset: 0,
        length: None,
        user: None,
    };
    let (_, content) = desk(app, caller)
        .call(verb::Read { id: id(&one)?, ask })
        .await?;
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(content)).into_response())
}

pub async fn list(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    body: Body,
) -> Answer<Json<Value>> {
    let at: CapsuleAt = read_json(body).await?;
    let options = ListOptions {
        depth: at.depth,
        limit: Some(LIST_ENTRIES.max),
        after: None,
    };
    let ask = ListFiles::new(at.path()?, options);
    let page = desk(app, caller)
        .call(verb::List { id: id(&one)?, ask })
        .await?;
    let entries: Vec<Entry> = page.entries.into_iter().map(Entry::of).collect();
    // Longer ones are read in pages, as files of the sandbox.
    Ok(Json(
        json!({"entries": entries, "truncated": page.next.is_some()}),
    ))
}

pub async fn mkdir(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    body: Body,
) -> Answer<Json<Value>> {
    let at: CapsuleAt = read_json(body).await?;
    let ask = MakeDirectory {
        path: at.path()?,
        mode: None,
        user: None,
    };
    let made = desk(app, caller)
        .call(verb::Mkdir { id: id(&one)?, ask })
        .await?;
    Ok(Json(json!({"entry": Entry::of(made)})))
}

/// With everything in it.
pub async fn remove(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    body: Body,
) -> Answer<StatusCode> {
    let at: CapsuleAt = read_json(body).await?;
    let ask = RemoveFile {
        path: at.path()?,
        recursive: true,
        user: None,
    };
    desk(app, caller)
        .call(verb::Remove { id: id(&one)?, ask })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_a_path_and_a_file() {
        let body = b"--xx\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n/tmp/a\r\n--xx\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n\x00\r\nb\r\n--xx--\r\n";
        let body = Bytes::from_static(body);
        let (path, file) = form(&body, "xx").expect("a form");
        assert_eq!((path.as_str(), &file[..]), ("/tmp/a", &b"\x00\r\nb"[..]));
        for wrong in ["", "yy", "--xx"] {
            assert!(
                form(&Bytes::from(wrong.to_string()), "xx").is_err(),
                "{wrong}"
            );
        }
    }
}
