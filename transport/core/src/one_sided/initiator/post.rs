//! Queues requests on the peer's memory, and begins them when order and room permit.

use super::send_queue::Part;
use super::{Initiator, RegionRequest};
use crate::context::{Context, Debt};
use crate::limits::{BEHIND_RUN, MAX_EAGER_PUT, MAX_POSTED, MAX_RUN, MAX_SMALL};
use crate::profile::Conduct;
use crate::receiving::Receiving;
use crate::request::{
    Content, PostError, RegionName, RemotePlace, Request, RequestKind, WorkFlags,
};
use crate::sending::Sending;
use crate::span::Span;
use crate::tiling::tiles;
use crate::timers::Timer;
use crate::transfer::{Delivery, TransferId};
use zerolane_wire::{Immediate, Rights, Target};

impl Initiator {
    /// Sends a request for a region of the peer by name.
    pub(crate) fn request_region(
        &mut self,
        cx: &mut Context,
        name: RegionName,
        rights: Rights,
    ) -> TransferId {
        let id = cx.new_id();
        self.region_requests.push(RegionRequest {
            id,
            name,
            rights,
            ask_at: cx.now,
        });
        cx.timers.set_earlier(Timer::Memory, cx.now);
        cx.owe(Debt::Peer);
        id
    }

    /// Begins a request on the peer's memory, or queues it until order and room permit. `open` is what it may have to
    /// wait for, if the connection is open.
    ///
    /// # Errors
    /// The place is outside the peer's address space, or the peer has no persistent memory.
    pub(crate) fn post(
        &mut self,
        cx: &mut Context,
        kind: RequestKind,
        flags: WorkFlags,
        open: Option<(&mut Sending, &mut Receiving)>,
    ) -> Result<TransferId, PostError> {
        check_bounds(cx, &kind)?;
        if cx.peer.is_some_and(|peer| !peer.persistent) {
            return Err(PostError::Unsupported);
        }
        let id = cx.new_id();
        if !kind.is_notice() {
            self.last_work = Some(id);
        }
        let request = Request { id, flags, kind };
        if let Some((sending, receiving)) = open
            && self.queued.is_empty()
        {
            // Its number may refer to Transfers posted before it, so they need theirs.
            sending.announce(cx);
            if self.may_start(cx, &request, sending, receiving) {
                self.begin(cx, request, sending, receiving);
                return Ok(id);
            }
        }
        self.queued.push_back(request);
        cx.owe(Debt::Start);
        Ok(id)
    }

    /// Begins queued requests, as far as order and room permit.
    pub(crate) fn start(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        receiving: &mut Receiving,
    ) {
        while let Some(next) = self.queued.front() {
            // Its number may refer to Transfers posted before it, so they need theirs.
            sending.announce(cx);
            if !self.may_start(cx, next, sending, receiving) {
                return;
            }
            if let Some(request) = self.queued.pop_front() {
                self.begin(cx, request, sending, receiving);
            }
        }
    }

    /// Whether the first request that has not begun may begin.
    fn may_start(
        &self,
        cx: &Context,
        request: &Request,
        sending: &Sending,
        receiving: &Receiving,
    ) -> bool {
        let putting = sending.is_putting();
        if request.flags.fence && (putting || receiving.is_getting() || self.has_outstanding()) {
            return false;
        }
        match &request.kind {
            // A get must see the puts before it, and so must the receiver of a message.
            RequestKind::Get { .. } | RequestKind::Message { .. } if putting => false,
            RequestKind::Get { span, .. } if !is_short(cx, span.len) => {
                receiving.len() < MAX_POSTED
            }
            RequestKind::Get { .. } => self.gets.has_room(),
            RequestKind::Message {
                payload: Some(payload),
                ..
            } if let Some(count) = self.inline_operations(cx, *payload) => {
                self.send_queue.has_room_for_run(count, payload.len)
            }
            kind => {
                let count = match operations(cx, kind) {
                    Some(count) if count == 1 || is_inline(kind) => count,
                    Some(count) if self.waits_for_trains(kind, count, sending) => {
                        let len = kind.content_len().into();
                        return self.send_queue.has_room_for_run(count, len);
                    }
                    _ => return sending.len() < MAX_POSTED,
                };
                // An immediate refers to the Transfers before it by number.
                let follows = putting && kind.immediate().is_some();
                let room = self
                    .send_queue
                    .has_room(kind, count, cx.profile.max_fetches());
                room && !(follows && (count > 1 || sending.is_to_announce()))
            }
        }
    }

