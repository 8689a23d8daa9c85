//! One file from an address, believed for its digest alone.
//!
//! Owns downloads that are no images: a file whose SHA-256 is known before it is asked for. Since
//! nothing else about the answer is believed, the address may be a mirror without TLS.

use std::{io::Write as _, path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use sha2::{Digest as _, Sha256};

use crate::{
    digest::hex,
    error::{EnvironmentError, IoContext as _},
    oci::http::{Ask, Http},
};

/// Longest silence of a mirror.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// What is to be downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned<'a> {
    /// For messages: "the kernel's package".
    pub what: &'a str,
    /// Lower-case hexadecimal.
    pub sha256: &'a str,
    pub bytes: u64,
}

/// Downloads a file to `to`, which exists only if everything is as expected.
pub async fn download(
    address: &str,
    pinned: Pinned<'_>,
    to: &Path,
) -> Result<(), EnvironmentError> {
    let uri: Uri = address.parse().map_err(|_| EnvironmentError::Malformed {
        what: format!("the address of {}", pinned.what),
        reason: format!("{address:?} is no address"),
    })?;
    let host = uri.host().unwrap_or_default().to_owned();
    let http = Http::plain_allowed(&host, IDLE_TIMEOUT);
    let ask = Ask {
        method: Method::GET,
        uri,
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let response = http.send(ask).await?;
    if !response.status().is_success() {
        return Err(EnvironmentError::Registry {
            registry: host,
            status: response.status().as_u16(),
            what: pinned.what.to_owned(),
            message: String::new(),
        });
    }
    let staged = to.with_extension("part");
    let mut file = std::fs::File::create(&staged).at("writing", &staged)?;
    let (mut body, mut digest, mut seen) = (response.into_body(), Sha256::new(), 0);
    while let Some(piece) = http.piece(&mut body).await? {
        seen += piece.len() as u64;
        if seen > pinned.bytes {
            break;
        }
        digest.update(&piece);
        file.write_all(&piece).at("writing", &staged)?;
    }
    let found = match seen == pinned.bytes {
        true => hex(&digest.finalize()),
        false => format!(
            "of another size (more or fewer than {} bytes)",
            pinned.bytes
        ),
    };
    if found != pinned.sha256 {
        std::fs::remove_file(&staged).at("removing", &staged)?;
        return Err(EnvironmentError::DigestMismatch {
            what: format!("{} from {address}", pinned.what),
            expected: pinned.sha256.to_owned(),
            found,
        });
    }
    std::fs::rename(&staged, to).at("naming", to)
}
