//! Files of a sandbox.

use crate::Provider;
use crate::refusal::{Answer, Refusal, Shared, settled, told};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{StatusCode, header};
use motu_core::files::*;
use motu_core::{Error, Result, SandboxId, limits};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(crate) fn router() -> Router<Arc<Provider>> {
    Router::new()
        .route("/files", get(read).post(write).delete(remove))
        .route("/files/list", get(list))
        .route("/files/mkdir", post(mkdir))
        .route("/files/move", post(rename))
        .route("/files/chmod", post(chmod))
        .route("/files/stat", get(stat))
        .route("/files/glob", get(glob))
}

#[derive(Deserialize)]
struct At {
    sandbox_id: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    pattern: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    mode: String,
    /// Extension of the protocol: describe the target of a symbolic link.
    #[serde(default)]
    follow: bool,
}

impl At {
    fn id(&self) -> Result<SandboxId> {
        Provider::own_id(&self.sandbox_id)
    }

    fn path(&self) -> Result<GuestPath> {
        place(&self.path)
    }
}

/// A path in the sandbox; relative paths are below its default working directory.
fn place(path: &str) -> Result<GuestPath> {
    match path.strip_prefix('/') {
        Some(_) => GuestPath::new(path.as_bytes().to_vec()),
        None => GuestPath::new(format!("/workspace/{path}").into_bytes()),
    }
}

/// The directory that a path is in; `None` for one in the root.
fn parent(path: &GuestPath) -> Result<Option<GuestPath>> {
    let text = path.as_bytes();
    let end = text.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    match end {
        0 => Ok(None),
        end => GuestPath::new(text.slice(..end)).map(Some),
    }
}

#[derive(Deserialize)]
struct Write {
    sandbox_id: String,
    path: String,
    #[serde(default)]
    content: String,
    /// Extension of the protocol: binary content, instead of `content`.
    content_base64: Option<String>,
    #[serde(default)]
    mode: String,
    /// Extension of the protocol: append to an existing file.
    #[serde(default)]
    append: bool,
    /// Extension of the protocol: fail if the file exists.
    #[serde(default)]
    create_new: bool,
    /// Extension of the protocol: do not create missing directories.
    #[serde(default)]
    no_parents: bool,
}

async fn write(State(provider): Shared, Json(asked): Json<Write>) -> Answer<StatusCode> {
    let id = Provider::own_id(&asked.sandbox_id)?;
    let mode = match asked.mode.as_str() {
        "" => None,
        mode => Some(parse_mode(mode)?),
    };
    let content = match asked.content_base64 {
        Some(text) => decode_base64(&text)?,
        None => Bytes::from(asked.content),
    };
    let options = WriteOptions {
        mode,
        append: asked.append,
        create_new: asked.create_new,
        no_parents: asked.no_parents,
        ..WriteOptions::default()
    };
    let write = WriteFile::new(place(&asked.path)?, options);
    let content = stream::iter([Ok(content)]).boxed();
    let written = provider.service.write_file(&id, write, content).await;
    settled(&provider, &id, written.map(drop)).await
}

async fn read(State(provider): Shared, Query(asked): Query<At>) -> Answer<Response> {
    let id = asked.id()?;
    let read = ReadFile::new(asked.path()?, ReadRange::default());
    match provider.service.read_file(&id, read).await {
        Ok((entry, content)) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream".to_string()),
                (header::CONTENT_LENGTH, entry.size_bytes.to_string()),
            ];
            Ok((headers, Body::from_stream(content)).into_response())
        }
        Err(error) => Err(Refusal::about(&*provider.service, &id, error).await),
    }
}

async fn remove(State(provider): Shared, Json(asked): Json<At>) -> Answer<StatusCode> {
    let id = asked.id()?;
    let remove = RemoveFile {
        path: asked.path()?,
        recursive: asked.recursive,
        user: None,
    };
    let removed = provider.service.remove_file(&id, remove).await;
    settled(&provider, &id, removed).await
}

#[derive(Deserialize)]
struct Rename {
    sandbox_id: String,
    old_path: String,
    new_path: String,
    /// Extension of the protocol: `false` keeps an existing target.
    #[serde(default = "yes")]
    overwrite: bool,
}

fn yes() -> bool {
    true
}

async fn mkdir(State(provider): Shared, Json(asked): Json<At>) -> Answer<StatusCode> {
    let id = asked.id()?;
    let mode = match asked.mode.as_str() {
        "" => None,
        mode => Some(parse_mode(mode)?),
    };
    let path = asked.path()?;
    let made = provider
        .service
        .mkdir(
            &id,
            MakeDirectory {
                path,
                mode,
                user: None,
            },
        )
        .await;
    settled(&provider, &id, made.map(drop)).await
}

