//! Selects the numbered operations that leave next, and encodes them.

use super::Initiator;
use super::messages::is_bare;
use super::post::max_put;
use super::send_queue::Numbered;
use crate::context::Context;
use crate::limits::MIN_TRAIN;
use crate::one_sided::responder::{IMMEDIATE, MESSAGES, NOTHING, PAYLOAD, Responder};
use crate::profile::Conduct;
use crate::request::{Content, RemotePlace, RequestKind};
use crate::timers::Timer;
use crate::transmit::{BurstLimit, OperationBurst, longest_train};
use zerolane_wire::{
    FetchOp, Flags, FrameFields, FrameHead, Header, MAX_FRAMES, MAX_TRAIN_FRAMES, Op, Operation,
    Packet,
};

impl Initiator {
    /// The numbered operations that leave next. They confirm those of the peer.
    pub(crate) fn next_operations(
        &mut self,
        cx: &mut Context,
        responder: &mut Responder,
        limit: BurstLimit,
    ) -> Option<OperationBurst> {
        let carries = !matches!(self.send_queue.upcoming()?.kind, RequestKind::Fetch { .. });
        let first = self.send_queue.next_unsent();
        let bytes = limit.bytes.min(self.send_queue.bytes());
        let mut burst = OperationBurst::new(first, self.send_queue.unsent(), bytes);
        self.pack(cx, responder.expected(), &mut burst, limit)?;
        // Must be confirmed at once if it is a repeat, which shows in its first operation, or if a caller waits. One
        // answer on its way is enough: the next bursts then hold what waits meanwhile.
        let asked = self
            .asked
            .is_some_and(|it| !self.send_queue.has_executed(it));
        if burst.awaited && !asked || self.send_queue.is_repeat(first) {
            burst.ask();
            self.asked = Some(first.wrapping_add(burst.len() as u32 - 1));
        }
        self.take(cx, burst.len());
        if !self.send_queue.is_repeat(first) {
            cx.recovery.time_operation(first, cx.now);
        }
        if carries {
            responder.on_confirmation_left(cx);
        }
        Some(burst)
    }

    /// Packs operations from the first of `burst` on into datagrams that leave together. `None` if there is no
    /// operation.
    fn pack(
        &self,
        cx: &Context,
        confirmed: u32,
        burst: &mut OperationBurst,
        limit: BurstLimit,
    ) -> Option<()> {
        let first = burst.first;
        if self.fill_train(cx, confirmed, burst, limit) {
            return Some(());
        }
        let segment = self.fill(cx, confirmed, first, burst, u32::MAX)?;
        let most = limit.segments.min(limit.bytes / segment).max(1);
        let (mut segments, mut len, mut start) = (1, segment, 0);
        // The kernel cuts all datagrams at the same length. Datagrams of frames are padded to it if little is missing.
        while segments < most
            && (len == segment || burst.len() > start + 1 && segment - len <= segment / 4)
        {
            let end = burst.len();
            let next = first.wrapping_add(end as u32);
            if self.is_bare(next) {
                break;
            }
            burst.pad(segment - len);
            let Some(filled) = self.fill(cx, confirmed, next, burst, segment) else {
                burst.pad(0);
                break;
            };
            (segments, len, start) = (segments + 1, filled, end);
        }
        (burst.segment, burst.segments) = (segment, segments);
        Some(())
    }

