//! One file from an address, believed for its digest alone.
//!
//! Owns downloads that are no images: a file whose SHA-256 is known before it is asked for. Since
//! nothing else about the answer is believed, the address may be a mirror without TLS.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

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
    let mut staged = Staged::new(to)?;
    let mut body = response.into_body();
    while let Some(piece) = http.piece(&mut body).await? {
        if !staged.add(&piece, pinned)? {
            break;
        }
    }
    staged.finish(address, pinned, to)
}

/// A file that is being received; without its name until it is whole, and gone if it never is.
pub(crate) struct Staged {
    path: PathBuf,
    file: File,
    digest: Sha256,
    seen: u64,
}

impl Staged {
    pub(crate) fn new(to: &Path) -> Result<Self, EnvironmentError> {
        let path = to.with_extension("part");
        let file = File::create(&path).at("writing", &path)?;
        Ok(Self {
            path,
            file,
            digest: Sha256::new(),
            seen: 0,
        })
    }

    /// Adds a piece; `false` if there is more than there should be.
    pub(crate) fn add(
        &mut self,
        piece: &[u8],
        pinned: Pinned<'_>,
    ) -> Result<bool, EnvironmentError> {
        self.seen += piece.len() as u64;
        if self.seen > pinned.bytes {
            return Ok(false);
        }
        self.digest.update(piece);
        self.file.write_all(piece).at("writing", &self.path)?;
        Ok(true)
    }

    /// Names the file if it is the one that was wanted.
    pub(crate) fn finish(
        mut self,
        from: &str,
        pinned: Pinned<'_>,
        to: &Path,
    ) -> Result<(), EnvironmentError> {
        let found = match self.seen == pinned.bytes {
            true => hex(&std::mem::take(&mut self.digest).finalize()),
            false => format!(
                "of another size (more or fewer than {} bytes)",
                pinned.bytes
            ),
        };
        if found != pinned.sha256 {
            return Err(EnvironmentError::DigestMismatch {
                what: format!("{} from {from}", pinned.what),
                expected: pinned.sha256.to_owned(),
                found,
            });
        }
        std::fs::rename(&self.path, to).at("naming", to)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // It has its name already, or is of no use.
        let _ = std::fs::remove_file(&self.path);
    }
}