async fn rename(State(provider): Shared, Json(asked): Json<Rename>) -> Answer<StatusCode> {
    let id = Provider::own_id(&asked.sandbox_id)?;
    let to = place(&asked.new_path)?;
    if let Some(path) = parent(&to)? {
        // A missing source must not leave new directories behind.
        let stat = StatFile {
            path: place(&asked.old_path)?,
            follow: false,
            user: None,
        };
        told(&provider, &id, provider.service.stat(&id, stat).await).await?;
        let make = MakeDirectory {
            path,
            mode: None,
            user: None,
        };
        let made = provider.service.mkdir(&id, make).await;
        told(&provider, &id, made).await?;
    }
    let move_file = MoveFile {
        from: place(&asked.old_path)?,
        to,
        overwrite: asked.overwrite,
        user: None,
    };
    let moved = provider.service.move_file(&id, move_file).await;
    settled(&provider, &id, moved.map(drop)).await
}

async fn chmod(State(provider): Shared, Json(asked): Json<At>) -> Answer<StatusCode> {
    let id = asked.id()?;
    let change = ChangeMode {
        path: asked.path()?,
        mode: parse_mode(&asked.mode)?,
        user: None,
    };
    let changed = provider.service.chmod(&id, change).await;
    settled(&provider, &id, changed.map(drop)).await
}

/// The field names are the protocol's.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FileInfo {
    path: String,
    size: u64,
    mode: String,
    is_dir: bool,
    mod_time: String,
    /// The following fields are extensions of the protocol.
    kind: FileType,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_target: Option<String>,
    uid: u32,
    gid: u32,
    owner: String,
    group: String,
}

impl From<FileEntry> for FileInfo {
    fn from(entry: FileEntry) -> FileInfo {
        FileInfo {
            path: entry.path,
            size: entry.size_bytes,
            mode: format_mode(entry.mode),
            is_dir: entry.kind == FileType::Directory,
            mod_time: entry.modified_at.to_string(),
            kind: entry.kind,
            link_target: entry.link_target,
            uid: entry.uid,
            gid: entry.gid,
            owner: entry.owner,
            group: entry.group,
        }
    }
}

async fn stat(State(provider): Shared, Query(asked): Query<At>) -> Answer<Json<FileInfo>> {
    let id = asked.id()?;
    let stat = StatFile {
        path: asked.path()?,
        follow: asked.follow,
        user: None,
    };
    let found = provider.service.stat(&id, stat).await;
    told(&provider, &id, found)
        .await
        .map(|entry| Json(entry.into()))
}

async fn list(State(provider): Shared, Query(asked): Query<At>) -> Answer<Json<Vec<FileInfo>>> {
    let id = asked.id()?;
    let path = asked.path()?;
    let (mut all, mut after) = (Vec::new(), None);
    // The protocol has no pages; a directory with more entries is refused, never truncated
    // silently.
    loop {
        let limit = Some(limits::LIST_ENTRIES.max);
        let options = ListOptions {
            depth: None,
            after,
            limit,
        };
        let page = provider
            .service
            .list_files(&id, ListFiles::new(path.clone(), options));
        let page = told(&provider, &id, page.await).await?;
        all.extend(page.entries.into_iter().map(FileInfo::from));
        match page.next {
            None => return Ok(Json(all)),
            Some(_) if all.len() as u64 >= limits::PROVIDER_ENTRIES.max => {
                return Err(too_many(&limits::PROVIDER_ENTRIES).into());
            }
            Some(next) => after = Some(decode_base64(&next)?),
        }
    }
}

async fn glob(State(provider): Shared, Query(asked): Query<At>) -> Answer<Json<Vec<String>>> {
    let id = asked.id()?;
    let pattern = match asked.pattern.starts_with('/') {
        true => asked.pattern.clone(),
        false => format!("/workspace/{}", asked.pattern),
    };
    let find = FindFiles::new(pattern, Some(limits::LIST_ENTRIES.max));
    let found = told(&provider, &id, provider.service.glob(&id, find).await).await?;
    match found.next {
        None => Ok(Json(
            found.entries.into_iter().map(|entry| entry.path).collect(),
        )),
        Some(_) => Err(too_many(&limits::LIST_ENTRIES).into()),
    }
}

fn too_many(limit: &limits::Limit) -> Error {
    Error::limit(format!(
        "there are more paths than {} ({})",
        limit.name, limit.max
    ))
    .hint("ask for a directory further down, or for a narrower pattern")
}
