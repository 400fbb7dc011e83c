//! Grants Blocks when the window and the other connections leave room.

use super::Receiving;
use super::inbound::{Geometry, Origin, Queue};
use crate::context::{Context, Debt};
use crate::profile::Conduct;
use crate::recovery::Timed;
use crate::request::RemotePlace;
use crate::timers::Timer;
use crate::transmit::split;
use zerolane_wire::{Get, Operation, Range};

impl Receiving {
    /// Grants Blocks as far as the window allows. `expected`: the number of the peer's next operation.
    pub(crate) fn grant(&mut self, cx: &mut Context, expected: u32) {
        self.inbox.expect_operation(expected);
        let Some(geometry) = self.admitted(cx) else {
            self.granted_window = 0;
            return;
        };
        self.granted_window = geometry.window;
        if !self.inbox.grants.has_room() {
            // Advance grants of waiting receives may fill the memory for Blocks.
            self.inbox.revoke_all_advance_grants();
        }
        while let Some(granted) = self.inbox.grant_next(cx.now, &geometry) {
            self.send_grant(cx, granted.sequence);
            if self.inbox.grants.is_only(granted.sequence) {
                cx.recovery.time(Timed::Grant(granted.transfer), cx.now);
            }
            let due = cx.now + cx.recovery.data_timeout();
            cx.timers.set_earlier(Timer::Payload, due);
            cx.owe(Debt::Peer);
            self.repeat_overdue_grants(cx);
        }
        self.grant_in_advance(cx, &geometry);
        if self.inbox.ungranted() > 0 && !self.inbox.grants.has_room() {
            cx.counters.grants_deferred += 1;
        }
    }

    /// Grants to unmatched receives, if both ends support it and no other connection wants the room: unannounced
    /// Transfers have no turn among them.
    fn grant_in_advance(&mut self, cx: &mut Context, geometry: &Geometry) {
        if geometry.window < self.receive_window.window() {
            return;
        }
        let mut granted = false;
        let known = [
            (Queue::Receives, cx.gives_advance_grants()),
            (Queue::Messages, cx.gives_advance_to_messages()),
        ];
        for (queue, _) in known.into_iter().filter(|it| it.1) {
            while let Some(sequence) = self.inbox.grant_in_advance(cx.now, queue, geometry) {
                cx.counters.granted_in_advance += 1;
                self.send_grant(cx, sequence);
                granted = true;
            }
        }
        if granted {
            self.on_departed(cx);
        }
    }

    /// Whether another Block fits in the window; a quick check.
    pub(super) fn has_room_to_grant(&self, cx: &Context) -> bool {
        let outstanding = self.inbox.grants.outstanding();
        let block = cx.config.block.min(self.granted_window / 2);
        cx.profile.grants_ahead()
            && self.inbox.ungranted() > 0
            && outstanding + u64::from(block) <= u64::from(self.granted_window)
    }

    pub(super) fn geometry(&self, cx: &Context) -> Geometry {
        Geometry {
            profile: cx.profile,
            window: self.receive_window.window(),
            block: cx.config.block,
            block_log2: cx.config.classic_block_log2,
            buffer_log2: cx.buffer_log2(),
            stu: self.expected_stu(cx),
            burst_segments: cx.config.burst_segments,
            around: cx.overhead(),
            train_around: cx.train_overhead(),
            trains: self.trains.are_offered(),
            trial: self.trains.are_on_trial(),
        }
    }

    /// Sends, or repeats, the grant of a Block: a Clear_To_Send, or the Get that asks for it.
    pub(super) fn send_grant(&mut self, cx: &mut Context, sequence: u32) {
        if let Some(get) = self.get_block(cx, sequence) {
            cx.counters.grants_sent += 1;
            cx.push_control(Operation::Get(get));
        } else if let Some(cts) = self.inbox.clear_to_send(sequence, &self.geometry(cx)) {
            cx.counters.grants_sent += 1;
            cx.push_control(Operation::ClearToSend(cts));
        }
    }

    /// Whether Gets ask for a Block.
    pub(super) fn is_got(&self, sequence: u32) -> bool {
        let block = self.inbox.grants.get(sequence);
        let transfer = block.and_then(|block| self.inbox.get(block.transfer));
        transfer.is_some_and(|it| matches!(it.origin, Origin::Got { .. }))
    }

    /// The Get that grants a Block, if its Transfer is a Get's.
    fn get_block(&self, cx: &Context, sequence: u32) -> Option<Get> {
        let len = self.inbox.grants.get(sequence)?.len();
        self.get_part(cx, sequence, Range { start: 0, len })
    }

    fn get_part(&self, cx: &Context, sequence: u32, range: Range) -> Option<Get> {
        let block = self.inbox.grants.get(sequence)?;
        let Origin::Got { place, after } = self.inbox.get(block.transfer)?.origin else {
            return None;
        };
        let skip = block.transfer_offset + u64::from(range.start);
        let from = cx.wire_place(RemotePlace {
            address: place.address + skip,
            ..place
        });
        let landing = block.address + u64::from(range.start);
        let (return_bufx, return_offset) = split(landing, cx.buffer_log2());
        Some(Get {
            mx: from.mx,
            bufx: from.bufx,
            offset: from.offset,
            handle: from.handle,
            s_id: block.transfer,
            return_mx: block.mx,
            return_bufx,
            return_offset,
            length: range.len,
            after,
            b_num: block.b_num,
            numbered: cx.profile.numbers_gets(),
            repeated: false,
            trains: block.trains,
        })
    }

    /// Sends Gets for the missing ranges of a Block. Where nothing of it came, the Get itself may be lost or not yet
    /// answered: that is no payload loss.
    pub(super) fn get_ranges(&mut self, cx: &mut Context, sequence: u32, missing: &[Range]) {
        let block = self.inbox.grants.get(sequence);
        let repeated = block.is_some_and(|block| block.reached > 0);
        for &range in missing {
            if let Some(get) = self.get_part(cx, sequence, range) {
                cx.counters.reports_sent += 1;
                cx.push_control(Operation::Get(Get {
                    repeated,
                    trains: false,
                    ..get
                }));
            }
        }
    }
}
