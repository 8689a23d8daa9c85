//! One connection with TLS terminated in the middle.
//!
//! ```text
//!   hello ──► host handshake ──► guest handshake ──► open ──► over
//! ```
//!
//! The handshake with the host comes first: the protocol it chooses from the client's offer (ALPN)
//! is then the only one accepted from the client. So both sides use the same protocol.

use crate::authority::{Authority, Failed, Mint};
use crate::place::{Gate, Out, Place, Refusal};
use crate::secret::Secret;
use crate::{h1, h2};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{Accepted, Acceptor};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

/// Buffer for one side beyond which no more is taken from the other.
const HELD: usize = 256 * 1024;
/// Bytes a client may send before its ClientHello is answered.
const EARLY: usize = 64 * 1024;
const H1: &[u8] = b"http/1.1";
const H2: &[u8] = b"h2";

/// The roots trusted outside, and the authority trusted inside.
#[derive(Debug)]
pub struct Trust {
    mint: Mint,
    client: ClientConfig,
    provider: Arc<CryptoProvider>,
}

impl Trust {
    /// `roots` are the DER certificates that hosts are verified with; invalid ones are ignored.
    pub fn new(authority: &Authority, roots: Vec<CertificateDer<'_>>) -> Result<Self, Failed> {
        let provider = Arc::new(ring::default_provider());
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots);
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(Failed::of)?
            .with_root_certificates(store)
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        Ok(Self {
            mint: Mint::new(authority, provider.clone())?,
            client,
            provider,
        })
    }
}

/// The sandbox's side.
enum Guest {
    Hello(Acceptor),
    /// The host has not answered yet.
    Waits(Accepted),
    Open(Box<ServerConnection>),
    Over,
}

enum Requests {
    H1(h1::Rewriter),
    H2(h2::Rewriter),
}

/// A connection of a sandbox to a host that secrets are bound to.
pub struct Session {
    place: Place,
    guest: Guest,
    host: Option<Box<ClientConnection>>,
    certificate: Arc<CertifiedKey>,
    client: ClientConfig,
    provider: Arc<CryptoProvider>,
    requests: Requests,
    early: Vec<u8>,
    /// The sandbox has closed its side: it need not be told that the host has too.
    ended: bool,
    /// Bytes to be sent, in this order.
    pub to_guest: Vec<u8>,
    pub to_host: Vec<u8>,
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session")
            .field("name", &self.place.name)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub fn new(place: Place, trust: &mut Trust) -> Result<Self, Failed> {
        Ok(Self {
            certificate: trust.mint.certify(&place.name)?,
            place,
            guest: Guest::Hello(Acceptor::default()),
            host: None,
            client: trust.client.clone(),
            provider: trust.provider.clone(),
            requests: Requests::H1(h1::Rewriter::default()),
            early: Vec::new(),
            ended: false,
            to_guest: Vec::new(),
            to_host: Vec::new(),
        })
    }

    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Uses other values from the next request on.
    pub fn rebind(&mut self, secrets: Arc<Vec<Secret>>) {
        self.place.secrets = secrets;
    }

    /// Whether bytes of the sandbox can be taken now.
    pub fn takes_guest(&self) -> bool {
        self.to_host.len() < HELD && self.early.len() < EARLY
    }

    /// Whether bytes of the host can be taken now.
    pub fn takes_host(&self) -> bool {
        self.to_guest.len() < HELD
    }

    /// Takes bytes of the sandbox. After a refusal, `to_guest` must still be sent.
    pub fn guest(&mut self, bytes: &[u8], gate: &mut dyn Gate) -> Result<(), Refusal> {
        match &mut self.guest {
            Guest::Hello(_) => self.hello(bytes),
            Guest::Waits(_) => {
                self.early.extend_from_slice(bytes);
                if self.early.len() > EARLY {
                    return Err(Refusal::GuestTls);
                }
                Ok(())
            }
            Guest::Open(_) => self.opened(bytes, gate),
            Guest::Over => Ok(()),
        }
    }

