//! Kernel facts about the terminal, and what follows from them.

use super::*;

impl Owner {
    /// Asks the guest for kernel facts, unless a look is under way.
    pub(super) fn look(&mut self) {
        let (Some(guest), Some(tag)) = (self.guest.clone(), self.known.tag()) else {
            return;
        };
        let busy = self.looks > self.looks_done || Instant::now() < self.look_after;
        if busy || self.blind || self.wire.is_none() {
            return;
        }
        self.looks += 1;
        let number = self.looks;
        self.job(async move {
            let looked = guest.look_at_terminal(&tag).await;
            Box::new(move |owner: &mut Owner| owner.looked(number, looked)) as Work
        });
    }

    pub(super) fn looked(&mut self, number: u64, looked: Result<Looked>) {
        match looked {
            Ok(looked) => {
                self.early = Some((number, looked));
                self.apply_early();
            }
            Err(error) => {
                if error.kind == ErrorKind::Unsupported {
                    self.blind = true;
                    let now = self.now();
                    self.session.cannot_look(now);
                }
                self.behind = false;
                self.look_after = Instant::now() + LOOK_PAUSE;
                self.looks_done = self.looks_done.max(number);
            }
        }
    }

    /// Applies kernel facts once the output they belong to has been received.
    pub(super) fn apply_early(&mut self) {
        let received = self.session.received();
        let base = self.base;
        let due = |looked: &Looked| {
            let bytes = looked.facts.output_bytes.unwrap_or(0);
            bytes.saturating_sub(base) <= received
        };
        let Some((number, looked)) = self.early.take_if(|(_, looked)| due(looked)) else {
            return;
        };
        // The first look tells how much input preceded this daemon.
        let typed = looked.facts.input_bytes.unwrap_or(0);
        let typed_before = *self.typed_before.get_or_insert(typed);
        let facts = KernelFacts {
            output_bytes: None,
            input_bytes: Some(typed.saturating_sub(typed_before)),
            ..looked.facts
        };
        self.cwd = looked.cwd.or(self.cwd.take());
        self.front_cwd = looked.front_cwd;
        self.looks_done = self.looks_done.max(number);
        self.behind = false;
        let now = self.now();
        self.session.facts(facts, now);
    }

    /// The state, with the reason if the session has ended.
    pub fn state(&self) -> State {
        let mut state = self.session.state(self.now());
        if self.ended == Some(Ended::Eof)
            && let Some(end) = &self.known.row().end
        {
            state.reason = end.reason.clone();
        }
        state
    }

    /// When the session last printed or was typed into.
    pub fn last_activity(&self) -> Timestamp {
        let since = self.now().saturating_sub(self.session.last_activity());
        let since = i64::try_from(since.as_millis()).unwrap_or(0);
        Timestamp::from_millisecond(Timestamp::now().as_millisecond() - since)
            .unwrap_or_else(|_| Timestamp::now())
    }
}
