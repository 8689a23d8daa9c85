//! Versions of what is answered (`ETag`), and questions that depend on them.
//!
//! `If-None-Match` spares an answer that the client has already; `If-Match` keeps a write from
//! replacing what somebody else has written since.

use super::{Answer, with_ask};
use crate::app::App;
use crate::fault::Fault;
use axum::extract::RawPathParams;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use motu_core::files::{FileEntry, GuestPath, StatFile};
use motu_core::verb::Stat;
use motu_core::{Error, ErrorKind, Result, hint, hint::verb};
use motu_gate::Caller;
use sha2::{Digest, Sha256};

/// The longest answer that is given a version: a longer one costs more to look at than to send.
const LONGEST: usize = 256 * 1024;

/// The version of a file: when it was written, and how long it is.
pub fn of_file(entry: &FileEntry) -> Result<HeaderValue> {
    let written = entry.modified_at.as_nanosecond();
    value(format!("\"{written:x}-{:x}\"", entry.size_bytes))
}

/// The version of an answer, by what it says.
fn of_body(body: &[u8]) -> Result<HeaderValue> {
    let digest = Sha256::digest(body);
    let short: String = digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    value(format!("\"{short}\""))
}

fn value(text: String) -> Result<HeaderValue> {
    HeaderValue::try_from(text).map_err(|_| Error::internal("a version is no header"))
}

/// Whether one of the versions in a header is this one.
fn names(headers: &HeaderMap, header: header::HeaderName, version: &HeaderValue) -> bool {
    let given = headers.get_all(header).iter();
    let given = given.filter_map(|value| value.to_str().ok());
    given.flat_map(|text| text.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.trim_start_matches("W/").as_bytes() == version.as_bytes()
    })
}

/// Whether the client has this version already.
pub fn is_known(headers: &HeaderMap, version: &HeaderValue) -> bool {
    names(headers, header::IF_NONE_MATCH, version)
}

/// The answer for a client that has this version already.
pub fn not_modified(version: HeaderValue) -> Response {
    (StatusCode::NOT_MODIFIED, [(header::ETAG, version)]).into_response()
}

/// One JSON value with its version, or the word that the client has it.
pub fn json(headers: &HeaderMap, answer: &impl serde::Serialize) -> Answer<Response> {
    let body = serde_json::to_vec(answer)
        .map_err(|error| Error::internal(format!("encode an answer: {error}")))?;
    let kind = (
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if body.len() > LONGEST {
        return Ok(([kind], body).into_response());
    }
    let version = of_body(&body)?;
    Ok(match is_known(headers, &version) {
        true => not_modified(version),
        false => ([kind, (header::ETAG, version)], body).into_response(),
    })
}

/// Refuses a write whose file is not the one that the client has seen. The file is looked at before
/// the write begins.
pub async fn check_write(
    (app, caller): (&App, &Caller),
    parts: &RawPathParams,
    path: &GuestPath,
    headers: &HeaderMap,
) -> Answer<()> {
    let (same, none) = (header::IF_MATCH, header::IF_NONE_MATCH);
    if !headers.contains_key(&same) && !headers.contains_key(&none) {
        return Ok(());
    }
    let path = path.clone();
    let stat: Stat = with_ask(parts, StatFile { path, follow: true })?;
    let found = match app.gate.call(&caller.again(), stat, ()).await {
        Ok(entry) => Some(of_file(&entry)?),
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let differs = match &found {
        Some(version) => {
            headers.contains_key(&same) && !names(headers, same, version)
                || headers.contains_key(&none) && names(headers, none, version)
        }
        None => headers.contains_key(&same),
    };
    if !differs {
        return Ok(());
    }
    let found = found.as_ref().and_then(|version| version.to_str().ok());
    let error = Error::conflict("the file is not the one that the condition names")
        .hint(hint![
            "read it again with ",
            verb("read_file"),
            " and decide anew"
        ])
        .details(serde_json::json!({"etag": found}));
    Err(Fault::with_status(error, StatusCode::PRECONDITION_FAILED))
}
