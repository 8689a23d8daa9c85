use super::*;
use crate::http::Request;
use crate::swap::tests::{PLACE, secret};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

struct Yes(Vec<(String, Vec<String>)>);

impl Gate for Yes {
    fn ask(&mut self, request: &Request, used: &[String]) -> bool {
        self.0.push((request.path.clone(), used.to_vec()));
        request.path != "/no"
    }
}

const NAME: &str = "api.example";

fn roots(authority: &Authority) -> RootCertStore {
    let mut store = RootCertStore::empty();
    let der = STANDARD.decode(&authority.certificate).unwrap();
    store.add(CertificateDer::from(der)).unwrap();
    store
}

/// A client in the sandbox, the border, and a host with a certificate of a test authority.
struct Line {
    client: ClientConnection,
    session: Session,
    host: ServerConnection,
    gate: Yes,
    refused: Option<Refusal>,
    /// How many bytes are moved at once.
    size: usize,
}

fn line(offers: &[&[u8]], takes: &[&[u8]], trusted: bool, size: usize) -> Line {
    let provider = Arc::new(ring::default_provider());
    let world = Authority::make().unwrap();
    let own = Authority::make().unwrap();
    let outside = if trusted { &world } else { &own };
    let der = STANDARD.decode(&outside.certificate).unwrap();
    let mut trust = Trust::new(&own, vec![CertificateDer::from(der)]).unwrap();
    let place = Place {
        name: NAME.to_owned(),
        port: 443,
        secrets: Arc::new(vec![secret("s3cret")]),
    };
    let session = Session::new(place, &mut trust).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(&own))
        .with_no_client_auth();
    client.alpn_protocols = offers.iter().map(|one| one.to_vec()).collect();
    let certified = Mint::new(&world, provider.clone())
        .unwrap()
        .certify(NAME)
        .unwrap();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from((*certified).clone())));
    server.alpn_protocols = takes.iter().map(|one| one.to_vec()).collect();
    Line {
        client: ClientConnection::new(Arc::new(client), NAME.try_into().unwrap()).unwrap(),
        session,
        host: ServerConnection::new(Arc::new(server)).unwrap(),
        gate: Yes(Vec::new()),
        refused: None,
        size,
    }
}

impl Line {
    /// Moves bytes until there are none.
    fn run(&mut self) {
        loop {
            let mut moved = false;
            let mut bytes = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut bytes).unwrap();
            }
            for part in bytes.chunks(self.size) {
                moved = true;
                if self.refused.is_none() {
                    self.refused = self.session.guest(part, &mut self.gate).err();
                }
            }
            let bytes = std::mem::take(&mut self.session.to_host);
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                moved = true;
                self.host.read_tls(&mut rest).unwrap();
                let _ = self.host.process_new_packets();
            }
            let mut bytes = Vec::new();
            while self.host.wants_write() {
                self.host.write_tls(&mut bytes).unwrap();
            }
            for part in bytes.chunks(self.size) {
                moved = true;
                if self.refused.is_none() {
                    self.refused = self.session.host(part, &mut self.gate).err();
                }
            }
            let bytes = std::mem::take(&mut self.session.to_guest);
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                moved = true;
                self.client.read_tls(&mut rest).unwrap();
                let _ = self.client.process_new_packets();
            }
            if !moved {
                return;
            }
        }
    }

    fn ask(&mut self, text: &[u8]) {
        self.client.writer().write_all(text).unwrap();
        self.run();
    }

    fn seen(&mut self) -> String {
        let mut seen = Vec::new();
        // Ends with `WouldBlock`, after reading what is there.
        let _ = self.host.reader().read_to_end(&mut seen);
        String::from_utf8_lossy(&seen).into_owned()
    }

    fn answered(&mut self) -> String {
        let mut seen = Vec::new();
        let _ = self.client.reader().read_to_end(&mut seen);
        String::from_utf8_lossy(&seen).into_owned()
    }
}

#[test]
fn the_host_sees_the_value_and_the_client_a_certificate_it_trusts() {
    for size in [1, 5, 1000, 100_000] {
        let mut line = line(&[H2, H1], &[H1], true, size);
        let get = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nX-Key: {PLACE}\r\n\r\n");
        line.ask(get.as_bytes());
        assert_eq!(line.refused, None);
        assert_eq!(line.client.alpn_protocol(), Some(H1));
        let seen = line.seen();
        assert!(
            seen.contains("X-Key: s3cret\r\n") && !seen.contains(PLACE),
            "{seen}"
        );
        line.host
            .writer()
            .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
            .unwrap();
        line.run();
        assert_eq!(line.answered(), "HTTP/1.1 200 OK\r\n\r\n");
        let other = Secret {
            value: crate::Value::new("n3w"),
            ..secret("")
        };
        line.session.rebind(Arc::new(vec![other]));
        line.ask(get.as_bytes());
        assert!(line.seen().contains("X-Key: n3w\r\n"));
        assert_eq!(
            line.gate.0,
            vec![("/".to_owned(), vec!["key".to_owned()]); 2]
        );
    }
}

#[test]
fn both_sides_speak_what_the_host_chooses() {
    let mut both = line(&[H2, H1], &[H2, H1], true, 1000);
    both.run();
    assert_eq!(both.client.alpn_protocol(), Some(H2));
    assert_eq!(both.host.alpn_protocol(), Some(H2));
    let mut none = line(&[], &[H1], true, 1000);
    none.run();
    assert_eq!(none.client.alpn_protocol(), None);
    assert!(!none.client.is_handshaking());
    let mut odd = line(&[b"grpc-exp"], &[H1], true, 1000);
    odd.run();
    assert_eq!(odd.refused, Some(Refusal::NoProtocol));
    let mut bodies = line(&[H2], &[H2], true, 1000);
    let wants = Secret {
        body: true,
        ..secret("x")
    };
    bodies.session.rebind(Arc::new(vec![wants]));
    bodies.run();
    assert_eq!(bodies.refused, Some(Refusal::NoProtocol));
}

#[test]
fn a_host_that_nobody_vouches_for_gets_nothing() {
    let mut line = line(&[H1], &[H1], false, 1000);
    line.ask(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(line.refused, Some(Refusal::NotTrusted));
    assert_eq!(line.seen(), "");
}

#[test]
fn a_refused_request_is_answered_and_nothing_of_it_leaves() {
    let mut line = line(&[H1], &[H1], true, 1000);
    let get = format!("GET /no HTTP/1.1\r\nHost: {NAME}\r\nX-Key: {PLACE}\r\n\r\n");
    line.ask(get.as_bytes());
    assert_eq!(line.refused, Some(Refusal::NotAllowed));
    assert_eq!(line.seen(), "");
    let answer = line.answered();
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("not allowed\n"),
        "{answer}"
    );
}

#[test]
fn bytes_that_are_no_tls_end_in_a_refusal() {
    let mut line = line(&[H1], &[H1], true, 1000);
    let refused = line
        .session
        .guest(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0], &mut line.gate);
    assert_eq!(refused, Err(Refusal::GuestTls));
    assert!(line.session.to_host.is_empty());
}
