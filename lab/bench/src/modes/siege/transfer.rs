//! Runs the two ends of the transfer under attack: one buffer sent over and over, and verified at the receiver.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use zerolane::counters::{Account, DropReason};
use zerolane::{Connection, Endpoint};

use crate::contender::contract::Memory;
use crate::contender::zerolane::connection::options;
use crate::contender::zerolane::memory::Pieces;
use crate::contender::zerolane::turns::Direction;
use crate::job::Laps;
use crate::job::settings::Protection;
use crate::limits::{CONNECT, STALL};

/// Laps that end when they are told to.
const LAPS: Laps = Laps {
    buffer: 32 << 20,
    laps: u64::MAX,
    seed: 5,
};

/// Small, so that rates are known to a hundredth even over a second.
const PIECES: usize = 16;

/// What the server counted.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Seen {
    /// Payload in place.
    pub(super) bytes: u64,
    /// Datagrams that the connection dropped as forged, and as repeated.
    pub(super) forged: u64,
    pub(super) replayed: u64,
    /// And for any other reason.
    pub(super) dropped: u64,
    /// Datagrams that found the connection's socket buffer full.
    pub(super) socket_buffer: u64,
    pub(super) moved_bytes: u64,
    /// Key exchanges begun by unauthenticated peers: those asked for a cookie, and those answered by a key agreement.
    pub(super) retried: u64,
    pub(super) answered: u64,
}

impl Seen {
    /// What was counted since `earlier`.
    pub(super) fn since(&self, earlier: &Seen) -> Seen {
        Seen {
            bytes: self.bytes - earlier.bytes,
            forged: self.forged - earlier.forged,
            replayed: self.replayed - earlier.replayed,
            dropped: self.dropped - earlier.dropped,
            socket_buffer: self.socket_buffer - earlier.socket_buffer,
            moved_bytes: self.moved_bytes - earlier.moved_bytes,
            retried: self.retried - earlier.retried,
            answered: self.answered - earlier.answered,
        }
    }

    fn count(&mut self, account: &Account) {
        let protocol = &account.protocol;
        self.bytes = protocol.bytes_received;
        self.forged = protocol.dropped(DropReason::Forged);
        self.replayed = protocol.dropped(DropReason::Replayed);
        self.dropped = protocol.dropped_total() - self.forged - self.replayed;
        self.socket_buffer = account.dropped_socket_buffer;
        self.moved_bytes = account.bytes_moved();
    }
}

/// What the threads know of each other.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stop: AtomicBool,
    /// An end has failed.
    failed: AtomicBool,
    seen: Mutex<Seen>,
}

/// Stops the ends when it goes.
pub(super) struct Stop<'a>(&'a Shared);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Shared {
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn stop_when_dropped(&self) -> Stop<'_> {
        Stop(self)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// An error if the transfer has ended already; its ends say why.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(!self.failed.load(Ordering::Relaxed), "the transfer ended");
        Ok(())
    }

    pub(super) fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until payload has come.
    pub(super) fn await_start(&self) -> Result<()> {
        let end = Instant::now() + CONNECT;
        while self.seen().bytes == 0 {
            self.check()?;
            ensure!(Instant::now() < end, "no payload arrives");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn noting_failure<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Receives until the sender ends it, and goes on accepting meanwhile.
pub(super) fn serve(on: Ipv4Addr, shared: &Shared, tell: &Sender<SocketAddr>) -> Result<()> {
    let accepting = options(Protection::Encrypted).with(|it| {
        // The thread that is measured accepts.
        it.listen.backlog = 0;
    });
    let mut endpoint = Endpoint::bind((on, 0), accepting)?;
    tell.send(endpoint.local_addr())
        .context("no receiver for the address")?;
    let connection = endpoint.accept(Some(CONNECT))?;
    let connection = connection.context("no client connected")?;
    thread::scope(|scope| {
        let gate = scope.spawn(|| shared.noting_failure(keep_gate(endpoint, shared)));
        let received = shared.noting_failure(receive(connection, shared));
        let kept = gate.join();
        received?;
        kept.map_err(|_| anyhow::anyhow!("the gate panicked"))?
    })
}

/// What a server's accepting thread does.
fn keep_gate(mut endpoint: Endpoint, shared: &Shared) -> Result<()> {
    while !shared.is_stopped() {
        let admitted = endpoint.accept(Some(Duration::from_millis(20)))?;
        ensure!(admitted.is_none(), "an unauthenticated peer was admitted");
        if let Some(counters) = endpoint.gate_counters() {
            shared.change(|seen| {
                seen.retried = counters.retried;
                seen.answered = counters.answered;
            });
        }
    }
    Ok(())
}

fn receive(mut connection: Connection, shared: &Shared) -> Result<()> {
    let buffer = Memory::default().take(LAPS.buffer)?;
    let mut pieces = Pieces::cut(Direction::Receive, buffer, PIECES, &LAPS, LAPS.stamps());
    loop {
        // A connection that has closed takes no more; the completions that are left tell.
        let _ = pieces.post_all(&mut connection);
        if pieces.is_idle() {
            return pieces.check_last_lap(&LAPS.pattern()).map(drop);
        }
        let completion = connection
            .wait(Some(STALL))?
            .got()
            .context("the peer stalled")?;
        // The sender has closed: what was posted for a further lap comes back empty.
        let is_unused = completion.result.is_err() && shared.is_stopped();
        match pieces.take_back(completion) {
            Err(_) if is_unused => {}
            taken => taken?,
        }
        let account = connection.account();
        shared.change(|seen| seen.count(&account));
    }
}

/// Sends laps until it is told to stop, the last one to its end.
pub(super) fn send(to: SocketAddr, shared: &Shared) -> Result<()> {
    shared.noting_failure(send_laps(to, shared))
}

fn send_laps(to: SocketAddr, shared: &Shared) -> Result<()> {
    let mut connection = Connection::connect(to, &options(Protection::Encrypted))?;
    let mut buffer = Memory::default().take(LAPS.buffer)?;
    LAPS.pattern().fill(&mut buffer);
    let mut pieces = Pieces::cut(Direction::Send, buffer, PIECES, &LAPS, LAPS.stamps());
    pieces.run_while(&mut connection, |_| (!shared.is_stopped()).then_some(STALL))?;
    pieces.end_with_this_round();
    pieces.run(&mut connection, STALL)?;
    Ok(connection.close()?)
}
