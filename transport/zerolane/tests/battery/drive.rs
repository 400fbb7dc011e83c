//! Drives both ends of a connection in tests.

use crate::content;
use crate::path::{Net, Pair};
use netsim::Side;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerolane::{Completion, Connection, Region, RequestId};

/// Bounds how long a failure takes to show: without progress, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// How long an idle end sleeps before it polls again.
const LOOK: Duration = Duration::from_millis(2);

/// An event that other threads can see.
#[derive(Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Raises the flag when the guard is dropped, also by a panic.
    pub fn raise_at_end(&self) -> impl Drop + '_ {
        struct Raise<'a>(&'a Flag);
        impl Drop for Raise<'_> {
            fn drop(&mut self) {
                self.0.0.store(true, Ordering::Release);
            }
        }
        Raise(self)
    }

    /// Answers the peer until the flag is raised or the connection ends.
    pub fn drive_until_raised(&self, connection: &mut Connection) {
        while !self.is_raised() {
            match connection.wait(Some(LOOK)).map(zerolane::Waited::got) {
                Ok(None) => {}
                Ok(Some(completion)) => panic!("left over: {completion:?}"),
                Err(_) => return,
            }
        }
    }
}

/// Runs both jobs at once, each on its own thread. The end that finishes first keeps answering the other one, as a
/// program with more to do would.
pub fn both<A: Send, B: Send>(
    pair: &mut Pair,
    job_a: impl FnOnce(&mut Connection) -> A + Send,
    job_b: impl FnOnce(&mut Connection) -> B + Send,
) -> (A, B) {
    let (a_done, b_done) = (&Flag::default(), &Flag::default());
    let Pair { a, b, net } = pair;
    let net = &*net;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || net.run(Side::B, || run(b, job_b, b_done, a_done)));
        let result = net.run(Side::A, || run(a, job_a, a_done, b_done));
        match other.join() {
            Ok(other) => (result, other),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn run<T>(
    connection: &mut Connection,
    job: impl FnOnce(&mut Connection) -> T,
    done: &Flag,
    other: &Flag,
) -> T {
    let raise = done.raise_at_end();
    let result = job(connection);
    drop(raise);
    other.drive_until_raised(connection);
    result
}

/// Payload that was sent and received for the first time.
fn progress(connection: &Connection) -> u64 {
    let counters = connection.account().protocol;
    counters.bytes_sent - counters.bytes_resent + counters.bytes_received
}

/// The next completion, before [`PATIENCE`] passes without payload.
#[track_caller]
pub fn next(connection: &mut Connection) -> Completion {
    loop {
        let before = progress(connection);
        match connection.wait(Some(PATIENCE)).map(zerolane::Waited::got) {
            Ok(Some(completion)) => return completion,
            Ok(None) if progress(connection) > before => {}
            other => panic!("no completion but {other:?}; {:#?}", connection.account()),
        }
    }
}

/// Lets time pass while answering the peer; nothing may complete.
pub fn idle(connection: &mut Connection, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let completion = connection.wait(Some(LOOK)).expect("connected").got();
        assert!(completion.is_none(), "{completion:?}");
    }
}

/// Posts Transfers of these lengths; the n-th has the content `seed + n`.
fn post_sends(connection: &mut Connection, seed: u64, lengths: &[usize]) {
    for (seed, &len) in (seed..).zip(lengths) {
        let sent = connection.post_send(content::region(seed, len));
        sent.expect("posted");
    }
}

/// Posts Transfers as [`post_sends`] and waits for all.
pub fn send_all(connection: &mut Connection, seed: u64, lengths: &[usize]) {
    post_sends(connection, seed, lengths);
    let mut open = lengths.len();
    while open > 0 {
        let completion = next(connection);
        completion.result.expect("sent");
        open -= 1;
    }
}

/// Posted receives that are not complete: their number, seed and length.
struct Expected(Vec<(RequestId, u64, usize)>);

impl Expected {
    fn post(connection: &mut Connection, seed: u64, lengths: &[usize]) -> Expected {
        let post = |(seed, &len)| {
            let region = Region::anonymous(len).expect("memory");
            let id = connection.post_recv(region).expect("posted");
            (id, seed, len)
        };
        Expected((seed..).zip(lengths).map(post).collect())
    }

