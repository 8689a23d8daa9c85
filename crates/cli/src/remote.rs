//! A daemon of another host: `--url` or `MOTU_URL`, and the key in `MOTU_KEY`.

use async_trait::async_trait;
use motu_api::{Client, Dial, Duplex};
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result, limits};
use motu_peer::{Address, trust};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The variable with the key. No flag has it: others can see the arguments of a program.
const KEY: &str = "MOTU_KEY";
/// The variable with a file of certificates, in the place of those that this host trusts.
const CA_FILE: &str = "MOTU_CA_FILE";

/// A client of the daemon at an address.
pub fn client(url: &str) -> Result<Client> {
    let address = Address::parse("--url", url)?;
    if !address.path("").is_empty() {
        return Err(Error::invalid("--url: it has a path").hint("a host and a port are enough"));
    }
    let key = std::env::var(KEY).unwrap_or_default();
    if key.is_empty() {
        return Err(Error::invalid(format!("{url} asks for a key")).hint(hint![
            format!("set {KEY} to one; whoever runs that host makes it with "),
            host("motu key create")
        ]));
    }
    let tls = match address.tls {
        false => None,
        true => {
            let file = std::env::var_os(CA_FILE).map(PathBuf::from);
            let connector = trust::connector(file.as_deref());
            Some(connector.map_err(|reason| Error::invalid(format!("{CA_FILE}: {reason}")))?)
        }
    };
    Client::new(Remote { address, tls }).with_key(&key)
}

struct Remote {
    address: Address,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({})", self.address)
    }
}

impl Remote {
    fn unreachable(&self, why: &dyn std::fmt::Display) -> Error {
        Error::unavailable(format!("cannot reach {}: {why}", self.address)).hint(hint![
            "look at the address; on that host: ",
            host("motu doctor")
        ])
    }

    async fn connect(&self) -> Result<Box<dyn Duplex>> {
        let place = (self.address.host.as_str(), self.address.port);
        let stream = TcpStream::connect(place)
            .await
            .map_err(|error| self.unreachable(&error))?;
        // Keystrokes leave at once.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::try_from(self.address.host.clone())
            .map_err(|error| self.unreachable(&error))?;
        match tls.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(self.unreachable(&error)),
        }
    }
}

#[async_trait]
impl Dial for Remote {
    async fn dial(&self) -> Result<Box<dyn Duplex>> {
        let patience = Duration::from_secs(limits::HTTP_CONNECT_SECONDS.default);
        match tokio::time::timeout(patience, self.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(self.unreachable(&"it does not answer")),
        }
    }
}
