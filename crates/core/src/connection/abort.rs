//! Transfers that end before they are complete: cancelled here or by the peer, and the End that
//! says so until it is confirmed.
//!
//! An announcement or a Read that is cancelled keeps its number, and so its slot, until the peer
//! confirmed the End: otherwise a peer that never heard of it would wait for it for ever, and match
//! nothing that comes after.
//!
//! The peer waits for the payload of a message as soon as it has the message. So the End of one that
//! was not granted yet follows its message, and takes an announcement's number if it has none: an End
//! that came first would be forgotten when the wait begins.

use super::Connection;
use crate::inbound::Origin;
use crate::offers::Request;
use crate::outbound::Withdrawn;
use crate::recovery::Timed;
use crate::stream::Stream;
use crate::timers::Timer;
use crate::{DropReason, Event, Instant, OutboundState, TransferError, TransferId};
use crate::{inbound, limits, outbound};
use alloc::vec;
use zerolane_wire::{End, Operation, Reason, Target};

/// An aborted Transfer whose End is not confirmed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    end: End,
    pub(super) resend_at: Instant,
    tries: u32,
    /// Number of the message that it may not overtake.
    follows: Option<u32>,
}

impl Ending {
    /// Whether what it follows was executed.
    pub(super) fn may_leave(&self, stream: &Stream) -> bool {
        self.follows
            .is_none_or(|number| stream.has_executed(number))
    }

    /// Whether a number stays unresolved until the peer confirms.
    fn holds_slot(&self) -> bool {
        self.end.from_source || self.end.d_id == 0
    }
}

impl Connection {
    /// Cancels a posted Transfer. From here on its memory is neither read nor written; its
    /// [`Event::Failed`] follows. False if it is over already.
    pub fn cancel(&mut self, now: Instant, id: TransferId) -> bool {
        self.abort(now, id, Reason::Cancelled, TransferError::Cancelled)
    }

    /// Like [`Connection::cancel`], because the lane found that the Transfer's memory cannot be
    /// accessed (a mapped file that shrank, say).
    pub fn fault(&mut self, now: Instant, id: TransferId) -> bool {
        let error = TransferError::Refused(Reason::MemoryFault);
        self.abort(now, id, Reason::MemoryFault, error)
    }

    fn abort(
        &mut self,
        now: Instant,
        id: TransferId,
        reason: Reason,
        error: TransferError,
    ) -> bool {
        let known = self.abort_outbound(now, id, reason)
            || self.abort_inbound(now, id, reason)
            || self.abort_read(now, id, reason)
            || self.remove_unmatched(id);
        // The payload of a message is a Transfer, and the message itself something else.
        let known = self.abort_work(id) || known;
        if !known {
            return false;
        }
        self.recovery.untime(Timed::Announcement(id));
        self.recovery.untime(Timed::Grant(id));
        self.events.push_back(Event::Failed { id, error });
        self.announce(now);
        self.grant(now);
        self.start_works(now);
        true
    }

    pub(super) fn abort_outbound(&mut self, now: Instant, id: TransferId, reason: Reason) -> bool {
        let Some(transfer) = self.outbox.get(id) else {
            return false;
        };
        let (state, end) = (transfer.state, end_of_source(id, transfer, reason));
        let follows = match transfer.target {
            Target::Message(number) if state != OutboundState::Sending => Some(number),
            _ => None,
        };
        self.outbox.happen(id, outbound::Happening::Cancelled);
        match (state, follows) {
            (OutboundState::Queued, None) => {}
            (OutboundState::Queued, Some(message)) => {
                self.outbox.withdraw(Withdrawn {
                    id,
                    message,
                    reason,
                });
                self.end_withdrawn(now);
            }
            (_, follows) => self.send_end_behind(now, end, follows),
        }
        true
    }

    /// Gives payloads that were cancelled before they were announced numbers, as far as there are
    /// slots, and ends them under those.
    pub(super) fn end_withdrawn(&mut self, now: Instant) {
        let slots = self.peer_slots();
        while let Some((withdrawn, sequence)) = self.outbox.number_withdrawn(slots) {
            let end = End {
                reason: withdrawn.reason,
                from_source: true,
                sequence,
                d_id: 0,
                s_id: withdrawn.id,
            };
            self.send_end_behind(now, end, Some(withdrawn.message));
        }
    }

    pub(super) fn abort_inbound(&mut self, now: Instant, id: TransferId, reason: Reason) -> bool {
        let Some(transfer) = self.inbox.end(id, inbound::Happening::Cancelled) else {
            return false;
        };
        if matches!(transfer.origin, Origin::Got { .. }) {
            return true;
        }
        // What is told who asks later.
        let why = inbound::Refusal { reason, room: 0 };
        self.inbox.refuse(transfer.sequence, why);
        let end = End {
            reason,
            from_source: false,
            sequence: transfer.sequence,
            d_id: transfer.peer,
            s_id: id,
        };
        self.send_end(now, end);
        true
    }

    fn abort_read(&mut self, now: Instant, id: TransferId, reason: Reason) -> bool {
        let Some(read) = self.inbox.reads.remove(id) else {
            return false;
        };
        if let Some(sequence) = read.sequence {
            let end = End {
                reason,
                from_source: false,
                sequence,
                d_id: 0,
                s_id: id,
            };
            self.send_end(now, end);
        }
        true
    }