    /// Verifies the content.
    fn complete(&mut self, completion: Completion) {
        let index = self.0.iter().position(|it| it.0 == completion.id);
        let (_, seed, len) = self
            .0
            .swap_remove(index.expect("posted, and not complete before"));
        assert_eq!(completion.result, Ok(len));
        content::verify(seed, &completion.into_region().expect("a region"));
    }
}

/// Posts receives for Transfers of these lengths, and verifies them.
pub fn receive_all(connection: &mut Connection, seed: u64, lengths: &[usize]) {
    let mut expected = Expected::post(connection, seed, lengths);
    while !expected.0.is_empty() {
        let completion = next(connection);
        expected.complete(completion);
    }
}

/// Sends Transfers of these lengths from a to b, and polls both ends by turns in this thread, so that none waits for
/// a thread that a busy machine suspended.
///
/// # Errors
/// An end closed the connection.
pub fn transfer_by_turns(pair: &mut Pair, seed: u64, lengths: &[usize]) -> zerolane::Result<()> {
    let Pair { a, b, .. } = pair;
    let mut expected = Expected::post(b, seed, lengths);
    post_sends(a, seed, lengths);
    let (mut sent, mut received) = (0, vec![]);
    let (mut before, mut since) = (progress(b), Instant::now());
    while sent < lengths.len() || received.len() < lengths.len() {
        if let Some(completion) = a.poll()? {
            completion.result.expect("sent");
            sent += 1;
        }
        // Verified later: it takes longer than the sender waits for an answer.
        received.extend(b.poll()?);
        let now = progress(b);
        if now > before {
            (before, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "{:#?}", b.account());
    }
    received.into_iter().for_each(|it| expected.complete(it));
    Ok(())
}

/// Sends Transfers of these lengths from a to b.
pub fn transfer(pair: &mut Pair, seed: u64, lengths: &[usize]) {
    both(
        pair,
        |a| send_all(a, seed, lengths),
        |b| receive_all(b, seed, lengths),
    );
}

/// Pieces of a stream.
const PIECES: u64 = 12;

/// Streams pieces of `len` bytes to the end on `to`. When the first piece is complete, `happen` runs while the stream
/// continues; it returns before the last piece is received.
pub fn stream_while(pair: &mut Pair, to: Side, len: usize, happen: impl Fn(&Net) + Sync) {
    let (sent, received) = (&Flag::default(), &Flag::default());
    let Pair { a, b, net } = pair;
    let (net, happen) = (&*net, &happen);
    let (source, target) = match to {
        Side::A => (b, a),
        Side::B => (a, b),
    };
    let send = || {
        let raise = sent.raise_at_end();
        send_all(source, 1, &[len; PIECES as usize]);
        drop(raise);
        received.drive_until_raised(source);
    };
    let receive = || {
        let raise = received.raise_at_end();
        receive_while(target, len, || happen(net));
        drop(raise);
        sent.drive_until_raised(target);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| net.run(to.other(), send));
        net.run(to, receive);
    });
}

/// The receiving end of [`stream_while`].
fn receive_while(target: &mut Connection, len: usize, happen: impl Fn() + Sync) {
    let post = |target: &mut Connection, seed| {
        let region = Region::anonymous(len).expect("memory");
        (target.post_recv(region).expect("posted"), seed)
    };
    let mut posted: Vec<_> = (1..PIECES).map(|seed| post(target, seed)).collect();
    let mut last = Some(PIECES);
    let mut end = Instant::now() + PATIENCE;
    let mut received = 0;
    std::thread::scope(|scope| {
        let mut happening = None;
        while last.is_some() || !posted.is_empty() {
            if std::mem::replace(&mut received, progress(target)) < received {
                end = Instant::now() + PATIENCE;
            }
            assert!(Instant::now() < end, "{:#?}", target.account());
            let over = |it: &std::thread::ScopedJoinHandle<'_, ()>| it.is_finished();
            if happening.as_ref().is_some_and(over) {
                posted.extend(last.take().map(|seed| post(target, seed)));
            }
            let Some(completion) = target.wait(Some(LOOK)).expect("connected").got() else {
                continue;
            };
            happening.get_or_insert_with(|| scope.spawn(&happen));
            let index = posted.iter().position(|it| it.0 == completion.id);
            let (_, seed) = posted.swap_remove(index.expect("posted"));
            assert_eq!(completion.result, Ok(len));
            content::verify(seed, &completion.into_region().expect("a region"));
        }
        happening.expect("began").join().expect("happened");
    });
}
