//! Decides which thread drives the connection.
//!
//! A thread that waits for a request drives for all while it waits, so a lone request needs no other thread and no
//! wake-up. Other waiting threads sleep until their request completes or the driver slot is free. While no thread
//! waits, the queue's own thread drives. It stays out for a while after each other driver, because the next usually
//! comes soon. Only this thread reconnects.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zerolane::{Region, Waker};

use super::error::Error;
use super::request::{Done, Request};

/// How long the thread of the queue leaves a connection to itself that a caller drove: less than a peer waits for an
/// acknowledgement before it repeats, and long beside the time between two requests of a program that is busy.
const GRACE: Duration = Duration::from_millis(5);

/// Called once, when a request is over. Dropped before, as by a panic, it tells of that: something may wait for it.
pub(super) struct Over(Option<Box<dyn FnOnce(Done) + Send>>);

impl Over {
    pub(super) fn new(over: impl FnOnce(Done) + Send + 'static) -> Over {
        Over(Some(Box::new(over)))
    }

    /// The request ended so.
    pub(super) fn tell(mut self, done: Done) {
        if let Some(over) = self.0.take() {
            over(done);
        }
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let Some(over) = self.0.take() else {
            return;
        };
        let done = Done {
            result: Err(Error::Panicked),
            memory: Region::empty(),
        };
        // A second panic during the first one would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| over(done)));
    }
}

/// A connection that threads drive in turn.
pub(super) trait Drive {
    /// Whether there is a connection to drive. If not, call [`Drive::reconnect`], which takes long.
    fn has_link(&self) -> bool;

    /// Whether requests wait for events.
    fn is_busy(&self) -> bool;

    /// Takes new requests, sends commands as far as there is room, and waits a while for completions: one turn. False
    /// if there is no connection, so that another turn is useless.
    fn turn(&mut self) -> bool;

    /// Reconnects. False if the queue has failed, and with it all requests.
    fn reconnect(&mut self) -> bool;
}

/// Ends a request that was not begun.
pub(super) fn refuse(request: Request, over: Over, error: Error) {
    let (memory, _) = request.into_memory();
    over.tell(Done {
        result: Err(error),
        memory,
    });
}

/// How far a call is.
enum State {
    /// It is not over.
    Waiting,
    /// The request is not complete, and this thread must drive the connection.
    Called,
    Done(Done),
    /// The result was taken.
    Over,
}

/// A request that a thread waits for, or will.
pub(super) struct Call {
    state: Mutex<State>,
    news: Condvar,
}

