//! Numbered operations on their way out: which leave next, and their bytes.

use super::bare::is_bare;
use super::exports::MESSAGES;
use super::start::max_put;
use super::{IMMEDIATE, NOTHING, OneSided};
use crate::context::Context;
use crate::request::{Request, RequestKind};
use crate::timers::Timer;
use crate::transmit::Outgoing;
use crate::{BurstLimit, OperationBurst, Span};
use smallvec::SmallVec;
use zerolane_wire::{
    FetchOp, Flags, FrameHead, Header, MAX_FRAMES, Op, Operation, Packet, Profile,
};

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
        let carries = !matches!(self.send_queue.upcoming()?.kind, RequestKind::Fetch { .. });
        let first = self.send_queue.next_unsent();
        let mut burst = self.pack(cx, first, limit)?;
        let count = burst.operations.len() as u32;
        let ask = self.asks_now((0..count).map(|index| first.wrapping_add(index)));
        if ask && let Some(opening) = burst.operations.iter_mut().rfind(|it| it.opens()) {
            opening.ask();
        }
        self.take(cx, count as usize);
        if !self.send_queue.is_repeat(first) {
            cx.recovery.time_operation(first, cx.now);
        }
        if carries {
            self.on_confirmation_left(cx);
        }
        Some(burst)
    }

    /// Puts operations from `first` on into datagrams that leave together.
    fn pack(&self, cx: &Context, first: u32, limit: BurstLimit) -> Option<OperationBurst> {
        let mut operations = SmallVec::with_capacity(self.send_queue.unsent());
        let segment = self.fill(cx, first, &mut operations, u32::MAX)?;
        let most = limit.segments.min(limit.bytes / segment).max(1);
        let (mut segments, mut len, mut start) = (1, segment, 0);
        // The kernel cuts all of them at the same length. Frames are padded to it, if little is missing.
        while segments < most
            && (len == segment || operations.len() > start + 1 && segment - len <= segment / 4)
        {
            let end = operations.len();
            let next = first.wrapping_add(end as u32);
            if self.is_bare(next) {
                break;
            }
            let Some(filled) = self.fill(cx, next, &mut operations, segment) else {
                break;
            };
            operations[end - 1].padding = segment - len;
            (segments, len, start) = (segments + 1, filled, end);
        }
        Some(OperationBurst {
            segment,
            segments,
            operations,
            first,
        })
    }

    /// The next `count` operations leave: they are repeated unless they are confirmed.
    pub(super) fn take(&mut self, cx: &mut Context, count: usize) {
        self.send_queue.take(cx.now, count);
        let at = self.send_queue.repeat_at(cx.recovery.patience());
        cx.timers.set_earlier(Timer::Memory, at);
    }

    /// Data left, which carries the confirmation of the peer's own operations.
    pub(super) fn on_confirmation_left(&mut self, cx: &mut Context) {
        self.responder.confirmed();
        cx.timers.stop(Timer::DelayedAck);
    }

    /// Adds a datagram of operations from `number` on: one, or as many as the peer takes in frames. Returns its
    /// bytes. `None` if there is no operation, or it has more than `most`.
    fn fill(
        &self,
        cx: &Context,
        number: u32,
        operations: &mut SmallVec<[Outgoing; 1]>,
        most: u32,
    ) -> Option<u32> {
        let request = self.send_queue.get(number)?;
        let alone = cx.overhead() + request.kind.content_len();
        if alone > most {
            return None;
        }
        let Some((mut before, payload)) = self.data(cx, number) else {
            operations.push(self.fetch_op(cx, number)?);
            return Some(alone);
        };
        let start = operations.len();
        operations.push(Outgoing::data(&before, payload));
        if !cx.sends_frames() {
            return Some(alone);
        }
        let most = most.min(cx.overhead() + max_put(cx));
        let mut len = cx.overhead() + frame_len(None, &before, payload);
        for index in 1..MAX_FRAMES {
            let next = number.wrapping_add(index as u32);
            let Some((it, more)) = self.data(cx, next).filter(|_| !self.is_bare(next)) else {
                break;
            };
            let longer = len + frame_len(Some(&before), &it, more);
            if longer > most {
                break;
            }
            if index == 1 {
                operations[start] = Outgoing::frame(None, &before, payload);
            }
            operations.push(Outgoing::frame(Some(&before), &it, more));
            (len, before) = (longer, it);
        }
        Some(match operations.len() - start {
            1 => alone,
            _ => len,
        })
    }

    /// A burst found no room at the lane: it is asked for again.
    pub(crate) fn take_back(&mut self, burst: &OperationBurst) {
        self.send_queue.take_back(burst.first);
    }

    /// Whether operation `number` is a message that leaves as its payload, if it can.
    fn is_bare(&self, number: u32) -> bool {
        self.send_queue.get(number).is_some_and(is_bare)
    }

    /// Whether a burst is to be confirmed at once: it repeats, or its end is waited for.
    fn asks_now(&self, mut numbers: impl Iterator<Item = u32>) -> bool {
        numbers.any(|number| {
            let awaited = |request: &Request| request.flags.awaited;
            self.send_queue.is_repeat(number) || self.send_queue.get(number).is_some_and(awaited)
        })
    }

    /// Operation `number` on the wire: header and payload. `None` if there is none, or it is no Data.
    fn data(&self, cx: &Context, number: u32) -> Option<(Header, Option<Span>)> {
        let request = self.send_queue.get(number)?;
        let header = Header {
            flags: Flags::NONE.with_if(Flags::SEND_STATE, cx.profile == Profile::Classic),
            param: self.responder.expected() as u16,
            d_port: cx.route.d_port,
            s_port: cx.route.s_port,
            d_key: cx.route.d_key,
            sync: number,
            s_id: request.id,
            ..Header::new(Op::Data)
        };
        let (header, payload) = match request.kind {
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
                (header, Some(span))
            }
            RequestKind::Message { control, payload } => {
                let header = Header {
                    flags: header.flags.with_if(Flags::INTERRUPT, true),
                    d_id: MESSAGES,
                    ..header
                }
                .with_wide(payload.map_or(0, |span| span.len));
                (header, Some(control))
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
                (header, None)
            }
            RequestKind::Get { .. } | RequestKind::Nothing => {
                let header = Header {
                    flags: header.flags.with_if(Flags::SILENT, true),
                    b_id: NOTHING,
                    d_id: MESSAGES,
                    ..header
                };
                (header, None)
            }
            RequestKind::Fetch { .. } => return None,
        };
        Some((header, payload.filter(|span| span.len > 0)))
    }

    fn fetch_op(&self, cx: &Context, number: u32) -> Option<Outgoing> {
        let request = self.send_queue.get(number)?;
        let RequestKind::Fetch { place, atomic } = request.kind else {
            return None;
        };
        let on = cx.wire_place(place);
        Some(Outgoing::control(&Packet {
            route: cx.route,
            operation: Operation::FetchOp(FetchOp {
                kind: atomic.kind,
                mx: on.mx,
                bufx: on.bufx,
                offset: on.offset,
                handle: on.handle,
                s_id: request.id,
                sync: number,
                confirmed: self.send_queue.confirmed(),
                operand: atomic.operand,
                comparand: atomic.comparand,
            }),
        }))
    }
}

/// Bytes of a frame: its head and its payload.
fn frame_len(before: Option<&Header>, it: &Header, payload: Option<Span>) -> u32 {
    FrameHead::len_of(before, it) as u32 + payload.map_or(0, |span| span.len as u32)
}
