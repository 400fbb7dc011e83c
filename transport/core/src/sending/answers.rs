//! Handles the receiver's answers about this end's Transfers: grants, progress, missing ranges, refusals.

use super::Sending;
use super::offers::ReadRequest;
use super::outbound::{LossReport, Lost, Outbound, OutboundEvent, OutboundState};
use super::sent_log::{SentBurst, Timing};
use crate::congestion::Congestion;
use crate::congestion::{Lateness, transmission_time};
use crate::context::{Context, Debt, Refusal};
use crate::counters::DropReason;
use crate::event::TransferError;
use crate::limits;
use crate::recovery::Timed;
use crate::timers::Timer;
use crate::transfer::TransferId;
use core::time::Duration;
use zerolane_wire::{
    Answer, ClearToSend, Occasion, Progress, Reason, Report, RequestAnswer, RequestToReceive,
    State, Target,
};

/// How a Transfer of this end ended, as the receiver reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is complete.
    Complete(TransferId),
    /// It failed.
    Failed(TransferId, TransferError),
}

impl Sending {
    /// Takes a grant. `operation`: the number of this end's next operation.
    pub(crate) fn on_clear_to_send(
        &mut self,
        cx: &mut Context,
        it: &ClearToSend,
        operation: u32,
    ) -> Result<(), DropReason> {
        let buffer_log2 = cx.peer_buffer_log2();
        let missing = match it.advance() {
            Some(_) if !cx.takes_advance_grants() => return Err(DropReason::Unexpected),
            Some(advance) => {
                self.outbox
                    .grant_in_advance(cx.now, it, advance, operation, buffer_log2)?;
                LossReport::default()
            }
            None => {
                cx.recovery.answered(Timed::Announcement(it.d_id), cx.now);
                self.outbox.grant(it, cx.profile, buffer_log2)?
            }
        };
        cx.recovery.progress();
        self.on_missing(cx, missing);
        Ok(())
    }

    /// Takes the answer to an announcement: deferred, or refused.
    pub(crate) fn on_announcement_answered(
        &mut self,
        cx: &mut Context,
        it: &RequestAnswer,
    ) -> Result<Option<Ended>, DropReason> {
        cx.recovery.answered(Timed::Announcement(it.d_id), cx.now);
        let id = it.d_id;
        let transfer = self.outbox.get(id).ok_or(DropReason::Unexpected)?;
        let length = transfer.span.len;
        let Answer::Refused(reason) = it.answer else {
            // The path carries announcements and answers, so nothing must back off.
            cx.recovery.progress();
            if transfer.in_advance {
                // The receive is posted, and only the order delays it: asks as before.
                return Ok(None);
            }
            self.outbox.on_event(id, OutboundEvent::AnsweredLater);
            if let Some(transfer) = self.outbox.get_mut(id) {
                transfer.resend_at = cx.now + waiting_interval(cx, transfer);
            }
            return Ok(None);
        };
        let error = match reason {
            Reason::MessageTooLarge => TransferError::MessageTooLarge {
                length,
                room: it.room,
            },
            reason => TransferError::Refused(reason),
        };
        let ended = self.end(cx, id, OutboundEvent::Refused);
        Ok(ended.then_some(Ended::Failed(id, error)))
    }

    /// Takes a Read of the peer.
    pub(crate) fn on_request_to_receive(
        &mut self,
        cx: &mut Context,
        it: &RequestToReceive,
    ) -> Result<(), DropReason> {
        match self.offers.want(it, cx.slots()) {
            ReadRequest::TooMany => return Err(DropReason::Limit),
            ReadRequest::Kept => self.match_offers(cx),
            ReadRequest::Old => {
                // Its Request_To_Send has its own timer. Without one, the offer that the Read matched was cancelled
                // before the peer heard of it.
                let answers = |target: Target| target == Target::Read(it.s_id);
                if self.outbox.iter().all(|(_, t)| !answers(t.target)) {
                    cx.refuse(it.s_id, Refusal::CANCELLED);
                }
            }
        }
        if self.offers.waits(it.sequence) {
            cx.answer_later(it.s_id);
        }
        cx.owe(Debt::Announce);
        Ok(())
    }

    /// Takes the receiver's report about a Transfer.
    pub(crate) fn on_state(
        &mut self,
        cx: &mut Context,
        it: &State,
    ) -> Result<Option<Ended>, DropReason> {
        self.on_seen(cx, it)?;
        if !it.unknown {
            self.outbox.on_heard(it.d_id, it.s_id);
        }
        if matches!(it.report, Report::Progress(_)) && !it.complete {
            return Ok(None);
        }
        let id = it.d_id;
        let known = self.outbox.get(id).ok_or(DropReason::Unexpected)?;
        if known.peer != 0 && it.s_id != 0 && known.peer != it.s_id {
            return Err(DropReason::Unexpected);
        }
        if it.complete {
            let ended = self.end(cx, id, OutboundEvent::Confirmed);
            return Ok(ended.then_some(Ended::Complete(id)));
        }
        if it.unknown {
            // A Transfer still being announced may be unknown because its announcement was lost.
            let lost =
                known.state == OutboundState::Sending && self.end(cx, id, OutboundEvent::Refused);
            let error = TransferError::Refused(Reason::Unknown);
            return Ok(lost.then_some(Ended::Failed(id, error)));
        }
        let ranges = match &it.report {
            Report::Missing(ranges) => ranges.as_slice(),
            Report::Progress(_) => &[],
        };
        if let Some(transfer) = self.outbox.get_mut(id)
            && transfer.is_eager()
        {
            // The announcement was heard, so it need not be repeated now.
            transfer.resend_at = transfer
                .resend_at
                .max(cx.now + cx.recovery.control_timeout());
        }
        let flight_time = |path| cx.recovery_of(path).flight_time();
        let missing = self
            .outbox
            .report(cx.now, it, ranges, cx.stu(), flight_time);
        self.on_missing(cx, missing.ok_or(DropReason::Unexpected)?);
        Ok(None)
    }

