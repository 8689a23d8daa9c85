//! A connection whose TLS is terminated here, because secrets are bound to its host.

use super::{Desk, End, Flow, Look, write};
use crate::border::Post;
use crate::gateway::decisions::{Decision, Event};
use crate::judge::{self, Destination, Flight, Reason, Verdict};
use motu_border::http::Request;
use motu_border::session::Session;
use motu_border::{Gate, Place, Refusal};
use rustix::io::Errno;
use rustix::net::Shutdown;
use smoltcp::socket::tcp;

/// Bytes moved at once.
const PART: usize = 16 * 1024;

/// Starts TLS termination if the ClientHello names a host that secrets are bound to and that
/// resolved to this address. Other connections pass unchanged.
pub(super) fn begin(
    first: &Flight,
    to: &Destination,
    names: &[String],
    desk: &mut Desk,
) -> Option<Box<Session>> {
    // What is encrypted inside of a ClientHello is for the host, and never reaches it from here.
    let (Flight::Tls(Some(name)) | Flight::HiddenTls(Some(name))) = first else {
        return None;
    };
    let name = crate::host::normal(name).filter(|name| names.contains(name))?;
    let post = desk.border.as_mut()?;
    let secrets = post.secrets(&name);
    if secrets.is_empty() {
        return None;
    }
    let place = Place {
        name,
        port: to.port,
        secrets,
    };
    // If no certificate can be made for the name, the connection passes unchanged, without secrets.
    Session::new(place, &mut post.trust).ok().map(Box::new)
}

/// Judges requests, plain ones and those inside of TLS.
pub(super) struct Judge<'a> {
    to: &'a Destination,
    names: &'a [String],
    desk: &'a mut Desk,
    /// Whether TLS ends here.
    ended: bool,
    pub(super) refused: Option<Verdict>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(to: &'a Destination, names: &'a [String], desk: &'a mut Desk) -> Self {
        Self {
            to,
            names,
            desk,
            ended: false,
            refused: None,
        }
    }

    fn inside(self) -> Self {
        Self {
            ended: true,
            ..self
        }
    }
}

impl Gate for Judge<'_> {
    fn ask(&mut self, request: &Request, used: &[String]) -> bool {
        let Judge {
            to,
            names,
            desk,
            ended,
            ..
        } = self;
        let verdict = judge::request(&desk.rules, &desk.places, to, names, request);
        let line = Decision::new(Event::Request, &verdict)
            .to(to)
            .name(request.host.as_deref())
            .request(&request.method, &request.path);
        let line = if *ended { line.ended(used) } else { line };
        desk.decisions.write(&line, desk.now);
        let allowed = verdict.allowed;
        self.refused = (!allowed).then_some(verdict);
        allowed
    }
}

impl Flow {
    /// Starts terminating TLS, if the rules allow the connection. Its first bytes are still held.
    pub(super) fn enter(&mut self, session: Box<Session>, desk: &mut Desk) -> Result<(), Verdict> {
        // Request rules can be enforced now, as on an unencrypted connection.
        let first = Flight::Http(Some(session.name().to_owned()));
        let verdict = judge::flight(&desk.rules, &desk.places, &self.to, &self.names, &first);
        let line = Decision::new(Event::Request, &verdict).to(&self.to);
        let line = line.name(Some(session.name())).ended(&[]);
        desk.decisions.write(&line, desk.now);
        if !verdict.allowed {
            return Err(verdict);
        }
        self.flight = Some(first);
        self.look = Look::Border(session);
        Ok(())
    }

    /// Uses other secrets from the next request on.
    pub(in crate::gateway) fn rebind(&mut self, post: &Post) {
        if let Look::Border(session) = &mut self.look {
            let secrets = post.secrets(session.name());
            session.rebind(secrets);
        }
    }

    /// Moves bytes in both directions as far as possible.
    pub(super) fn across(&mut self, desk: &mut Desk) -> Result<(), Verdict> {
        loop {
            let sent = self.send_host(desk)? | self.send_guest();
            let taken = self.take_guest(desk)? | self.take_host(desk)?;
            if !sent && !taken {
                break;
            }
        }
        self.close_what_is_done();
        Ok(())
    }

    fn send_host(&mut self, desk: &mut Desk) -> Result<bool, Verdict> {
        let (Look::Border(session), End::Host(host)) = (&mut self.look, &self.end) else {
            return Ok(false);
        };
        if session.to_host.is_empty() || !self.writable || self.shut {
            return Ok(false);
        }
        let room = desk.budget.room(session.to_host.len(), desk.now);
        let outcome = write(host, &session.to_host[..room]);
        session.to_host.drain(..*outcome.as_ref().unwrap_or(&0));
        self.account(outcome, desk)
    }

    fn send_guest(&mut self) -> bool {
        let (Look::Border(session), Some(link)) = (&mut self.look, &mut self.link) else {
            return false;
        };
        let socket = link.socket();
        if session.to_guest.is_empty() || !socket.can_send() {
            return false;
        }
        let sent = socket.send_slice(&session.to_guest).unwrap_or(0);
        session.to_guest.drain(..sent);
        sent > 0
    }

