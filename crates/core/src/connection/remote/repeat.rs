//! What was neither confirmed nor answered in time is sent again.

use crate::connection::Connection;
use crate::timers::Timer;
use crate::{Instant, Life};
use alloc::vec;
use zerolane_wire::{Operation, RequestMemoryRegion};

impl Connection {
    /// Sends again what was neither confirmed nor answered. Operations and questions wait longer each
    /// time by themselves: that waits for other things ran out says nothing of these.
    pub(in crate::connection) fn on_memory_timeout(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        let wait = self.recovery.patience();
        self.repeat_numbered(now, wait);
        self.repeat_questions(now, wait);
        self.repeat_requests(now);
        let stream = &self.memory.stream;
        let numbered = stream.awaits().then(|| stream.repeat_at(wait));
        let requests = self.memory.requests.iter().map(|it| it.ask_at).min();
        let next = [numbered, self.memory.questions.next_repeat(), requests];
        if let Some(at) = next.into_iter().flatten().min() {
            self.timers.set_earlier(Timer::Memory, at);
        }
    }

    fn repeat_numbered(&mut self, now: Instant, wait: core::time::Duration) {
        let stream = &mut self.memory.stream;
        if stream.awaits() && stream.repeat_at(wait) <= now {
            self.counters.timeouts += u64::from(stream.paused.is_none());
            stream.go_back(now);
        }
    }

    fn repeat_questions(&mut self, now: Instant, wait: core::time::Duration) {
        let mut again = vec![];
        for it in self.memory.questions.iter_mut() {
            if it.ask_at <= now {
                it.tries = it.tries.saturating_add(1);
                it.ask_at = now + wait * (1 << it.tries.min(4));
                again.push(it.id);
            }
        }
        self.counters.timeouts += again.len() as u64;
        again.into_iter().for_each(|id| self.ask_question(id));
    }

    fn repeat_requests(&mut self, now: Instant) {
        let wait = self.recovery.control_timeout();
        let mut again = vec![];
        for it in self
            .memory
            .requests
            .iter_mut()
            .filter(|it| it.ask_at <= now)
        {
            it.ask_at = now + wait;
            again.push(Operation::RequestMemoryRegion(RequestMemoryRegion {
                rights: it.rights,
                length: 0,
                s_id: it.id,
                name: it.name,
            }));
        }
        again.into_iter().for_each(|it| self.push_control(it));
    }
}
