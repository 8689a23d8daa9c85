//! Ports of sandboxes by names of hosts: `{port}-{id}.DOMAIN` is that port, a site of its own.
//!
//! What a page from a sandbox can reach with its visitor's credentials is then that port alone: it
//! shares no origin with the API or with another sandbox. Browsers send no bearer token, so here the
//! key may also be the password of `Basic`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::{Authority, PathAndQuery};
use http::{Request, Uri, header};
use motu_core::{Error, Result, SandboxId};

/// The domain below which ports have names.
#[derive(Clone, Debug)]
pub struct Domain(String);

/// Of a request that came for the name of a port; answers then need no prefix.
#[derive(Clone, Copy, Debug)]
pub struct ByName;

/// A port of a sandbox.
#[derive(Debug, PartialEq, Eq)]
pub struct Port {
    id: SandboxId,
    port: u16,
}

impl Domain {
    pub fn new(name: &str) -> Domain {
        Domain(format!(".{}", name.to_ascii_lowercase()))
    }

    /// The port that a request is for; `None` if it is for the API.
    pub fn port<B>(&self, request: &Request<B>) -> Result<Option<Port>> {
        match host(request) {
            Some(host) => self.read(&host),
            None => Ok(None),
        }
    }

    fn read(&self, host: &str) -> Result<Option<Port>> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let Some(label) = host.strip_suffix(&self.0) else {
            return Ok(None);
        };
        let read = || {
            let (port, id) = label.split_once('-')?;
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| digits && *port > 0)?;
            let id = SandboxId::parse(id).ok()?;
            Some(Port { id, port })
        };
        read().map(Some).ok_or_else(|| {
            let label: String = label.chars().take(64).collect();
            Error::not_found(format!("{label:?} is no port of a sandbox")).hint(format!(
                "names are PORT-ID{}, as 8000-sb-1{}",
                self.0, self.0
            ))
        })
    }
}

/// The host that a request is for, without its port.
fn host<B>(request: &Request<B>) -> Option<String> {
    if let Some(host) = request.uri().host() {
        return Some(host.to_string());
    }
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let authority: Authority = host.parse().ok()?;
    Some(authority.host().to_string())
}

impl Port {
    /// The address of the same page below the API.
    pub fn address(&self, asked: &Uri) -> Result<Uri> {
        let page = asked.path_and_query().map_or("/", PathAndQuery::as_str);
        // `OPTIONS *` is about the whole server.
        let page = if page.starts_with('/') { page } else { "/" };
        let address = format!("/v1/sandboxes/{}/ports/{}{page}", self.id, self.port);
        address
            .parse()
            .map_err(|error| Error::invalid(format!("the address cannot be passed on: {error}")))
    }
}

/// The password of `Basic`, which is a key here.
pub fn password(credentials: &str) -> Option<String> {
    let bytes = STANDARD.decode(credentials.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.split_once(':').map(|(_, key)| key.to_string())
}

/// Has browsers ask their users for a key.
pub const CHALLENGE: &str = "Basic realm=\"motu: any name, a key as the password\"";

/// Whether a request came for the name of a port.
pub fn by_name<B>(request: &Request<B>) -> bool {
    request.extensions().get::<ByName>().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(host: &str) -> Result<Option<Port>> {
        let request = Request::builder().header("host", host).body(()).unwrap();
        Domain::new("Ports.Example").port(&request)
    }

    #[test]
    fn a_name_is_a_port_of_a_sandbox_or_the_api() {
        let found = |id: &str, port| {
            let id = SandboxId::parse(id).unwrap();
            Ok(Some(Port { id, port }))
        };
        let kind = |host| port(host).map_err(|error| error.kind);
        assert_eq!(kind("8000-sb-1.ports.example"), found("sb-1", 8000));
        assert_eq!(
            kind("80-ACME--BOX.PORTS.example.:7750"),
            found("acme--box", 80)
        );
        for api in [
            "ports.example",
            "motu.example",
            "127.0.0.1:7750",
            "[::1]:80",
            "",
        ] {
            assert_eq!(kind(api), Ok(None), "{api}");
        }
        for wrong in [
            "sb-1.ports.example",
            "0-sb-1.ports.example",
            "70000-sb-1.ports.example",
            "+80-sb-1.ports.example",
            "80-.ports.example",
            "80-a.b.ports.example",
            "80-a_b.ports.example",
        ] {
            assert_eq!(kind(wrong), Err(motu_core::ErrorKind::NotFound), "{wrong}");
        }
    }

    #[test]
    fn the_host_of_http_2_is_in_the_address() {
        let request = Request::builder().uri("https://80-sb-1.ports.example/a");
        let request = request.header("host", "elsewhere").body(()).unwrap();
        let found = Domain::new("ports.example").port(&request).unwrap();
        assert_eq!(found.unwrap().port, 80);
    }

    #[test]
    fn a_page_has_its_place_below_the_api() {
        let port = port("80-sb-1.ports.example").unwrap().unwrap();
        let at = |uri: &str| port.address(&uri.parse().unwrap()).unwrap().to_string();
        assert_eq!(at("/"), "/v1/sandboxes/sb-1/ports/80/");
        assert_eq!(
            at("/a%2Fb?c=/healthz"),
            "/v1/sandboxes/sb-1/ports/80/a%2Fb?c=/healthz"
        );
        assert_eq!(
            at("https://80-sb-1.ports.example/x"),
            "/v1/sandboxes/sb-1/ports/80/x"
        );
        assert_eq!(at("*"), "/v1/sandboxes/sb-1/ports/80/");
    }

    #[test]
    fn a_password_may_have_colons_and_a_name_is_any() {
        let sent = |text: &str| password(&STANDARD.encode(text));
        assert_eq!(sent("me:motu_k_1:2").as_deref(), Some("motu_k_1:2"));
        assert_eq!(sent(":k").as_deref(), Some("k"));
        assert_eq!(sent("k"), None);
        assert_eq!(password("%%%"), None);
    }
}
