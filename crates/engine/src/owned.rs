//! A row with one owner.
//!
//! What is remembered of a workspace, a service or a session is in memory and in the store, and some
//! of it in a record beside the disks. All of them say the same if each change is made by one at a
//! time, from the look at the row until the last of them has it:
//!
//! ```text
//!   turn ──► look ──► change ──► store ──► publish ──► next turn, answer
//! ```
//!
//! So nobody sees what may still be lost, and changes are stored in the order in which they are
//! answered. A change that has begun is finished when its caller has gone.
//!
//! There are two kinds. What a caller wants ([`Owned::change`]) may be refused, and is not so until
//! it is stored. What has happened ([`Owned::learn`]), such as the end of a process, is so whether a
//! full disk can keep it or not: it is published in any case, and stored with the next change.

use motu_core::{Error, Result, audit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Where rows of one kind are stored.
pub(crate) trait Keeper<R>: std::fmt::Debug + Send + Sync + 'static {
    /// What is stored beside the row; nothing by default.
    type Along: Default + Send + 'static;

    /// Stores a row in the place of the one before, if that is still there.
    fn keep(&self, row: &R, along: Self::Along) -> impl Future<Output = Result<()>> + Send;
}

/// Whether a row is still anybody's.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    Here,
    /// The row was removed, or its name is another's by now: nothing is stored under it.
    Gone,
}

/// A row, shared by all who know it.
#[derive(Debug)]
pub(crate) struct Owned<R, K> {
    seen: Mutex<Arc<R>>,
    /// What is published is not stored: a fact on a full disk.
    unsaved: AtomicBool,
    turn: Arc<Turn<Life>>,
    keeper: K,
}

