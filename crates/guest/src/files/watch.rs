//! Watching for changes with inotify.
//!
//! The kernel's queue is bounded, and so is what an unhurried host may have
//! waiting: when either overflows the host is told `Lost` and lists again.

use crate::answer::{Failed, Quoted, note};
use crate::blocking;
use crate::place::{Place, Root};
use crate::state::Guest;
use crate::sys;
use bytes::Bytes;
use motu_link::frame::CHANNEL_ERR;
use motu_link::message::{Change, ChangeKind, Failure, Said, Watch, Watching};
use motu_link::mux::Sender;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;

/// Directories watched by one request.
const MAX_WATCHES: usize = 8192;
/// The deepest directory watched.
const MAX_DEPTH: usize = 64;
/// How long the second half of a rename may take to appear.
const RENAME_WAIT: Duration = Duration::from_millis(10);
/// Notes carry no credit, and a host with thousands unread would drop the link. So after every
/// `CREDIT_EVERY` notes this many zero bytes follow on a channel of their own, which do: at most a
/// window of them, and with it some two thousand notes, are ever unread.
const CREDIT_EVERY: usize = 32;
const CREDIT_BYTES: usize = 16 * 1024;

static ZEROS: [u8; CREDIT_BYTES] = [0; CREDIT_BYTES];

fn flags() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::EXCL_UNLINK
}

pub async fn watch(guest: &Arc<Guest>, request: Watch, tx: &Sender) -> Result<(), Failed> {
    let place = Place::parse(&request.path)?;
    let root = guest.settings().root.clone();
    let work = async {
        let watcher = blocking::run(move || Watcher::new(root, place, request.recursive)).await?;
        note(tx, Said::Watching(Watching {})).await?;
        watcher.run(tx).await
    };
    blocking::unless_gone(tx, work).await
}

/// One event, copied out of the kernel's buffer.
struct Seen {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Vec<u8>,
}

struct Watcher {
    root: Arc<Root>,
    inotify: OwnedFd,
    recursive: bool,
    top: Place,
    places: HashMap<i32, Place>,
    /// A rename whose second half has not come yet.
    leaving: Option<(u32, Place)>,
    changes: Vec<Change>,
}

