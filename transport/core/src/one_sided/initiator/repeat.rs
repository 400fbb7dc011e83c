//! Repeats one-sided operations that were neither confirmed nor answered in time.

use super::Initiator;
use crate::context::Context;
use crate::timers::Timer;
use alloc::vec::Vec;
use core::time::Duration;
use zerolane_wire::{Operation, RequestMemoryRegion};

impl Initiator {
    /// Repeats unconfirmed operations and unanswered Gets. They have their own back-off: expired waits of other kinds
    /// tell nothing about them.
    pub(crate) fn on_memory_timeout(&mut self, cx: &mut Context) {
        let wait = cx.recovery.patience();
        self.repeat_numbered(cx, wait);
        self.repeat_questions(cx, wait);
        self.repeat_requests(cx);
        let numbered = self
            .send_queue
            .awaits()
            .then(|| self.send_queue.repeat_at(wait));
        let region_requests = self.region_requests.iter().map(|it| it.ask_at).min();
        let next = [numbered, self.gets.next_repeat(), region_requests];
        if let Some(at) = next.into_iter().flatten().min() {
            cx.timers.set_earlier(Timer::Memory, at);
        }
    }

    fn repeat_numbered(&mut self, cx: &mut Context, wait: Duration) {
        if self.send_queue.awaits() && self.send_queue.repeat_at(wait) <= cx.now {
            cx.counters.timeouts += u64::from(self.send_queue.paused.is_none());
            cx.recovery.untime_operation();
            cx.doubt_path(cx.links.control);
            self.go_back(cx);
            if !cx.recovery.is_timing() {
                // The path may have become longer. The confirmation of a repeat does not tell (Karn's algorithm).
                cx.ping();
            }
        }
    }

    /// Repeats the operations that were not executed.
    pub(super) fn go_back(&mut self, cx: &mut Context) {
        self.send_queue.go_back(cx.now);
        if self.send_queue.is_stuck(cx.room()) {
            cx.verify_least_size();
        }
    }

    fn repeat_questions(&mut self, cx: &mut Context, wait: Duration) {
        let due: Vec<_> = self.gets.take_due(cx.now, wait);
        cx.counters.timeouts += due.len() as u64;
        if !due.is_empty() {
            cx.doubt_path(cx.links.control);
            if self.gets.is_stuck(cx.room()) {
                cx.verify_least_size();
            }
        }
        for id in due {
            self.send_question(cx, id);
        }
    }

    fn repeat_requests(&mut self, cx: &mut Context) {
        let now = cx.now;
        let again = now + cx.recovery.control_timeout();
        for it in self
            .region_requests
            .iter_mut()
            .filter(|it| it.ask_at <= now)
        {
            it.ask_at = again;
            cx.push_control(Operation::RequestMemoryRegion(RequestMemoryRegion {
                rights: it.rights,
                length: 0,
                s_id: it.id,
                name: it.name,
            }));
        }
    }
}