    pub(super) fn remove_unmatched(&mut self, id: TransferId) -> bool {
        let before = self.inbox.posted.len() + self.offers.queue.len();
        self.inbox.posted.retain(|posted| posted.id != id);
        self.offers.queue.retain(|offer| offer.id != id);
        before != self.inbox.posted.len() + self.offers.queue.len()
    }

    pub(super) fn send_end(&mut self, now: Instant, end: End) {
        self.send_end_behind(now, end, None);
    }

    fn send_end_behind(&mut self, now: Instant, end: End, follows: Option<u32>) {
        if self.endings.len() >= limits::MAX_ENDINGS {
            let expendable = self.endings.iter().position(|it| !it.holds_slot());
            self.endings.remove(expendable.unwrap_or(0));
            self.counters.forgotten += 1;
        }
        self.endings.push_back(Ending {
            end,
            resend_at: now,
            tries: 0,
            follows,
        });
        self.timers.set_earlier(Timer::Answers, now);
        self.expect_peer(now);
    }

    /// Sends the Ends that are due. True if some of them had been sent before.
    pub(super) fn repeat_ends(&mut self, now: Instant) -> bool {
        let resend_at = now + self.recovery.control_timeout();
        let mut repeated = false;
        let mut due = vec![];
        let stream = &self.memory.stream;
        for ending in self.endings.iter_mut() {
            if ending.resend_at > now || !ending.may_leave(stream) {
                continue;
            }
            repeated |= ending.tries > 0;
            ending.tries = ending.tries.saturating_add(1);
            ending.resend_at = resend_at;
            due.push(ending.end);
        }
        for end in due {
            self.push_control(Operation::End(end));
        }
        repeated
    }

    pub(super) fn on_end(&mut self, now: Instant, it: &End) -> Result<(), DropReason> {
        if it.from_source {
            self.on_end_of_source(now, it)?;
        } else if it.d_id == 0 {
            self.on_end_of_read(now, it)?;
        } else if self
            .outbox
            .get(it.d_id)
            .is_some_and(|t| t.peer == 0 || t.peer == it.s_id)
        {
            let error = TransferError::Refused(it.reason);
            self.end_outbound(now, it.d_id, outbound::Happening::EndedByPeer, Some(error));
        }
        // Confirmed even if it means nothing any more: the other end repeats it until then.
        self.push_control(Operation::EndAck(End {
            d_id: it.s_id,
            s_id: it.d_id,
            ..*it
        }));
        Ok(())
    }

    fn on_end_of_source(&mut self, now: Instant, it: &End) -> Result<(), DropReason> {
        let ended = self.inbox.ended_by_peer(it.sequence);
        if let Some(id) = ended.map_err(|_| DropReason::Limit)? {
            let ended = self.inbox.end(id, inbound::Happening::EndedByPeer);
            self.recovery.untime(Timed::Grant(id));
            let ours = |it: inbound::Inbound| !matches!(it.origin, Origin::Region(_));
            if ended.is_some_and(ours) {
                let error = TransferError::Refused(it.reason);
                self.events.push_back(Event::Failed { id, error });
            }
        }
        self.payload_ended(it.s_id, it.reason);
        self.match_announcements(now);
        Ok(())
    }

    /// The peer takes back a Read, of which it may not have heard that it met an offer, nor we of it.
    fn on_end_of_read(&mut self, now: Instant, it: &End) -> Result<(), DropReason> {
        let answer = self
            .outbox
            .iter()
            .find(|(_, t)| t.target == Target::Read(it.s_id));
        if let Some((id, transfer)) = answer {
            // The peer's slot for the announcement is to be closed, heard or not.
            let (state, end) = (transfer.state, end_of_source(id, transfer, it.reason));
            self.outbox.happen(id, outbound::Happening::Cancelled);
            if state != OutboundState::Queued {
                self.send_end(now, end);
            }
            let error = TransferError::Refused(it.reason);
            self.events.push_back(Event::Failed { id, error });
            self.announce(now);
            return Ok(());
        }
        match self.offers.take_back(it.sequence, self.slots()) {
            Request::TooMany => Err(DropReason::Limit),
            Request::Kept | Request::Old => {
                self.match_offers(now);
                Ok(())
            }
        }
    }

    pub(super) fn on_end_ack(&mut self, now: Instant, it: &End) -> Result<(), DropReason> {
        let confirmed = |ending: &Ending| {
            ending.end.from_source == it.from_source
                && ending.end.sequence == it.sequence
                && ending.end.s_id == it.d_id
        };
        let index = self.endings.iter().position(confirmed);
        let ending = index.and_then(|index| self.endings.remove(index));
        let end = ending.ok_or(DropReason::Duplicate)?.end;
        self.recovery.progress();
        if end.from_source {
            self.outbox.resolve(end.sequence);
            self.announce(now);
        } else if end.d_id == 0 {
            self.inbox.reads.resolve(end.sequence);
            self.ask_reads(now);
        }
        Ok(())
    }
}

fn end_of_source(id: TransferId, transfer: &outbound::Outbound, reason: Reason) -> End {
    End {
        reason,
        from_source: true,
        sequence: transfer.sequence,
        d_id: transfer.peer,
        s_id: id,
    }
}
