//! Mutex helpers.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex; poisoning cannot occur, because a panic ends the process.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