    /// Takes bytes of the sandbox, first those held during inspection.
    fn take_guest(&mut self, desk: &mut Desk) -> Result<bool, Verdict> {
        let (Look::Border(session), Some(link)) = (&mut self.look, &mut self.link) else {
            return Ok(false);
        };
        let socket = link.socket();
        if self.refused.is_some() {
            return Ok(discard(socket));
        }
        if !session.takes_guest() {
            return Ok(false);
        }
        let bytes = if self.held.is_empty() {
            receive(socket)
        } else {
            std::mem::take(&mut self.held)
        };
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut judge = Judge::new(&self.to, &self.names, desk).inside();
        let taken = session.guest(&bytes, &mut judge);
        let said = judge.refused.take();
        match taken {
            Ok(()) => Ok(true),
            Err(refusal) => self.refuse(refusal, said, desk),
        }
    }

    fn take_host(&mut self, desk: &mut Desk) -> Result<bool, Verdict> {
        let (Look::Border(session), End::Host(host)) = (&mut self.look, &self.end) else {
            return Ok(false);
        };
        if !self.readable || self.ended || !session.takes_host() {
            return Ok(false);
        }
        let room = desk.budget.room(PART, desk.now);
        if room == 0 {
            return Ok(false);
        }
        let mut buffer = [0; PART];
        let count = match rustix::io::read(host, &mut buffer[..room]) {
            Ok(0) => {
                self.ended = true;
                return Ok(true);
            }
            Ok(count) => count,
            Err(Errno::AGAIN) => {
                self.readable = false;
                return Ok(false);
            }
            Err(Errno::INTR) => return Ok(true),
            Err(_) => return Err(self.verdict(true, Reason::Reset)),
        };
        desk.budget.spend(count);
        self.back += count as u64;
        self.touched = desk.now;
        let mut judge = Judge::new(&self.to, &self.names, desk).inside();
        let taken = session.host(&buffer[..count], &mut judge);
        let said = judge.refused.take();
        match taken {
            Ok(()) => Ok(true),
            Err(refusal) => self.refuse(refusal, said, desk),
        }
    }

    /// Ends it: at once, or after the sandbox has been told why. `said` was logged already.
    fn refuse(
        &mut self,
        refusal: Refusal,
        said: Option<Verdict>,
        desk: &mut Desk,
    ) -> Result<bool, Verdict> {
        let verdict = match said {
            Some(verdict) => verdict,
            None => {
                let verdict = Verdict::no(reason(refusal));
                let name = match &self.look {
                    Look::Border(session) => Some(session.name()),
                    _ => None,
                };
                let line = Decision::new(Event::Request, &verdict).to(&self.to);
                desk.decisions.write(&line.name(name).ended(&[]), desk.now);
                verdict
            }
        };
        let (Look::Border(session), End::Host(host)) = (&mut self.look, &self.end) else {
            return Err(verdict);
        };
        // Best effort: tell the host about its TLS error.
        let _ = write(host, &session.to_host);
        let _ = rustix::net::shutdown(host, Shutdown::Both);
        session.to_host.clear();
        (self.shut, self.ended) = (true, true);
        self.refused = Some(verdict);
        Ok(true)
    }

    /// Closes each side when the other has ended and everything was sent.
    fn close_what_is_done(&mut self) {
        let done = self.guest_is_done() && self.held.is_empty();
        let (Look::Border(session), Some(link)) = (&mut self.look, &mut self.link) else {
            return;
        };
        if self.ended && session.to_guest.is_empty() {
            link.socket().close();
        }
        if done && !self.shut && session.to_host.is_empty() {
            session.guest_ended();
            self.shut = true;
            if let End::Host(host) = &self.end {
                // Best effort: if close_notify does not fit, the FIN has the same effect.
                let _ = write(host, &session.to_host);
                session.to_host.clear();
                let _ = rustix::net::shutdown(host, Shutdown::Write);
            }
        }
    }
}

fn receive(socket: &mut tcp::Socket<'_>) -> Vec<u8> {
    if !socket.can_recv() {
        return Vec::new();
    }
    let taken = socket.recv(|bytes| {
        let part = &bytes[..bytes.len().min(PART)];
        (part.len(), part.to_vec())
    });
    taken.unwrap_or_default()
}

/// Discards data that the sandbox still sends. Returns whether there was any.
fn discard(socket: &mut tcp::Socket<'_>) -> bool {
    !receive(socket).is_empty()
}

pub(super) fn reason(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::Malformed => Reason::Malformed,
        Refusal::NameMismatch => Reason::NameMismatch,
        Refusal::NotAllowed | Refusal::Echo => Reason::RequestNotAllowed,
        Refusal::Upgrade => Reason::UpgradeNotAllowed,
        Refusal::TooLarge => Reason::TooLarge,
        Refusal::Presigned => Reason::Presigned,
        Refusal::ChunkSigned => Reason::ChunkSigned,
        Refusal::Signature => Reason::SignatureMismatch,
        Refusal::NoProtocol => Reason::NoCommonProtocol,
        Refusal::NotTrusted => Reason::CertificateNotTrusted,
        Refusal::HostTls => Reason::TlsFailed,
        Refusal::GuestTls => Reason::TlsBrokenOff,
    }
}