    /// Fills `burst` with a train of the operations from its first on. False if none may leave, or if datagrams do as
    /// well: the burst is as it was. What is repeated leaves without trains, of which one loss spoils all.
    fn fill_train(
        &self,
        cx: &Context,
        confirmed: u32,
        burst: &mut OperationBurst,
        limit: BurstLimit,
    ) -> bool {
        let first = burst.first;
        let datagram = cx.overhead() + cx.stu();
        let segments = limit.segments.min(limit.bytes / datagram);
        let least = MIN_TRAIN * datagram;
        if !self.takes_trains
            || limit.train == 0
            || segments <= MIN_TRAIN
            || self.send_queue.is_repeat(first)
            || !self.send_queue.has_unsent_bytes(least)
        {
            return false;
        }
        let most = longest_train(segments, datagram, cx.train_overhead()).min(limit.train);
        let (mut len, mut before, mut header) = (0, None, None);
        for next in self.send_queue.from(first).take(MAX_TRAIN_FRAMES) {
            let Some((it, more)) = content(cx, &next).filter(|_| !is_bare(next.request)) else {
                break;
            };
            let head = frame(before, it, more);
            let longer = len + frame_len(&head, more);
            if longer > most {
                break;
            }
            header.get_or_insert_with(|| self::header(cx, confirmed, first, it));
            burst.frame(head, more);
            burst.awaited |= next.request.flags.awaited;
            (len, before) = (longer, Some(it));
        }
        match header {
            Some(header) if len > least => {
                burst.train(&header, len, cx.train_overhead(), datagram);
                true
            }
            _ => {
                burst.clear();
                false
            }
        }
    }

    /// Marks the next `count` operations as sent: they are repeated unless confirmed.
    pub(super) fn take(&mut self, cx: &mut Context, count: usize) {
        self.send_queue.take(cx.now, count);
        let at = self.send_queue.repeat_at(cx.recovery.patience());
        cx.timers.set_earlier(Timer::Memory, at);
    }

    /// Adds a datagram of operations from `number` on: one, or as many frames as the peer accepts. Returns its length
    /// in bytes. `None` if there is no operation, or it exceeds `most` bytes.
    fn fill(
        &self,
        cx: &Context,
        confirmed: u32,
        number: u32,
        burst: &mut OperationBurst,
        most: u32,
    ) -> Option<u32> {
        let mut operations = self.send_queue.from(number);
        let first = operations.next()?;
        let alone = cx.overhead() + first.request.kind.content_len();
        if alone > most {
            return None;
        }
        burst.awaited |= first.request.flags.awaited;
        let Some((mut before, carried)) = content(cx, &first) else {
            burst.control(&self.fetch_op(cx, &first)?);
            return Some(alone);
        };
        let header = header(cx, confirmed, number, before);
        let most = match cx.sends_frames() {
            true => most.min(cx.overhead() + max_put(cx)),
            false => 0,
        };
        let opening = frame(None, before, carried);
        let (mut len, mut shared) = (cx.overhead() + frame_len(&opening, carried), false);
        for next in operations.take(MAX_FRAMES - 1) {
            let Some((it, more)) = content(cx, &next).filter(|_| !is_bare(next.request)) else {
                break;
            };
            let head = frame(Some(before), it, more);
            let longer = len + frame_len(&head, more);
            if longer > most {
                break;
            }
            if !shared {
                burst.frames(&header, opening, carried);
            }
            burst.frame(head, more);
            burst.awaited |= next.request.flags.awaited;
            (len, before, shared) = (longer, it, true);
        }
        if shared {
            return Some(len);
        }
        burst.data(&header, carried);
        Some(alone)
    }

    /// The lane had no room for a burst: its operations must be returned again.
    pub(crate) fn take_back(&mut self, burst: &OperationBurst) {
        self.send_queue.take_back(burst.first);
        self.asked = self
            .asked
            .filter(|it| (it.wrapping_sub(burst.first) as i32) < 0);
    }

    /// Whether operation `number` is a bare message.
    fn is_bare(&self, number: u32) -> bool {
        let next = self.send_queue.from(number).next();
        next.is_some_and(|it| is_bare(it.request))
    }

    fn fetch_op(&self, cx: &Context, it: &Numbered<'_>) -> Option<Packet> {
        let RequestKind::Fetch { place, atomic } = it.request.kind else {
            return None;
        };
        let on = cx.wire_place(place);
        Some(Packet {
            route: cx.route,
            operation: Operation::FetchOp(FetchOp {
                kind: atomic.kind,
                word: atomic.word,
                mx: on.mx,
                bufx: on.bufx,
                offset: on.offset,
                handle: on.handle,
                s_id: it.request.id,
                sync: it.number,
                confirmed: self.send_queue.confirmed(),
                operand: atomic.operand,
                comparand: atomic.comparand,
            }),
        })
    }
}

