//! Looks whether the daemon's socket is still where callers find it.

use crate::home::Place;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns when the socket that was just made has been removed or replaced, and notes that in
/// `removed`; never, where the directory cannot be watched.
pub fn gone(place: &Place, removed: Arc<AtomicBool>) -> impl Future<Output = ()> + use<> {
    let path = place.socket();
    let watched = watch(place.path());
    let ours = number(&path);
    async move {
        let waited = match watched {
            Ok(watch) => until_other(watch, &path, ours).await,
            Err(error) => Err(error),
        };
        if let Err(error) = waited {
            tracing::warn!(%error, "it is not noticed when the socket is removed");
            std::future::pending::<()>().await;
        }
        removed.store(true, Ordering::Relaxed);
    }
}

fn watch(dir: &Path) -> io::Result<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
    inotify::add_watch(&watch, dir, flags)?;
    Ok(watch)
}

/// What tells a socket from another one of its name.
fn number(path: &Path) -> Option<(u64, u64)> {
    let found = path.symlink_metadata().ok()?;
    Some((found.dev(), found.ino()))
}

async fn until_other(watch: OwnedFd, path: &Path, ours: Option<(u64, u64)>) -> io::Result<()> {
    let watch = super::sys::watch(watch)?;
    loop {
        // A state directory that was moved or removed as a whole has its daemon no more.
        if number(path) != ours && path.parent().is_some_and(Path::exists) {
            return Ok(());
        }
        let mut ready = watch.readable().await?;
        // What happened is not asked for: whether the socket is there says it all.
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(watch.get_ref(), &mut buffer);
        loop {
            match events.next() {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        ready.clear_ready();
    }
}
