//! The timers of a connection. Each is named after what it waits for; what follows from it is the
//! connection's (`Connection::on_timeout`).

use crate::Instant;

/// What may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The handshake, or the disconnect handshake, to be answered: repeat it.
    Handshake,
    /// Connecting, or disconnecting, as a whole.
    GiveUp,
    /// Announcements, requests and Ends to be answered: repeat them.
    Answers,
    /// Granted payload to arrive at all: ask for it.
    Payload,
    /// Overtaken payload, or its repair: ask for it (again).
    LossDetection,
    /// Our turn to grant, among the connections of this receiver: grant.
    Admission,
    /// The next burst to be due: the pace holds it back.
    Pace,
    /// The end of sent Transfers to be confirmed, or room to send more: ask.
    ProbeTimeout,
    /// The peer to be heard at all: ping, then give up.
    Peer,
    /// A path probe to be answered.
    PathProbe,
    /// Operations on the peer's memory to be confirmed or answered: repeat them.
    Memory,
    /// The peer's operations to be confirmed by something else that leaves.
    DelayedAck,
    /// Transfers that are complete to be confirmed behind something else that leaves.
    Confirmations,
    /// A path of several to be asked whether it is there, or its answer to be overdue.
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

/// When a timer strikes that does not run.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// When each timer strikes, if it runs.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    at: [Instant; Timer::ALL.len()],
    /// None strikes before this: most looks whether one has struck see this alone.
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

    /// Sets `timer` unless it already strikes earlier.
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

    /// Whether one has struck.
    #[inline]
    pub(crate) fn has_struck(&mut self, now: Instant) -> bool {
        now >= self.not_before && self.look(now)
    }

    /// The earliest may have been stopped, or set anew to a later time.
    fn look(&mut self, now: Instant) -> bool {
        self.not_before = self.next().unwrap_or(NEVER);
        now >= self.not_before
    }

    /// Stops `timer` if it has struck.
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
