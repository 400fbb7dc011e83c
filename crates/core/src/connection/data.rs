//! Payload headers in, placements out. The hot path.

use super::Connection;
use crate::inbound::Happening;
use crate::recovery::Timed;
use crate::{Delivery, DropReason, Event, Instant, Life, Placement, Span, TransferId};
use zerolane_wire::{Flags, Header, Op, Operation, Profile, Range, Ranges, State};

impl Connection {
    /// Takes the header of a Data operation whose payload has `len` bytes, and says where the
    /// payload belongs. Consecutive STUs that continue each other ([`continues`]), of which only the
    /// last may be shorter, may be shown as one run: `header` and `stu` (payload bytes) are the
    /// first one's, `len` is the sum.
    ///
    /// `landed` is where the payload lies already, if it was placed by forecast. The lane moves
    /// payload as told before it polls events or transmits.
    ///
    /// [`continues`]: Header::continues
    pub fn on_data(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
        stu: u32,
        landed: Option<Span>,
    ) -> Placement {
        let stus = len.div_ceil(stu.max(1)).max(1);
        self.counters.stus_received += u64::from(stus);
        match self.accept(now, header, len, stu) {
            Ok(span) if landed == Some(span) => Placement::InPlace,
            Ok(span) => {
                self.moved += span.len;
                Placement::Move(span)
            }
            Err(reason) => {
                self.counters.count_drop(reason, u64::from(stus));
                Placement::Drop(reason)
            }
        }
    }

    /// Counts a datagram the lane dropped itself: a wrong checksum, or one that it could not open.
    pub fn on_dropped(&mut self, reason: DropReason) {
        self.counters.count_drop(reason, 1);
    }

    fn accept(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Span, DropReason> {
        if header.op != Op::Data {
            return Err(DropReason::Unexpected);
        }
        if header.d_port != self.route.s_port || header.d_key != self.entropy.key {
            return Err(DropReason::WrongKey);
        }
        if self.life != Life::Established {
            return Err(DropReason::Unexpected);
        }
        let accepted = self.inbox.grants.accept(now, header, len)?;
        self.heard(now);
        self.recovery.progress();
        self.recovery.answered(Timed::Grant(header.d_id), now);
        self.counters.bytes_received += u64::from(accepted.new_bytes);
        // The last STU of a Block may be short, and so may a repair; any other shows the size.
        if len > stu || accepted.expected && header.flags.contains(Flags::SILENT) {
            self.peer_stu = stu;
        }
        let transfer = header.d_id;
        self.note_arrival(transfer, header, accepted.new_bytes, accepted.sequence);
        if accepted.block_complete {
            self.inbox.grants.revoke(accepted.sequence);
            self.block_complete(now, header);
        } else if !header.flags.contains(Flags::SILENT) {
            // The Block's last STU is here and others are not.
            self.report(now, accepted.sequence);
        }
        Ok(accepted.span)
    }

    fn note_arrival(&mut self, id: TransferId, header: &Header, new_bytes: u32, sequence: u32) {
        let ends_block = self
            .inbox
            .grants
            .get(sequence)
            .map(|b| b.transfer_offset + u64::from(b.len()));
        let Some(transfer) = self.inbox.get_mut(id) else {
            return;
        };
        transfer.received += u64::from(new_bytes);
        let last_block = ends_block == Some(transfer.span.len);
        if last_block && header.flags.contains(Flags::SEND_STATE) {
            transfer.delivery = delivery(header.flags);
        }
    }

    fn block_complete(&mut self, now: Instant, last: &Header) {
        let id = last.d_id;
        let done = self.inbox.get(id).is_some_and(|t| t.received == t.span.len);
        if done {
            self.transfer_complete(now, id);
        } else if last.flags.contains(Flags::SEND_STATE) {
            self.confirm_block(id, last);
        }
        self.report_overtaken(now);
        self.grant(now);
    }

    /// Answers the SEND_STATE of a Block that is complete (classic profile).
    fn confirm_block(&mut self, id: TransferId, last: &Header) {
        let Some(transfer) = self.inbox.get(id) else {
            return;
        };
        let blocks_complete = self.inbox.blocks_complete(id, transfer);
        let state = State {
            reply_to: Some(last.sync),
            complete: false,
            blocks_complete,
            b_num: last.b_num,
            ..complete(transfer.peer, id, 0)
        };
        self.push_control(Operation::State(state));
    }

    pub(super) fn transfer_complete(&mut self, now: Instant, id: TransferId) {
        let Some(transfer) = self.inbox.end(id, Happening::AllArrived) else {
            return;
        };
        self.push_control(Operation::State(complete(
            transfer.peer,
            id,
            transfer.next_b_num,
        )));
        self.events.push_back(Event::Received {
            id,
            length: transfer.span.len,
            delivery: transfer.delivery,
        });
        self.grant(now);
    }

    /// Reports Blocks that later ones have overtaken and that lack something.
    fn report_overtaken(&mut self, now: Instant) {
        let overtaken: Vec<u32> = self
            .inbox
            .grants
            .iter()
            .take_while(|&(sequence, _)| self.inbox.grants.overtaken(sequence))
            .map(|(sequence, _)| sequence)
            .collect();
        for sequence in overtaken {
            self.report(now, sequence);
        }
    }

    /// Asks for what is missing of a Block, at most once a timeout.
    fn report(&mut self, now: Instant, sequence: u32) {
        let Some(block) = self.inbox.grants.get(sequence) else {
            return;
        };
        if block.reports == 0 || now - block.moved >= self.recovery.data_timeout() {
            self.overtaken += u64::from(block.gaps.missing());
            self.report_now(now, sequence);
        }
    }

    /// Asks for what is missing of a Block.
    pub(super) fn report_now(&mut self, now: Instant, sequence: u32) {
        if self.profile == Profile::Classic {
            return;
        }
        let Some(block) = self.inbox.grants.get_mut(sequence) else {
            return;
        };
        block.reports += 1;
        block.moved = now;
        let (id, b_num, reached, len) = (block.transfer, block.b_num, block.reached, block.len());
        self.recovery.untime(Timed::Grant(id));
        let missing: Vec<Range> = crate::grants::Grants::missing(block, len)
            .take(crate::limits::MAX_STATES_PER_REPORT * zerolane_wire::MAX_RANGES)
            .collect();
        let Some(transfer) = self.inbox.get(id) else {
            return;
        };
        let base = State {
            reply_to: None,
            complete: false,
            unknown: false,
            blocks_complete: self.inbox.blocks_complete(id, transfer),
            b_num,
            reached,
            d_id: transfer.peer,
            s_id: id,
            missing: Ranges::EMPTY,
        };
        for ranges in missing.chunks(zerolane_wire::MAX_RANGES) {
            let mut missing = Ranges::EMPTY;
            for &range in ranges {
                missing.push(range);
            }
            self.counters.reports_sent += 1;
            self.push_control(Operation::State(State { missing, ..base }));
        }
    }
}

fn delivery(flags: Flags) -> Delivery {
    if flags.contains(Flags::SILENT) {
        Delivery::Silent
    } else if flags.contains(Flags::INTERRUPT) {
        Delivery::Interrupt
    } else {
        Delivery::Polled
    }
}

/// The State that confirms a whole Transfer of `blocks` Blocks.
pub(super) fn complete(peer: u32, id: TransferId, blocks: u32) -> State {
    State {
        reply_to: None,
        complete: true,
        unknown: false,
        blocks_complete: blocks,
        b_num: blocks,
        reached: 0,
        d_id: peer,
        s_id: id,
        missing: Ranges::EMPTY,
    }
}
