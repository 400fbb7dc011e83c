//! Reads received messages: records what the kernel reports about them, and delivers them in place if the prediction
//! held, else from a linear copy.

use super::Receiver;
use super::cmsg::{Ancillary, ECN_MASK};
use super::dispatch::Group;
use super::layout::Message;
use crate::account::MoveCause;
use crate::lane::Turn;
use zerolane_core::DropReason;
use zerolane_wire::Header;

impl Receiver {
    /// Records a message and what the kernel reports about it. `None`: it is dropped, and counted.
    pub(super) fn note(&mut self, index: usize, turn: &mut Turn<'_>) -> Option<Message> {
        let batch = &mut self.buffers.batch;
        let message = &batch.messages[index];
        let (total, flags) = (message.msg_len as usize, message.msg_hdr.msg_flags);
        let Ancillary {
            segment,
            ecn,
            waited,
            dropped,
        } = self.reports.read(&message.msg_hdr);
        if let Some(waited) = waited {
            turn.core.on_waited(waited);
        }
        if dropped > 0 {
            turn.account.dropped_socket_buffer += u64::from(dropped);
            turn.core.on_overrun(turn.now);
        }
        if flags & libc::MSG_TRUNC != 0 {
            turn.account.dropped_truncated += 1;
            return None;
        }
        let message = Message {
            index,
            total,
            segment: segment.unwrap_or(total).max(1),
        };
        let message = self.predictor.envelope.unwrap(message, batch, turn)?;
        let segments = message.segments() as u32;
        turn.account.datagrams_received += u64::from(segments);
        if ecn != 0 {
            let marked = if ecn == ECN_MASK { segments } else { 0 };
            turn.core.on_marks(segments, marked);
        }
        let predicted = batch.layouts[index].pairs > 0 || self.trains.has_buffer();
        let full = self.unsealer.around() + turn.core.expected_stu() as usize;
        self.predictor.note(message, predicted, full);
        Some(message)
    }

    /// Delivers STUs in place, consecutive ones as one: the prediction's pattern held.
    pub(super) fn deliver_in_place(&mut self, message: Message, turn: &mut Turn<'_>) {
        let (unsealer, batch) = (&mut self.unsealer, &self.buffers.batch);
        let dispatcher = &mut self.buffers.dispatcher;
        let layout = &batch.layouts[message.index];
        let mut group: Option<Group> = None;
        let around = unsealer.around();
        let (mut at, mut slot) = (0, layout.slot);
        for run in &layout.runs {
            let mut start = 0;
            while start < run.span.len && at < message.total {
                let datagram = message.segment.min(message.total - at);
                let place = run
                    .span
                    .part(start, u64::from(run.stu).min(run.span.len - start));
                let payload = datagram.saturating_sub(around) as u64;
                let landed = run.span.part(start, payload);
                let whole = datagram >= around;
                let is_continued = |it: &Group| it.is_continued(slot, &batch.slots);
                let continues = whole && start > 0 && group.as_ref().is_some_and(is_continued);
                let header = &batch.slots[slot].header;
                if !(continues || whole && Header::is_data(header)) {
                    dispatcher.deliver_group(group.take(), turn);
                    let sealed = unsealer.sealed;
                    dispatcher.deliver_control(datagram, unsealer, turn, |bytes, turn| {
                        batch.gather((message.index, slot), place, sealed, bytes, turn.memory)
                    });
                } else if let Err(reason) =
                    unsealer.open_landed(batch, slot, landed, place.len, turn.memory)
                {
                    turn.core.on_dropped(reason);
                    dispatcher.deliver_group(group.take(), turn);
                } else if let (true, Some(group)) = (continues, &mut group) {
                    group.append(slot, landed);
                } else {
                    dispatcher.deliver_group(group.take(), turn);
                    group = Group::of(header, slot, landed);
                    if group.is_none() {
                        turn.core.on_dropped(DropReason::Malformed);
                    }
                }
                at += datagram;
                start += place.len;
                slot += 1;
            }
        }
        dispatcher.deliver_group(group, turn);
    }

    /// Makes a message linear and delivers it datagram by datagram: the pattern did not hold.
    pub(super) fn deliver_linear(&mut self, message: Message, turn: &mut Turn<'_>) {
        let batch = &mut self.buffers.batch;
        let dispatcher = &mut self.buffers.dispatcher;
        // The bytes live until the moves are done.
        let mut copy = std::mem::take(&mut dispatcher.linear[message.index]);
        let (bytes, cause) = match batch.layouts[message.index].pairs {
            // Nothing was predicted: the whole message lies in the spill, in one piece.
            0 => (batch.spilled(message), MoveCause::Unexpected),
            _ => {
                copy.resize(message.total, 0);
                // Otherwise part of it landed in a page that is gone: treated as lost.
                let is_there = batch.linearize(message, turn.memory, &mut copy);
                let len = if is_there { message.total } else { 0 };
                (&mut copy[..len], MoveCause::Pattern)
            }
        };
        for datagram in bytes.chunks_mut(message.segment) {
            dispatcher.deliver_datagram(datagram, Some(cause), &mut self.unsealer, turn);
        }
        dispatcher.linear[message.index] = copy;
    }
}
