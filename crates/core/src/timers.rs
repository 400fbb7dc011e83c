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
}

impl Timer {
    pub(crate) const ALL: [Timer; 13] = [
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
    ];
}

/// When each timer strikes, if it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    at: [Option<Instant>; Timer::ALL.len()],
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.at[timer as usize] = Some(at);
    }

    /// Sets `timer` unless it already strikes earlier.
    pub(crate) fn set_earlier(&mut self, timer: Timer, at: Instant) {
        let place = &mut self.at[timer as usize];
        *place = Some(place.map_or(at, |old| old.min(at)));
    }

    pub(crate) fn runs(&self, timer: Timer) -> bool {
        self.at[timer as usize].is_some()
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.at[timer as usize] = None;
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Timers::default();
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.at.iter().flatten().min().copied()
    }

    /// Stops `timer` if it has struck.
    pub(crate) fn take_expired(&mut self, timer: Timer, now: Instant) -> bool {
        let expired = self.at[timer as usize].is_some_and(|at| at <= now);
        if expired {
            self.stop(timer);
        }
        expired
    }
}
