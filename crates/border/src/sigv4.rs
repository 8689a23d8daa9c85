//! AWS signature version 4: a request signed with the placeholder is signed again with the key.
//!
//! The sandbox's own signature is verified first, with the placeholder as the key. So only a
//! request signed with the placeholder is signed with the real key, and the path encoding of the
//! client is known: of the two in use, the one whose signature is valid.

use crate::http::Request;
use crate::place::{Place, Refusal};
use ring::{digest, hmac};
use std::fmt::Write as _;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const FAMILY: &str = "AWS4-";
const ENDING: &str = "aws4_request";
const HASH: &str = "x-amz-content-sha256";

/// A request's signature, from its header.
#[derive(Debug)]
pub(crate) struct Signed {
    access_key: String,
    /// Date, region, service.
    scope: [String; 3],
    headers: Vec<String>,
    signature: String,
    /// The hash of the body, if the request states it.
    hash: Option<String>,
}

/// The signature of a request to a place with AWS keys; `None` if it has none.
pub(crate) fn read(request: &Request, place: &Place) -> Result<Option<Signed>, Refusal> {
    if !place.secrets.iter().any(|secret| secret.aws) {
        return Ok(None);
    }
    let presigned = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        name.eq_ignore_ascii_case("x-amz-signature")
    };
    if request.query.split('&').any(presigned) {
        return Err(Refusal::Presigned);
    }
    let value = |wanted: &str| {
        let mut all = request.headers.iter().filter(|(name, _)| name == wanted);
        match (all.next(), all.next()) {
            (Some((_, value)), None) => Ok(Some(value.as_str())),
            (None, _) => Ok(None),
            _ => Err(Refusal::Malformed),
        }
    };
    let Some(authorization) = value("authorization")?.filter(|text| text.starts_with(FAMILY))
    else {
        return Ok(None);
    };
    let hash = value(HASH)?;
    if hash.is_some_and(|hash| hash.starts_with("STREAMING-AWS4-")) {
        return Err(Refusal::ChunkSigned);
    }
    parse(authorization, hash)
        .map(Some)
        .ok_or(Refusal::Signature)
}

fn parse(authorization: &str, hash: Option<&str>) -> Option<Signed> {
    let rest = authorization.strip_prefix(ALGORITHM)?.strip_prefix(' ')?;
    let (mut credential, mut headers, mut signature) = (None, None, None);
    for part in rest.split(',') {
        let (name, value) = part.trim().split_once('=')?;
        let place = match name {
            "Credential" => &mut credential,
            "SignedHeaders" => &mut headers,
            "Signature" => &mut signature,
            _ => return None,
        };
        if place.replace(value).is_some() {
            return None;
        }
    }
    let mut words = credential?.rsplit('/');
    if words.next() != Some(ENDING) {
        return None;
    }
    let (service, region, date) = (words.next()?, words.next()?, words.next()?);
    let access_key: Vec<&str> = words.collect();
    let headers: Vec<String> = headers?.split(';').map(str::to_owned).collect();
    // Without the host, a signature would be valid elsewhere too.
    if !headers.iter().any(|name| name == "host") {
        return None;
    }
    Some(Signed {
        access_key: access_key.into_iter().rev().collect::<Vec<_>>().join("/"),
        scope: [date, region, service].map(str::to_owned),
        headers,
        signature: signature?.to_owned(),
        hash: hash.map(str::to_owned),
    })
}

impl Signed {
    /// Whether the body is signed and its hash is not stated.
    pub(crate) fn needs_body(&self) -> bool {
        self.hash.is_none()
    }

    /// Signs a request again that was signed with a placeholder; returns the name of the secret and
    /// the header. `before` is the request as the sandbox signed it, `after` as it is sent.
    pub(crate) fn again(
        &self,
        before: &Request,
        after: &Request,
        body: &[u8],
        place: &Place,
    ) -> Result<(String, String), Refusal> {
        let hash = match &self.hash {
            Some(hash) => hash.clone(),
            None => hex(digest::digest(&digest::SHA256, body).as_ref()),
        };
        for secret in place.secrets.iter().filter(|secret| secret.aws) {
            for path in [before.path.clone(), encoded(&before.path)] {
                let theirs = self.sign(before, &path, &hash, &secret.placeholder)?;
                if theirs != self.signature {
                    continue;
                }
                let ours = self.sign(after, &path, &hash, secret.value.as_str())?;
                let [date, region, service] = &self.scope;
                let access_key = &self.access_key;
                let headers = self.headers.join(";");
                return Ok((
                    secret.name.clone(),
                    format!(
                        "{ALGORITHM} Credential={access_key}/{date}/{region}/{service}/{ENDING}, \
                         SignedHeaders={headers}, Signature={ours}"
                    ),
                ));
            }
        }
        Err(Refusal::Signature)
    }

    fn sign(
        &self,
        request: &Request,
        path: &str,
        hash: &str,
        key: &str,
    ) -> Result<String, Refusal> {
        let canonical = self.canonical(request, path, hash)?;
        let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let time = joined(request, "x-amz-date").ok_or(Refusal::Signature)?;
        let [date, region, service] = &self.scope;
        let text = format!("{ALGORITHM}\n{time}\n{date}/{region}/{service}/{ENDING}\n{hashed}");
        let mut tag = mac(format!("AWS4{key}").as_bytes(), date.as_bytes());
        for part in [region.as_str(), service, ENDING, &text] {
            tag = mac(tag.as_ref(), part.as_bytes());
        }
        Ok(hex(tag.as_ref()))
    }

    fn canonical(&self, request: &Request, path: &str, hash: &str) -> Result<String, Refusal> {
        let mut pairs: Vec<(&str, &str)> = request
            .query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        pairs.sort_unstable();
        let query: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut text = format!("{}\n{path}\n{}\n", request.method, query.join("&"));
        for name in &self.headers {
            let value = joined(request, name).ok_or(Refusal::Signature)?;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}:{value}");
        }
        let _ = write!(text, "\n{}\n{hash}", self.headers.join(";"));
        Ok(text)
    }
}

/// All values of a header joined, with single spaces.
fn joined(request: &Request, wanted: &str) -> Option<String> {
    let mine = request.headers.iter().filter(|(name, _)| name == wanted);
    let values: Vec<String> = mine
        .map(|(_, value)| value.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Encodes an already encoded path once more, as all services except S3 require.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn mac(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
