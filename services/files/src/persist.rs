//! Continues a copy over a new connection when its connection breaks.

use crate::error::{Error, Refusal};
use crate::limits::{FIRST_PAUSE_MILLISECONDS, MOST_PAUSE_MILLISECONDS, RECONNECT_SECONDS};
use crate::message::CopyOptions;
use crate::observe::Observer;
use crate::reached::Reached;
use crate::share::Share;
use crate::stop::Stop;
use std::io;
use std::time::{Duration, Instant};
use zerolane::Connection;
use zerolane::failure::{CloseReason, Reason, TransferError};

/// How often a wait checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);

/// A copy over all of its connections.
pub(crate) struct Copying<'a> {
    pub(crate) observer: &'a dyn Observer,
    pub(crate) stop: &'a Stop,
    /// How long it continues without progress.
    pub(crate) patience: Duration,
    pub(crate) reached: Reached,
    /// The boot ID of the server's system that accepted it.
    pub(crate) boot: Option<[u8; 16]>,
    /// A connection that was made while the previous one was silent.
    pub(crate) spare: Option<Connection>,
    outage: Option<Outage>,
}

/// A period without progress.
struct Outage {
    since: Instant,
    /// The progress made before it.
    mark: (u64, u64, u64),
    tries: u32,
    /// Whether a connection was accepted meanwhile.
    reconnected: bool,
}

impl<'a> Copying<'a> {
    pub(crate) fn new(
        observer: &'a dyn Observer,
        stop: &'a Stop,
        patience: Duration,
    ) -> Copying<'a> {
        Copying {
            observer,
            stop,
            patience,
            reached: Reached::default(),
            boot: None,
            spare: None,
            outage: None,
        }
    }

    /// Calls `attempt` for one connection after another, until it succeeds, fails in a way that time does not cure, or
    /// makes no progress for the permitted time. A copy that was never accepted is not tried again.
    ///
    /// # Errors
    /// The error of the attempt; [`Error::GaveUp`].
    pub(crate) fn run<T>(
        mut self,
        mut attempt: impl FnMut(&mut Copying<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let why = match attempt(&mut self) {
                Err(why) if self.boot.is_some() && heals(&why) => why,
                done => return done,
            };
            self.stop.check()?;
            self.wait(why)?;
        }
    }

    /// The options for copying `share` over the next connection: the total is counted only once.
    pub(crate) fn options(&self, options: &CopyOptions, share: Share) -> CopyOptions {
        CopyOptions {
            count_first: options.count_first && share.is_first() && self.outage.is_none(),
            ..*options
        }
    }

    /// The connect timeout, at most `usual`. It is short at first, because this end's address may have changed
    /// meanwhile, and an attempt that began with the old one gets no answer.
    pub(crate) fn connect_timeout(&self, usual: Duration) -> Duration {
        let short = Duration::from_secs(RECONNECT_SECONDS);
        match &self.outage {
            None => usual,
            Some(outage) => usual.min(short * (1 << outage.tries.min(8))),
        }
    }

    /// Records that a server accepted the copy.
    pub(crate) fn accepted(&mut self, boot: [u8; 16], durable: bool) {
        let before = self.boot.replace(boot);
        if !durable && before.is_some_and(|before| before != boot) {
            // The server's system was restarted: data that was not synced may be lost.
            self.reached.restart();
        }
        if let Some(outage) = self.outage.as_mut().filter(|it| !it.reconnected) {
            outage.reconnected = true;
            let bytes = self.reached.totals.bytes;
            self.observer.reconnected(outage.since.elapsed(), bytes);
        }
    }

    /// Waits until the next attempt.
    fn wait(&mut self, why: Error) -> Result<(), Error> {
        let now = Instant::now();
        let mark = self.reached.mark();
        if self.outage.as_ref().is_none_or(|outage| mark > outage.mark) {
            self.outage = None;
        }
        let first = self.outage.as_ref().is_none_or(|outage| outage.reconnected);
        let outage = self.outage.get_or_insert(Outage {
            since: now,
            mark,
            tries: 0,
            reconnected: false,
        });
        let left = self.patience.saturating_sub(outage.since.elapsed());
        if left.is_zero() {
            return Err(match self.patience.is_zero() {
                true => why,
                false => Error::GaveUp {
                    patience: self.patience,
                    source: Box::new(why),
                },
            });
        }
        if first {
            outage.reconnected = false;
            self.observer.interrupted(&why, left);
        }
        self.observer.waiting(left);
        let pause = FIRST_PAUSE_MILLISECONDS << outage.tries.min(8);
        outage.tries += 1;
        let pause = Duration::from_millis(pause.min(MOST_PAUSE_MILLISECONDS));
        self.sleep(pause.min(left))
    }

    fn sleep(&self, pause: Duration) -> Result<(), Error> {
        let until = Instant::now() + pause;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::sleep(left.min(LOOK));
            self.stop.check()?;
        }
        Ok(())
    }
}

/// Whether trying again may succeed: the network, a server that is away or full. Not after a refusal, nor with another
/// server.
pub(crate) fn heals(error: &Error) -> bool {
    match error {
        Error::Connect { source, .. } | Error::Transport(source) => heals_below(source),
        Error::Refused(refusal) => *refusal == Refusal::Full,
        Error::PeerGone | Error::Stalled | Error::Forgotten => true,
        _ => false,
    }
}

fn heals_below(error: &zerolane::Error) -> bool {
    match error {
        // An error of the connector itself is final.
        zerolane::Error::Io(error) => error.kind() != io::ErrorKind::Other,
        zerolane::Error::NoAddress
        | zerolane::Error::ConnectTimeout(_)
        | zerolane::Error::Transfer(TransferError::Refused(_) | TransferError::Cancelled) => true,
        zerolane::Error::Closed(reason)
        | zerolane::Error::Transfer(TransferError::Closed(reason)) => ends_for_now(*reason),
        _ => false,
    }
}

fn ends_for_now(reason: CloseReason) -> bool {
    match reason {
        CloseReason::ConnectTimeout | CloseReason::PeerDead | CloseReason::Unreachable => true,
        CloseReason::Peer(reason)
        | CloseReason::Rejected { reason, .. }
        | CloseReason::ExchangeRefused(reason) => matches!(
            reason,
            Reason::Normal
                | Reason::NoListener
                | Reason::Busy
                | Reason::NotReady
                | Reason::Cancelled
                | Reason::Unknown
                | Reason::TimedOut
                | Reason::GoingAway
        ),
        _ => false,
    }
}

#[cfg(test)]
#[path = "persist_tests.rs"]
mod tests;
