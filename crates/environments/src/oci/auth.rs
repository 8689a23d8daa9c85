//! Authentication: from a challenge to the header that answers it.
//!
//! Requests tokens, which are kept for one pull.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use serde::Deserialize;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    challenge::{self, Challenge},
    credentials::Credentials,
    http::{Ask, Http},
    manifest::{json, malformed},
};
use crate::error::EnvironmentError;

const MAX_TOKEN_BYTES: u64 = 1 << 20;
/// The client id in token requests.
const CLIENT_ID: &str = "motu";

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// The header that answers a challenge; `None` if there is no answer.
pub(super) async fn answer(
    http: &Http,
    challenges: &HeaderMap,
    repository: &str,
    credentials: Option<&Credentials>,
) -> Result<Option<HeaderValue>, EnvironmentError> {
    let challenge = challenges
        .get_all(header::WWW_AUTHENTICATE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .find_map(challenge::parse);
    match challenge {
        None => Ok(None),
        Some(Challenge::Basic) => Ok(credentials.and_then(basic)),
        Some(Challenge::Bearer {
            realm,
            service,
            scope,
        }) => {
            let scope = scope.unwrap_or_else(|| format!("repository:{repository}:pull"));
            let service = service.unwrap_or_default();
            let ask = token_request(&realm, &service, &scope, credentials)
                .ok_or_else(|| malformed("the registry's challenge", "it names no address"))?;
            token(http, ask).await
        }
    }
}

fn token_request(
    realm: &str,
    service: &str,
    scope: &str,
    credentials: Option<&Credentials>,
) -> Option<Ask> {
    let mut query = format!("service={}&scope={}", escape(service), escape(scope));
    let mut headers = HeaderMap::new();
    if let Some(Credentials::Identity(token)) = credentials {
        query = format!(
            "grant_type=refresh_token&client_id={CLIENT_ID}&refresh_token={}&{query}",
            escape(token)
        );
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form);
        return Some(Ask {
            method: Method::POST,
            uri: realm.parse().ok()?,
            headers,
            body: Bytes::from(query),
        });
    }
    if let Some(login) = credentials.and_then(basic) {
        headers.insert(header::AUTHORIZATION, login);
    }
    let mark = if realm.contains('?') { '&' } else { '?' };
    let uri: Uri = format!("{realm}{mark}{query}").parse().ok()?;
    uri.host()?;
    Some(Ask {
        method: Method::GET,
        uri,
        headers,
        body: Bytes::new(),
    })
}

async fn token(http: &Http, ask: Ask) -> Result<Option<HeaderValue>, EnvironmentError> {
    let response = http.send(ask).await?;
    // A refused token request means a refused login.
    if !response.status().is_success() {
        return Ok(None);
    }
    let bytes = http.whole(response, MAX_TOKEN_BYTES).await?;
    let answer: TokenAnswer = json("the registry's token", &bytes)?;
    let token = answer.token.or(answer.access_token).unwrap_or_default();
    Ok(secret_header(&format!("Bearer {token}")))
}

fn basic(credentials: &Credentials) -> Option<HeaderValue> {
    match credentials {
        Credentials::Password { username, secret } => {
            let login = STANDARD.encode(format!("{username}:{secret}"));
            secret_header(&format!("Basic {login}"))
        }
        Credentials::Identity(_) => None,
    }
}

fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_asked_for_with_what_is_known() {
        let login = Credentials::Password {
            username: "ann".into(),
            secret: "x".into(),
        };
        let ask = token_request(
            "https://a.example/t?x=1",
            "r s",
            "repository:a/b:pull",
            None,
        );
        let ask = ask.unwrap();
        assert_eq!(
            ask.uri.to_string(),
            "https://a.example/t?x=1&service=r%20s&scope=repository:a/b:pull"
        );
        assert!(ask.headers.is_empty());
        let ask = token_request("https://a.example/t", "s", "x", Some(&login)).unwrap();
        let header = &ask.headers[header::AUTHORIZATION];
        assert_eq!(header, "Basic YW5uOng=");
        assert!(header.is_sensitive());
        let identity = Credentials::Identity("t&t".into());
        let ask = token_request("https://a.example/t", "s", "x", Some(&identity)).unwrap();
        assert_eq!(ask.method, Method::POST);
        assert!(String::from_utf8_lossy(&ask.body).contains("refresh_token=t%26t"));
        assert!(token_request("not an address", "s", "x", None).is_none());
    }
}