    /// Whether a small operation or a short Get is pending.
    fn has_outstanding(&self) -> bool {
        !self.send_queue.is_empty() || !self.gets.is_empty()
    }

    /// Begins the first request that has not begun.
    fn begin(
        &mut self,
        cx: &mut Context,
        request: Request,
        sending: &mut Sending,
        receiving: &mut Receiving,
    ) {
        cx.mark_dirty();
        if !cx.timers.runs(Timer::Peer) {
            cx.owe(Debt::Peer);
        }
        let id = request.id;
        let mut is_message = matches!(request.kind, RequestKind::Message { .. });
        let first = self.send_queue.next_number();
        match request.kind {
            RequestKind::Put { .. } => self.begin_put(cx, request, sending),
            RequestKind::Get { span, .. } if span.len == 0 => super::gets::got(cx, id, 0),
            RequestKind::Get { place, span } if !is_short(cx, span.len) => {
                receiving.begin_get(cx, id, span, place, self.send_queue.next_number());
            }
            RequestKind::Get { place, span } => self.ask(cx, id, place, span),
            RequestKind::Message {
                payload: Some(payload),
                control,
            } if self.inline_operations(cx, payload).is_some() => {
                self.push_message(cx, (id, request.flags), control, payload);
                // The last operation is none.
                is_message = false;
            }
            RequestKind::Message {
                payload: Some(payload),
                ..
            } => {
                let number = self.send_queue.push(cx.now, request);
                let target = Target::Message(number);
                sending.post(cx, id, payload, Delivery::Interrupt, target);
            }
            _ => {
                self.send_queue.push(cx.now, request);
            }
        }
        let next = self.send_queue.next_number();
        if next != first && !is_message {
            sending.on_no_message(next.wrapping_sub(1));
        }
    }

    /// Numbers a put, or announces it.
    fn begin_put(&mut self, cx: &mut Context, request: Request, sending: &mut Sending) {
        let kind = &request.kind;
        match (operations(cx, kind), kind.immediate()) {
            (Some(1), Some(value)) if sending.is_putting() => {
                let announced = sending.next_sequence();
                self.push_split(cx, request, RequestKind::Immediate { value, announced });
            }
            (Some(1), _) => {
                self.send_queue.push(cx.now, request);
            }
            (Some(count), _) if is_inline(kind) || self.leaves_at_once(kind, count, sending) => {
                self.push_parts(cx, request, count);
            }
            _ => self.announce(cx, sending, &request),
        }
    }

    /// Whether a put of `len` bytes to `place`, without an immediate, would begin at once, and not as a Transfer.
    pub(crate) fn puts_at_once(
        &mut self,
        cx: &Context,
        sending: &Sending,
        place: RemotePlace,
        len: u64,
    ) -> bool {
        let kind = RequestKind::Put {
            place,
            content: Content::Memory(Span { len, ..Span::EMPTY }),
            immediate: None,
        };
        let is_next = self.queued.is_empty() && !sending.is_putting();
        is_next
            && match operations(cx, &kind) {
                Some(1) => self.send_queue.has_room(&kind, 1, cx.profile.max_fetches()),
                Some(count) => self.leaves_at_once(&kind, count, sending),
                None => false,
            }
    }

    /// Whether a put of `count` operations leaves at once, unannounced.
    fn leaves_at_once(&mut self, kind: &RequestKind, count: usize, sending: &Sending) -> bool {
        let follows = kind.immediate().is_some() && sending.is_putting();
        !follows && self.send_queue.takes_run(count, kind.content_len().into())
    }

