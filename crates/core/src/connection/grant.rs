//! Blocks granted, as far as the window and the other connections allow.

use super::Connection;
use crate::Instant;
use crate::inbound::Geometry;
use crate::recovery::Timed;
use crate::timers::Timer;
use zerolane_wire::{Operation, Profile};

impl Connection {
    /// Grants Blocks as far as the window allows.
    pub(super) fn grant(&mut self, now: Instant) {
        let Some(geometry) = self.admitted(now) else {
            self.granted_window = 0;
            return;
        };
        self.granted_window = geometry.window;
        while let Some(granted) = self.inbox.grant_next(now, &geometry) {
            self.send_grant(granted.sequence);
            if self.inbox.grants.is_only(granted.sequence) {
                self.recovery.time(Timed::Grant(granted.transfer), now);
            }
            self.timers
                .set_earlier(Timer::Payload, now + self.recovery.data_timeout());
            self.expect_peer(now);
            self.repeat_overdue_grants(now);
        }
        if self.inbox.ungranted() > 0 && !self.inbox.grants.has_room() {
            self.counters.grants_held += 1;
        }
    }

    /// Whether another Block fits in the window, at a glance.
    pub(super) fn has_room_to_grant(&self) -> bool {
        let outstanding = self.inbox.grants.outstanding();
        let block = self.config.block.min(self.granted_window / 2);
        self.profile == Profile::Extended
            && self.inbox.ungranted() > 0
            && outstanding + u64::from(block) <= u64::from(self.granted_window)
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            profile: self.profile,
            window: self.credit.window(),
            block: self.config.block,
            block_log2: self.config.classic_block_log2,
            buffer_log2: self.buffer_log2(),
            stu: self.expected_stu(),
            burst_segments: self.config.burst_segments,
            around: self.around(),
        }
    }

    pub(super) fn send_grant(&mut self, sequence: u32) {
        if let Some(get) = self.get_block(sequence) {
            self.counters.grants_sent += 1;
            self.push_control(Operation::Get(get));
        } else if let Some(cts) = self.inbox.clear_to_send(sequence, &self.geometry()) {
            self.counters.grants_sent += 1;
            self.push_control(Operation::ClearToSend(cts));
        }
    }
}
