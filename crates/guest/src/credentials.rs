//! Work that a thread does as a user of the machine.
//!
//! The kernel keeps credentials for each thread. A thread of the pool takes on the effective ids and
//! the groups of a user and leaves its capabilities out, does one piece of work, and takes its own
//! back. Its real and saved ids stay ours, so that no process of the user may signal it meanwhile.
//!
//! A request says whom it is done as (`DoneAs`); [`crate::blocking::run`] looks here.

use crate::answer::{Failed, Quoted};
use crate::users::{Identity, Users};
use motu_link::message::Failure;
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::cell::RefCell;
use std::sync::Arc;

/// An id that stays as it is.
const SAME_USER: Option<Uid> = None;
const SAME_GROUP: Option<Gid> = None;

/// A user, as a thread takes it on.
#[derive(Debug)]
pub struct User {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// What a thread gives up meanwhile.
#[derive(Debug)]
struct Own {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
}

tokio::task_local! {
    /// Whom the request of this task is done as.
    static USER: Arc<User>;
}

thread_local! {
    /// Whom this thread has taken on, and what it gave up.
    static ACTING: RefCell<Option<(Arc<User>, Own)>> = const { RefCell::new(None) };
}

impl User {
    /// The user with a name or number; `None` if that is the guest itself.
    pub fn find(users: &Users, wanted: &str) -> Result<Option<User>, Failed> {
        let Identity {
            uid,
            gid,
            groups,
            name,
            ..
        } = users.find(wanted)?;
        let (own, group) = (rustix::process::geteuid(), rustix::process::getegid());
        if (uid, gid) == (own.as_raw(), group.as_raw()) {
            return Ok(None);
        }
        if !own.is_root() {
            let name = Quoted(name.as_bytes());
            let message = format!("cannot act as {name}: the guest itself is not root");
            return Err(Failed::new(Failure::Denied, message));
        }
        Ok(Some(User {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
        }))
    }
}

/// Does the work of a task as a user: what it has [`crate::blocking::run`] do.
pub async fn done_as<T>(user: User, work: impl Future<Output = T>) -> T {
    USER.scope(Arc::new(user), work).await
}

/// Whom the work of this task is done as.
pub fn of_task() -> Option<Arc<User>> {
    USER.try_with(Arc::clone).ok()
}

/// Whether this thread acts as a user.
pub fn is_acting() -> bool {
    ACTING.with_borrow(Option::is_some)
}

/// Does work as a user, if one is given.
pub fn act<T>(
    user: Option<Arc<User>>,
    work: impl FnOnce() -> Result<T, Failed>,
) -> Result<T, Failed> {
    let Some(user) = user else { return work() };
    take_on(user)?;
    let _back = Back;
    work()
}

/// Does what a user's request needs, and the user may not do: after the right to it was proven.
pub fn own<T>(work: impl FnOnce() -> T) -> T {
    let Some((user, own)) = ACTING.take() else {
        return work();
    };
    give_back(&own);
    let _again = Again(Some(user));
    work()
}

/// Gives the thread its own credentials back when dropped.
struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        if let Some((_, own)) = ACTING.take() {
            give_back(&own);
        }
    }
}

/// Takes the user on again when dropped.
struct Again(Option<Arc<User>>);

impl Drop for Again {
    fn drop(&mut self) {
        if let Some(user) = self.0.take()
            && take_on(user).is_err()
        {
            give_up();
        }
    }
}

fn take_on(user: Arc<User>) -> Result<(), Failed> {
    let failed = |errno| {
        let who = format!("cannot act as user {}", user.uid.as_raw());
        Failed::errno_as(Failure::Denied, who, errno)
    };
    let own = Own {
        uid: rustix::process::geteuid(),
        gid: rustix::process::getegid(),
        groups: rustix::process::getgroups().map_err(failed)?,
        capabilities: rustix::thread::capabilities(None).map_err(failed)?,
    };
    match switch(&user, &own) {
        Ok(()) => {
            ACTING.set(Some((user, own)));
            Ok(())
        }
        Err(errno) => {
            give_back(&own);
            Err(failed(errno))
        }
    }
}

/// The thread's own calls: those of the C library would change every thread.
fn switch(user: &User, own: &Own) -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&user.groups)?;
    rustix::thread::set_thread_res_gid(SAME_GROUP, Some(user.gid), SAME_GROUP)?;
    rustix::thread::set_thread_res_uid(SAME_USER, Some(user.uid), SAME_USER)?;
    // Where capabilities are kept over a change of ids, they would let everything pass.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        ..own.capabilities
    };
    rustix::thread::set_capabilities(None, none)
}

fn give_back(own: &Own) {
    let back = || {
        rustix::thread::set_thread_res_uid(SAME_USER, Some(own.uid), SAME_USER)?;
        rustix::thread::set_capabilities(None, own.capabilities)?;
        rustix::thread::set_thread_res_gid(SAME_GROUP, Some(own.gid), SAME_GROUP)?;
        rustix::thread::set_thread_groups(&own.groups)
    };
    if back().is_err() {
        give_up();
    }
}

/// A thread that is not who it should be must do nothing more.
fn give_up() -> ! {
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn somebody() -> Option<Arc<User>> {
        // Without root there is nobody else to be.
        rustix::process::geteuid().is_root().then(|| {
            Arc::new(User {
                uid: Uid::from_raw(4321),
                gid: Gid::from_raw(4322),
                groups: vec![Gid::from_raw(4322), Gid::from_raw(4323)],
            })
        })
    }

    #[test]
    fn a_user_may_do_what_the_user_may_and_the_thread_is_itself_again() {
        let Some(user) = somebody() else { return };
        let place = tempfile::tempdir().unwrap();
        let (open, closed) = (place.path().join("open"), place.path().join("closed"));
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for (directory, mode) in [(&open, 0o777), (&closed, 0o755)] {
            std::fs::create_dir(directory).unwrap();
            std::fs::set_permissions(directory, PermissionsExt::from_mode(mode)).unwrap();
        }
        let before = rustix::process::getgroups().unwrap();
        act(Some(user.clone()), || {
            assert!(is_acting());
            std::fs::write(open.join("theirs"), "").unwrap();
            let refused = std::fs::write(closed.join("theirs"), "").unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
            own(|| std::fs::write(closed.join("ours"), "")).unwrap();
            // And not itself for longer than that.
            assert!(std::fs::write(closed.join("ours"), "x").is_err());
            Ok(())
        })
        .unwrap();
        let made = std::fs::metadata(open.join("theirs")).unwrap();
        assert_eq!((made.uid(), made.gid()), (4321, 4322));
        assert!(!is_acting());
        assert!(rustix::process::geteuid().is_root());
        assert_eq!(rustix::process::getgroups().unwrap(), before);
        std::fs::write(closed.join("again"), "").unwrap();
        let caught = std::panic::catch_unwind(|| {
            let _ = act(Some(user), || -> Result<(), Failed> { panic!("a bug") });
        });
        assert!(caught.is_err() && rustix::process::geteuid().is_root());
    }
}
