//! Numbered operations on their way out: which leave next, and their bytes.

use super::bare::is_bare;
use super::exports::MESSAGES;
use super::{IMMEDIATE, NOTHING, OneSided};
use crate::context::Context;
use crate::request::{Request, RequestKind};
use crate::timers::Timer;
use crate::transmit::Outgoing;
use crate::{Atomic, BurstLimit, OperationBurst, RemotePlace, TransferId};
use smallvec::SmallVec;
use zerolane_wire::{FetchOp, Flags, Header, OPTIONS_LEN, Op, Operation, Packet, Profile};

impl OneSided {
    /// The numbered operations that leave next.
    pub(crate) fn next_operations(
        &mut self,
        cx: &mut Context,
        limit: BurstLimit,
    ) -> Option<OperationBurst> {
        if !self.send_queue.has_unsent() {
            return None;
        }
        let carries = !matches!(self.send_queue.upcoming(0)?.kind, RequestKind::Fetch { .. });
        let (count, segment) = self.next_count(cx, limit)?;
        let first = self.send_queue.take(cx.now, count as usize);
        if !self.send_queue.is_repeat(first) {
            cx.recovery.time_operation(first, cx.now);
        }
        let at = self.send_queue.repeat_at(cx.recovery.patience());
        cx.timers.set_earlier(Timer::Memory, at);
        let numbers = (0..count).map(|index| first.wrapping_add(index));
        let ask = self.asks_now(numbers.clone());
        let mut operations = SmallVec::with_capacity(count as usize);
        for (ahead, number) in numbers.enumerate() {
            let last = ahead + 1 == count as usize;
            operations.extend(self.operation(cx, number, last && ask));
        }
        if carries {
            self.on_confirmation_left(cx);
        }
        Some(OperationBurst {
            segment,
            operations,
            first,
        })
    }

    /// Data left, which carries the confirmation of the peer's own operations.
    pub(super) fn on_confirmation_left(&mut self, cx: &mut Context) {
        self.responder.confirmed();
        cx.timers.stop(Timer::DelayedAck);
    }

    /// How many operations leave next, and the bytes of each datagram but perhaps the last.
    fn next_count(&self, cx: &Context, limit: BurstLimit) -> Option<(u32, u32)> {
        let overhead = cx.overhead();
        let datagram_len = |request: &Request| overhead + content_len(request);
        let segment = datagram_len(self.send_queue.upcoming(0)?);
        let most = limit.segments.min(limit.bytes / segment).max(1);
        let mut count = 1;
        while count < most {
            let Some(len) = self.send_queue.upcoming(count as usize).map(datagram_len) else {
                break;
            };
            let bare = self
                .send_queue
                .upcoming(count as usize)
                .is_some_and(is_bare);
            if len > segment || bare {
                break;
            }
            count += 1;
            if len < segment {
                break;
            }
        }
        Some((count, segment))
    }

    /// A burst found no room at the lane: it is asked for again.
    pub(crate) fn take_back(&mut self, burst: &OperationBurst) {
        self.send_queue.take_back(burst.first);
    }

    /// Whether a burst is to be confirmed at once: it repeats, or its end is waited for.
    fn asks_now(&self, mut numbers: impl Iterator<Item = u32>) -> bool {
        numbers.any(|number| {
            let awaited = |request: &Request| request.flags.awaited;
            self.send_queue.is_repeat(number) || self.send_queue.get(number).is_some_and(awaited)
        })
    }

    /// Operation `number` on the wire.
    fn operation(&self, cx: &Context, number: u32, ask: bool) -> Option<Outgoing> {
        let request = self.send_queue.get(number)?;
        let ask = ask || cx.profile == Profile::Classic;
        let header = Header {
            flags: Flags::NONE.with_if(Flags::SEND_STATE, ask),
            param: self.responder.expected() as u16,
            d_port: cx.route.d_port,
            s_port: cx.route.s_port,
            d_key: cx.route.d_key,
            sync: number,
            s_id: request.id,
            ..Header::new(Op::Data)
        };
        Some(match request.kind {
            RequestKind::Put {
                place,
                span,
                immediate,
            } => {
                let to = cx.wire_place(place);
                let shown = match immediate {
                    None => Flags::SILENT,
                    Some(_) => Flags::INTERRUPT,
                };
                let (rest, continues) = self.send_queue.run(number);
                let flags = header.flags.with_if(shown, true);
                let header = Header {
                    flags: flags.with_if(Flags::CONTINUES, continues),
                    b_id: to.mx,
                    bufx: to.bufx,
                    offset: to.offset,
                    b_num: immediate.unwrap_or(rest),
                    d_id: to.handle,
                    ..header
                };
                Outgoing::data(&header, Some(span).filter(|span| span.len > 0))
            }
            RequestKind::Message { control, payload } => {
                let header = Header {
                    flags: header.flags.with_if(Flags::INTERRUPT, true),
                    d_id: MESSAGES,
                    ..header
                }
                .with_wide(payload.map_or(0, |span| span.len));
                Outgoing::data(&header, Some(control).filter(|span| span.len > 0))
            }
            RequestKind::Fetch { place, atomic } => {
                self.fetch_op(cx, number, request.id, place, atomic)
            }
            RequestKind::Immediate { value, announced } => {
                let header = Header {
                    flags: header.flags.with_if(Flags::INTERRUPT, true),
                    b_id: IMMEDIATE,
                    bufx: announced,
                    b_num: value,
                    d_id: MESSAGES,
                    ..header
                };
                Outgoing::data(&header, None)
            }
            RequestKind::Get { .. } | RequestKind::Nothing => {
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

    fn fetch_op(
        &self,
        cx: &Context,
        number: u32,
        id: TransferId,
        place: RemotePlace,
        atomic: Atomic,
    ) -> Outgoing {
        let on = cx.wire_place(place);
        Outgoing::control(&Packet {
            route: cx.route,
            operation: Operation::FetchOp(FetchOp {
                kind: atomic.kind,
                mx: on.mx,
                bufx: on.bufx,
                offset: on.offset,
                handle: on.handle,
                s_id: id,
                sync: number,
                confirmed: self.send_queue.confirmed(),
                operand: atomic.operand,
                comparand: atomic.comparand,
            }),
        })
    }
}

/// Bytes of the datagram behind its header, and in front of its seal.
fn content_len(request: &Request) -> u32 {
    match request.kind {
        RequestKind::Put { span, .. } => span.len as u32,
        RequestKind::Message { control, .. } => control.len as u32,
        RequestKind::Fetch { .. } => OPTIONS_LEN as u32,
        RequestKind::Get { .. } | RequestKind::Immediate { .. } | RequestKind::Nothing => 0,
    }
}
