//! Files of a machine: those of the host, with paths that the tests keep below the machine's
//! directory.

use super::agent::{Refused, admitted};
use super::served::{Known, complaint};
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

fn refused(path: &Path, error: &std::io::Error) -> Refused {
    let code = match error.kind() {
        ErrorKind::NotFound => "not_found",
        ErrorKind::AlreadyExists => "already_exists",
        ErrorKind::NotADirectory => "invalid_argument",
        _ => "internal",
    };
    (code, format!("{}: {error}", path.display()))
}

/// A file as the agent describes it: a symbolic link has the type of its target.
fn entry(path: &Path) -> Result<Value, Refused> {
    let found = fs::symlink_metadata(path).map_err(|error| refused(path, &error))?;
    let followed = fs::metadata(path).ok();
    let kind = match &followed {
        Some(one) if one.is_dir() => "FILE_TYPE_DIRECTORY",
        Some(one) if one.is_file() => "FILE_TYPE_FILE",
        _ => "FILE_TYPE_UNSPECIFIED",
    };
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let owner = |id: u32| {
        if id == 0 {
            "root".to_string()
        } else {
            id.to_string()
        }
    };
    let time = timestamp(&found);
    let mut said = json!({
        "name": name.unwrap_or_else(|| "/".into()), "type": kind, "path": path.to_string_lossy(),
        "mode": found.mode() & 0o7777, "owner": owner(found.uid()), "group": owner(found.gid()),
        "modifiedTime": time,
    });
    // 64-bit numbers are text, and zeros are omitted.
    if found.len() > 0 {
        said["size"] = found.len().to_string().into();
    }
    if found.is_symlink() {
        let target = fs::canonicalize(path).or_else(|_| fs::read_link(path));
        let target = target.map_err(|error| refused(path, &error))?;
        said["symlinkTarget"] = target.to_string_lossy().into_owned().into();
        said["isSymlink"] = true.into();
    }
    Ok(said)
}

fn timestamp(found: &Metadata) -> String {
    // Seconds since the epoch as RFC 3339 in UTC, by civil calendar arithmetic.
    let (days, rest) = (
        found.mtime().div_euclid(86_400),
        found.mtime().rem_euclid(86_400),
    );
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (
        doy - (153 * mp + 2) / 5 + 1,
        if mp < 10 { mp + 3 } else { mp - 9 },
    );
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub fn call(method: &str, asked: &Value) -> Result<Value, Refused> {
    let path = |name: &str| match asked[name].as_str() {
        Some(path) if path.starts_with('/') => Ok(Path::new(path)),
        other => Err(("invalid_argument", format!("{name}: {other:?}"))),
    };
    match method {
        "Stat" => Ok(json!({ "entry": entry(path("path")?)? })),
        "MakeDir" => {
            let path = path("path")?;
            match fs::metadata(path) {
                Ok(found) if found.is_dir() => Err((
                    "already_exists",
                    format!("directory already exists: {}", path.display()),
                )),
                Ok(_) => Err((
                    "invalid_argument",
                    "path already exists but it is not a directory".into(),
                )),
                Err(_) => {
                    fs::create_dir_all(path).map_err(|error| refused(path, &error))?;
                    Ok(json!({ "entry": entry(path)? }))
                }
            }
        }
        "Move" => {
            let (from, to) = (path("source")?, path("destination")?);
            let above = to.parent().unwrap_or(to);
            fs::create_dir_all(above).map_err(|error| refused(above, &error))?;
            fs::rename(from, to).map_err(|error| refused(from, &error))?;
            Ok(json!({ "entry": entry(to)? }))
        }
        "ListDir" => {
            let path = path("path")?;
            if asked["depth"] != 1 {
                return Err((
                    "invalid_argument",
                    "only one level is asked for here".into(),
                ));
            }
            let all = fs::read_dir(path).map_err(|error| refused(path, &error))?;
            // Entries removed meanwhile are skipped.
            let found = all.flatten().filter_map(|one| entry(&one.path()).ok());
            Ok(json!({ "entries": found.collect::<Vec<_>>() }))
        }
        "Remove" => {
            let path = path("path")?;
            let removed = match fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(path),
                Ok(_) => fs::remove_file(path),
                Err(_) => Ok(()),
            };
            removed.map_err(|error| refused(path, &error))?;
            Ok(json!({}))
        }
        other => Err(("unimplemented", other.to_string())),
    }
}

pub async fn read(
    State(service): State<Known>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = admitted(&service, &headers) {
        return *refused;
    }
    let path = Path::new(query.get("path").map_or("", String::as_str));
    let mut file = match File::open(path) {
        Ok(file) if file.metadata().is_ok_and(|found| found.is_file()) => file,
        Ok(_) => return complaint(StatusCode::BAD_REQUEST, "path is a directory"),
        Err(error) => return complaint(StatusCode::NOT_FOUND, &error.to_string()),
    };
    let size = file.metadata().map_or(0, |found| found.len());
    let range = headers.get("range").and_then(|range| range.to_str().ok());
    let from = range.and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    });
    let from: Option<u64> = from.filter(|_| !service.kind.rangeless);
    if from.is_some_and(|from| from >= size) {
        return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    }
    let begin = from.unwrap_or(0);
    file.seek(SeekFrom::Start(begin))
        .expect("a file can be sought in");
    let status = match from {
        Some(_) => StatusCode::PARTIAL_CONTENT,
        None => StatusCode::OK,
    };
    let pieces = unfold((file, size - begin), |(mut file, left)| async move {
        let mut piece = vec![0; left.min(64 * 1024) as usize];
        match file.read(&mut piece) {
            Ok(count @ 1..) => {
                piece.truncate(count);
                Some((
                    Ok::<_, std::io::Error>(Bytes::from(piece)),
                    (file, left - count as u64),
                ))
            }
            _ => None,
        }
    });
    (status, Body::from_stream(pieces)).into_response()
}

/// Writes directly to the target, as the real agent does: an incomplete body leaves a part.
pub async fn write(
    State(service): State<Known>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(refused) = admitted(&service, &headers) {
        return *refused;
    }
    if headers
        .get("content-type")
        .is_none_or(|kind| kind != "application/octet-stream")
    {
        return complaint(
            StatusCode::BAD_REQUEST,
            "octet-stream is what is understood here",
        );
    }
    let path = Path::new(query.get("path").map_or("", String::as_str));
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let mut file = match made.and_then(|()| File::create(path)) {
        Ok(file) => file,
        Err(error) => return complaint(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let written = piece
            .map_err(std::io::Error::other)
            .and_then(|piece| file.write_all(&piece));
        if let Err(error) = written {
            return complaint(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
        }
    }
    axum::Json(json!([{ "path": path, "name": path.file_name().map(|one| one.to_string_lossy()), "type": "file" }])).into_response()
}
