//! A connection to the gateway's SSH agent: messages in, signatures or refusals out.

use super::{Desk, End, Flow};
use crate::gateway::decisions::{Decision, Event};
use crate::judge::{Reason, Verdict};
use motu_border::agent::{Agent, Answer, Ring, Said, Why};
use smoltcp::socket::tcp::State;

/// Bytes moved at once.
const PART: usize = 16 * 1024;

/// One connection to the agent. Nothing is read until `out` has been sent.
#[derive(Debug, Default)]
pub(super) struct Signer {
    agent: Agent,
    out: Vec<u8>,
}

impl Flow {
    /// Answers messages one by one, each after the previous answer was taken.
    pub(super) fn serve(&mut self, desk: &mut Desk) -> Result<(), Verdict> {
        let (End::Agent(signer), Some(link)) = (&mut self.end, &mut self.link) else {
            return Ok(());
        };
        let socket = link.socket();
        loop {
            while !signer.out.is_empty() && socket.can_send() {
                let Ok(count) = socket.send_slice(&signer.out) else {
                    break;
                };
                signer.out.drain(..count);
            }
            if !signer.out.is_empty() || !socket.can_recv() {
                break;
            }
            let agent = &mut signer.agent;
            let most = agent.wants().min(PART);
            let taken = socket.recv(|bytes| {
                let part = &bytes[..bytes.len().min(most)];
                agent.take(part);
                (part.len(), ())
            });
            if taken.is_err() {
                break;
            }
            // Without a border there are no keys; requests are still answered.
            let none = Ring::default();
            let ring = desk.border.as_ref().map_or(&none, |post| &post.ring);
            match signer.agent.answer(ring) {
                Ok(None) => {}
                Ok(Some(Answer { bytes, said })) => {
                    signer.out = bytes;
                    if let Some(said) = said {
                        write_down(said, desk);
                    }
                }
                Err(_) => {
                    write_down_as(Reason::Malformed, None, &[], desk);
                    return Err(Verdict::no(Reason::Malformed));
                }
            }
        }
        if socket.state() == State::CloseWait && !socket.can_recv() && signer.out.is_empty() {
            (self.shut, self.ended) = (true, true);
            socket.close();
        }
        Ok(())
    }
}

fn write_down(said: Said, desk: &mut Desk) {
    let secrets: Vec<String> = said.secret.into_iter().collect();
    write_down_as(reason(said.why), said.host.as_deref(), &secrets, desk);
}

fn write_down_as(reason: Reason, host: Option<&str>, secrets: &[String], desk: &mut Desk) {
    let verdict = Verdict {
        allowed: reason == Reason::Allowed,
        rule: None,
        reason,
    };
    let line = Decision::new(Event::Sign, &verdict)
        .name(host)
        .signed(secrets);
    desk.decisions.write(&line, desk.now);
}

fn reason(why: Why) -> Reason {
    match why {
        Why::Signed => Reason::Allowed,
        Why::NotBound => Reason::NoSession,
        Why::Forwarded => Reason::AgentForwarded,
        Why::BadProof => Reason::SessionNotProven,
        Why::BoundTwice | Why::OtherSession => Reason::SessionMismatch,
        Why::UnknownHostKey => Reason::HostKeyNotKnown,
        Why::UnknownKey => Reason::KeyNotKnown,
        Why::NotALogin => Reason::NotALogin,
        Why::Algorithm => Reason::AlgorithmNotAllowed,
        Why::Unsupported => Reason::RequestNotAllowed,
        Why::Malformed => Reason::Malformed,
    }
}
