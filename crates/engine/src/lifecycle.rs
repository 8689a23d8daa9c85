//! The rules of a sandbox's life, and nothing else.
//!
//! ```text
//!            created            pause
//!  Creating ─────────► Running ◄──────► Paused
//!     │                │  ▲ │   resume    │
//!     │ create failed  │  │ │ machine ended
//!     ▼           stop ▼  │ ▼             ▼
//!  (forgotten)       Stopped  Failed ◄────┘
//!                    (kept)     │
//!         destroy ──────────────┴──► Destroying ──► Destroyed
//! ```
//!
//! A sandbox whose disks are kept does not fail when its machine ends: it stops.
//!
//! Every request that touches a machine is decided here ([`decide`]), and what is about to be done
//! ([`Intent`]) is in the store before the machine is touched. A daemon that comes back after a
//! crash asks [`recover`] what to do about a machine that is still there.
//!
//! Pure: no clock, no I/O. The driver asks, writes down, acts, and reports back.

use motu_core::sandbox::State;
use serde::{Deserialize, Serialize};

/// Why a sandbox whose time to live ended was destroyed.
pub const OUTLIVED: &str = "its time to live was over";
/// Why a sandbox that was idle was destroyed.
pub const UNUSED: &str = "nobody used it";

/// Whether a sandbox was destroyed because its time was over.
pub fn is_expiry(reason: &str) -> bool {
    [OUTLIVED, UNUSED].contains(&reason)
}

/// Something that may happen to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Run a command, touch a file, dial a port.
    Use,
    Pause,
    /// Pause for lack of disk space, until the host resumes it.
    Hold,
    /// Pause because the sandbox is idle.
    Nap,
    Resume,
    /// End the machine, keep the disks.
    Stop,
    /// Make a machine for the kept disks.
    Start,
    /// End the machine, and make another on other disks.
    Recreate,
    /// Copy the machine as it is.
    Fork,
    /// Begin the time to live again.
    Keepalive,
    /// Asked for by a caller, or because time is up.
    Destroy,
    /// The machine is made and its guest answers.
    Created,
    /// The machine ended without being asked to.
    MachineEnded,
    /// The machine ended without being asked to, and its disks are kept.
    KeptMachineEnded,
    /// Everything the sandbox had is gone.
    Released,
}

impl Request {
    /// The intent that is stored before the machine is touched for this request.
    pub fn intent(self) -> Option<Intent> {
        match self {
            Request::Pause => Some(Intent::Pausing),
            Request::Hold | Request::Nap => Some(Intent::Holding),
            Request::Resume => Some(Intent::Resuming),
            Request::Stop => Some(Intent::Stopping),
            Request::Start => Some(Intent::Starting),
            Request::Recreate => Some(Intent::Recreating),
            Request::Fork => Some(Intent::Forking),
            // These change the state directly, or touch no machine.
            Request::Use
            | Request::Keepalive
            | Request::Destroy
            | Request::Created
            | Request::MachineEnded
            | Request::KeptMachineEnded
            | Request::Released => None,
        }
    }
}

/// A change that a driver is making to a machine. Stored from before it begins until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    Pausing,
    Holding,
    Resuming,
    Stopping,
    Starting,
    Recreating,
    Forking,
}

/// What to do with a machine that survived its daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Let it run; resume it if a change had paused it.
    Run,
    /// Keep it paused; pause it if it is running.
    Pause,
    /// Stop it in order and keep its disks.
    Stop,
}

