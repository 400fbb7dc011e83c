//! Decides how much payload may leave now, under congestion control, and sends it as numbered bursts.

use super::Sending;
use super::outbound::{Announcement, BareMessage, NextBurst, Outbound, OutboundState, Shape};
use crate::congestion::Congestion;
use crate::context::{Context, Debt};
use crate::limits;
use crate::profile::Conduct;
use crate::timers::Timer;
use crate::transfer::TransferId;
use crate::transmit::{BurstLimit, DataBurst};
use alloc::vec::Vec;
use core::mem::replace;
use core::time::Duration;
use zerolane_wire::{Operation, RequestState};

impl Sending {
    /// The next burst of waiting payload that the selected path may carry. `answering`: answers to Gets wait as well.
    pub(crate) fn next_burst(
        &mut self,
        cx: &mut Context,
        limit: BurstLimit,
        answering: bool,
    ) -> Option<DataBurst> {
        let shape = self.controlled_shape(cx, limit)?;
        let next = self.outbox.next_burst(cx.now, cx.links.selected, &shape);
        self.leave(cx, next, answering)
    }

    /// The first burst of the payload of `message`, as a bare message. `None` if the payload must wait: then the
    /// message leaves without it.
    pub(crate) fn next_message(
        &mut self,
        cx: &mut Context,
        limit: BurstLimit,
        message: &BareMessage,
        answering: bool,
    ) -> Option<DataBurst> {
        if !self.outbox.is_next(message.id) {
            return None;
        }
        let shape = self.controlled_shape(cx, limit)?;
        let path = cx.links.selected;
        let next = self.outbox.next_message(cx.now, path, &shape, message);
        self.leave(cx, next, answering)
    }

    /// Counts a departing burst, and sets the timers for its answer.
    fn leave(
        &mut self,
        cx: &mut Context,
        next: Option<NextBurst>,
        answering: bool,
    ) -> Option<DataBurst> {
        if !self.outbox.has_data() {
            let wait = probe_timeout(cx);
            cx.timers.set(Timer::ProbeTimeout, cx.now + wait);
        }
        let mut next = next?;
        let len = next.burst.span.len;
        let id = next.transfer();
        if let Some(transfer) = self.outbox.get_mut(id)
            && transfer.in_advance
        {
            // Its confirmation shows that the announcement was heard, and follows the payload.
            transfer.resend_at = cx.now + cx.recovery.control_timeout();
            let announcement = replace(&mut transfer.announcement, Announcement::Sent);
            // Payload with an unexpected grant may leave before its announcement.
            if announcement != Announcement::Sent && !next.announce(announcement) {
                self.send_announcement(cx, id);
            }
        }
        cx.counters.bytes_sent += len;
        match next.repair {
            true => cx.counters.bytes_resent += len,
            false => self.left += len,
        }
        self.on_departed(cx, len, answering);
        Some(next.burst)
    }

    /// The shape of a payload burst that leaves now. `None`: the congestion controller forbids it.
    pub(crate) fn controlled_shape(
        &mut self,
        cx: &mut Context,
        limit: BurstLimit,
    ) -> Option<Shape> {
        let bytes = self.allowance(cx)?.min(limit.bytes.into()) as u32;
        Some(Shape {
            ask: self.asks_progress(cx),
            ..shape(cx, BurstLimit { bytes, ..limit })
        })
    }

    /// Numbers a burst of `len` bytes that answers a Get, identified by `id`, `b_num` and `start`. Returns the number.
    pub(crate) fn number_answer(
        &mut self,
        cx: &mut Context,
        (id, b_num, start): (TransferId, u32, u32),
        len: u64,
        answering: bool,
    ) -> u32 {
        cx.links.on_answering(cx.now);
        let sent_log = &mut self.outbox.sent_logs[cx.links.selected];
        let number = sent_log.next_number();
        sent_log.on_sent(cx.now, id, b_num, start, len as u32);
        self.on_departed(cx, len, answering);
        number
    }

