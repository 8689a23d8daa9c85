//! One repository of one registry.
//!
//! Owns the requests of a pull: authentication, retries and waits, and the meaning of each error.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::{
    Account, RegistryOptions, auth,
    credentials::{self, Credentials},
    http::{Ask, Http},
    manifest::{ACCEPTED, MAX_DOCUMENT_BYTES},
};
use crate::{
    digest::{self, hex},
    error::EnvironmentError,
    reference::{DEFAULT_REGISTRY, Reference, is_loopback, split_port},
};

/// The actual host of Docker's registry.
const DOCKER_HOST: &str = "registry-1.docker.io";
/// How often a request to a busy or failing registry is repeated.
const MAX_RETRIES: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(250);
const MAX_MESSAGE_BYTES: u64 = 64 << 10;
const MAX_MESSAGE_CHARS: usize = 200;
const CONTENT_DIGEST: &str = "docker-content-digest";

/// The repository a pull reads from.
pub(crate) struct Registry {
    http: Http,
    reference: Reference,
    options: RegistryOptions,
    credentials: Option<Credentials>,
    authorization: Mutex<Option<HeaderValue>>,
}

impl Registry {
    /// Looks up the login, which may run a program: call it on a blocking thread.
    pub fn new(reference: Reference, account: &Account, options: &RegistryOptions) -> Self {
        let config = options.login(account, &reference.registry);
        let found = config.and_then(|config| credentials::find(config, &reference.registry));
        let reach = options.reach(account);
        Self {
            http: Http::new(&reference.registry, options.idle_timeout, reach),
            options: options.clone(),
            credentials: found,
            authorization: Mutex::default(),
            reference,
        }
    }

    /// The current digest of a tag, if the registry returns it for a HEAD request.
    pub async fn current_digest(&self) -> Result<Option<String>, EnvironmentError> {
        let path = format!("manifests/{}", self.reference.version.as_str());
        let response = self.ask(Method::HEAD, &path, accept_manifests()).await?;
        let found = response.headers().get(CONTENT_DIGEST);
        Ok(found
            .and_then(|value| value.to_str().ok())
            .filter(|value| digest::is_valid(value))
            .map(str::to_owned))
    }

    /// A manifest or index by tag or digest, with the digest it has.
    pub async fn manifest(&self, version: &str) -> Result<(Vec<u8>, String), EnvironmentError> {
        let path = format!("manifests/{version}");
        let response = self.ask(Method::GET, &path, accept_manifests()).await?;
        let bytes = self.http.whole(response, MAX_DOCUMENT_BYTES).await?;
        let found = format!("sha256:{}", hex(&Sha256::digest(&bytes)));
        if digest::is_valid(version) && found != version {
            return Err(EnvironmentError::DigestMismatch {
                what: format!("the manifest of {}", self.reference),
                expected: version.to_owned(),
                found,
            });
        }
        Ok((bytes, found))
    }

    /// A small blob, checked.
    pub async fn document(&self, digest: &str) -> Result<Vec<u8>, EnvironmentError> {
        let response = self.blob(digest, 0).await?;
        let bytes = self.http.whole(response, MAX_DOCUMENT_BYTES).await?;
        let found = format!("sha256:{}", hex(&Sha256::digest(&bytes)));
        if found != digest {
            return Err(EnvironmentError::DigestMismatch {
                what: format!("the configuration of {}", self.reference),
                expected: digest.to_owned(),
                found,
            });
        }
        Ok(bytes)
    }

    /// A blob, from a byte on if the registry can do that.
    pub async fn blob(
        &self,
        digest: &str,
        from: u64,
    ) -> Result<Response<Incoming>, EnvironmentError> {
        let mut headers = HeaderMap::new();
        if from > 0
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={from}-"))
        {
            headers.insert(header::RANGE, range);
        }
        self.ask(Method::GET, &format!("blobs/{digest}"), headers)
            .await
    }

    pub async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, EnvironmentError> {
        self.http.piece(body).await
    }

    pub fn unreachable(&self, reason: &str) -> EnvironmentError {
        self.http.unreachable(reason)
    }

    /// Repeats a request until there is an answer: authenticates and waits as told.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, EnvironmentError> {
        let mut ask = Ask {
            method,
            uri: self.uri(path)?,
            headers,
            body: Bytes::new(),
        };
        let mut retries = 0;
        let mut logged_in = false;
        loop {
            let known = self.authorization.lock().await.clone();
            if let Some(known) = known {
                ask.headers.insert(header::AUTHORIZATION, known);
            }
            let response = match self.http.send(ask.clone()).await {
                Err(EnvironmentError::Unreachable { .. }) if retries < MAX_RETRIES => {
                    tokio::time::sleep(FIRST_WAIT * 2_u32.pow(retries)).await;
                    retries += 1;
                    continue;
                }
                other => other?,
            };
            let status = response.status();
            if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
                return Ok(response);
            }
            if status == StatusCode::UNAUTHORIZED && !logged_in {
                logged_in = true;
                if self.log_in(response.headers()).await? {
                    continue;
                }
            }
            let is_busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            if is_busy && retries < MAX_RETRIES {
                tokio::time::sleep(self.wait_for(&response, retries)).await;
                retries += 1;
                continue;
            }
            return Err(self.refusal(path, response).await);
        }
    }

    async fn log_in(&self, challenges: &HeaderMap) -> Result<bool, EnvironmentError> {
        let repository = &self.reference.repository;
        let credentials = self.credentials.as_ref();
        let answer = auth::answer(&self.http, challenges, repository, credentials).await?;
        let found = answer.is_some();
        *self.authorization.lock().await = answer;
        Ok(found)
    }

    fn wait_for(&self, response: &Response<Incoming>, retries: u32) -> Duration {
        let asked = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().parse().ok())
            .map(Duration::from_secs);
        asked
            .unwrap_or(FIRST_WAIT * 2_u32.pow(retries))
            .min(self.options.max_retry_wait)
    }

    async fn refusal(&self, path: &str, response: Response<Incoming>) -> EnvironmentError {
        let registry = self.reference.registry.clone();
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            return EnvironmentError::AuthRequired {
                registry,
                repository: self.reference.repository.clone(),
            };
        }
        let body = self.http.whole(response, MAX_MESSAGE_BYTES).await;
        EnvironmentError::Registry {
            registry,
            status: status.as_u16(),
            what: format!("{} {path}", self.reference.repository),
            message: message_of(&body.unwrap_or_default()),
        }
    }

    fn uri(&self, path: &str) -> Result<Uri, EnvironmentError> {
        let registry = match self.reference.registry.as_str() {
            DEFAULT_REGISTRY => DOCKER_HOST,
            registry => registry,
        };
        let scheme = match is_loopback(split_port(registry).0) {
            true => "http",
            false => "https",
        };
        let repository = &self.reference.repository;
        format!("{scheme}://{registry}/v2/{repository}/{path}")
            .parse()
            .map_err(|_| self.unreachable("its name is no address"))
    }
}

fn accept_manifests() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPTED));
    headers
}

/// A registry's error message, on one line.
fn message_of(body: &[u8]) -> String {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = answer["errors"][0]["message"].as_str().unwrap_or_default();
    let shown = message.chars().filter(|c| !c.is_control());
    shown.take(MAX_MESSAGE_CHARS).collect()
}
