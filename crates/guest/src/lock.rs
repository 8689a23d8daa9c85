//! Locks of this process.

use std::sync::{Mutex, MutexGuard};

/// Locks; a poisoned lock cannot matter, since a panic ends the process.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