impl Call {
    /// A new call, and the function that completes it.
    pub(super) fn new() -> (Arc<Call>, Over) {
        let call = Arc::new(Call {
            state: Mutex::new(State::Waiting),
            news: Condvar::new(),
        });
        let ended = Arc::clone(&call);
        (call, Over::new(move |done| ended.set(State::Done(done))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under the lock leaves it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.news.notify_one();
    }

    /// Wakes its thread to drive. False if the call is complete.
    fn wake_to_drive(&self) -> bool {
        let mut state = self.state();
        let waits = matches!(*state, State::Waiting | State::Called);
        if waits {
            *state = State::Called;
            self.news.notify_one();
        }
        waits
    }

    fn is_over(&self) -> bool {
        matches!(*self.state(), State::Done(_) | State::Over)
    }

    /// How it ended, if it did.
    fn take(&self) -> Option<Done> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Over) {
            State::Done(done) => Some(done),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Sleeps until the request completes, or until this thread must drive.
    fn sleep(&self) {
        let mut state = self.state();
        while matches!(*state, State::Waiting) {
            let woken = self.news.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        if matches!(*state, State::Called) {
            *state = State::Waiting;
        }
    }
}

/// New requests, and the driver slot of the driving thread.
pub(super) struct Inbox<D> {
    pub(super) requests: VecDeque<(Request, Over)>,
    /// Why there will be no more; the queue was closed, or has failed.
    pub(super) end: Option<Error>,
    /// To be called when it has failed.
    when_failed: Vec<Box<dyn FnOnce() + Send>>,
    /// Ends the wait of the thread that drives.
    pub(super) waker: Waker,
    /// `None`: a thread drives it, or it is gone.
    driver: Option<Box<D>>,
    /// A thread panicked as it drove: nothing drives any more.
    is_gone: bool,
    /// Calls with sleeping threads, in order.
    callers: BTreeMap<u64, Arc<Call>>,
    next_caller: u64,
    /// When a caller drove last.
    left: Instant,
    /// The queue's own thread must drive now.
    is_urgent: bool,
    /// A [`DriverSlot`](super::DriverSlot) is taken, or is about to be: the thread of the queue only connects again.
    is_reserved: bool,
}

impl<D: Drive> Inbox<D> {
    /// Takes the driver for a caller, if it is there to be driven.
    fn take_driver(&mut self) -> Option<Box<D>> {
        let driver = self.driver.take_if(|it| it.has_link())?;
        // Looked at again when it leaves.
        self.is_urgent = false;
        Some(driver)
    }

    fn enlist(&mut self, call: &Arc<Call>) -> u64 {
        self.next_caller += 1;
        self.callers.insert(self.next_caller, Arc::clone(call));
        self.next_caller
    }
}

/// The state of a queue that threads share.
pub(super) struct Shared<D> {
    inbox: Mutex<Inbox<D>>,
    /// There is something for the thread of the queue to do, or the end.
    pub(super) news: Condvar,
    pub(super) reconnects: AtomicU64,
    pub(super) repeats: AtomicU64,
}

/// A thread that drives. Dropped, it leaves the driver slot to another; after a panic during a turn, it ends the queue.
pub(super) struct Driving<'a, D: Drive> {
    shared: &'a Shared<D>,
    driver: Option<Box<D>>,
    is_turning: bool,
}

impl<'a, D: Drive> Driving<'a, D> {
    fn new(shared: &'a Shared<D>, driver: Box<D>) -> Driving<'a, D> {
        Driving {
            shared,
            driver: Some(driver),
            is_turning: false,
        }
    }

    /// A turn. False if there is no connection.
    fn turn(&mut self) -> bool {
        self.turn_by(D::turn)
    }

    /// What is a turn by `turn`. False if that says so, or there is no driver.
    pub(super) fn turn_by(&mut self, turn: impl FnOnce(&mut D) -> bool) -> bool {
        let Some(driver) = self.driver.as_deref_mut() else {
            return false;
        };
        self.is_turning = true;
        let turned = turn(driver);
        self.is_turning = false;
        turned
    }

    /// The driver, if there is a connection.
    pub(super) fn driver(&mut self) -> Option<&mut D> {
        self.driver.as_deref_mut()
    }

    /// There is no connection to be driven.
    fn is_broken(&self) -> bool {
        !self.driver.as_ref().is_some_and(|it| it.has_link())
    }
}

impl<D: Drive> Drop for Driving<'_, D> {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            match self.is_turning {
                false => self.shared.leave(driver),
                true => self.shared.abandon(driver),
            }
        }
    }
}

