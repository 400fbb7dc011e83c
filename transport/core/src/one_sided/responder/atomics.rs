//! Orders the peer's atomic operations from the lane, and sends their values.

use super::Responder;
use super::exports::Named;
use super::sequence::NotReady;
use super::serve::Nak;
use crate::context::{Context, Refusal};
use crate::counters::DropReason;
use crate::limits::MAX_VALUES;
use crate::receiving::Receiving;
use crate::request::{Atomic, AtomicRequest};
use crate::timers::Timer;
use crate::transfer::TransferId;
use crate::transmit::ControlDatagram;
use zerolane_wire::{FetchOp, Flags, Header, Op, Reason, Rights};

/// The atomic operation that the lane must execute now.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAtomic {
    order: AtomicRequest,
    id: TransferId,
}

impl Responder {
    pub(crate) fn on_fetch_op(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        it: &FetchOp,
    ) -> Result<(), DropReason> {
        if let Some(value) = self.sequence.value(it.sync, it.s_id) {
            self.answer_value(it.sync, it.s_id, value);
            return Err(DropReason::Duplicate);
        }
        // It has no SEND_STATE flag; a refusal that was not heard is repeated to any of them.
        self.let_through(cx, receiving, it.sync, self.sequence.is_refusing())?;
        if self.defers {
            let later = Err(Nak::NotReady(NotReady::Room));
            return self.report_refusal(cx, it.s_id, later);
        }
        if !self.sequence.has_room(it.confirmed) || self.pending_atomic.is_some() {
            return Err(DropReason::Limit);
        }
        // A word of 32 bits is changed as a part of 8 bytes, which must lie in the region.
        let skip = it.offset % 8;
        let place = Named {
            handle: it.handle,
            mx: it.mx,
            bufx: it.bufx,
            offset: it.offset - skip,
        };
        let checked = self
            .exports
            .check(place, 8, Rights::ATOMIC, cx.buffer_log2());
        match checked {
            Ok((word, _)) => {
                let atomic = Atomic {
                    kind: it.kind,
                    word: it.word,
                    operand: it.operand,
                    comparand: it.comparand,
                };
                self.pending_atomic = Some(PendingAtomic {
                    order: AtomicRequest {
                        word,
                        skip: skip as usize,
                        atomic,
                    },
                    id: it.s_id,
                });
                Ok(())
            }
            Err(reason) => {
                self.refuse_numbered(cx, it.s_id, Refusal::because(reason));
                Err(DropReason::NoGrant)
            }
        }
    }

    /// The atomic operation that the lane must execute now.
    pub(crate) fn pending_atomic(&self) -> Option<AtomicRequest> {
        self.pending_atomic.map(|ordered| ordered.order)
    }

    /// Completes the atomic operation with the word's previous value, or `None` if the word was inaccessible.
    pub(crate) fn on_atomic_done(&mut self, cx: &mut Context, before: Option<u64>) {
        let Some(PendingAtomic { id, .. }) = self.pending_atomic.take() else {
            return;
        };
        let number = self.sequence.expected();
        match before {
            Some(value) => {
                self.sequence.fetched(cx.now, id, value);
                self.executed(cx);
                self.answer_value(number, id, value);
            }
            None => self.refuse_numbered(cx, id, Refusal::because(Reason::MemoryFault)),
        }
    }

    pub(super) fn answer_value(&mut self, number: u32, id: TransferId, value: u64) {
        if self.values.len() < MAX_VALUES {
            self.values.push_back((number, id, value));
        }
    }

    /// The atomic operation's value that leaves next.
    pub(crate) fn next_value(&mut self, cx: &mut Context) -> Option<ControlDatagram> {
        let (number, id, value) = self.values.pop_front()?;
        self.sequence.confirmed();
        cx.timers.stop(Timer::DelayedAck);
        let header = Header {
            flags: Flags::MEMORY,
            param: self.sequence.expected() as u16,
            d_port: cx.route.d_port,
            s_port: cx.route.s_port,
            d_key: cx.route.d_key,
            sync: number,
            d_id: id,
            ..Header::new(Op::Data)
        };
        Some(ControlDatagram::value(header, value, cx.uses_checksums()))
    }
}