    /// Whether a put of `count` operations waits for room in the send queue, because trains carry it from there.
    fn waits_for_trains(&self, kind: &RequestKind, count: usize, sending: &Sending) -> bool {
        let follows = kind.immediate().is_some() && sending.is_putting();
        let len = kind.content_len().into();
        self.takes_trains && !follows && self.send_queue.may_hold_run(count, len)
    }

    /// Number of the operations of a message whose payload is numbered as well, because trains carry both. `None` if it
    /// must be a Transfer. The peer keeps the payload of a Transfer until it posts a receive, but not that of
    /// operations.
    fn inline_operations(&self, cx: &Context, payload: Span) -> Option<usize> {
        let count = 1 + payload.len.div_ceil(max_put(cx).into()) as usize;
        let may = self.takes_trains
            && cx.now >= self.payload_refused_until
            && payload.len <= max_run(cx)
            && self.send_queue.may_hold_run(count, payload.len);
        may.then_some(count)
    }

    /// Numbers a message and the parts of its payload. The last of them is the request itself.
    fn push_message(
        &mut self,
        cx: &mut Context,
        (id, flags): (TransferId, WorkFlags),
        control: Content,
        payload: Span,
    ) {
        let length = payload.len as u32;
        let part = |rest| Part { of: id, rest };
        let head = RequestKind::MessageHead { control, length };
        self.push_part(cx, part(length), head, false);
        let most = max_put(cx);
        let (mut at, mut rest) = (0, length);
        while rest > most {
            rest -= most;
            let content = Content::Memory(payload.part(at, most.into()));
            let kind = RequestKind::Payload(content);
            self.push_part(cx, part(rest), kind, false);
            at += u64::from(most);
        }
        let kind = RequestKind::Payload(Content::Memory(payload.part(at, rest.into())));
        self.send_queue.push(cx.now, Request { id, flags, kind });
    }

    /// Announces a put, with its immediate.
    fn announce(&self, cx: &mut Context, sending: &mut Sending, request: &Request) {
        let &RequestKind::Put {
            place,
            content: Content::Memory(span),
            immediate,
        } = &request.kind
        else {
            return;
        };
        let immediate = immediate.map(|value| Immediate {
            value,
            after: self.send_queue.next_number(),
        });
        let target = Target::Region(cx.wire_place(place), immediate);
        sending.post(cx, request.id, span, Delivery::Silent, target);
    }

    /// Numbers a put of one operation whose immediate is a second operation behind it: the request itself.
    fn push_split(&mut self, cx: &mut Context, request: Request, immediate: RequestKind) {
        let Request { id, flags, kind } = request;
        if let RequestKind::Put { place, content, .. } = kind {
            let kind = RequestKind::Put {
                place,
                content,
                immediate: None,
            };
            self.push_part(cx, Part { of: id, rest: 0 }, kind, false);
        }
        let kind = immediate;
        self.send_queue.push(cx.now, Request { id, flags, kind });
    }

    /// Numbers a put of several operations. The last of them is the request itself: it carries the immediate and
    /// reports the end to the user.
    fn push_parts(&mut self, cx: &mut Context, request: Request, count: usize) {
        let Request { id, flags, kind } = request;
        let RequestKind::Put {
            place,
            content,
            immediate,
        } = kind
        else {
            return;
        };
        let joined = cx.profile.joins_puts();
        let len = content.len() as u32;
        let most = longest_part(cx, place, len, count);
        for tile in tiles(place.address, len, most, cx.peer_buffer_log2()) {
            let (rest, at) = (len - tile.start - tile.len, u64::from(tile.start));
            let continues = joined && tile.start > 0;
            let content = content.part(at, tile.len.into());
            let place = RemotePlace {
                address: place.address + at,
                ..place
            };
            if rest > 0 {
                let rest = if joined { rest } else { 0 };
                let kind = RequestKind::Put {
                    place,
                    content,
                    immediate: None,
                };
                self.push_part(cx, Part { of: id, rest }, kind, continues);
                continue;
            }
            let kind = RequestKind::Put {
                place,
                content,
                immediate,
            };
            let last = Request { id, flags, kind };
            self.send_queue.push_part(cx.now, last, None, continues);
        }
    }