    /// Takes the report of which bursts the receiver has seen.
    fn on_seen(&mut self, cx: &mut Context, it: &State) -> Result<(), DropReason> {
        let number = match (it.occasion, &it.report) {
            (Occasion::Seen(number), _) | (Occasion::Reply(number), Report::Progress(_)) => number,
            (Occasion::Reply(_), Report::Missing(_)) => return Ok(()),
        };
        let path = cx.links.of_burst(number);
        let log = self.outbox.sent_logs.get_mut(path);
        let log = log.ok_or(DropReason::Unexpected)?;
        let before = log.seen();
        let sent = log.on_seen(cx.now, number)?;
        let is_new = log.seen() != before;
        let is_short = sent.is_some_and(|it| it.len <= cx.stu() / 2);
        if path == 0 && is_new && !is_short {
            self.outbox.on_long_seen();
        }
        if let Some(sent) = &sent {
            cx.links.on_seen(cx.now, path);
            // All its datagrams were full, so that size passes.
            if sent.len > 0 && sent.len.is_multiple_of(cx.stu()) {
                cx.prove_path(path);
            }
        }
        if let (Some(sent), Report::Progress(progress)) = (sent, &it.report) {
            self.on_progress(cx, path, &sent, progress);
        }
        Ok(())
    }

    fn on_progress(
        &mut self,
        cx: &mut Context,
        path: usize,
        sent: &SentBurst,
        progress: &Progress,
    ) {
        let delay = Duration::from_micros(progress.delay_us.into());
        let elapsed = (cx.now - sent.at).saturating_sub(cx.waited);
        if path == cx.links.control && cx.recovery.doubts(elapsed, delay) {
            cx.ping();
        }
        let rtt = cx.recovery_of(path).less_delay(elapsed, delay);
        if rtt > limits::MAX_RTT {
            return;
        }
        let lateness = self.lateness(cx, path, sent, delay);
        let now = cx.now;
        let recovery = cx.recovery_of_mut(path);
        recovery.sample_with(now, rtt, lateness.sum());
        let timing = Timing {
            rtt,
            min_rtt: recovery.min_rtt().unwrap_or(rtt),
            waited: cx.waited,
            lateness,
        };
        let sent_log = &mut self.outbox.sent_logs[path];
        if let Some(sample) = sent_log.sample(cx.now, sent, progress, timing) {
            let it = &mut self.paths[path];
            it.congestion.on_progress(cx.now, &sample);
            let wanted = it.congestion.wants_marks();
            it.ecn.note(cx.now, wanted, sent.at, cx.stu(), progress);
        }
        self.on_datagram_progress(cx, path, sent, progress);
    }

    /// How late the ends were with the answer to `sent`, which the peer delayed by `delay`. The first STU of a burst
    /// waits for the last while the burst arrives.
    fn lateness(&self, cx: &Context, path: usize, sent: &SentBurst, delay: Duration) -> Lateness {
        let pace = self.paths[path].congestion.pace().unwrap_or(u64::MAX);
        let burst = transmission_time(sent.len.into(), pace);
        Lateness::of(cx.waited, delay.saturating_sub(burst))
    }

    fn on_missing(&mut self, cx: &mut Context, missing: LossReport) {
        cx.counters.count_drop(DropReason::Limit, missing.beyond);
        for (path, &lost) in missing.lost.iter().enumerate() {
            self.on_lost(cx, path, lost);
        }
        if missing.black_hole && cx.path.black_hole() {
            cx.timers.set(Timer::PathProbe, cx.now);
        } else if missing.black_hole || missing.in_vain {
            cx.verify_least_size();
        }
    }

    /// `path` lost payload.
    pub(crate) fn on_lost(&mut self, cx: &mut Context, path: usize, lost: Lost) {
        if lost.bytes > 0
            && let Some(it) = self.paths.get_mut(path)
        {
            it.lost += lost.bytes;
            it.congestion.on_lost(cx.now, lost.dropped);
            cx.doubt_path(path);
        }
    }

    /// Takes the peer's last report of what it received. It is trusted no more than a State's.
    pub(crate) fn on_delivered(&mut self, cx: &mut Context, id: TransferId) -> Option<Ended> {
        let ended = self.end(cx, id, OutboundEvent::Confirmed);
        ended.then_some(Ended::Complete(id))
    }
}

/// How long after a deferral a Transfer asks again. A receive posted later produces a grant, which is repeated until
/// payload comes. If the peer already has the payload, its confirmation comes once and may be lost, so this end asks
/// sooner, and at growing intervals.
pub(super) fn waiting_interval(cx: &Context, transfer: &Outbound) -> Duration {
    let sooner = match transfer.is_eager() {
        true => cx.recovery.patience() * (1 << transfer.tries.min(limits::MAX_ASK_BACKOFF)),
        false => limits::WAITING_INTERVAL,
    };
    sooner.min(limits::WAITING_INTERVAL)
}