/// Decides about a machine that survived its daemon. A change that a caller asked for is finished;
/// a pause for the host's or a copy's sake is undone.
pub fn recover(state: State, intent: Option<Intent>) -> Recovery {
    match (state, intent) {
        (_, Some(Intent::Stopping | Intent::Recreating)) => Recovery::Stop,
        (_, Some(Intent::Pausing)) => Recovery::Pause,
        (_, Some(Intent::Resuming)) => Recovery::Run,
        (State::Paused, _) => Recovery::Pause,
        (_, None | Some(Intent::Holding | Intent::Forking | Intent::Starting)) => Recovery::Run,
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do it; this is the next state.
    Accept(State),
    /// Nothing to do: answer as if it had been done.
    AlreadyDone,
    Refuse(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the sandbox is still being created")]
    Creating,
    #[error("the sandbox is paused")]
    Paused,
    #[error("the sandbox is stopped")]
    Stopped,
    #[error("the sandbox failed")]
    Failed,
    #[error("the sandbox is being destroyed")]
    Destroying,
    #[error("the sandbox was destroyed")]
    Destroyed,
    #[error("the sandbox cannot do that in its present state")]
    OutOfOrder,
}

/// Decides about one request in one state.
pub fn decide(state: State, request: Request) -> Decision {
    use Decision::{Accept, AlreadyDone, Refuse};
    match (state, request) {
        (
            State::Destroyed,
            Request::Destroy
            | Request::Released
            | Request::MachineEnded
            | Request::KeptMachineEnded,
        ) => AlreadyDone,
        (State::Destroyed, _) => Refuse(Refusal::Destroyed),

        (
            State::Destroying,
            Request::Destroy | Request::MachineEnded | Request::KeptMachineEnded,
        ) => AlreadyDone,
        (State::Destroying, Request::Released) => Accept(State::Destroyed),
        (State::Destroying, _) => Refuse(Refusal::Destroying),

        (_, Request::Destroy) => Accept(State::Destroying),
        (_, Request::Keepalive) => Accept(state),
        (_, Request::Released) => Refuse(Refusal::OutOfOrder),

        (State::Creating, Request::Created) => Accept(State::Running),
        (State::Creating, Request::MachineEnded | Request::KeptMachineEnded) => {
            Accept(State::Failed)
        }
        (State::Creating, _) => Refuse(Refusal::Creating),

        (State::Failed, Request::MachineEnded | Request::KeptMachineEnded) => AlreadyDone,
        (State::Failed, _) => Refuse(Refusal::Failed),

        (State::Stopped, Request::Start | Request::Recreate) => Accept(State::Running),
        (State::Stopped, Request::Stop | Request::MachineEnded | Request::KeptMachineEnded) => {
            AlreadyDone
        }
        (State::Stopped, _) => Refuse(Refusal::Stopped),

        (State::Running | State::Paused, Request::MachineEnded) => Accept(State::Failed),
        (State::Running | State::Paused, Request::KeptMachineEnded | Request::Stop) => {
            Accept(State::Stopped)
        }
        (State::Running | State::Paused, Request::Created) => AlreadyDone,
        (State::Running, Request::Start) => AlreadyDone,
        (State::Paused, Request::Start) => Refuse(Refusal::Paused),
        (State::Running, Request::Use) => Accept(State::Running),
        (State::Running | State::Paused, Request::Recreate) => Accept(State::Running),
        (State::Running | State::Paused, Request::Fork) => Accept(state),
        (State::Running, Request::Pause | Request::Hold | Request::Nap) => Accept(State::Paused),
        (State::Running, Request::Resume) => AlreadyDone,
        (State::Paused, Request::Use) => Refuse(Refusal::Paused),
        (State::Paused, Request::Pause | Request::Hold | Request::Nap) => AlreadyDone,
        (State::Paused, Request::Resume) => Accept(State::Running),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = Request> {
        prop_oneof![
            Just(Request::Use),
            Just(Request::Pause),
            Just(Request::Hold),
            Just(Request::Nap),
            Just(Request::Resume),
            Just(Request::Stop),
            Just(Request::Start),
            Just(Request::Recreate),
            Just(Request::Fork),
            Just(Request::Keepalive),
            Just(Request::KeptMachineEnded),
            Just(Request::Destroy),
            Just(Request::Created),
            Just(Request::MachineEnded),
            Just(Request::Released),
        ]
    }

    fn walk(history: &[Request]) -> Vec<State> {
        let mut states = vec![State::Creating];
        for &request in history {
            let last = states[states.len() - 1];
            states.push(match decide(last, request) {
                Decision::Accept(next) => next,
                _ => last,
            });
        }
        states
    }

    proptest! {
        #[test]
        fn nothing_comes_back_from_destruction(history in prop::collection::vec(requests(), 0..40)) {
            let states = walk(&history);
            if let Some(at) = states.iter().position(|&s| s == State::Destroying) {
                prop_assert!(states[at..].iter().all(|s| matches!(s, State::Destroying | State::Destroyed)));
            }
        }

        #[test]
        fn a_failed_sandbox_is_never_used_again(history in prop::collection::vec(requests(), 0..40)) {
            let states = walk(&history);
            if let Some(at) = states.iter().position(|&s| s == State::Failed) {
                prop_assert!(states[at..].iter().all(|s| !matches!(s, State::Running | State::Paused)));
            }
        }

        #[test]
        fn use_is_accepted_exactly_when_running(history in prop::collection::vec(requests(), 0..40)) {
            let state = *walk(&history).last().unwrap();
            prop_assert_eq!(
                decide(state, Request::Use) == Decision::Accept(State::Running),
                state == State::Running
            );
        }

        #[test]
        fn destroy_always_leads_out(history in prop::collection::vec(requests(), 0..40)) {
            let mut history = history;
            history.extend([Request::Destroy, Request::Released]);
            prop_assert_eq!(*walk(&history).last().unwrap(), State::Destroyed);
        }

        #[test]
        fn a_crash_leads_to_where_the_request_began_or_leads(history in prop::collection::vec(requests(), 0..40), request in requests()) {
            let state = *walk(&history).last().unwrap();
            let alive = matches!(state, State::Running | State::Paused);
            if let (true, Some(intent), Decision::Accept(next)) = (alive, request.intent(), decide(state, request)) {
                let after = match recover(state, Some(intent)) {
                    Recovery::Run => State::Running,
                    Recovery::Pause => State::Paused,
                    Recovery::Stop => State::Stopped,
                };
                // The machine of a reset is gone before there is another: it stops in between.
                let between = request == Request::Recreate && after == State::Stopped;
                prop_assert!(after == state || after == next || between, "{state:?} {request:?} {after:?}");
            }
        }

        #[test]
        fn repeating_an_accepted_request_changes_nothing(history in prop::collection::vec(requests(), 0..40), request in requests()) {
            let state = *walk(&history).last().unwrap();
            if let Decision::Accept(next) = decide(state, request) {
                let again = decide(next, request);
                prop_assert!(matches!(again, Decision::AlreadyDone | Decision::Refuse(_)) || again == Decision::Accept(next));
            }
        }
    }
}
