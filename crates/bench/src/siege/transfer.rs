//! The two ends of the transfer: one buffer, sent over and over, verified at the receiver.

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

use super::super::limits::{CONNECT, STALL};
use super::super::mover::{Buffer, buffer};
use super::super::pattern::Pattern;
use super::super::protocol::Protection;
use super::super::zl::options;
use super::super::zl::pieces::Pieces;
use zerolane_cli::exit::Exit;

const BUFFER_BYTES: usize = 32 << 20;

/// Small, so that rates are known to a hundredth even over a second.
const PIECES: usize = 16;

const SEED: u64 = 5;

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
    /// Key exchanges begun by strangers: asked for a cookie, and answered by key agreements.
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
            ensure!(Instant::now() < end, "no payload comes");
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
    let mut endpoint = Endpoint::bind((on, 0), options(Protection::Encrypted))?;
    tell.send(endpoint.local_addr()).context("nobody asks")?;
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
        let stranger = endpoint.accept(Some(Duration::from_millis(20)))?;
        ensure!(stranger.is_none(), "a stranger got in");
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
    let mut buffer = buffer(BUFFER_BYTES)?;
    let pattern = Pattern::new(SEED, BUFFER_BYTES);
    let mut pieces = Pieces::cut(&mut buffer, PIECES)?;
    let mut laps = vec![0; pieces.count()];
    post_receives(&mut connection, &mut pieces)?;
    while !pieces.none_under_way() {
        let completion = connection.wait(Some(STALL))?.context("the peer stalled")?;
        let piece = match pieces.take_back(completion) {
            Ok(piece) => piece,
            // The sender has closed: what was posted for a further lap comes back empty.
            Err(_) if shared.is_stopped() => continue,
            Err(error) => return Err(error),
        };
        if let Some(region) = pieces.get(piece) {
            let base = pieces.base(piece);
            let checked = pattern.check_stamps(region, base, laps[piece]);
            checked.context(Exit::Corrupt)?;
        }
        laps[piece] += 1;
        let account = connection.account();
        shared.change(|seen| seen.count(&account));
        post_receives(&mut connection, &mut pieces)?;
    }
    check_last_lap(pieces, &mut buffer, &pattern, &laps)
}

fn post_receives(connection: &mut Connection, pieces: &mut Pieces) -> Result<()> {
    while let Some((piece, _, region)) = pieces.take_turn(u64::MAX) {
        match connection.post_recv(region) {
            Ok(id) => pieces.posted(id, piece),
            // It has closed; the completions that are left tell.
            Err(_) => break,
        }
    }
    Ok(())
}

fn check_last_lap(
    pieces: Pieces,
    buffer: &mut Buffer,
    pattern: &Pattern,
    laps: &[u64],
) -> Result<()> {
    let last = laps[0];
    ensure!(
        last > 0 && laps.iter().all(|&laps| laps == last),
        "the sender stopped in the middle of a lap"
    );
    pieces.join(buffer)?;
    pattern.check_all(buffer, last - 1).context(Exit::Corrupt)
}

/// Sends laps until it is told to stop, the last one to its end.
pub(super) fn send(to: SocketAddr, shared: &Shared) -> Result<()> {
    shared.noting_failure(send_laps(to, shared))
}

fn send_laps(to: SocketAddr, shared: &Shared) -> Result<()> {
    let mut connection = Connection::connect(to, &options(Protection::Encrypted))?;
    let mut buffer = buffer(BUFFER_BYTES)?;
    let pattern = Pattern::new(SEED, BUFFER_BYTES);
    pattern.fill(&mut buffer);
    let mut pieces = Pieces::cut(&mut buffer, PIECES)?;
    let mut laps = u64::MAX;
    loop {
        if shared.is_stopped() && laps == u64::MAX {
            laps = pieces.laps_begun();
        }
        while let Some((piece, lap, mut region)) = pieces.take_turn(laps) {
            pattern.stamp(&mut region, pieces.base(piece), lap);
            pieces.posted(connection.post_send(region)?, piece);
        }
        if pieces.none_under_way() {
            break;
        }
        let completion = connection.wait(Some(STALL))?.context("the peer stalled")?;
        pieces.take_back(completion)?;
    }
    Ok(connection.close()?)
}
