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
//! Pure: no clock, no I/O. The driver asks, acts, and reports back.

use motu_core::sandbox::State;

/// Something that may happen to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Run a command, touch a file, dial a port.
    Use,
    Pause,
    Resume,
    /// End the machine, keep the disks.
    Stop,
    /// Make a machine for the kept disks.
    Start,
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

/// What the driver should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do it; the sandbox is then in this state.
    Accept(State),
    /// It is so already: answer as if it had been done.
    AlreadyDone,
    Refuse(Refusal),
}

/// Why not.
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
        (_, Request::Released) => Refuse(Refusal::OutOfOrder),

        (State::Creating, Request::Created) => Accept(State::Running),
        (State::Creating, Request::MachineEnded | Request::KeptMachineEnded) => {
            Accept(State::Failed)
        }
        (State::Creating, _) => Refuse(Refusal::Creating),

        (State::Failed, Request::MachineEnded | Request::KeptMachineEnded) => AlreadyDone,
        (State::Failed, _) => Refuse(Refusal::Failed),

        (State::Stopped, Request::Start) => Accept(State::Running),
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
        (State::Running, Request::Pause) => Accept(State::Paused),
        (State::Running, Request::Resume) => AlreadyDone,
        (State::Paused, Request::Use) => Refuse(Refusal::Paused),
        (State::Paused, Request::Pause) => AlreadyDone,
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
            Just(Request::Resume),
            Just(Request::Stop),
            Just(Request::Start),
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
        fn repeating_an_accepted_request_changes_nothing(history in prop::collection::vec(requests(), 0..40), request in requests()) {
            let state = *walk(&history).last().unwrap();
            if let Decision::Accept(next) = decide(state, request) {
                let again = decide(next, request);
                prop_assert!(matches!(again, Decision::AlreadyDone | Decision::Refuse(_)) || again == Decision::Accept(next));
            }
        }
    }
}
