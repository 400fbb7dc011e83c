//! Chooses a congestion controller by measuring the path.
//!
//! It observes the shortest round trip, the part of the payload that is lost, and standing queues. On a private LAN
//! grants alone limit payload; elsewhere the model does. It enters LAN mode where the shortest round trip is below 1 ms
//! and no sign of congestion was seen for the quarantine. It leaves LAN mode at once for loss of more than 0.5 %, or
//! for a standing queue, and each such error doubles the quarantine. A longer round trip ends LAN mode without
//! quarantine.

use super::{Congestion, GrantsOnly, Model, Sample};
use crate::time::Instant;
use core::time::Duration;

/// Paths with a shorter round trip are taken for a LAN: a grant fills them many times over. With interrupt moderation
/// or busy hosts, many LANs take more than half of this. If only some connections of one port were in LAN mode, their
/// queues would delay the confirmations that guide the model of the others.
pub(crate) const LAN_RTT: Duration = Duration::from_millis(1);

/// A queue with this round trip that stands for this many rounds and this long rules out a private LAN. An end that is
/// descheduled causes such round trips too, but not continuously: datagrams sent while both ends run are answered at
/// once.
const LAN_QUEUE: Duration = Duration::from_millis(20);
const STANDING_ROUNDS: u32 = 3;
const STANDING: Duration = Duration::from_millis(300);

/// Payload that may be lost on a LAN, parts per thousand. More means that a queue overflows, which grants cannot
/// prevent.
const LAN_LOSS_PERMILLE: u64 = 5;

/// Payload over which loss is judged, bytes: enough to keep one lost burst of 64 KiB below the limit.
const JUDGED_BYTES: u64 = 16 << 20;

/// Time without signs of congestion after which a short path is taken for a LAN again: the lifetime of the shortest
/// round trip. Doubles with each error, six times at most.
const QUARANTINE: Duration = Duration::from_secs(10);
const MAX_QUARANTINE: Duration = Duration::from_secs(640);

/// [`GrantsOnly`] while the path is short, loses next to nothing and has no long queue; [`Model`] otherwise, and before
/// anything is known.
#[derive(Clone, Debug)]
pub(crate) struct Auto {
    /// Controls a path that is not a LAN.
    model: Model,
    is_lan: bool,
    /// Time of the last sign of congestion, and how long it counts.
    congested: Option<Instant>,
    quarantine: Duration,
    /// The shortest round trip, once known.
    rtt: Option<Duration>,
    received: u64,
    lost: u64,
    /// Since when, and for how many rounds, every sample has shown a long queue.
    queued: Option<(Instant, u32)>,
}

impl Default for Auto {
    fn default() -> Auto {
        Auto {
            model: Model::default(),
            is_lan: false,
            congested: None,
            quarantine: QUARANTINE,
            rtt: None,
            received: 0,
            lost: 0,
            queued: None,
        }
    }
}

impl Auto {
    /// Whether it behaves as [`GrantsOnly`].
    #[cfg(test)]
    pub(crate) fn is_lan(&self) -> bool {
        self.is_lan
    }

    fn chosen(&self) -> &dyn Congestion {
        if self.is_lan {
            &GrantsOnly
        } else {
            &self.model
        }
    }

    fn choose_model(&mut self, now: Instant, sample: &Sample) {
        self.rtt = Some(sample.min_rtt);
        self.received += sample.received;
        self.queued = (sample.rtt > LAN_QUEUE).then(|| {
            let (since, rounds) = self.queued.unwrap_or((now, 0));
            (since, rounds + u32::from(sample.round))
        });
        let stands = |(since, rounds)| now - since >= STANDING && rounds >= STANDING_ROUNDS;
        let lossy = self.is_lossy();
        if self.received >= JUDGED_BYTES || lossy {
            (self.received, self.lost) = (0, 0);
        }
        if lossy || self.queued.is_some_and(stands) {
            self.leave_lan(now);
        } else if sample.min_rtt >= LAN_RTT {
            if self.is_lan {
                self.model.on_new_path(Some(sample.min_rtt));
            }
            self.is_lan = false;
        } else if self.congested.is_none_or(|at| now - at > self.quarantine) {
            self.is_lan = true;
        }
    }

    /// Whether the path lost more than a LAN does.
    fn is_lossy(&self) -> bool {
        self.lost * 1000 > self.received.max(JUDGED_BYTES) * LAN_LOSS_PERMILLE
    }

    fn leave_lan(&mut self, now: Instant) {
        if self.is_lan {
            self.is_lan = false;
            self.model.on_new_path(self.rtt);
            if self.congested.is_some() {
                self.quarantine = (self.quarantine * 2).min(MAX_QUARANTINE);
            }
        }
        self.congested = Some(now);
    }
}

impl Congestion for Auto {
    fn name(&self) -> &'static str {
        if self.is_lan {
            "auto: lan"
        } else {
            "auto: model"
        }
    }
    fn window(&self) -> u64 {
        self.chosen().window()
    }
    fn pace(&self) -> Option<u64> {
        self.chosen().pace()
    }
    fn quantum(&self) -> u64 {
        self.chosen().quantum()
    }
    fn catch_up(&self) -> Duration {
        self.chosen().catch_up()
    }
    fn ack_request_interval(&self) -> u64 {
        self.chosen().ack_request_interval()
    }
    fn wants_marks(&self) -> bool {
        self.chosen().wants_marks()
    }
    fn on_progress(&mut self, now: Instant, sample: &Sample) {
        self.choose_model(now, sample);
        if !self.is_lan {
            self.model.on_progress(now, sample);
        }
    }
    fn on_lost(&mut self, now: Instant, bytes: u64) {
        self.lost += bytes;
        // With nearly everything lost, no answer would come to report it.
        if self.is_lan && self.is_lossy() {
            self.leave_lan(now);
        }
        self.model.on_lost(now, bytes);
    }
    fn on_silence(&mut self, now: Instant) {
        self.model.on_silence(now);
    }
    fn on_new_path(&mut self, rtt: Option<Duration>) {
        *self = Auto {
            rtt,
            ..Auto::default()
        };
        self.is_lan = rtt.is_some_and(|rtt| rtt < LAN_RTT);
        self.model.on_new_path(rtt);
    }
}
