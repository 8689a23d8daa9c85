//! Decides what a daemon does with what it finds at its start. Pure: facts in, a verdict out.
//!
//! A kept sandbox is described twice: by its row in the store and by the record beside its disks.
//! The newer one is right. Data that neither describes is never deleted, but set aside. Only data
//! whose creation was never acknowledged, or whose removal had begun, is removed.

use jiff::Timestamp;
use motu_core::sandbox::State;

/// The facts that a row or record states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Says {
    pub state: State,
    /// Distinguishes a sandbox from an earlier one of the same name.
    pub created_at: Timestamp,
    pub revision: u64,
}

/// A row or a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// There is none.
    Silent,
    /// There is one, but it cannot be read.
    Unreadable,
    Says(Says),
}

/// What to do with a directory in `kept/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Use the sandbox as its row describes it.
    UseRow,
    /// Use the sandbox as its record describes it, and update the row.
    UseRecord,
    /// Remove it: it was never acknowledged, or its removal was.
    Remove(&'static str),
    /// Move it to `lost/`: it is unknown.
    SetAside(&'static str),
    /// Leave it in place, unusable until the operator has looked at it.
    LeaveAlone(&'static str),
}

/// Decides about the kept directory of one name.
pub fn kept(row: Witness, record: Witness, empty: bool) -> Verdict {
    match (row, record) {
        (Witness::Says(row), Witness::Says(record)) => between(row, record),
        (Witness::Says(row), _) => by_row(row),
        (_, Witness::Says(record)) => match record.state {
            State::Destroying | State::Destroyed => Verdict::Remove("its removal had begun"),
            State::Creating => Verdict::SetAside("its creation was not finished"),
            State::Running | State::Paused | State::Stopped | State::Failed => Verdict::UseRecord,
        },
        (Witness::Unreadable, _) => {
            Verdict::LeaveAlone("its row is unreadable and it has no record of its own")
        }
        (Witness::Silent, _) if empty => Verdict::Remove("nothing is in it"),
        (Witness::Silent, Witness::Unreadable) => {
            Verdict::SetAside("the store does not know it, and its record is unreadable")
        }
        (Witness::Silent, Witness::Silent) => {
            Verdict::SetAside("the store does not know it, and it has no record of its own")
        }
    }
}

fn by_row(row: Says) -> Verdict {
    match row.state {
        State::Creating => Verdict::Remove("its creation was never acknowledged"),
        State::Destroying | State::Destroyed => Verdict::Remove("it was deleted"),
        State::Running | State::Paused | State::Stopped | State::Failed => Verdict::UseRow,
    }
}

fn between(row: Says, record: Says) -> Verdict {
    let ended = matches!(record.state, State::Destroying | State::Destroyed);
    let newer = match row.created_at == record.created_at {
        true => record.revision > row.revision,
        // The row belongs to an earlier sandbox of that name: the store has lost later changes.
        false => record.created_at > row.created_at,
    };
    match (newer, ended) {
        (false, _) => by_row(row),
        (true, true) => Verdict::Remove("its removal had begun"),
        (true, false) => Verdict::UseRecord,
    }
}

/// Decides about a directory of disks that its sandbox does not use.
pub fn spare_disks(row_revision: u64, record: Witness) -> Verdict {
    match record {
        // Row and record agree that other disks are in use.
        Witness::Says(record) if record.revision == row_revision => {
            Verdict::Remove("other disks took its place")
        }
        _ => Verdict::SetAside("its workspace uses other disks"),
    }
}

/// The condition of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Absent,
    /// The file exists and is empty.
    Empty,
    Unreadable,
    Readable,
}

/// Whether a daemon may start with this store while `kept` directories exist.
pub fn may_begin(store: Store, kept: usize) -> Result<(), &'static str> {
    match (store, kept) {
        (Store::Readable, _) | (Store::Absent | Store::Empty, 0) => Ok(()),
        (Store::Absent, _) => Err("is missing"),
        (Store::Empty, _) => Err("is empty"),
        (Store::Unreadable, _) => Err("is damaged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 7] = [
        State::Creating,
        State::Running,
        State::Paused,
        State::Stopped,
        State::Failed,
        State::Destroying,
        State::Destroyed,
    ];

    fn says(state: State, created: i64, revision: u64) -> Witness {
        Witness::Says(Says {
            state,
            created_at: Timestamp::from_second(created).unwrap(),
            revision,
        })
    }

    fn ends(state: State) -> bool {
        matches!(
            state,
            State::Creating | State::Destroying | State::Destroyed
        )
    }

    #[test]
    fn what_nobody_knows_is_set_aside() {
        for record in [Witness::Silent, Witness::Unreadable] {
            let verdict = kept(Witness::Silent, record, false);
            assert!(matches!(verdict, Verdict::SetAside(_)), "{verdict:?}");
            let verdict = kept(Witness::Unreadable, record, false);
            assert!(matches!(verdict, Verdict::LeaveAlone(_)), "{verdict:?}");
        }
        // A directory that a crash left before anything was put into it holds no data.
        let verdict = kept(Witness::Silent, Witness::Silent, true);
        assert!(matches!(verdict, Verdict::Remove(_)));
    }

    #[test]
    fn nothing_is_removed_that_a_witness_says_is_there() {
        for state in ALL.into_iter().filter(|state| !ends(*state)) {
            for other in ALL {
                for row in [Witness::Silent, Witness::Unreadable, says(other, 1, 3)] {
                    let verdict = kept(row, says(state, 1, 4), false);
                    assert_eq!(verdict, Verdict::UseRecord, "{row:?} {state}");
                }
                let older = says(other, 1, 2);
                for record in [
                    Witness::Silent,
                    Witness::Unreadable,
                    older,
                    says(other, 1, 3),
                ] {
                    let verdict = kept(says(state, 1, 3), record, false);
                    assert_eq!(verdict, Verdict::UseRow, "{state} {record:?}");
                }
            }
        }
    }

    #[test]
    fn what_was_deleted_stays_deleted() {
        for state in [State::Destroying, State::Destroyed] {
            for row in [Witness::Silent, says(State::Running, 1, 3)] {
                let verdict = kept(row, says(state, 1, 4), false);
                assert!(matches!(verdict, Verdict::Remove(_)), "{row:?}");
            }
            let verdict = kept(says(state, 1, 4), says(State::Running, 1, 3), false);
            assert!(matches!(verdict, Verdict::Remove(_)));
        }
    }

    #[test]
    fn a_tombstone_does_not_cost_a_later_sandbox_of_its_name() {
        let verdict = kept(
            says(State::Destroyed, 1, 9),
            says(State::Running, 2, 1),
            false,
        );
        assert_eq!(verdict, Verdict::UseRecord);
    }

    #[test]
    fn disks_go_only_when_row_and_record_agree() {
        let agreed = spare_disks(4, says(State::Running, 1, 4));
        assert!(matches!(agreed, Verdict::Remove(_)));
        for record in [Witness::Silent, says(State::Running, 1, 5)] {
            assert!(matches!(spare_disks(4, record), Verdict::SetAside(_)));
        }
    }

    #[test]
    fn a_new_store_beside_what_is_kept_is_refused() {
        assert!(may_begin(Store::Absent, 0).is_ok());
        assert!(may_begin(Store::Empty, 0).is_ok());
        assert!(may_begin(Store::Readable, 5).is_ok());
        for store in [Store::Absent, Store::Empty, Store::Unreadable] {
            assert!(may_begin(store, 1).is_err(), "{store:?}");
        }
    }
}