impl<D: Drive> Shared<D> {
    /// The state of a queue whose first connection is woken by `waker`.
    pub(super) fn new(waker: Waker) -> Shared<D> {
        Shared {
            inbox: Mutex::new(Inbox {
                requests: VecDeque::new(),
                end: None,
                when_failed: Vec::new(),
                waker,
                driver: None,
                is_gone: false,
                callers: BTreeMap::new(),
                next_caller: 0,
                left: Instant::now(),
                is_urgent: false,
                is_reserved: false,
            }),
            news: Condvar::new(),
            reconnects: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
        }
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox<D>> {
        // No code under the lock leaves it inconsistent.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits `request`, for which no thread waits yet.
    pub(super) fn submit(&self, request: Request, over: Over) {
        let mut inbox = self.inbox();
        if let Some(error) = inbox.end.clone() {
            drop(inbox);
            return refuse(request, over, error);
        }
        inbox.requests.push_back((request, over));
        if inbox.driver.is_some() {
            inbox.is_urgent = true;
            drop(inbox);
            self.news.notify_all();
        } else {
            wake(inbox);
        }
    }

    /// Submits `request`, and waits for its completion.
    pub(super) fn call(&self, request: Request) -> Done {
        let (call, over) = Call::new();
        let mut inbox = self.inbox();
        match inbox.end.clone() {
            None => inbox.requests.push_back((request, over)),
            Some(error) => {
                drop(inbox);
                refuse(request, over, error);
                return self.wait(&call);
            }
        }
        self.drive_or_sleep(inbox, &call);
        self.wait(&call)
    }

    /// Waits until `call` completes, and drives meanwhile unless another thread does.
    pub(super) fn wait(&self, call: &Arc<Call>) -> Done {
        loop {
            if let Some(done) = call.take() {
                return done;
            }
            self.drive_or_sleep(self.inbox(), call);
        }
    }

    /// Drives until `call` completes or the connection breaks. If another thread drives, sleeps until that completes
    /// the call or leaves the driver slot.
    fn drive_or_sleep(&self, mut inbox: MutexGuard<'_, Inbox<D>>, call: &Arc<Call>) {
        if let Some(driver) = inbox.take_driver() {
            drop(inbox);
            let mut driving = Driving::new(self, driver);
            while !call.is_over() && driving.turn() {}
            return;
        }
        let number = inbox.enlist(call);
        wake(inbox);
        call.sleep();
        self.inbox().callers.remove(&number);
    }

    /// The driver slot, if there is a connection and no other thread drives it. If one does, it leaves at the end of
    /// its turn; from here on the thread of the queue only connects again, until [`Shared::release`].
    pub(super) fn reserve(&self) -> Option<Driving<'_, D>> {
        let mut inbox = self.inbox();
        inbox.is_reserved = true;
        let Some(driver) = inbox.take_driver() else {
            wake(inbox);
            return None;
        };
        drop(inbox);
        Some(Driving::new(self, driver))
    }

    /// The thread of the queue drives again when no other does.
    pub(super) fn release(&self) {
        self.inbox().is_reserved = false;
        self.news.notify_all();
    }

    /// Leaves `driver` to the first that waits, or to the thread of the queue.
    fn leave(&self, driver: Box<D>) {
        let mut inbox = self.inbox();
        inbox.left = Instant::now();
        let has_link = driver.has_link();
        let is_left = driver.is_busy() || !inbox.requests.is_empty();
        inbox.driver = Some(driver);
        if has_link {
            // Of those that are over only their threads do not know it yet.
            let mut callers = inbox.callers.values();
            if callers.any(|it| it.wake_to_drive()) {
                return;
            }
        }
        // A busy connection, or a broken one, without a caller that could drive it.
        if is_left || !has_link {
            inbox.is_urgent = true;
            drop(inbox);
            self.news.notify_all();
        }
    }

    /// A thread panicked as it drove. What the driver knows may be half of the truth, so all that was asked for fails.
    fn abandon(&self, driver: Box<D>) {
        let requests = {
            let mut inbox = self.inbox();
            inbox.is_gone = true;
            std::mem::take(&mut inbox.requests)
        };
        self.fail(Error::Panicked);
        self.news.notify_all();
        // Requests tell of it as they are dropped.
        drop((requests, driver));
    }

    /// Runs the queue's own thread: it drives when no caller does, and reconnects, until the queue closes.
    pub(super) fn attend(&self, first: Box<D>) {
        let mut next = Some(first);
        while let Some(driver) = next.take().or_else(|| self.await_slot()) {
            let mut driving = Driving::new(self, driver);
            // A driver that a caller left without a connection reconnects first: no caller takes it before.
            while driving.is_broken() || self.is_wanted() {
                if driving.turn() {
                    continue;
                }
                if !driving.turn_by(D::reconnect) {
                    // All that was asked for has failed, and nothing more can be.
                    driving.driver = None;
                    return;
                }
            }
        }
    }

    /// Waits until the driver is there, and no caller will take it. `None`: it is gone.
    fn await_slot(&self) -> Option<Box<D>> {
        let mut inbox = self.inbox();
        while !inbox.is_gone {
            let has_ended = inbox.end.is_some();
            if inbox.is_reserved && !has_ended {
                if let Some(driver) = inbox.driver.take_if(|it| !it.has_link()) {
                    return Some(driver);
                }
                let woken = self.news.wait(inbox);
                inbox = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let is_due = inbox.is_urgent || has_ended || inbox.left.elapsed() >= GRACE;
            if is_due && let Some(driver) = inbox.driver.take() {
                inbox.is_urgent = false;
                return Some(driver);
            }
            let woken = self.news.wait_timeout(inbox, GRACE);
            inbox = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    /// Whether the queue's own thread must keep driving: no caller can, or the queue is closing.
    fn is_wanted(&self) -> bool {
        let inbox = self.inbox();
        inbox.end.is_some() || !inbox.is_reserved && inbox.callers.values().all(|it| it.is_over())
    }

    /// There will be no more requests, for this reason if there is none yet.
    pub(super) fn fail(&self, error: Error) {
        let calls = {
            let mut inbox = self.inbox();
            inbox.end.get_or_insert(error);
            std::mem::take(&mut inbox.when_failed)
        };
        calls.into_iter().for_each(|call| call());
    }

    /// Has `call` be called when it has failed: now, if it has.
    pub(super) fn when_failed(&self, call: Box<dyn FnOnce() + Send>) {
        let mut inbox = self.inbox();
        match inbox.end {
            None => inbox.when_failed.push(call),
            Some(_) => {
                drop(inbox);
                call();
            }
        }
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.inbox().end.clone()
    }

    pub(super) fn close(&self) {
        let mut inbox = self.inbox();
        inbox.end.get_or_insert(Error::Closed);
        inbox.when_failed.clear();
        wake(inbox);
        self.news.notify_all();
    }
}

/// Ends the wait of the thread that drives.
fn wake<D>(inbox: MutexGuard<'_, Inbox<D>>) {
    let waker = inbox.waker.clone();
    drop(inbox);
    waker.wake();
}

#[cfg(test)]
#[path = "driver_slot_tests.rs"]
mod tests;
