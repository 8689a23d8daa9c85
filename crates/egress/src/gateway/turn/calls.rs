//! Requests of the daemon over the control socket.

use super::Gateway;
use crate::border::Post;
use crate::gateway::control::{Answer, Caller, Request, Status};
use crate::gateway::host::Memory;
use crate::rules::Rules;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::AsFd;
use std::os::unix::net::UnixListener;

/// Concurrent connections to the control socket.
const CALLERS: usize = 16;

impl Gateway {
    pub(super) fn call(&mut self) {
        let accepted = self.control.as_ref().map(UnixListener::accept);
        let Some(Ok((stream, _))) = accepted else {
            return;
        };
        let token = self.token();
        let data = EventData::new_u64(token);
        let watched = stream.set_nonblocking(true).and_then(|()| {
            Ok(epoll::add(
                &self.epoll,
                stream.as_fd(),
                data,
                EventFlags::IN,
            )?)
        });
        if watched.is_ok() && self.callers.len() < CALLERS {
            self.callers.insert(token, Caller::new(stream));
        }
    }

    pub(super) fn requests(&mut self, token: u64) {
        let Some(mut caller) = self.callers.remove(&token) else {
            return;
        };
        let (requests, going) = caller.requests();
        for request in requests {
            let answer = match request {
                Ok(Request::Replace(rules)) => {
                    self.replace(rules);
                    Answer::Done
                }
                Ok(Request::Bind(border)) => match Post::new(border) {
                    Ok(post) => {
                        self.bind(post);
                        Answer::Done
                    }
                    Err(error) => Answer::Refused(error.to_string()),
                },
                Ok(Request::Status) => Answer::Status(self.status()),
                Ok(Request::Stop) => {
                    self.stopped = true;
                    Answer::Done
                }
                Err(error) => Answer::Refused(error),
            };
            caller.answer(&answer);
        }
        if going {
            self.callers.insert(token, caller);
        }
    }

    /// Replaces the rules. Whatever they do not allow has ended when this returns.
    fn replace(&mut self, rules: Rules) {
        self.desk.budget.replace(rules.limits, self.desk.now);
        self.desk.rules = rules;
        self.judge_again();
    }

    /// Replaces the secrets, for all further requests.
    fn bind(&mut self, post: Post) {
        for flow in self.flows.values_mut() {
            flow.rebind(&post);
        }
        self.desk.border = Some(post);
    }

    fn status(&self) -> Status {
        Status {
            policy: self.desk.rules.policy.clone(),
            connections: (self.flows.len() + self.exchanges.len()) as u64,
            bytes: self.desk.budget.used(),
            decisions_dropped: self.desk.decisions.dropped(),
            resident_bytes: self.memory.as_ref().map_or(0, Memory::resident),
        }
    }
}
