//! The names that the calls of one piece of work have in the audit log, for faces whose answers are
//! made of several calls.

use crate::audit::AuditId;
use std::cell::RefCell;

/// Names that are kept; a piece of work with more calls has them in the log.
const MOST: usize = 32;

tokio::task_local! {
    static NAMES: RefCell<Vec<AuditId>>;
}

/// Does some work, and gives the names of the calls it made in this task.
pub async fn noted<T>(work: impl Future<Output = T>) -> (T, Vec<AuditId>) {
    let work = async {
        let done = work.await;
        (done, NAMES.with(RefCell::take))
    };
    NAMES.scope(RefCell::default(), work).await
}

/// Notes a call, if somebody asked for it.
pub fn note(id: &AuditId) {
    let _ = NAMES.try_with(|names| {
        let mut names = names.borrow_mut();
        if names.len() < MOST {
            names.push(id.clone());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_calls_of_one_piece_of_work_are_noted_and_no_others() {
        let id = AuditId::generate();
        note(&id);
        let (done, names) = noted(async {
            note(&id);
            7
        })
        .await;
        assert_eq!((done, names), (7, vec![id]));
    }
}
