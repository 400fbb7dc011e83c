//! Runs the threads that work on disks.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use zerolane::worker::ConnectionId;
use zerolane::{Region, Waker};
use zerolane_block::sense::Failure;
use zerolane_block::store::Store;
use zerolane_block::{Payload, TaskId, Work};

use super::memory::Loan;

/// Work of a command.
pub(super) struct Job {
    /// The connection that owns the job.
    pub(super) owner: ConnectionId,
    pub(super) task: TaskId,
    pub(super) tag: u64,
    pub(super) work: Work,
    /// The payload: a read fills it, a write takes from it.
    pub(super) memory: Region,
    pub(super) loan: Loan,
}

/// A finished job.
pub(super) struct Done {
    pub(super) owner: ConnectionId,
    pub(super) task: TaskId,
    pub(super) tag: u64,
    /// The payload is for the initiator.
    pub(super) is_in: bool,
    pub(super) memory: Region,
    pub(super) loan: Loan,
    pub(super) outcome: Result<Vec<u8>, Failure>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Stores of the jobs that threads have begun.
    busy: Vec<Arc<dyn Store>>,
    /// Jobs of one store that threads may have at a time.
    most: usize,
    done: Vec<Done>,
    stopping: bool,
}

impl Queue {
    /// Begins the first job that may.
    fn begin(&mut self) -> Option<Job> {
        let (busy, most) = (&self.busy, self.most);
        let may = |job: &Job| {
            let same = busy.iter().filter(|it| Arc::ptr_eq(it, job.work.store()));
            same.count() < most
        };
        let first = self.jobs.iter().position(may)?;
        let job = self.jobs.remove(first)?;
        self.busy.push(Arc::clone(job.work.store()));
        Some(job)
    }

    /// Records the end of a job of `store`.
    fn end(&mut self, store: &Arc<dyn Store>) {
        let own = self.busy.iter().position(|it| Arc::ptr_eq(it, store));
        if let Some(own) = own {
            self.busy.swap_remove(own);
        }
    }
}

struct Shared {
    queue: Mutex<Queue>,
    /// There is a job, or the end.
    news: Condvar,
    /// Wakes the thread that takes finished jobs.
    waker: Waker,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code under the lock leaves the queue inconsistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fixed number of threads. Jobs of a store begin in order of arrival. With several stores, the jobs of one leave a
/// thread to the others.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Jobs that were pushed, and are not taken as done.
    outstanding: usize,
    /// This process has one core.
    shares_core: bool,
}

impl Pool {
    /// Starts `threads` threads. They use `waker` when a job is done.
    pub(super) fn new(threads: usize, waker: Waker) -> io::Result<Pool> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            news: Condvar::new(),
            waker,
        });
        let mut pool = Pool {
            shared,
            threads: Vec::new(),
            outstanding: 0,
            shares_core: thread::available_parallelism().is_ok_and(|it| it.get() == 1),
        };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("disk {number}"));
            pool.threads.push(builder.spawn(move || run(&shared))?);
        }
        pool.serve(0);
        Ok(pool)
    }

    /// Sets the number of stores.
    pub(super) fn serve(&mut self, stores: usize) {
        let left = usize::from(stores > 1);
        self.shared.queue().most = (self.threads.len() - left).max(1);
        // More may begin than could before.
        self.shared.news.notify_all();
    }

    pub(super) fn push(&mut self, job: Job) {
        self.outstanding += 1;
        self.shared.queue().jobs.push_back(job);
        self.shared.news.notify_one();
    }

    /// Takes back the jobs of `owner` that no thread has begun.
    pub(super) fn withdraw(&mut self, owner: ConnectionId) -> Vec<Job> {
        let mut queue = self.shared.queue();
        let jobs = std::mem::take(&mut queue.jobs).into_iter();
        let (own, others): (Vec<_>, Vec<_>) = jobs.partition(|it| it.owner == owner);
        queue.jobs = others.into();
        self.outstanding -= own.len();
        own
    }

    /// Takes the jobs finished since the last call.
    pub(super) fn take_done(&mut self) -> Vec<Done> {
        let done = std::mem::take(&mut self.shared.queue().done);
        self.outstanding -= done.len();
        done
    }

    /// Ends the threads. Running jobs complete, and waiting jobs do not start.
    pub(super) fn stop(&mut self) {
        {
            let mut queue = self.shared.queue();
            queue.stopping = true;
            queue.jobs.clear();
        }
        self.shared.news.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }

    /// Whether the threads need the caller's core: they have several jobs, and there is no other core. A thread with a
    /// single job gets the core when it is woken, and finishes before the caller could sleep and wake.
    pub(super) fn needs_core(&self) -> bool {
        self.shares_core && self.outstanding > 1
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(shared: &Shared) {
    loop {
        let job = {
            let mut queue = shared.queue();
            loop {
                if queue.stopping {
                    return;
                }
                match queue.begin() {
                    Some(job) => break job,
                    None => {
                        let waiting = shared.news.wait(queue);
                        queue = waiting.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        };
        let store = Arc::clone(job.work.store());
        let done = perform(job);
        {
            let mut queue = shared.queue();
            queue.end(&store);
            // The receiver of the result may need exclusive use of the store's file.
            drop(store);
            queue.done.push(done);
        }
        shared.waker.wake();
    }
}

fn perform(job: Job) -> Done {
    let Job {
        owner,
        task,
        tag,
        work,
        mut memory,
        loan,
    } = job;
    let moved = match work.payload() {
        Payload::None => Ok(()),
        Payload::In(_) => work.read(0, &mut memory),
        Payload::Out(_) => work.write(0, &memory),
    };
    let outcome = moved.and_then(|()| work.finish());
    Done {
        owner,
        task,
        tag,
        is_in: matches!(work.payload(), Payload::In(_)),
        memory,
        loan,
        outcome,
    }
}