    /// Takes bytes of the host.
    pub fn host(&mut self, bytes: &[u8], gate: &mut dyn Gate) -> Result<(), Refusal> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(host) = &mut self.host else {
                return Ok(());
            };
            host.read_tls(&mut rest).map_err(|_| Refusal::HostTls)?;
            let state = match host.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // Send the TLS alert to the host before the connection ends.
                    let _ = host.write_tls(&mut self.to_host);
                    return Err(match error {
                        rustls::Error::InvalidCertificate(_) => Refusal::NotTrusted,
                        rustls::Error::NoApplicationProtocol => Refusal::NoProtocol,
                        _ => Refusal::HostTls,
                    });
                }
            };
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            host.reader()
                .read_exact(&mut plain)
                .map_err(|_| Refusal::HostTls)?;
            if let Guest::Open(guest) = &mut self.guest {
                let _ = guest.writer().write_all(&plain);
                if state.peer_has_closed() && !self.ended {
                    guest.send_close_notify();
                }
            }
            let ready = !host.is_handshaking();
            self.flush();
            if ready && matches!(self.guest, Guest::Waits(_)) {
                self.open(gate)?;
            }
        }
        Ok(())
    }

    /// Called when the sandbox has closed its side.
    pub fn guest_ended(&mut self) {
        if let Some(host) = &mut self.host
            && !std::mem::replace(&mut self.ended, true)
        {
            host.send_close_notify();
        }
        self.flush();
    }

    /// Parses the sandbox's ClientHello, and then starts the handshake with the host.
    fn hello(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let mut rest = bytes;
        while let Guest::Hello(acceptor) = &mut self.guest
            && !rest.is_empty()
        {
            acceptor
                .read_tls(&mut rest)
                .map_err(|_| Refusal::GuestTls)?;
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    self.greet(&accepted)?;
                    self.guest = Guest::Waits(accepted);
                }
                Err((_, mut alert)) => {
                    let _ = alert.write_all(&mut self.to_guest);
                    return Err(Refusal::GuestTls);
                }
            }
        }
        self.early.extend_from_slice(rest);
        Ok(())
    }

    fn greet(&mut self, accepted: &Accepted) -> Result<(), Refusal> {
        let hello = accepted.client_hello();
        let named = hello.server_name().unwrap_or_default();
        if !named.eq_ignore_ascii_case(&self.place.name) {
            return Err(Refusal::NameMismatch);
        }
        let known = |offer: &&[u8]| *offer == H1 || *offer == H2 && !self.place.needs_bodies();
        let offered = hello.alpn().map(|all| {
            let known = all.filter(known);
            known.map(<[u8]>::to_vec).collect::<Vec<_>>()
        });
        if offered.as_ref().is_some_and(Vec::is_empty) {
            return Err(Refusal::NoProtocol);
        }
        self.client.alpn_protocols = offered.unwrap_or_default();
        let name = ServerName::try_from(self.place.name.clone());
        let name = name.map_err(|_| Refusal::NameMismatch)?;
        let host = ClientConnection::new(Arc::new(self.client.clone()), name);
        let mut host = host.map_err(|_| Refusal::HostTls)?;
        host.set_buffer_limit(None);
        self.host = Some(Box::new(host));
        self.flush();
        Ok(())
    }

    /// After the host's handshake: answers the sandbox, with the protocol that the host chose.
    fn open(&mut self, gate: &mut dyn Gate) -> Result<(), Refusal> {
        let chosen = self.host.as_ref().and_then(|host| host.alpn_protocol());
        let chosen = chosen.map(<[u8]>::to_vec);
        if chosen.as_deref() == Some(H2) {
            self.requests = Requests::H2(h2::Rewriter::default());
        }
        let Guest::Waits(accepted) = std::mem::replace(&mut self.guest, Guest::Over) else {
            return Ok(());
        };
        let versions = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions();
        let mut config = versions
            .map_err(|_| Refusal::GuestTls)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(
                (*self.certificate).clone(),
            )));
        config.alpn_protocols = chosen.into_iter().collect();
        config.send_tls13_tickets = 0;
        match accepted.into_connection(Arc::new(config)) {
            Ok(mut guest) => {
                guest.set_buffer_limit(None);
                self.guest = Guest::Open(Box::new(guest));
                self.flush();
                let early = std::mem::take(&mut self.early);
                self.opened(&early, gate)
            }
            Err((_, mut alert)) => {
                let _ = alert.write_all(&mut self.to_guest);
                Err(Refusal::GuestTls)
            }
        }
    }

    fn opened(&mut self, bytes: &[u8], gate: &mut dyn Gate) -> Result<(), Refusal> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Guest::Open(guest) = &mut self.guest else {
                return Ok(());
            };
            guest.read_tls(&mut rest).map_err(|_| Refusal::GuestTls)?;
            let Ok(state) = guest.process_new_packets() else {
                let _ = guest.write_tls(&mut self.to_guest);
                return Err(Refusal::GuestTls);
            };
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            guest
                .reader()
                .read_exact(&mut plain)
                .map_err(|_| Refusal::GuestTls)?;
            self.request(&plain, gate)?;
            if state.peer_has_closed() {
                self.guest_ended();
            }
            self.flush();
        }
        Ok(())
    }

    /// Passes plaintext of the sandbox on to the host.
    fn request(&mut self, plain: &[u8], gate: &mut dyn Gate) -> Result<(), Refusal> {
        let mut out = Out::default();
        let fed = match &mut self.requests {
            Requests::H1(requests) => requests.feed(plain, Some(&self.place), gate, &mut out),
            Requests::H2(requests) => requests.feed(plain, &self.place, gate, &mut out),
        };
        let (Guest::Open(guest), Some(host)) = (&mut self.guest, &mut self.host) else {
            return Ok(());
        };
        // These writers have no buffer limit and take everything.
        let _ = host.writer().write_all(&out.forward);
        zeroize::Zeroize::zeroize(&mut out.forward);
        let _ = guest.writer().write_all(&out.back);
        if let Err(refusal) = fed {
            if matches!(self.requests, Requests::H1(_)) {
                let _ = guest.writer().write_all(&h1::answer(refusal));
            }
            guest.send_close_notify();
            self.flush();
            self.guest = Guest::Over;
            return Err(refusal);
        }
        Ok(())
    }

    /// Moves pending TLS records of both sides to the output buffers.
    fn flush(&mut self) {
        // Writing to memory does not fail.
        if let Some(host) = &mut self.host {
            while host.wants_write() && host.write_tls(&mut self.to_host).is_ok() {}
        }
        if let Guest::Open(guest) = &mut self.guest {
            while guest.wants_write() && guest.write_tls(&mut self.to_guest).is_ok() {}
        }
    }
}

#[cfg(test)]
mod tests;