    /// Numbers an operation of a put or message that a later operation completes.
    fn push_part(&mut self, cx: &mut Context, part: Part, kind: RequestKind, continues: bool) {
        let request = Request {
            id: cx.new_id(),
            flags: WorkFlags {
                signalled: false,
                fence: false,
                awaited: false,
            },
            kind,
        };
        self.send_queue
            .push_part(cx.now, request, Some(part), continues);
    }
}

/// Checks that the request's place lies in the peer's address space. The peer checks the region's bounds.
fn check_bounds(cx: &Context, kind: &RequestKind) -> Result<(), PostError> {
    let (place, len) = match kind {
        RequestKind::Put { place, content, .. } => (place, content.len()),
        RequestKind::Get { place, span } => (place, span.len),
        RequestKind::Fetch { place, atomic } => (place, atomic.word.bytes().into()),
        RequestKind::Message { .. }
        | RequestKind::MessageHead { .. }
        | RequestKind::Payload(_)
        | RequestKind::Immediate { .. }
        | RequestKind::Nothing => return Ok(()),
    };
    let log2 = cx.peer_buffer_log2();
    let most = (u64::from(u32::MAX) << log2) | ((1 << log2) - 1);
    match place.address.checked_add(len) {
        Some(end) if end <= most => Ok(()),
        _ => Err(PostError::OutOfBounds),
    }
}

/// Whether the request is a put of a copy. It is never announced, because a Transfer is read from memory.
fn is_inline(kind: &RequestKind) -> bool {
    matches!(kind, RequestKind::Put { content, .. } if content.is_inline())
}

/// Number of operations that the request takes. `None` if it is a put too long to leave at once.
fn operations(cx: &Context, kind: &RequestKind) -> Option<usize> {
    let RequestKind::Put { place, content, .. } = kind else {
        return Some(1);
    };
    let len = content.len();
    let buffer = 1u64 << cx.peer_buffer_log2();
    let in_buffer = place.address & (buffer - 1);
    let stu = max_put(cx);
    if len <= u64::from(stu) && in_buffer + len <= buffer {
        return Some(1);
    }
    if !content.is_inline() && (!cx.profile.joins_puts() || len > max_run(cx)) {
        return None;
    }
    let tiles = tiles(place.address, len as u32, stu, cx.peer_buffer_log2());
    let count = tiles.take(MAX_RUN + 1).count();
    (count <= MAX_RUN).then_some(count)
}

/// Length of each of the `count` operations of a put of `len` bytes. The last one is shorter, to share its datagram.
/// The datagrams of consecutive such puts thus have one length, or nearly, and leave as one burst.
fn longest_part(cx: &Context, place: RemotePlace, len: u32, count: usize) -> u32 {
    let most = max_put(cx);
    let even = (len + BEHIND_RUN).div_ceil(count.max(1) as u32);
    let even = even.next_multiple_of(size_of::<u64>() as u32);
    let as_few = || tiles(place.address, len, even, cx.peer_buffer_log2()).count() <= count;
    match cx.sends_frames() && even < most && as_few() {
        true => even,
        false => most,
    }
}

/// Longest put of several operations, bytes. Credit does not limit it: the peer need not hold its payload.
fn max_run(cx: &Context) -> u64 {
    u64::from(cx.peer_eager().limit).min(MAX_EAGER_PUT)
}

/// Longest numbered put, bytes.
pub(super) fn max_put(cx: &Context) -> u32 {
    let max_stu = cx.peer.map_or(MAX_SMALL, |peer| peer.max_stu);
    let most = MAX_SMALL.saturating_sub(cx.config.seal as u32);
    most.min(max_stu).min(cx.room())
}

/// Whether this much payload, with its overhead, fits a datagram that the path is assumed to carry, in both directions.
fn is_short(cx: &Context, len: u64) -> bool {
    let most = MAX_SMALL.saturating_sub(cx.config.seal as u32);
    len <= u64::from(most.min(cx.room()))
}