impl Watcher {
    fn new(root: Arc<Root>, top: Place, recursive: bool) -> Result<Watcher, Failed> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify = inotify.map_err(|errno| Failed::errno("cannot watch", errno))?;
        let mut watcher = Watcher {
            root,
            inotify,
            recursive,
            top: top.clone(),
            places: HashMap::new(),
            leaving: None,
            changes: Vec::new(),
        };
        watcher.add(&top, false)?;
        Ok(watcher)
    }

    /// Watches a place and, when recursive, every directory below it. `announce`: what is found
    /// inside was made before we could see it and is news.
    fn add(&mut self, place: &Place, announce: bool) -> Result<(), Failed> {
        let mut todo = vec![(place.clone(), 0)];
        while let Some((place, depth)) = todo.pop() {
            let fd = match self.watch_one(&place) {
                Ok(fd) => fd,
                Err(_) if place != self.top => continue,
                Err(errno) => return Err(place.failed(errno)),
            };
            if self.places.len() > MAX_WATCHES {
                let message = format!(
                    "more than {MAX_WATCHES} directories below {}",
                    Quoted(self.top.as_bytes())
                );
                return Err(Failed::new(Failure::Limit, message));
            }
            if !self.recursive || depth >= MAX_DEPTH {
                continue;
            }
            for (name, is_directory) in directory_names(&fd) {
                let below = place.join(&name);
                if announce {
                    self.push(ChangeKind::Created, &below, None);
                }
                if is_directory {
                    todo.push((below, depth + 1));
                }
            }
        }
        Ok(())
    }

    /// Watches exactly what the root resolves, through the kernel's link to the open handle.
    fn watch_one(&mut self, place: &Place) -> Result<OwnedFd, Errno> {
        let is_top = *place == self.top;
        let handle = if is_top {
            OFlags::PATH
        } else {
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY
        };
        let fd = self.root.open_at(place, handle, Mode::empty())?;
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, link, flags())?;
        self.places.insert(watch, place.clone());
        Ok(fd)
    }

    fn push(&mut self, kind: ChangeKind, place: &Place, from: Option<&Place>) {
        let change = Change {
            kind: kind as i32,
            path: place.to_bytes(),
            from: from.map_or_else(Bytes::new, Place::to_bytes),
        };
        // A program that writes in small pieces makes one change, not thousands.
        if self.changes.last() != Some(&change) {
            self.changes.push(change);
        }
    }

    async fn run(mut self, tx: &Sender) -> Result<(), Failed> {
        // A second descriptor of the same queue: one to wait on, one to work with.
        let ready = self
            .inotify
            .try_clone()
            .and_then(|fd| sys::watched(fd, Interest::READABLE));
        let ready = ready.map_err(|_| Failed::errno("cannot watch", Errno::MFILE))?;
        let mut sent = 0;
        loop {
            if self.leaving.is_some() {
                let more = tokio::time::timeout(RENAME_WAIT, ready.readable()).await;
                if more.is_err() {
                    self.settle_leaving();
                }
            }
            for change in std::mem::take(&mut self.changes) {
                note(tx, Said::Change(change)).await?;
                sent += 1;
                if sent % CREDIT_EVERY == 0 {
                    tx.data(CHANNEL_ERR, Bytes::from_static(&ZEROS)).await?;
                }
            }
            if self.leaving.is_none() && self.places.is_empty() {
                return Err(Failed::new(
                    Failure::NotFound,
                    format!("{} is gone", Quoted(self.top.as_bytes())),
                ));
            }
            let mut guard = ready
                .readable()
                .await
                .map_err(|_| Failed::errno("cannot watch", Errno::IO))?;
            match self.read() {
                Ok(seen) => {
                    self = blocking::run(move || {
                        for event in seen {
                            self.handle(event);
                        }
                        Ok(self)
                    })
                    .await?;
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(errno) => return Err(Failed::errno("cannot watch", errno)),
            }
        }
    }

    /// Reads one buffer of events.
    fn read(&self) -> Result<Vec<Seen>, Errno> {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut seen = Vec::new();
        loop {
            let event = reader.next()?;
            seen.push(Seen {
                watch: event.wd(),
                flags: event.events(),
                cookie: event.cookie(),
                name: event
                    .file_name()
                    .map_or_else(Vec::new, |name| name.to_bytes().to_vec()),
            });
            if reader.is_buffer_empty() {
                return Ok(seen);
            }
        }
    }

    fn handle(&mut self, event: Seen) {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            let top = self.top.clone();
            self.push(ChangeKind::Lost, &top, None);
            return;
        }
        let Some(watched) = self.places.get(&event.watch).cloned() else {
            return;
        };
        if event.flags.contains(ReadFlags::IGNORED) {
            self.places.remove(&event.watch);
            return;
        }
        let place = if event.name.is_empty() {
            watched
        } else {
            watched.join(&event.name)
        };
        let arrives = self.leaving.take_if(|(cookie, _)| {
            event.flags.contains(ReadFlags::MOVED_TO) && *cookie == event.cookie
        });
        if let Some((_, from)) = arrives {
            self.push(ChangeKind::Renamed, &place, Some(&from));
            self.rename_below(&from, &place);
            return;
        }
        self.settle_leaving();
        self.handle_plain(&event, place);
    }

    fn handle_plain(&mut self, event: &Seen, place: Place) {
        let is_directory = event.flags.contains(ReadFlags::ISDIR);
        let has = |flag| event.flags.contains(flag);
        if has(ReadFlags::MOVED_FROM) {
            self.leaving = Some((event.cookie, place));
        } else if has(ReadFlags::CREATE) || has(ReadFlags::MOVED_TO) {
            self.push(ChangeKind::Created, &place, None);
            if is_directory && self.recursive && self.add(&place, true).is_err() {
                // Too many directories: what happens in this one will be missed.
                self.push(ChangeKind::Lost, &place, None);
            }
        } else if has(ReadFlags::DELETE) {
            self.push(ChangeKind::Removed, &place, None);
        } else if has(ReadFlags::DELETE_SELF) || has(ReadFlags::MOVE_SELF) {
            // A directory below is reported by its parent; only the top has none.
            if place == self.top {
                self.push(ChangeKind::Removed, &place, None);
            }
        } else if has(ReadFlags::MODIFY) {
            self.push(ChangeKind::Modified, &place, None);
        } else if has(ReadFlags::ATTRIB) && !(event.name.is_empty() && place != self.top) {
            self.push(ChangeKind::Attributes, &place, None);
        }
    }

    /// A rename without a second half went out of sight: that is a removal.
    fn settle_leaving(&mut self) {
        if let Some((_, from)) = self.leaving.take() {
            self.push(ChangeKind::Removed, &from, None);
            self.forget_below(&from);
        }
    }

    fn rename_below(&mut self, from: &Place, to: &Place) {
        for place in self.places.values_mut() {
            if let Some(rest) = inside(place, from) {
                let moved = [to.as_bytes(), rest].concat();
                if let Ok(moved) = Place::parse(&moved) {
                    *place = moved;
                }
            }
        }
    }

    /// What moved away must not be reported under its old name.
    fn forget_below(&mut self, from: &Place) {
        let gone: Vec<i32> = self
            .places
            .iter()
            .filter(|(_, place)| inside(place, from).is_some())
            .map(|(watch, _)| *watch)
            .collect();
        for watch in gone {
            self.places.remove(&watch);
            // The watch may have ended with its directory.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }
}

/// The rest of a path below (or at) another one.
fn inside<'a>(place: &'a Place, directory: &Place) -> Option<&'a [u8]> {
    let rest = place.as_bytes().strip_prefix(directory.as_bytes())?;
    (rest.is_empty() || rest.first() == Some(&b'/')).then_some(rest)
}

/// The names in a directory handle, and which are directories themselves.
fn directory_names(handle: &OwnedFd) -> Vec<(Vec<u8>, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(handle, c".", flags, Mode::empty()) else {
        return Vec::new();
    };
    let Ok(entries) = Dir::read_from(&fd) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((name.to_vec(), entry.file_type() == FileType::Directory));
        }
    }
    names
}
