//! Keeps the timers of a connection. Each is named after the event that it waits for.
//!
//! `Connection::on_timeout` handles expiry.

use crate::time::Instant;

/// The timers of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A step of the handshake, or of the disconnect handshake, is unanswered: repeat it.
    Handshake,
    /// Connecting, or disconnecting, takes too long: give up.
    GiveUp,
    /// Announcements, requests and Ends are unanswered: repeat them.
    Answers,
    /// Granted payload stays out: ask for it.
    Payload,
    /// Overtaken payload, or its repair, is overdue: ask for it (again).
    LossDetection,
    /// Our turn among the connections of this receiver: grant.
    Admission,
    /// The pace allows the next burst.
    Pace,
    /// The end of sent Transfers is unconfirmed, or the window is full: ask.
    ProbeTimeout,
    /// The peer is silent: ping, then give up.
    Peer,
    /// A path probe is unanswered.
    PathProbe,
    /// Operations on the peer's memory are unconfirmed or unanswered: repeat them.
    Memory,
    /// No other transmission carried the confirmation of the peer's operations.
    DelayedAck,
    /// No other transmission preceded the confirmations of complete Transfers.
    Confirmations,
    /// A path of several must be probed, or its answer is overdue.
    Links,
}

impl Timer {
    pub(crate) const ALL: [Timer; 14] = [
        Timer::Handshake,
        Timer::GiveUp,
        Timer::Answers,
        Timer::Payload,
        Timer::LossDetection,
        Timer::Admission,
        Timer::Pace,
        Timer::ProbeTimeout,
        Timer::Peer,
        Timer::PathProbe,
        Timer::Memory,
        Timer::DelayedAck,
        Timer::Confirmations,
        Timer::Links,
    ];
}

/// Expiry of a stopped timer.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// When each timer expires, if it runs.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    at: [Instant; Timer::ALL.len()],
    /// No timer expires before this, so most checks read only this.
    not_before: Instant,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            at: [NEVER; Timer::ALL.len()],
            not_before: NEVER,
        }
    }
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.at[timer as usize] = at;
        self.not_before = at.min(self.not_before);
    }

    /// Sets `timer`, unless it already expires earlier.
    pub(crate) fn set_earlier(&mut self, timer: Timer, at: Instant) {
        let place = &mut self.at[timer as usize];
        *place = at.min(*place);
        self.not_before = at.min(self.not_before);
    }

    pub(crate) fn runs(&self, timer: Timer) -> bool {
        self.at[timer as usize] != NEVER
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.at[timer as usize] = NEVER;
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Timers::default();
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        let next = self.at.iter().fold(NEVER, |next, &at| next.min(at));
        (next != NEVER).then_some(next)
    }

    /// Whether a timer has expired.
    #[inline]
    pub(crate) fn has_struck(&mut self, now: Instant) -> bool {
        now >= self.not_before && self.look(now)
    }

    /// Recomputes the earliest expiry: that timer may have been stopped, or set to a later time.
    fn look(&mut self, now: Instant) -> bool {
        self.not_before = self.next().unwrap_or(NEVER);
        now >= self.not_before
    }

    /// Stops `timer` if it has expired.
    pub(crate) fn take_expired(&mut self, timer: Timer, now: Instant) -> bool {
        let expired = self.runs(timer) && self.at[timer as usize] <= now;
        if expired {
            self.stop(timer);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    /// Timers set, set earlier, stopped and taken in every mix of a few steps.
    #[test]
    fn has_struck__exactly_when_the_next_one_has() {
        let at = |nanos| Instant::from_nanos(nanos);
        for mut mix in 0..6_u64.pow(5) {
            let mut timers = Timers::default();
            for now in 1..=5 {
                match mix % 6 {
                    0 => timers.set(Timer::Memory, at(now + 2)),
                    1 => timers.set(Timer::DelayedAck, at(now)),
                    2 => timers.set_earlier(Timer::Memory, at(now + 1)),
                    3 => timers.stop(Timer::Memory),
                    4 => timers.stop(Timer::DelayedAck),
                    _ => {
                        timers.take_expired(Timer::Memory, at(now));
                    }
                }
                mix /= 6;
                let struck = timers.next().is_some_and(|next| next <= at(now));
                assert_eq!(timers.has_struck(at(now)), struck, "{timers:?} at {now}");
            }
        }
        let mut timers = Timers::default();
        timers.set(Timer::Peer, at(1));
        timers.stop_all();
        assert!(!timers.has_struck(at(9)));
    }
}
