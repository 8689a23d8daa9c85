//! Files of a capsule.

use super::shapes::{CapsuleAt, Entry};
use super::{Answer, desk, form, id};
use crate::app::App;
use crate::extract::{At, Introduced, broken, read_json};
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::{StatusCode, header};
use motu_core::files::{
    ByteStream, GuestPath, ListFiles, ListOptions, MakeDirectory, ReadFile, RemoveFile, WriteFile,
    WriteOptions,
};
use motu_core::limits::LIST_ENTRIES;
use motu_core::shown::misread;
use motu_core::{Error, verb};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Query {
    path: Option<String>,
}

/// A form with the parts `path` and `file`, or the content alone with the path in the query.
pub async fn write(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    request: Request,
) -> Answer<StatusCode> {
    let query: axum::extract::Query<Query> = axum::extract::Query::try_from_uri(request.uri())
        .map_err(|error| Error::invalid(format!("the query cannot be read: {}", misread(error))))?;
    let boundary = form::boundary(request.headers());
    let (path, content): (String, ByteStream) = match (query.0.path, boundary) {
        (Some(path), _) => (path, arriving(request.into_body())),
        (None, Some(boundary)) => form::arriving(request.into_body(), &boundary).await?,
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
