//! Limits payload on each of several paths, and chooses the path that carries it.

use super::Sending;
use super::ecn::EcnValidation;
use super::sent_log::SentLog;
use crate::congestion::{Congestion, GrantsOnly, LAN_RTT, Limited, Pacer, transmission_time};
use crate::context::Context;
use crate::limits::PATH_LEAD;
use crate::links::PathLife;
use alloc::boxed::Box;

/// One path from the sender's side.
#[derive(Debug)]
pub(super) struct SendPath {
    pub(super) congestion: Limited,
    pub(super) pacer: Pacer,
    pub(super) ecn: EcnValidation,
    /// Payload bytes that it lost.
    pub(super) lost: u64,
}

impl SendPath {
    pub(super) fn new(controller: Box<dyn Congestion>, max_rate: Option<u64>) -> SendPath {
        SendPath {
            congestion: Limited {
                controller,
                max_rate,
            },
            pacer: Pacer::default(),
            ecn: EcnValidation::default(),
            lost: 0,
        }
    }
}

impl Sending {
    /// Both ends accept several paths: makes burst numbers identify the path.
    pub(crate) fn number_paths(&mut self, cx: &Context) {
        self.outbox.sent_logs[0] = SentLog::of_path(0, cx.links.path_bits());
    }

    /// Path `path` starts to carry payload, with nothing known of it.
    pub(crate) fn on_path_up(&mut self, cx: &Context, path: usize) {
        while self.paths.len() <= path {
            self.paths.push(SendPath::new(Box::new(GrantsOnly), None));
        }
        while self.outbox.sent_logs.len() <= path {
            let next = self.outbox.sent_logs.len();
            let log = SentLog::of_path(next, cx.links.path_bits());
            self.outbox.sent_logs.push(log);
        }
        let rtt = cx.recovery_of(path).min_rtt();
        let congestion = &mut self.paths[path].congestion;
        if path > 0 {
            congestion.controller = cx.config.control.controller();
        }
        congestion.on_new_path(rtt);
        self.share_max_rate();
    }

    /// Path `path` carries nothing more: retransmits its payload in flight on others.
    pub(crate) fn on_path_down(&mut self, path: usize) {
        self.outbox.abandon(path);
    }

    /// Divides the maximum rate, which holds for all paths together.
    pub(super) fn share_max_rate(&mut self) {
        let paths = self.paths.len() as u64;
        for it in &mut self.paths {
            it.congestion.max_rate = self.max_rate.map(|rate| (rate / paths).max(1));
        }
    }

    /// Whether payload should leave by the selected path now: the path carries, and no other one is better. `answers`:
    /// bytes of waiting answers to Gets, counted up to its argument.
    pub(crate) fn may_carry(&self, cx: &Context, answers: impl Fn(u64) -> u64) -> bool {
        let path = cx.links.selected;
        if !cx.links.is_several() {
            return true;
        }
        let carries = |path| cx.links.life(path) == PathLife::Usable && !cx.links.is_doubted(path);
        if !carries(path) {
            return false;
        }
        let mut others = cx.links.carrying().filter(|&it| it != path && carries(it));
        !others.any(|other| self.is_behind(cx, other, path) || self.is_sooner(cx, other, &answers))
    }

    /// Whether `path` and `other` are LAN paths, `other` has much less in flight, and has room. Otherwise the path
    /// polled first would carry everything granted, because its window is larger than that, or unlimited.
    fn is_behind(&self, cx: &Context, other: usize, path: usize) -> bool {
        let in_flight = |path| self.sent_log(path).bytes_in_flight();
        let is_short = |path: usize| {
            let unpaced = self.paths.get(path)?.congestion.pace().is_none();
            let rtt = cx.recovery_of(path).min_rtt();
            Some(unpaced || rtt.is_some_and(|it| it < LAN_RTT))
        };
        let has_room = |path: usize| {
            let it = self.paths.get(path)?;
            let paced = it.congestion.pace().is_some() && it.pacer.next() > cx.now;
            Some(it.congestion.window() > in_flight(path) && !paced)
        };
        [path, other].iter().all(|&it| is_short(it) == Some(true))
            && in_flight(path) >= in_flight(other) + PATH_LEAD
            && has_room(other) == Some(true)
    }

    /// Whether `other` is shorter than the selected path by more than the transmission time of all remaining payload.
    /// Compares the shortest round trips: an idle path has few samples, and a sample with a late end counts for long.
    fn is_sooner(&self, cx: &Context, other: usize, answers: impl Fn(u64) -> u64) -> bool {
        /// Counting stops here: more makes no difference.
        const MOST: u64 = 1 << 20;
        let sooner = || {
            let pace = self.paths.get(other)?.congestion.pace()?;
            let [own, others] = [cx.links.selected, other].map(|it| cx.recovery_of(it).min_rtt());
            let spare = own?.checked_sub(others?)? / 2;
            let left = self.outbox.unsent(MOST) + answers(MOST);
            Some(left < MOST && transmission_time(left, pace) < spare)
        };
        sooner().unwrap_or(false)
    }
}
