//! Posts memory of a shared pool for messages that nothing was posted for.

use super::Driver;
use super::controls::Controls;
use super::post::{Posted, Report, RequestInfo, open};
use crate::lane::{Lane, Supply};
use crate::memory::{Member, Memory, MemoryWake, ReceivePool, Registry};
use std::sync::Arc;
use zerolane_core::{Connection, Instant, TransferError, TransferId, WorkRequest};

/// The memory of messages to receive: slots for their control, and the connection's part in a pool.
#[derive(Debug, Default)]
pub(super) struct Receives {
    pub(super) controls: Controls,
    pool: Option<Share>,
    /// Called when there may be memory in the pool. `None`: the driver's own waker.
    wake: Option<Wake>,
}

struct Wake(MemoryWake);

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wake").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Share {
    member: Member,
    /// Receives posted in this turn, which the driver does not know yet.
    posted: Vec<(TransferId, Posted)>,
    /// The last receive, and the number of the operation that it was posted for.
    last: Option<(TransferId, u32)>,
}

impl Supply for Receives {
    fn supply(&mut self, now: Instant, core: &mut Connection, memory: &mut Registry) {
        let Some(share) = &mut self.pool else { return };
        let Some(slot) = self.controls.take(memory) else {
            return;
        };
        let Some((region, context)) = share.member.take() else {
            return self.controls.give_back(Some(slot));
        };
        let request = WorkRequest::ReceiveMessage {
            control: self.controls.span(slot),
        };
        let span = open(memory, &region, &request);
        let number = core.next_operation();
        match core.post(now, request, span) {
            Ok(id) => {
                let report = Report {
                    signalled: true,
                    context,
                };
                let info = RequestInfo {
                    control: Some(slot),
                    ..RequestInfo::of(&request, report)
                };
                let posted = Posted {
                    region: Some(span.region),
                    len: span.len,
                    memory: Some(region.into()),
                    pooled: true,
                    ..Posted::without_memory(info)
                };
                share.posted.push((id, posted));
                share.last = Some((id, number));
            }
            Err(_) => {
                memory.close(span.region);
                self.controls.give_back(Some(slot));
                share.member.on_message_over();
                share.member.pool().give_back(region, context);
            }
        }
    }
}

impl Receives {
    /// What a turn takes receives from. `None`: nothing, because no pool is shared.
    pub(super) fn supplier(&mut self) -> Option<&mut dyn Supply> {
        match self.pool {
            Some(_) => Some(self),
            None => None,
        }
    }

    /// Gives memory back to the pool, if it came from there and the program has not seen it.
    pub(super) fn give_back(&self, pooled: bool, memory: Option<Memory>, context: u64) {
        if let (true, Some(share)) = (pooled, &self.pool)
            && let Some(region) = memory.and_then(Memory::into_region)
        {
            share.member.pool().give_back(region, context);
        }
    }

    /// A message that has memory of the pool is over.
    pub(super) fn on_message_over(&mut self) {
        if let Some(share) = &mut self.pool {
            share.member.on_message_over();
        }
    }

    /// Whether a deferred message may have memory now.
    pub(super) fn may_take(&self) -> bool {
        self.pool.as_ref().is_some_and(|it| it.member.may_take())
    }

    /// The connection is over.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(share) = &mut self.pool {
            share.member.stop_waiting();
        }
    }
}

/// Whether a receive failed before a message used its memory, or because there will be none.
pub(super) fn is_unused(result: &Result<u64, TransferError>) -> bool {
    use TransferError::{Cancelled, Closed, Finished};
    matches!(result, Err(Closed(_) | Cancelled | Finished))
}

impl<L: Lane> Driver<L> {
    /// Takes memory of `pool` for messages that no posted receive matches, from now on. Memory that no message used
    /// returns to the pool. False if the connection shares another pool, which it keeps.
    pub fn share_receives(&mut self, pool: &ReceivePool) -> bool {
        if let Some(share) = &self.receives.pool {
            return share.member.pool() == pool;
        }
        self.receives.pool = Some(Share {
            member: pool.join(self.memory_wake()),
            posted: Vec::new(),
            last: None,
        });
        true
    }

    /// The pool that it shares.
    pub fn receive_pool(&self) -> Option<&ReceivePool> {
        let share = self.receives.pool.as_ref();
        share.map(|share| share.member.pool())
    }

    /// Sets what is called, from any thread, when the connection needs a turn because there may be memory in its pool.
    /// `None`: that ends a sleep of this driver, as it does unless set.
    pub fn set_memory_wake(&mut self, wake: Option<MemoryWake>) {
        self.receives.wake = wake.map(Wake);
        let wake = self.memory_wake();
        if let Some(share) = &mut self.receives.pool {
            share.member.set_wake(wake);
        }
    }

    fn memory_wake(&self) -> MemoryWake {
        let waker = self.waker.clone();
        match &self.receives.wake {
            Some(Wake(wake)) => Arc::clone(wake),
            None => Arc::new(move || waker.nudge()),
        }
    }

    /// Takes memory for a message that was deferred, if there is some now.
    pub(super) fn supply_deferred(&mut self) {
        let Some(share) = &mut self.receives.pool else {
            return;
        };
        if self.core.wants_receive() {
            let now = self.clock.now();
            self.receives.supply(now, &mut self.core, &mut self.memory);
            self.note_supplied();
        } else if share.member.waits() {
            share.member.stop_waiting();
        }
    }

    /// Records the receives that a turn posted.
    pub(super) fn note_supplied(&mut self) {
        if let Some(share) = &mut self.receives.pool {
            self.posted.extend(share.posted.drain(..));
        }
    }

    /// Cancels a receive whose message will not come: its sender cancelled it while it was deferred.
    pub(super) fn take_back_unmatched(&mut self) {
        let Some(share) = &mut self.receives.pool else {
            return;
        };
        if let Some((id, number)) = share.last
            && number != self.core.next_operation()
        {
            share.last = None;
            let now = self.clock.now();
            self.core.cancel_unmatched(now, id);
        }
    }
}