impl<R, K> Owned<R, K>
where
    R: Clone + Send + Sync + 'static,
    K: Keeper<R>,
{
    /// A row that is stored already, or is with its first change.
    pub(crate) fn new(row: R, keeper: K) -> Arc<Owned<R, K>> {
        Arc::new(Owned {
            seen: Mutex::new(Arc::new(row)),
            unsaved: AtomicBool::new(false),
            turn: Arc::new(Turn::new(Life::Here)),
            keeper,
        })
    }

    pub(crate) fn keeper(&self) -> &K {
        &self.keeper
    }

    /// The row as it is stored.
    pub(crate) fn row(&self) -> Arc<R> {
        self.seen().clone()
    }

    /// Whether what is published is stored, and nobody is changing it.
    pub(crate) fn is_saved(&self) -> bool {
        let nobody = self.turn.try_lock().is_ok();
        nobody && !self.unsaved.load(Ordering::Relaxed)
    }

    /// Changes the row, or leaves it as it was.
    pub(crate) async fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut R) -> Result<T>,
    ) -> Result<T> {
        let turn = self.turn.clone().lock_owned().await;
        if *turn == Life::Gone {
            return Err(Error::conflict("it was removed meanwhile"));
        }
        let was = self.row();
        let mut next = R::clone(&was);
        let value = change(&mut next)?;
        let owned = self.clone();
        to_the_end(async move {
            let stored = owned.keeper.keep(&next, K::Along::default()).await;
            match &stored {
                Ok(()) => {
                    owned.unsaved.store(false, Ordering::Relaxed);
                    owned.publish(next, turn);
                }
                // Some of it may be stored: a record, but no row.
                Err(_) => owned.put_back(&was).await,
            }
            stored
        })
        .await?;
        Ok(value)
    }

    /// Writes down what has happened. An error says that it could not be stored; it is published all
    /// the same.
    pub(crate) async fn learn(self: &Arc<Self>, fact: impl FnOnce(&mut R)) -> Result<()> {
        self.learn_with(fact, K::Along::default()).await
    }

    /// The same, and stores something along with the row.
    pub(crate) async fn learn_with(
        self: &Arc<Self>,
        fact: impl FnOnce(&mut R),
        along: K::Along,
    ) -> Result<()> {
        let turn = self.turn.clone().lock_owned().await;
        let mut next = R::clone(&self.row());
        fact(&mut next);
        let owned = self.clone();
        to_the_end(async move {
            let stored = match *turn {
                Life::Here => owned.keeper.keep(&next, along).await,
                Life::Gone => Ok(()),
            };
            owned.unsaved.store(stored.is_err(), Ordering::Relaxed);
            owned.publish(next, turn);
            stored
        })
        .await
    }

    /// Gives the row up: whatever is changed afterwards is not stored any more. Changes that have
    /// begun are finished before.
    pub(crate) async fn retire(&self) {
        *self.turn.lock().await = Life::Gone;
    }

    /// Removes the row from where it is stored, and gives it up.
    pub(crate) async fn remove(&self, removing: impl Future<Output = Result<()>>) -> Result<()> {
        let mut turn = self.turn.lock().await;
        removing.await?;
        *turn = Life::Gone;
        Ok(())
    }

    /// Publishes what was stored, and only then lets the next one change it.
    fn publish(&self, row: R, turn: OwnedMutexGuard<Life>) {
        *self.seen() = Arc::new(row);
        drop(turn);
    }

    async fn put_back(&self, was: &R) {
        if let Err(error) = self.keeper.keep(was, K::Along::default()).await {
            tracing::warn!(%error, ?self.keeper, "a row that could not be changed could not be put back");
        }
    }

    fn seen(&self) -> MutexGuard<'_, Arc<R>> {
        self.seen
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Does something to its end, also when the caller has gone.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let work = audit::on_behalf(audit::current(), work);
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(Error::internal("what was begun was not finished")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Notify;

    type Row = BTreeMap<u8, u32>;

    /// A disk whose writes take their time, in no order, and fail now and then: a record first, and
    /// then a row, as those of workspaces.
    #[derive(Debug, Default)]
    struct Disk {
        record: Mutex<Row>,
        row: Mutex<Row>,
        /// Yields before each write, and whether it fails; over and over.
        weather: Vec<(u8, bool)>,
        written: AtomicUsize,
        /// From now on nothing fails.
        well: AtomicBool,
        full: AtomicBool,
        stuck: Option<Notify>,
    }

    impl Disk {
        async fn write(&self, to: &Mutex<Row>, row: &Row) -> Result<()> {
            let number = self.written.fetch_add(1, Ordering::Relaxed);
            let (pause, fails) = match self.weather.len() {
                0 => (0, false),
                all => self.weather[number % all],
            };
            for _ in 0..pause {
                tokio::task::yield_now().await;
            }
            if let Some(stuck) = &self.stuck {
                stuck.notified().await;
            }
            let fails = fails && !self.well.load(Ordering::Relaxed);
            if fails || self.full.load(Ordering::Relaxed) {
                return Err(Error::limit("the disk is full"));
            }
            *to.lock().unwrap() = row.clone();
            Ok(())
        }
    }

    impl Keeper<Row> for Arc<Disk> {
        type Along = ();

        async fn keep(&self, row: &Row, (): ()) -> Result<()> {
            self.write(&self.record, row).await?;
            self.write(&self.row, row).await
        }
    }

    fn owned(disk: &Arc<Disk>) -> Arc<Owned<Row, Arc<Disk>>> {
        Owned::new(Row::new(), disk.clone())
    }

    /// What one caller does: sets a number of its own, or adds to one that all share.
    #[derive(Clone, Copy, Debug)]
    enum Verb {
        Set(u8, u32),
        Add,
        Learn(u8, u32),
    }

    const SHARED: u8 = 255;

    fn verbs() -> impl Strategy<Value = Verb> {
        prop_oneof![
            (0..4u8, any::<u32>()).prop_map(|(key, value)| Verb::Set(key, value)),
            Just(Verb::Add),
            (0..4u8, any::<u32>()).prop_map(|(key, value)| Verb::Learn(key, value)),
        ]
    }

    /// Does what one caller does, one after the other; returns what was answered.
    async fn call(owned: Arc<Owned<Row, Arc<Disk>>>, caller: u8, verbs: Vec<Verb>) -> (Row, u32) {
        let (mut own, mut added) = (Row::new(), 0);
        for verb in verbs {
            match verb {
                Verb::Set(key, value) => {
                    let key = caller * 16 + key;
                    let set = owned.change(|row| {
                        row.insert(key, value);
                        Ok(())
                    });
                    if set.await.is_ok() {
                        own.insert(key, value);
                    }
                }
                Verb::Add => {
                    let add = owned.change(|row| {
                        *row.entry(SHARED).or_default() += 1;
                        Ok(())
                    });
                    added += u32::from(add.await.is_ok());
                }
                Verb::Learn(key, value) => {
                    let key = caller * 16 + key;
                    let fact = |row: &mut Row| {
                        row.insert(key, value);
                    };
                    // It has happened, whether it could be stored or not.
                    let _ = owned.learn(fact).await;
                    own.insert(key, value);
                }
            }
        }
        (own, added)
    }

    proptest! {
        /// Callers race on a disk that is slow and fails now and then. When all are answered, memory
        /// has what was answered and no more, and with the next change so have row and record.
        #[test]
        fn memory_row_and_record_say_what_was_answered(
            callers in prop::collection::vec(prop::collection::vec(verbs(), 0..12), 1..6),
            weather in prop::collection::vec((0..5u8, prop::bool::weighted(0.15)), 0..40),
        ) {
            let whole = weather.iter().all(|(_, fails)| !fails);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let disk = Arc::new(Disk { weather, ..Disk::default() });
                let row = owned(&disk);
                let calls = callers.into_iter().enumerate().map(|(caller, verbs)| {
                    tokio::spawn(call(row.clone(), caller as u8, verbs))
                });
                let calls: Vec<_> = calls.collect();
                let (mut answered, mut added) = (Row::new(), 0);
                for call in calls {
                    let (own, more) = call.await.unwrap();
                    answered.extend(own);
                    added += more;
                }
                if added > 0 {
                    answered.insert(SHARED, added);
                }
                assert_eq!(*row.row(), answered, "memory");
                if !whole {
                    disk.well.store(true, Ordering::Relaxed);
                    row.change(|_| Ok(())).await.unwrap();
                }
                assert_eq!(*disk.row.lock().unwrap(), answered, "row");
                assert_eq!(*disk.record.lock().unwrap(), answered, "record");
            });
        }
    }

    fn set(row: &mut Row) -> Result<()> {
        row.insert(1, 1);
        Ok(())
    }

    fn two(row: &mut Row) {
        row.insert(2, 2);
    }

    #[tokio::test]
    async fn nobody_sees_what_is_not_stored() {
        let disk = Arc::new(Disk {
            stuck: Some(Notify::new()),
            ..Disk::default()
        });
        let row = owned(&disk);
        let mut changing = Box::pin(row.change(set));
        assert!((&mut changing).now_or_never().is_none());
        tokio::task::yield_now().await;
        assert!(row.row().is_empty());
        // The caller goes; the change goes on.
        drop(changing);
        for _ in 0..2 {
            disk.stuck.as_ref().unwrap().notify_one();
            tokio::task::yield_now().await;
        }
        while row.row().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(disk.row.lock().unwrap().get(&1), Some(&1));
    }

    #[tokio::test]
    async fn a_wish_is_refused_by_a_full_disk_and_a_fact_is_not() {
        let disk = Arc::new(Disk::default());
        let row = owned(&disk);
        disk.full.store(true, Ordering::Relaxed);
        assert!(row.change(set).await.is_err());
        assert!(row.row().is_empty());
        assert!(row.learn(two).await.is_err());
        assert_eq!(row.row().get(&2), Some(&2));
        disk.full.store(false, Ordering::Relaxed);
        row.change(set).await.unwrap();
        assert_eq!(disk.row.lock().unwrap().get(&2), Some(&2));
    }

    #[tokio::test]
    async fn a_change_that_failed_half_way_is_taken_back() {
        let disk = Arc::new(Disk {
            weather: vec![(0, false), (0, true), (0, false), (0, false)],
            ..Disk::default()
        });
        let row = owned(&disk);
        assert!(row.change(set).await.is_err());
        assert!(disk.record.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_row_that_was_given_up_is_not_stored_again() {
        let disk = Arc::new(Disk::default());
        let row = owned(&disk);
        row.remove(async { Ok(()) }).await.unwrap();
        assert!(row.change(set).await.is_err());
        row.learn(two).await.unwrap();
        assert!(disk.row.lock().unwrap().is_empty());
        assert_eq!(row.row().get(&2), Some(&2), "but those who hold it know");
    }
}