/// The header of operation `number` in a datagram of its own. Those of the peer below `confirmed` were executed.
fn header(cx: &Context, confirmed: u32, number: u32, it: FrameFields) -> Header {
    let asks = cx.profile.confirms_operations();
    Header {
        flags: it.flags.with_if(Flags::SEND_STATE, asks),
        param: confirmed as u16,
        d_port: cx.route.d_port,
        s_port: cx.route.s_port,
        d_key: cx.route.d_key,
        b_id: it.b_id,
        bufx: it.bufx,
        offset: it.offset,
        sync: number,
        b_num: it.b_num,
        d_id: it.d_id,
        s_id: it.s_id,
        ..Header::new(Op::Data)
    }
}

/// The content of operations without any.
static NONE: Content = Content::NONE;

/// An operation on the wire: its own header fields, and its content. `None` if it is no Data.
#[inline]
fn content<'a>(cx: &Context, it: &Numbered<'a>) -> Option<(FrameFields, &'a Content)> {
    let to_messages = FrameFields {
        flags: Flags::INTERRUPT,
        b_id: 0,
        bufx: 0,
        offset: 0,
        b_num: 0,
        d_id: MESSAGES,
        s_id: it.request.id,
    };
    Some(match &it.request.kind {
        &RequestKind::Put {
            place,
            ref content,
            immediate,
        } => {
            // Bytes that are in place need no address, but the peer is told how many they are.
            let (address, shown) = match (content, immediate) {
                (_, None) => (place.address, Flags::SILENT),
                (Content::Placed(len), Some(_)) => (*len, Flags::INTERRUPT.with(Flags::SILENT)),
                (_, Some(_)) => (place.address, Flags::INTERRUPT),
            };
            let to = cx.wire_place(RemotePlace { address, ..place });
            let fields = FrameFields {
                flags: shown.with_if(Flags::CONTINUES, it.continues),
                b_id: to.mx,
                bufx: to.bufx,
                offset: to.offset,
                b_num: immediate.unwrap_or(it.rest),
                d_id: to.handle,
                s_id: it.request.id,
            };
            (fields, content)
        }
        RequestKind::Message { control, payload } => {
            let len = payload.map_or(0, |span| span.len);
            let fields = FrameFields {
                bufx: (len >> 32) as u32,
                offset: len as u32,
                ..to_messages
            };
            (fields, control)
        }
        RequestKind::MessageHead { control, length } => {
            let fields = FrameFields {
                offset: *length,
                b_num: *length,
                ..to_messages
            };
            (fields, control)
        }
        RequestKind::Payload(content) => {
            let fields = FrameFields {
                b_id: PAYLOAD,
                b_num: it.rest,
                ..to_messages
            };
            (fields, content)
        }
        &RequestKind::Immediate { value, announced } => {
            let fields = FrameFields {
                b_id: IMMEDIATE,
                bufx: announced,
                b_num: value,
                ..to_messages
            };
            (fields, &NONE)
        }
        RequestKind::Get { .. } | RequestKind::Nothing => {
            let fields = FrameFields {
                flags: Flags::SILENT,
                b_id: NOTHING,
                ..to_messages
            };
            (fields, &NONE)
        }
        RequestKind::Fetch { .. } => return None,
    })
}

#[inline]
fn frame(before: Option<FrameFields>, it: FrameFields, content: &Content) -> FrameHead {
    FrameHead::new(before, it, content.len() as u16)
}

/// Length of a frame, head and content.
#[inline]
fn frame_len(head: &FrameHead, content: &Content) -> u32 {
    head.size() as u32 + content.len() as u32
}
