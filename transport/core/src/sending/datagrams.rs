//! Sends datagrams: queued payload that needs no grant, is never sent again, and expires.

use super::Sending;
use super::outbound::{Cut, Lost, Shape};
use super::sent_log::SentBurst;
use crate::context::Context;
use crate::event::Event;
use crate::limits::{MAX_DATAGRAM_BYTES_QUEUED, MAX_DATAGRAM_SEGMENTS, MAX_DATAGRAMS_QUEUED};
use crate::request::PostError;
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::TransferId;
use crate::transmit::{BurstLimit, DataBurst, train_of};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use zerolane_wire::{DatagramPart, Flags, Header, MAX_DATAGRAM, Progress};

/// Datagrams that wait for the congestion controller.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    queue: VecDeque<Queued>,
    /// Bytes of the queue that have not left.
    bytes: u64,
    /// Number of the datagram that is queued next.
    next: u32,
    /// The peer takes trains of datagrams.
    trains: bool,
    /// Those that left by the last burst: their memory is in use until the lane asks for another.
    departed: Vec<TransferId>,
    /// The last payload burst was of datagrams: the next is of a Transfer, if one waits.
    had_turn: bool,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    id: TransferId,
    number: u32,
    span: Span,
    expires: Instant,
    /// Bytes that left.
    sent: u32,
    dscp: u8,
}

impl Datagrams {
    fn rest(&self) -> u64 {
        self.queue
            .iter()
            .map(|it| it.span.len - u64::from(it.sent))
            .sum()
    }
}

impl Sending {
    /// Queues a datagram, whose packets have `dscp`; it expires after `lifetime` if it has not left by then.
    pub(crate) fn post_datagram(
        &mut self,
        cx: &mut Context,
        span: Span,
        lifetime: Duration,
        dscp: u8,
    ) -> Result<TransferId, PostError> {
        let datagrams = &mut self.datagrams;
        if cx.max_datagram() == 0 {
            return Err(PostError::NoDatagrams);
        }
        if span.len == 0 || span.len > u64::from(cx.max_datagram()) {
            return Err(PostError::DatagramLength);
        }
        let full = datagrams.queue.len() >= MAX_DATAGRAMS_QUEUED
            || datagrams.bytes + span.len > MAX_DATAGRAM_BYTES_QUEUED;
        if full {
            cx.counters.unreliable_refused += 1;
            return Err(PostError::Full);
        }
        let id = cx.new_id();
        let number = datagrams.next;
        datagrams.next = DatagramPart::next(number);
        datagrams.bytes += span.len;
        datagrams.queue.push_back(Queued {
            id,
            number,
            span,
            expires: cx.now + lifetime,
            sent: 0,
            dscp,
        });
        Ok(id)
    }

    /// Whether a datagram waits to leave.
    pub(crate) fn has_datagrams(&self) -> bool {
        !self.datagrams.queue.is_empty()
    }

    /// Bytes of the datagrams that wait to leave.
    pub(crate) fn datagram_bytes(&self) -> u64 {
        self.datagrams.bytes
    }

    /// Whether the next payload burst is of datagrams: they take turns with Transfers.
    pub(crate) fn is_datagrams_turn(&self, others: bool) -> bool {
        self.has_datagrams() && !(self.datagrams.had_turn && others)
    }

    /// A burst of a Transfer, or of an answer, leaves.
    pub(crate) fn end_datagrams_turn(&mut self) {
        self.datagrams.had_turn = false;
    }

    /// The lane asks for the next transmission: all before have left it.
    pub(crate) fn settle_datagrams(&mut self, cx: &mut Context) {
        let departed = self.datagrams.departed.drain(..);
        cx.events.extend(departed.map(|id| Event::Sent { id }));
    }

