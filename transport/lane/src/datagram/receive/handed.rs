//! Delivers messages that the path's thread received, in order. The thread opens whole trains into their places; all
//! other messages are read from its buffers.

use super::Receiver;
use super::batch::SPILL;
use super::dispatch::note_placed;
use super::layout::Message;
use super::trains::Expected;
use super::unseal::Unsealer;
use crate::datagram::path_thread::{Arrived, Channel, OpenOrder, Order};
use crate::error::LaneError;
use crate::lane::Turn;
use crate::memory::Registry;
use crate::memory::delegations::Writing;
use crate::seal::{Opening, TRAILER_LEN, Trailer};
use socket2::Socket;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Claim, DropReason, Span};
use zerolane_wire::{HEADER_LEN, Header, Train};

/// Messages from the path's thread. The thread's buffers bound their number.
#[derive(Debug)]
pub(super) struct Handed {
    channel: Arc<Channel>,
    /// Messages not yet delivered; the first may already be recorded.
    waiting: VecDeque<(Box<Arrived>, Option<Message>)>,
    /// Trains that the thread opens, in order.
    pending: VecDeque<PendingTrain>,
    /// The results of the first of them: see [`Receiver::on_opened`].
    opened: VecDeque<Option<bool>>,
}

/// A train that the thread opens.
#[derive(Debug)]
struct PendingTrain {
    number: u64,
    header: Header,
    /// Bytes of each of its datagrams except the last.
    datagram: u32,
    claim: Claim,
    writing: Writing,
}

impl std::fmt::Debug for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrived").finish_non_exhaustive()
    }
}

impl Receiver {
    /// Receives from this thread of the path from now on, or from none. An earlier thread's messages are lost.
    pub(crate) fn begin_thread(&mut self, channel: Option<Arc<Channel>>, memory: &Registry) {
        for train in self.inbox.take().into_iter().flat_map(|it| it.pending) {
            memory.delegations.give_up(train.writing);
        }
        self.inbox = channel.map(|channel| {
            Box::new(Handed {
                channel,
                waiting: VecDeque::new(),
                pending: VecDeque::new(),
                opened: VecDeque::new(),
            })
        });
    }

    /// Takes a message that the thread received.
    pub(crate) fn on_arrived(&mut self, message: Box<Arrived>) {
        if let Some(inbox) = &mut self.inbox {
            inbox.waiting.push_back((message, None));
        }
    }

    /// Records whether the thread opened the first of its trains, or found it forged. `None`: the train was called off,
    /// because its memory returned to the owner or other bytes were put there.
    pub(crate) fn on_opened(&mut self, opened: Option<bool>) {
        if let Some(inbox) = &mut self.inbox {
            inbox.opened.push_back(opened);
        }
    }

    /// The next train whose result is known.
    fn next_opened(&mut self) -> Option<(PendingTrain, Option<bool>)> {
        let inbox = self.inbox.as_mut()?;
        let opened = inbox.opened.pop_front()?;
        Some((inbox.pending.pop_front()?, opened))
    }

    /// Takes the result of a train.
    fn take_opened(&mut self, train: &PendingTrain, opened: Option<bool>, turn: &mut Turn<'_>) {
        // Other bytes may have been put in its place since: treat the train as called off.
        let is_there = turn.memory.delegations.take_written(train.writing);
        let Some(opened) = opened.filter(|_| is_there) else {
            return;
        };
        let opener = self.unsealer.opener();
        if let Err(reason) = opener.and_then(|it| it.opened(train.number, opened)) {
            turn.core.on_dropped(reason);
            return turn.core.on_spoiled_train();
        }
        let (header, claim) = (&train.header, train.claim);
        let noted = turn.core.on_train(turn.now, header, claim, train.datagram);
        note_placed(noted, claim.span(), turn);
    }