    /// A numbered burst of `len` bytes leaves.
    pub(super) fn on_departed(&mut self, cx: &mut Context, len: u64, answering: bool) {
        let all = !self.outbox.has_data() && !self.has_datagrams() && !answering;
        let rests = all && !self.waits_for_grants();
        let sent_log = &mut self.outbox.sent_logs[cx.links.selected];
        if all {
            sent_log.on_app_limited();
        }
        cx.counters.records_dropped += sent_log.take_forgotten();
        let path = &mut self.paths[cx.links.selected];
        path.pacer.sent(cx.now, len, &path.congestion);
        if rests {
            path.pacer.mark_idle();
        }
        cx.watch_payload();
    }

    /// There is nothing to send. If the selected path would carry more, its last burst was application-limited: the
    /// other paths took the rest.
    pub(crate) fn on_path_idle(&mut self, cx: &Context) {
        let selected = cx.links.selected;
        let (Some(path), Some(sent_log)) = (
            self.paths.get(selected),
            self.outbox.sent_logs.get_mut(selected),
        ) else {
            return;
        };
        if path.congestion.window() > sent_log.bytes_in_flight() && path.pacer.next() <= cx.now {
            sent_log.on_app_limited();
        }
    }

    /// Whether the peer is expected to grant more queued payload. A missing grant may be due to lateness of either end.
    fn waits_for_grants(&self) -> bool {
        self.outbox.iter().any(|(_, it)| it.waits_for_grants())
    }

    /// Bytes, headers included, that the congestion controller allows now. If none, a timer or an answer of the
    /// receiver tells when.
    fn allowance(&mut self, cx: &mut Context) -> Option<u64> {
        let stu = u64::from(cx.stu());
        let pair = 2 * stu;
        let path = &self.paths[cx.links.selected];
        let in_flight = self.outbox.sent_logs[cx.links.selected].bytes_in_flight();
        let room = path.congestion.window().saturating_sub(in_flight);
        // A single STU costs as much as a burst. Something may always be in flight.
        if room < pair && in_flight > 0 {
            let wait = probe_timeout(cx);
            cx.timers.set_earlier(Timer::ProbeTimeout, cx.now + wait);
            return None;
        }
        let next = path.pacer.next();
        if path.congestion.pace().is_some() && next > cx.now {
            match cx.links.is_several() {
                true => cx.timers.set_earlier(Timer::Pace, next),
                false => cx.timers.set(Timer::Pace, next),
            }
            return None;
        }
        let bytes = room.min(path.congestion.quantum()).max(pair);
        // Without a controller both may be as large as a number can be.
        let headers = (bytes / stu).saturating_mul(cx.overhead().into());
        Some(bytes.saturating_add(headers))
    }

    /// Whether as much is in flight as datagrams may have without a pace. Then an answer or a timer tells when there is
    /// room.
    pub(super) fn is_flight_full(&self, cx: &mut Context) -> bool {
        let selected = cx.links.selected;
        let paced = self.paths[selected].congestion.pace().is_some();
        let in_flight = self.outbox.sent_logs[selected].bytes_in_flight();
        let full = !paced && in_flight >= most_flight(cx);
        if full {
            let wait = probe_timeout(cx);
            cx.timers.set_earlier(Timer::ProbeTimeout, cx.now + wait);
        }
        full
    }

    /// Whether a burst of datagrams must ask for progress although it need not by the controller: otherwise nothing
    /// would tell of the last ones in flight.
    pub(super) fn is_half_full(&self, cx: &Context) -> bool {
        let selected = cx.links.selected;
        let window = self.paths[selected]
            .congestion
            .window()
            .min(most_flight(cx));
        self.outbox.sent_logs[selected].bytes_in_flight() >= window / 2
    }

