//! Numbered operations on their way out: which leave next, and their bytes.

use super::NOTHING;
use crate::connection::Connection;
use crate::exports::MESSAGES;
use crate::timers::Timer;
use crate::transmit::Outgoing;
use crate::work::{Task, Work};
use crate::{Atomic, BurstLimit, Instant, Life, OperationBurst, RemotePlace, TransferId, Transmit};
use zerolane_wire::{FetchOp, Flags, Header, OPTIONS_LEN, Op, Operation, Packet, Profile};

impl Connection {
    /// The numbered operations that leave next.
    pub(in crate::connection) fn next_operations(
        &mut self,
        now: Instant,
        limit: BurstLimit,
    ) -> Option<Transmit> {
        let stream = &self.memory.stream;
        if !stream.has_unsent() || self.life != Life::Established {
            return None;
        }
        let first = stream.upcoming(0)?;
        let around = self.around();
        let datagram_len = |work: &Work| around + content_len(work);
        let segment = datagram_len(first);
        let carries = !matches!(first.task, Task::Fetch { .. });
        let most = limit.segments.min(limit.bytes / segment).max(1);
        let mut count = 1;
        while count < most {
            let Some(len) = stream.upcoming(count as usize).map(datagram_len) else {
                break;
            };
            if len > segment {
                break;
            }
            count += 1;
            if len < segment {
                break;
            }
        }
        let first = self.memory.stream.take(now, count as usize);
        let at = self.memory.stream.repeat_at(self.recovery.patience());
        self.timers.set_earlier(Timer::Memory, at);
        // Data carries the confirmation of the peer's own operations.
        if carries {
            self.memory.executor.confirmed();
            self.timers.stop(Timer::Confirm);
        }
        Some(Transmit::Operations(OperationBurst {
            count,
            segment,
            first,
        }))
    }

    /// Operation `index` of `burst`; `None` if it is over by now.
    pub fn operation(&self, burst: &OperationBurst, index: u32) -> Option<Outgoing> {
        let number = burst.first.wrapping_add(index);
        let work = self.memory.stream.get(number)?;
        let last = index + 1 == burst.count;
        // Who repeats, waits, or is of the thesis, wants to hear of it at once.
        let press = self.profile == Profile::Classic
            || last && (self.memory.stream.is_repeat(number) || self.is_awaited(burst));
        let header = Header {
            flags: Flags::NONE.with_if(Flags::SEND_STATE, press),
            param: self.memory.executor.expected() as u16,
            d_port: self.route.d_port,
            s_port: self.route.s_port,
            d_key: self.route.d_key,
            sync: number,
            s_id: work.id,
            ..Header::new(Op::Data)
        };
        Some(match work.task {
            Task::Put {
                place,
                span,
                immediate,
            } => {
                let to = self.wire_place(place);
                let shown = match immediate {
                    None => Flags::SILENT,
                    Some(_) => Flags::INTERRUPT,
                };
                let header = Header {
                    flags: header.flags.with_if(shown, true),
                    b_id: to.mx,
                    bufx: to.bufx,
                    offset: to.offset,
                    b_num: immediate.unwrap_or(0),
                    d_id: to.handle,
                    ..header
                };
                Outgoing::data(&header, Some(span).filter(|span| span.len > 0))
            }
            Task::Message { control, payload } => {
                let header = Header {
                    flags: header.flags.with_if(Flags::INTERRUPT, true),
                    d_id: MESSAGES,
                    ..header
                }
                .with_wide(payload.map_or(0, |span| span.len));
                Outgoing::data(&header, Some(control).filter(|span| span.len > 0))
            }
            Task::Fetch { place, atomic } => self.fetch_op(number, work.id, place, atomic),
            Task::Get { .. } | Task::Nothing => {
                let header = Header {
                    flags: header.flags.with_if(Flags::SILENT, true),
                    b_id: NOTHING,
                    d_id: MESSAGES,
                    ..header
                };
                Outgoing::data(&header, None)
            }
        })
    }

    fn is_awaited(&self, burst: &OperationBurst) -> bool {
        (0..burst.count).any(|index| {
            let work = self.memory.stream.get(burst.first.wrapping_add(index));
            work.is_some_and(|work| work.flags.awaited)
        })
    }

    fn fetch_op(
        &self,
        number: u32,
        id: TransferId,
        place: RemotePlace,
        atomic: Atomic,
    ) -> Outgoing {
        let on = self.wire_place(place);
        Outgoing::control(&Packet {
            route: self.route,
            operation: Operation::FetchOp(FetchOp {
                kind: atomic.kind,
                mx: on.mx,
                bufx: on.bufx,
                offset: on.offset,
                handle: on.handle,
                s_id: id,
                sync: number,
                confirmed: self.memory.stream.confirmed(),
                operand: atomic.operand,
                comparand: atomic.comparand,
            }),
        })
    }
}

/// Bytes of the datagram behind its header, and in front of its seal.
fn content_len(work: &Work) -> u32 {
    match work.task {
        Task::Put { span, .. } => span.len as u32,
        Task::Message { control, .. } => control.len as u32,
        Task::Fetch { .. } => OPTIONS_LEN as u32,
        Task::Get { .. } | Task::Nothing => 0,
    }
}