    /// Delivers messages that the thread received, up to the first that must wait for a train in progress.
    ///
    /// # Errors
    /// See [`LaneError`].
    pub(crate) fn deliver_arrived(
        &mut self,
        socket: &Socket,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<(), LaneError> {
        self.reports.ask_for_times(socket, turn);
        self.with_buffers(turn, |it, turn| {
            while let Some((train, opened)) = it.next_opened() {
                it.take_opened(&train, opened, turn);
            }
            let delivered = it.deliver_waiting(turn, strict);
            turn.core.on_waited(Duration::ZERO);
            it.predictor.offer_trains(&it.unsealer, strict, turn.core);
            delivered
        })
    }

    /// # Errors
    /// The first. Later messages are delivered nonetheless, because nothing else announces them.
    fn deliver_waiting(&mut self, turn: &mut Turn<'_>, strict: bool) -> Result<(), LaneError> {
        let mut outcome = Ok(());
        self.reports.note_taken();
        while let Some((arrived, noted)) = self.inbox.as_mut().and_then(|it| it.waiting.pop_front())
        {
            let message = noted.or_else(|| self.note_arrived(&arrived, turn));
            let Some(message) = message else {
                self.free(arrived);
                continue;
            };
            let Err(arrived) = self.open_by_thread(arrived, message, turn) else {
                continue;
            };
            if let Some(inbox) = self.inbox.as_mut().filter(|it| !it.pending.is_empty()) {
                // It came after the trains, and the peer's word about them must not be heard before their bytes are in
                // place.
                inbox.waiting.push_front((arrived, Some(message)));
                break;
            }
            self.deliver_copied(&arrived, message, turn);
            let dispatcher = &mut self.buffers.dispatcher;
            dispatcher.count_call(turn.account);
            // At once, because the next message uses the same memory.
            outcome = outcome.and(dispatcher.finish(strict));
            self.free(arrived);
        }
        outcome
    }

    fn free(&mut self, buffer: Box<Arrived>) {
        if let Some(inbox) = &self.inbox {
            inbox.channel.order(Order::Free(buffer));
        }
    }

    /// Records a message as if it had been received here.
    fn note_arrived(&mut self, arrived: &Arrived, turn: &mut Turn<'_>) -> Option<Message> {
        let batch = &mut self.buffers.batch;
        batch.clear();
        batch.push_spill(0);
        batch.point(1, false, 0);
        let (control, control_len, flags) = arrived.control_and_flags();
        batch.controls[0] = *control;
        let message = &mut batch.messages[0];
        message.msg_len = arrived.bytes().len() as u32;
        (message.msg_hdr.msg_controllen, message.msg_hdr.msg_flags) = (control_len, flags);
        self.note(0, turn)
    }

    /// Delivers a message from a copy, placed where a message received here would lie.
    fn deliver_copied(&mut self, arrived: &Arrived, message: Message, turn: &mut Turn<'_>) {
        self.buffers.batch.layouts[0].clear();
        self.trains.expected = Expected::Collected;
        let place = match self.trains.has_buffer() {
            true => self.trains.place(),
            false => &mut self.buffers.batch.spill[..SPILL],
        };
        let bytes = arrived.bytes();
        // There is always room for one datagram.
        if let Some(place) = place.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
            self.deliver(message, turn);
        }
    }

    /// Lets the thread open a message into its place, if the message is one whole sealed train for memory that only the
    /// lane accesses. Returns any other message.
    fn open_by_thread(
        &mut self,
        from: Box<Arrived>,
        message: Message,
        turn: &mut Turn<'_>,
    ) -> Result<(), Box<Arrived>> {
        let takes = self.trains.has_buffer() && self.trains.is_empty();
        if !takes || !self.unsealer.opens_trains() {
            return Err(from);
        }
        let Some((head, header, trailer)) = whole_train(from.bytes()) else {
            return Err(from);
        };
        let Ok(claim) = turn.core.claim_train(&header) else {
            return Err(from);
        };
        let place = claim.span();
        let (opening, to) = match hand_out(&mut self.unsealer, turn.memory, place, &trailer) {
            Ok(Some(handed)) => handed,
            Ok(None) => return Err(from),
            Err(reason) => {
                turn.core.on_dropped(reason);
                self.free(from);
                return Ok(());
            }
        };
        let Some(inbox) = &mut self.inbox else {
            return Err(from);
        };
        self.trains.headers = false;
        turn.account.rx_data_syscalls += 1;
        let (access, writing) = turn.memory.delegations.write(place);
        inbox.pending.push_back(PendingTrain {
            number: opening.number(),
            header,
            datagram: message.segment as u32,
            claim,
            writing,
        });
        inbox.channel.order(Order::Open(OpenOrder {
            access,
            payload: 0..place.len as usize,
            header: head,
            opening,
            place: to,
            from,
        }));
        Ok(())
    }
}

/// The opening of the train of `trailer`, with its target. `None` if another thread must not open it; or if an opening
/// into its place is in progress, which is not called off for a train that may be forged.
///
/// # Errors
/// It is a duplicate, or no key fits it.
fn hand_out(
    unsealer: &mut Unsealer,
    memory: &Registry,
    place: Span,
    trailer: &Trailer,
) -> Result<Option<(Opening, *mut u8)>, DropReason> {
    let opening = unsealer.opener()?.hand_out(trailer)?;
    let exclusive = memory.is_exclusive(place.region);
    let to = memory.prediction(place).filter(|_| exclusive);
    Ok(to.map(|to| (opening, to)))
}

/// The header after the train in `bytes`, also as bytes, and the trailer. `None` if `bytes` is not exactly one train.
fn whole_train(bytes: &[u8]) -> Option<([u8; HEADER_LEN], Header, Trailer)> {
    let (rest, trailer) = bytes.split_last_chunk::<TRAILER_LEN>()?;
    let (rest, head) = rest.split_last_chunk::<HEADER_LEN>()?;
    let header = Header::parse(head).ok()?;
    let train = Train::of(&header).ok()??;
    let whole = rest.len() == train.len as usize + usize::from(train.padding);
    whole.then_some((*head, header, *trailer))
}

#[cfg(test)]
#[path = "handed_tests.rs"]
mod tests;
