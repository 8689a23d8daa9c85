//! Handles what the machine sends to a session, from the connection to the end.

use super::*;

impl Owner {
    pub(super) fn hear(&mut self, event: Option<Result<ExecEvent>>) {
        let mut event = event;
        let mut taken = 0;
        loop {
            match event {
                Some(Ok(ExecEvent::Stdout(bytes))) => {
                    taken += bytes.len();
                    let now = self.now();
                    self.session.output(&bytes, now);
                    self.apply_early();
                }
                Some(Ok(ExecEvent::Started(started))) => {
                    self.pid = Some(started.pid);
                    self.base = started.stdout_from.saturating_sub(self.session.received());
                }
                Some(Ok(ExecEvent::Gap(gap))) => self.base += gap.to.saturating_sub(gap.from),
                Some(Ok(ExecEvent::Exited(exited))) => return self.exited(&exited),
                Some(Ok(ExecEvent::Stderr(_) | ExecEvent::Sandbox(_))) => {}
                Some(Err(_)) | None => {
                    self.wire = None;
                    return self.join();
                }
            }
            if taken >= BATCH_BYTES {
                break;
            }
            match next(&mut self.wire).now_or_never() {
                Some(more) => event = more,
                None => break,
            }
        }
        if taken > 0
            && let Some(place) = &self.place
        {
            place.touch();
        }
    }

    /// Connects to the machine, or ends the session with the reason.
    pub(super) fn join(&mut self) {
        let Some(place) = self.place.clone() else {
            return;
        };
        let Some(tag) = self.known.tag() else {
            return self.end(None, "the shell has ended".to_string(), |_| {});
        };
        let from = self.base + self.session.received();
        self.job(async move {
            let joined = join::join(&place, &tag, from).await;
            Box::new(move |owner: &mut Owner| owner.joined(joined)) as Work
        });
    }

    pub(super) fn joined(&mut self, joined: std::result::Result<(Arc<Guest>, ExecSession), Lost>) {
        if self.ended.is_some() || self.ending {
            return;
        }
        match joined {
            Ok((guest, session)) => {
                self.guest = Some(guest);
                self.wire = Some(Wire {
                    events: session.events,
                    input: session.input,
                });
                if self.behind {
                    self.look();
                }
            }
            Err(Lost(reason)) => {
                self.end(None, reason.clone(), |_| {});
                self.explain(Some(reason));
            }
        }
    }

    pub(super) fn exited(&mut self, exited: &Exited) {
        let how = match exited.signal {
            Some(signal) => format!("the shell was ended by signal {signal}"),
            None => format!("the shell has ended with exit code {}", exited.exit_code),
        };
        let place = self.place.clone();
        let (guest, tag) = (self.guest.clone(), self.known.tag());
        // The guest forgets how the shell ended when that is stored.
        self.end(Some(exited.exit_code), how, move |owner| {
            owner.job(async move {
                if let (Some(guest), Some(tag)) = (guest, tag) {
                    // If the machine is going away, there is nothing to forget.
                    let _ = guest.forget(&tag).await;
                }
                let why = match place {
                    Some(place) => join::why_it_ends(&place).await,
                    None => None,
                };
                Box::new(move |owner: &mut Owner| owner.explain(why)) as Work
            });
        });
    }

    /// Records that the shell ended because its machine did.
    pub(super) fn explain(&mut self, why: Option<String>) {
        let Some(why) = why else { return };
        let fact = |row: &mut TerminalRow| {
            if let Some(end) = &mut row.end {
                end.reason = why;
            }
            // A workspace's shell is never reopened.
            row.terminated |= row.opened_in.is_some();
        };
        self.learn(fact, |_| {});
    }

    /// Handles the end of the shell: stores it, and then says it.
    pub(super) fn end(
        &mut self,
        exit_code: Option<i32>,
        reason: String,
        then: impl FnOnce(&mut Owner) + Send + 'static,
    ) {
        if self.ended.is_some() || self.ending {
            return;
        }
        self.ending = true;
        // Nothing more is heard of it. What was waited for is answered when this is stored.
        self.wire = None;
        let now = self.now();
        self.session.ended(Ended::Eof, now);
        let end = self.how_it_ended(exit_code, reason);
        let fact = |row: &mut TerminalRow| {
            row.end.get_or_insert(end);
            row.shell = None;
        };
        self.learn(fact, move |owner| {
            owner.close(Ended::Eof, exit_code);
            then(owner);
        });
    }

    /// Terminates the session; the caller kills the shell, and stores what this returns.
    pub fn terminate(&mut self) -> TerminalEnd {
        let now = self.now();
        self.session.ended(Ended::Terminated, now);
        let end = self.how_it_ended(None, "the session was terminated".to_string());
        self.close(Ended::Terminated, None);
        self.ended = Some(Ended::Terminated);
        end
    }

    /// Lets the task end as soon as its work is done.
    pub fn forget(&mut self) -> Option<Pen> {
        self.forgotten = true;
        if self.ended.is_none() {
            // A previous terminate failed half-way.
            self.terminate();
        }
        self.pen.clone()
    }

    fn how_it_ended(&self, exit_code: Option<i32>, reason: String) -> TerminalEnd {
        let cwd = self.session.cwd().map(str::to_string);
        TerminalEnd {
            reason,
            exit_code,
            at: Timestamp::now(),
            cursor: self.session.end(),
            cwd: cwd.or(self.cwd.clone()),
        }
    }

    /// The common part of all ends: of the first one.
    fn close(&mut self, how: Ended, exit_code: Option<i32>) {
        if self.ended.is_some() {
            return;
        }
        let now = self.now();
        self.ended = Some(how);
        self.settle();
        self.wire = None;
        self.guest = None;
        self.outgoing.clear();
        self.outgoing_bytes = 0;
        self.asked = Instant::now();
        self.watchers.end(exit_code.unwrap_or(-1));
        if let Some(pen) = &self.pen {
            pen.finish(exit_code, now);
        }
        self.place = None;
    }

    /// Restores a session that ended earlier.
    pub(super) fn rest(&mut self) {
        let how = match self.known.is_terminated() {
            true => Ended::Terminated,
            false => Ended::Eof,
        };
        let now = self.now();
        self.session.ended(how, now);
        self.ended = Some(how);
    }
}
