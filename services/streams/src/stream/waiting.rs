//! Keeps who waits for a stream: threads, tasks, and tokens of sets.

use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use zerolane::worker::PendingSet;

/// Who waits for one thing.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Each once. A thread that gave up stays, once, until the next wake.
    wakers: Vec<Waker>,
    token: Option<(PendingSet, u64)>,
}

impl Waiters {
    pub(super) fn add(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|it| it.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// Replaces the token.
    pub(super) fn watch(&mut self, set: &PendingSet, token: u64) {
        self.token = Some((set.clone(), token));
    }

    pub(super) fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
        if let Some((set, token)) = self.token.take() {
            set.signal(token);
        }
    }
}

/// Wakes a thread that blocks.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// One for each thread, so that [`Waiters`] has each thread once.
    static PARKED: OnceCell<Waker> = const { OnceCell::new() };
}

fn parked() -> Waker {
    let new = || Waker::from(Arc::new(Parked(thread::current())));
    let own = PARKED.try_with(|it| it.get_or_init(new).clone());
    // A thread that ends has none.
    own.unwrap_or_else(|_| new())
}

/// Blocks this thread until `poll` is ready, for at most `limit`: the calls of [`Stream`](crate::Stream) and
/// [`Streams`](crate::Streams) that begin with `poll_`. `None`: it is not. A limit of zero asks once.
pub fn wait<T>(
    limit: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let deadline = limit.and_then(|it| Instant::now().checked_add(it));
    let waker = parked();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(it) = poll(&mut context) {
            return Some(it);
        }
        let Some(deadline) = deadline else {
            thread::park();
            continue;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

/// Blocks this thread until `poll` is ready.
pub(super) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    loop {
        if let Some(it) = wait(None, &mut poll) {
            return it;
        }
    }
}