    /// The next burst of a datagram that the selected path may carry. `answering`: answers to Gets wait as well.
    pub(crate) fn next_datagram(
        &mut self,
        cx: &mut Context,
        limit: BurstLimit,
        answering: bool,
    ) -> Option<DataBurst> {
        self.drop_expired(cx);
        self.datagrams.queue.front()?;
        if self.is_flight_full(cx) {
            return None;
        }
        let shape = self.controlled_shape(cx, limit)?;
        let path = cx.links.selected;
        let datagrams = &mut self.datagrams;
        let front = datagrams.queue.front_mut()?;
        let Queued {
            id,
            number,
            span,
            sent,
            dscp,
            ..
        } = *front;
        let length = span.len as u32;
        let trains = datagrams.trains && sent == 0;
        let Cut {
            bytes,
            stu,
            segments,
            train,
        } = cut(&shape, length, sent, trains);
        front.sent += bytes;
        datagrams.bytes -= u64::from(bytes);
        datagrams.had_turn = true;
        if front.sent == length {
            datagrams.queue.pop_front();
            datagrams.departed.push(id);
            cx.counters.unreliable_sent += 1;
        }
        let sent_log = &mut self.outbox.sent_logs[path];
        let part = DatagramPart {
            number,
            length,
            start: sent,
        };
        let first = Header {
            d_port: cx.route.d_port,
            s_port: cx.route.s_port,
            d_key: cx.route.d_key,
            sync: sent_log.next_number(),
            ..part.header()
        };
        sent_log.on_sent(cx.now, id, 0, sent, bytes);
        let ask = shape.ask || self.is_half_full(cx);
        cx.counters.bytes_sent += u64::from(bytes);
        self.on_departed(cx, bytes.into(), answering);
        Some(DataBurst {
            span: span.part(sent.into(), bytes.into()),
            stu,
            segments,
            train,
            dscp,
            announces: None,
            first,
            address: sent.into(),
            buffer_log2: 32,
            last_flags: first.flags.with_if(Flags::SEND_STATE, ask),
        })
    }

    /// Drops the datagrams at the head of the queue that expired. One that has left in part is dropped as well.
    fn drop_expired(&mut self, cx: &mut Context) {
        let now = cx.now;
        while let Some(it) = self.datagrams.queue.pop_front_if(|it| it.expires <= now) {
            self.datagrams.bytes -= it.span.len - u64::from(it.sent);
            cx.counters.unreliable_expired += 1;
            cx.events.push_back(Event::Sent { id: it.id });
        }
    }

    /// Drops all datagrams: the connection is over.
    pub(super) fn drop_datagrams(&mut self, cx: &mut Context) {
        let datagrams = &mut self.datagrams;
        let queued = datagrams.queue.drain(..).map(|it| it.id);
        let all = queued.chain(datagrams.departed.drain(..));
        cx.events.extend(all.map(|id| Event::Sent { id }));
        datagrams.bytes = 0;
    }

    /// Takes the answer to `sent` for what it says of datagrams: nobody asks for those that were lost.
    pub(super) fn on_datagram_progress(
        &mut self,
        cx: &mut Context,
        path: usize,
        sent: &SentBurst,
        progress: &Progress,
    ) {
        self.datagrams.trains = progress.trains;
        let (Some(it), true) = (self.paths.get(path), self.datagrams.next > 0) else {
            return;
        };
        let gone = sent.total.saturating_sub(progress.received);
        // What the receiver asked for again is counted already.
        let bytes = gone.saturating_sub(it.lost);
        let dropped = match progress.trains {
            true => bytes.min(cx.stu().into()),
            false => bytes,
        };
        self.on_lost(cx, path, Lost { bytes, dropped });
    }

    pub(super) fn assert_datagrams_bounded(&self) {
        let it = &self.datagrams;
        assert!(it.queue.len() <= MAX_DATAGRAMS_QUEUED && it.bytes == it.rest());
        assert!(it.departed.len() <= 1);
    }
}

/// Cuts a burst from byte `sent` of a datagram of `length` bytes: all of it as one train, or parts with headers.
fn cut(shape: &Shape, length: u32, sent: u32, trains: bool) -> Cut {
    let datagram = shape.stu + shape.around;
    let (train, segments) = train_of(length, shape.train_around, datagram);
    let fits = length <= shape.limit.train && segments <= MAX_DATAGRAM_SEGMENTS;
    if trains && fits && length > shape.stu {
        return Cut {
            bytes: length,
            stu: datagram,
            segments,
            train: Some(train),
        };
    }
    let most = shape
        .limit
        .segments
        .min(shape.limit.bytes / datagram)
        .max(1);
    let bytes = (length - sent).min(most * shape.stu);
    Cut {
        bytes,
        stu: shape.stu,
        segments: bytes.div_ceil(shape.stu),
        train: None,
    }
}

const _: () = assert!(MAX_DATAGRAM as u64 <= MAX_DATAGRAM_BYTES_QUEUED);
