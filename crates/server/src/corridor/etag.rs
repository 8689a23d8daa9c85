//! Versions of what is answered (`ETag`), and questions that depend on them.
//!
//! `If-None-Match` spares an answer that the client has already; `If-Match` keeps a write from
//! replacing what somebody else has written since.

use super::{Answer, with_ask};
use crate::app::App;
use crate::extract::AddressParts;
use crate::fault::Fault;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use motu_core::files::{FileEntry, StatFile, WriteFile};
use motu_core::hint::{Hint, verb};
use motu_core::verb::Stat;
use motu_core::{Error, ErrorKind, Result, hint};
use motu_gate::Caller;
use sha2::{Digest, Sha256};

/// The longest answer that is given a version: a longer one costs more to look at than to send.
const LONGEST: usize = 256 * 1024;

/// The version of a file.
pub fn of_file(entry: &FileEntry) -> Result<HeaderValue> {
    value(format!("\"{}\"", entry.version()))
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

/// Whether a write has a condition.
pub fn is_conditional(headers: &HeaderMap) -> bool {
    headers.contains_key(header::IF_MATCH) || headers.contains_key(header::IF_NONE_MATCH)
}

/// Makes the condition of a write part of it: which state the file must be in when it is replaced,
/// or that there must be none. A file that does not fit already is refused at once.
pub async fn condition(
    (app, caller): (&App, &Caller),
    parts: &AddressParts,
    ask: &mut WriteFile,
    headers: &HeaderMap,
) -> Answer<()> {
    if !is_conditional(headers) {
        return Ok(());
    }
    let (same, none) = (header::IF_MATCH, header::IF_NONE_MATCH);
    let path = ask.path.clone();
    let stat: Stat = with_ask(
        parts,
        StatFile {
            path,
            follow: true,
            user: None,
        },
    )?;
    let entry = match app.gate.call(&caller.again(), stat, ()).await {
        Ok(entry) => Some(entry),
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let found = entry.as_ref().map(of_file).transpose()?;
    let differs = match &found {
        Some(version) => {
            headers.contains_key(&same) && !names(headers, same, version)
                || headers.contains_key(&none) && names(headers, none, version)
        }
        None => headers.contains_key(&same),
    };
    if !differs {
        ask.expected = entry.map(|entry| entry.version());
        ask.create_new |= found.is_none();
        return Ok(());
    }
    let found = found.as_ref().and_then(|version| version.to_str().ok());
    let error = Error::conflict("the file is not the one that the condition names")
        .hint(again())
        .details(serde_json::json!({"etag": found}));
    Err(Fault::with_status(error, StatusCode::PRECONDITION_FAILED))
}

fn again() -> Hint {
    hint!["read it again with ", verb("read_file"), " and decide anew"]
}

/// How a write with a condition failed: that another one was faster is a condition that is not met.
pub fn late(error: Error) -> Fault {
    match error.kind {
        ErrorKind::Conflict => {
            Fault::with_status(error.hint(again()), StatusCode::PRECONDITION_FAILED)
        }
        _ => error.into(),
    }
}
