//! The custom provider protocol over HTTP: external orchestrators use motu as a runtime.
//!
//! ```text
//!   routes    the routes and their parameters
//!   files     the routes for files
//!   lines     the output of a command, line by line
//!   refusal   errors in the format of the protocol
//! ```
//!
//! Nothing is decided here: every route calls the service. Sandboxes created here have ids with
//! a prefix, and no others can be reached.

mod files;
mod lines;
mod refusal;
mod routes;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt as _;
use motu_core::report::Examine;
use motu_core::{Error, Isolation, Result, SandboxId, Service, limits};
use refusal::Refusal;
use sha2::{Digest, Sha256};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

/// The minimum length of a key.
const MIN_KEY_BYTES: usize = 16;
/// The length of generated keys: five random bits per character.
const MADE_KEY_CHARS: usize = 52;
/// The id prefix of sandboxes created here. Orchestrators take ids that begin with `sb-`; those of
/// other sandboxes of this host have no second dash.
const OURS: &str = "sb-pv-";
/// The prefix that sandboxes of earlier versions have.
const EARLIER: &str = "pv-";
const ID_CHARS: usize = 16;
/// The header with the caller's key.
const KEY_HEADER: &str = "x-api-key";

/// Settings of all sandboxes of a provider.
#[derive(Clone, Debug)]
pub struct Options {
    /// `auto` if missing.
    pub runtime: Option<String>,
    /// The network policy; no network if missing.
    pub policy: Option<String>,
    pub ttl_seconds: u64,
    /// Whether the name of an image is a path of this host: those are refused.
    pub reads_host_files: fn(&str) -> bool,
}

/// Generates a random key.
pub fn made_key() -> String {
    motu_core::id::random_name(MADE_KEY_CHARS)
}

pub(crate) struct Provider {
    service: Arc<dyn Service>,
    options: Options,
    /// The digest of the key: digests have the same length, so comparing takes the same time for
    /// every guess.
    key: [u8; 32],
    /// The isolation of its sandboxes; empty until it is known.
    walls: tokio::sync::OnceCell<Isolation>,
}

impl Provider {
    /// The isolation of sandboxes created here, as far as it is known. Each sandbox reports its own
    /// when it is created.
    async fn isolation(&self) -> Option<Isolation> {
        let asked = self.walls.get_or_try_init(|| async {
            let doctor = self.service.doctor(Examine { deep: false }).await;
            let doctor = doctor.map_err(drop)?;
            let all = doctor.runtimes.iter();
            let named = match self.options.runtime.as_deref() {
                // The daemon's choice is not known here, but it never is the host itself.
                None => {
                    let working = all.filter(|report| report.works);
                    let walls = working.map(|report| report.isolation);
                    return walls
                        .filter(|walls| *walls > Isolation::None)
                        .min()
                        .ok_or(());
                }
                Some("auto") => doctor.auto.clone(),
                Some(name) => Some(name.to_string()),
            };
            let mut fitting = all.filter(|report| Some(&report.name) == named.as_ref());
            fitting.next().map(|report| report.isolation).ok_or(())
        });
        asked.await.ok().copied()
    }

    /// An id for a new sandbox.
    fn fresh_id() -> Result<SandboxId> {
        let name = motu_core::id::random_name(ID_CHARS);
        SandboxId::parse(&format!("{OURS}{name}"))
    }

    /// Parses the id of a sandbox created here; others do not exist for callers.
    fn own_id(text: &str) -> Result<SandboxId> {
        match SandboxId::parse(text) {
            Ok(id) if is_ours(&id) => Ok(id),
            _ => Err(Error::not_found("there is no such sandbox")),
        }
    }
}

fn is_ours(id: &SandboxId) -> bool {
    id.as_str().starts_with(OURS) || id.as_str().starts_with(EARLIER)
}

/// Serves the protocol until `leave` completes.
pub async fn serve(
    service: Arc<dyn Service>,
    options: Options,
    (address, key): (SocketAddr, &str),
    leave: impl Future<Output = ()> + Send + 'static,
    listening: impl FnOnce(SocketAddr),
) -> Result<()> {
    check(key)?;
    let provider = Arc::new(Provider {
        service,
        options,
        key: digest(key),
        walls: tokio::sync::OnceCell::new(),
    });
    // Computed in advance, because callers ask for it first and expect a fast answer.
    provider.isolation().await;
    let listener = TcpListener::bind(address).await;
    let listener = listener
        .map_err(|error| Error::unavailable(format!("cannot listen at {address}: {error}")))?;
    let bound = listener.local_addr();
    listening(bound.map_err(|error| Error::io("the address", &error))?);
    let app = routes::router()
        .layer(DefaultBodyLimit::max(
            limits::PROVIDER_BODY_BYTES.default as usize,
        ))
        .layer(axum::middleware::from_fn_with_state(
            provider.clone(),
            guarded,
        ))
        .with_state(provider);
    // Answers and lines of output are small and latency matters.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app)
        .with_graceful_shutdown(leave)
        .await
        .map_err(|error| Error::io("serve", &error))
}

fn check(key: &str) -> Result<()> {
    if key.len() < MIN_KEY_BYTES || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::invalid("that key guards nothing").hint(format!(
            "at least {MIN_KEY_BYTES} printable characters; without --key-file one is made"
        )));
    }
    Ok(())
}

/// Rejects requests without the key. The health check needs no key.
async fn guarded(State(provider): State<Arc<Provider>>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(KEY_HEADER);
    let known = shown.is_some_and(|shown| digest(shown).ct_eq(&provider.key).into());
    match known || request.uri().path() == routes::HEALTH {
        true => next.run(request).await,
        false => Refusal::unauthorized().into_response(),
    }
}

fn digest(text: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sandboxes_that_were_made_here_are_reached() {
        let own = Provider::fresh_id().unwrap();
        assert!(own.as_str().starts_with("sb-"), "{own}");
        assert_eq!(Provider::own_id(own.as_str()).unwrap(), own);
        assert!(Provider::own_id("pv-0123456789abcdef").is_ok());
        for other in ["ws-secret", "sb-3f9k2m7qx0ab", "", "pv", "../pv-x", "PV-a"] {
            let error = Provider::own_id(other).unwrap_err();
            assert_eq!(error.kind, motu_core::ErrorKind::NotFound, "{other}");
        }
    }

    #[test]
    fn a_key_must_guard_something() {
        assert!(check(&made_key()).is_ok());
        for key in [
            "",
            "short",
            "fifteen letters",
            "with spaces and more of them",
        ] {
            assert!(check(key).is_err(), "{key}");
        }
    }
}
