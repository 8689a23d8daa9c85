//! Blocking work, off the single thread that serves all streams.
//!
//! A thread pool of our own, because a machine can run out of processes: tokio's pool aborts the
//! guest when it has no thread and `clone` fails with EAGAIN. Here one thread is made at the start
//! and stays, so that jobs run one after the other until threads can be made again.

use crate::answer::Failed;
use crate::credentials;
use motu_link::Sender;
use motu_link::message::Failure;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The most threads.
const THREADS: usize = 16;
const STACK: usize = 256 * 1024;
/// How long a thread waits for more work before it ends.
pub const KEEP: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Pool {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    jobs: VecDeque::new(),
    threads: 0,
    idle: 0,
});
static MORE: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the thread that stays. A machine that has no room for it yet does without: work is then
/// done by whoever asks for it.
pub fn prepare() {
    let mut pool = pool();
    if pool.threads == 0 {
        let _ = add_thread(&mut pool, None);
    }
}

/// Has work done by a thread that may block; the answer comes through the channel.
pub fn spawn<T, F>(work: F) -> oneshot::Receiver<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    // Whoever has gone does not want the answer.
    submit(Box::new(move || drop(answer.send(work()))));
    answered
}

fn submit(job: Job) {
    let mut pool = pool();
    pool.jobs.push_back(job);
    if pool.jobs.len() > pool.idle && pool.threads < THREADS {
        // Without room for one more, the job waits for a thread that is at work.
        let _ = add_thread(&mut pool, Some(KEEP));
    }
    if pool.threads > 0 {
        MORE.notify_one();
        return;
    }
    let job = pool.jobs.pop_back();
    drop(pool);
    if let Some(job) = job {
        job();
    }
}

fn add_thread(pool: &mut Pool, keep: Option<Duration>) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("motu-guest".into())
        .stack_size(STACK)
        .spawn(move || serve(keep))?;
    pool.threads += 1;
    Ok(())
}

/// Does jobs until none has come for a while, or for ever.
fn serve(keep: Option<Duration>) {
    let mut pool = pool();
    loop {
        if let Some(job) = pool.jobs.pop_front() {
            drop(pool);
            // A bug in one piece of work is that one's: its caller sees the channel close.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            pool = self::pool();
            continue;
        }
        pool.idle += 1;
        let (woken, gave_up) = match keep {
            None => (
                MORE.wait(pool).unwrap_or_else(PoisonError::into_inner),
                false,
            ),
            Some(keep) => {
                let waited = MORE.wait_timeout(pool, keep);
                let (woken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                (woken, waited.timed_out())
            }
        };
        pool = woken;
        pool.idle -= 1;
        if gave_up && pool.jobs.is_empty() {
            pool.threads -= 1;
            return;
        }
    }
}

/// Runs one bounded piece of blocking work, as the user whom the task works for.
pub async fn run<T, F>(work: F) -> Result<T, Failed>
where
    F: FnOnce() -> Result<T, Failed> + Send + 'static,
    T: Send + 'static,
{
    // Whom the task works for holds on the thread that does the work.
    let user = credentials::of_task();
    match spawn(move || credentials::act(user, work)).await {
        Ok(result) => result,
        Err(_) => Err(Failed::new(
            Failure::Cancelled,
            "the guest is shutting down",
        )),
    }
}

/// Tells running work that its result is no longer needed.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag when dropped.
    pub fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

/// See [`Cancel::on_drop`].
#[derive(Debug)]
pub struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs work until it is done or the host resets the stream. Further messages of the host stay
/// unread.
pub async fn unless_gone<T>(
    tx: &Sender,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    tokio::select! {
        biased;
        done = work => done,
        _ = tx.closed() => Err(Failed::cancelled()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_piece_of_work_is_done_and_answered() {
        prepare();
        let (tell, told) = std::sync::mpsc::channel::<u32>();
        let answers: Vec<_> = (0..200u32)
            .map(|number| {
                let tell = tell.clone();
                spawn(move || {
                    tell.send(number).unwrap();
                    number * 2
                })
            })
            .collect();
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap() as usize, number * 2);
        }
        drop(tell);
        let mut seen: Vec<u32> = told.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..200).collect::<Vec<_>>());
        assert!(pool().threads <= THREADS);
    }

    #[tokio::test]
    async fn work_that_panics_takes_nobody_with_it() {
        prepare();
        let broken = spawn(|| -> u32 { panic!("a bug") });
        assert!(broken.await.is_err());
        assert_eq!(spawn(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_waits_for_other_work_gets_its_thread() {
        prepare();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let first = spawn(move || wait.recv().unwrap());
        let second = spawn(move || go.send(()).unwrap());
        second.await.unwrap();
        first.await.unwrap();
    }
}