    /// Whether the next burst must ask the receiver for its progress.
    fn asks_progress(&mut self, cx: &Context) -> bool {
        if !cx.profile.reports_progress() {
            return false;
        }
        let selected = cx.links.selected;
        let interval = match cx.recovery_of(selected).is_known() {
            true => self.paths[selected].congestion.ack_request_interval(),
            false => 0,
        };
        // With several paths, bytes in flight decide how much each carries. Asks twice as often, because an answer may
        // be lost.
        let interval = match cx.links.is_several() {
            true => interval.min(limits::PATH_LEAD / 2),
            false => interval,
        };
        self.outbox.sent_logs[selected].asks_progress(interval)
    }

    /// All granted payload was sent, and nothing is heard: asks about the Transfers. `silent`: the peer was not heard
    /// for a payload timeout; `answering`: answers to Gets wait.
    pub(crate) fn on_probe_timeout(&mut self, cx: &mut Context, silent: bool, answering: bool) {
        let open = |it: &Outbound| it.state == OutboundState::Sending;
        let sent = |it: &Outbound| open(it) || it.is_eager() || it.in_advance;
        let others = answering || self.has_datagrams();
        if !others && !self.outbox.iter().any(|(_, it)| sent(it)) {
            return;
        }
        if others || self.outbox.has_data() {
            self.give_up_flight(cx);
        }
        if !self.outbox.has_data() {
            let asked: Vec<(TransferId, u32, u32)> = self
                .outbox
                .iter()
                .filter(|(_, it)| it.all_sent() || open(it) && silent)
                .map(|(id, it)| (id, it.peer, it.first_open()))
                .take(limits::MAX_STATE_REQUESTS)
                .collect();
            ask_states(cx, &asked);
        }
        let wait = probe_timeout(cx);
        cx.timers.set(Timer::ProbeTimeout, cx.now + wait);
    }

    /// Payload waits without room in the window, and nothing new was seen for long: all payload in flight is gone, and
    /// the path must be learned anew (RFC 9002, 7.6: persistent congestion).
    fn give_up_flight(&mut self, cx: &Context) {
        let of_paths = self.outbox.sent_logs.iter_mut().zip(&mut self.paths);
        for (path, (sent_log, it)) in of_paths.enumerate() {
            let patience = cx.recovery_of(path).data_timeout() * limits::PERSISTENT_TIMEOUTS;
            if sent_log.bytes_in_flight() > 0 && cx.now - sent_log.quiet_since() >= patience {
                sent_log.give_up();
                it.congestion.on_silence(cx.now);
            }
        }
    }
}

/// The shape of a burst without congestion control.
pub(crate) fn shape(cx: &Context, limit: BurstLimit) -> Shape {
    Shape {
        route: cx.route,
        stu: cx.stu(),
        profile: cx.profile,
        buffer_log2: cx.peer_buffer_log2(),
        limit,
        around: cx.overhead(),
        train_around: cx.train_overhead(),
        ask: false,
    }
}

/// Most bytes in flight of datagrams without a pace: what the peer's socket buffer holds, if it is like this end's.
fn most_flight(cx: &Context) -> u64 {
    u64::from(cx.config.window).min(limits::MAX_DATAGRAM_FLIGHT)
}

/// How long to wait for a report of sent payload. The receiver knows what it misses, so it asks first.
fn probe_timeout(cx: &Context) -> Duration {
    match cx.profile.repairs_ranges() {
        true => cx.longest_data_timeout() * 2,
        false => cx.recovery.control_timeout(),
    }
}

fn ask_states(cx: &mut Context, transfers: &[(TransferId, u32, u32)]) {
    if transfers.is_empty() {
        return;
    }
    for &(s_id, d_id, b_num) in transfers {
        let sync = cx.new_sync();
        cx.push_control(Operation::RequestState(RequestState {
            b_num,
            d_id,
            s_id,
            sync,
        }));
    }
    cx.counters.timeouts += 1;
    cx.recovery.back_off();
    cx.owe(Debt::Peer);
}
