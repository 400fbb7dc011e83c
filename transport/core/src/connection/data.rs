//! Dispatches each payload header that arrives, and returns the payload's placement. Hot path.

use super::Connection;
use crate::counters::DropReason;
use crate::receiving::{Claim, DatagramSlot, Placement};
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::{HANDLE, TransferId};
use zerolane_wire::{DatagramPart, Flags, Header, Op, RequestToSend, Target, Train};

impl Connection {
    /// Takes the header of a Data operation with `len` bytes of payload, and returns the payload's placement.
    /// Consecutive STUs that continue each other ([`continues`]), of which only the last may be shorter, may be passed
    /// as one run: `header` and `stu` (payload bytes) are the first one's, `len` is the sum.
    ///
    /// `landed` is the payload's present place, if a forecast placed it. The lane must do the ordered move before it
    /// polls events or transmits.
    ///
    /// [`continues`]: Header::continues
    pub fn on_data(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
        stu: u32,
        landed: Option<Span>,
    ) -> Placement {
        self.cx.enter(now);
        let stus = len.div_ceil(stu.max(1)).max(1);
        self.cx.counters.stus_received += u64::from(stus);
        let placement = match self.place(header, len, stu) {
            Ok(Placement::Move(span)) if landed == Some(span) => Placement::InPlace,
            Ok(Placement::Move(span)) => {
                self.receiving.on_moved(span.len);
                Placement::Move(span)
            }
            Ok(placement) => placement,
            Err(reason) => {
                self.cx.counters.count_drop(reason, u64::from(stus));
                Placement::Drop(reason)
            }
        };
        self.settle();
        placement
    }

    /// Whether `header`, with `len` bytes of payload, belongs to the next message, and no receive is posted for it. One
    /// that is posted now takes it; otherwise it is deferred. Cheap if there are receives.
    pub fn lacks_receive(&self, header: &Header, len: u32) -> bool {
        let (cx, session) = (&self.cx, &self.session);
        self.responder.lacks_receive(cx, header, len)
            && header.op == Op::Data
            && session.is_established()
            && session.owns(cx, header.d_port, header.d_key)
    }

    /// Marks claimed payload as received. It must be in its place, or move there before the lane polls events or
    /// transmits. `stu`: payload bytes of its STUs.
    ///
    /// # Errors
    /// The claim no longer holds. Nothing is marked, and the payload is dropped.
    pub fn on_placed(
        &mut self,
        now: Instant,
        header: &Header,
        claim: Claim,
        stu: u32,
    ) -> Result<(), DropReason> {
        self.cx.enter(now);
        let stus = (claim.span().len as u32).div_ceil(stu.max(1)).max(1);
        self.cx.counters.stus_received += u64::from(stus);
        let placed = self.place_granted(header, Ok(claim), stu);
        if let Err(reason) = placed {
            self.cx.counters.count_drop(reason, u64::from(stus));
        }
        self.settle();
        placed.map(drop)
    }

    /// Marks the claimed payload of a train, whose datagrams had `datagram` bytes, as received: see
    /// [`Connection::on_placed`].
    ///
    /// # Errors
    /// As [`Connection::on_placed`].
    pub fn on_train(
        &mut self,
        now: Instant,
        header: &Header,
        claim: Claim,
        datagram: u32,
    ) -> Result<(), DropReason> {
        self.cx.counters.trains_received += 1;
        let data = Train::data(header);
        if let Some(s_id) = Train::announced(header)
            && let Err(reason) = self.on_announced_by_train(now, data.d_id, s_id)
        {
            self.on_dropped(reason);
            return Err(reason);
        }
        let stu = datagram.saturating_sub(self.cx.overhead()).max(1);
        self.on_placed(now, &data, claim, stu)?;
        let len = claim.span().len as u32;
        self.receiving.on_train(len.div_ceil(stu));
        Ok(())
    }

    /// Takes a train that is a datagram, which the lane has authenticated, and returns its place.
    ///
    /// # Errors
    /// Why it must be dropped.
    pub fn on_datagram_train(
        &mut self,
        now: Instant,
        header: &Header,
    ) -> Result<DatagramSlot, DropReason> {
        self.cx.enter(now);
        self.cx.counters.trains_received += 1;
        let owned = self.owns(header) && self.session.is_established();
        let taken = match (Train::of(header), owned) {
            (Ok(Some(train)), true) if DatagramPart::is(header) => {
                self.session.on_heard(&mut self.cx);
                self.receiving.on_datagram(&mut self.cx, header, train.len)
            }
            _ => Err(DropReason::Unexpected),
        };
        if let Err(reason) = taken {
            self.cx.counters.count_drop(reason, 1);
        }
        self.settle();
        taken
    }

    /// Counts a train of frames in so many datagrams, which the lane has authenticated. Each frame must then be shown
    /// as the Data that it would be on its own.
    pub fn on_frames_train(&mut self, datagrams: u32) {
        self.cx.counters.trains_received += 1;
        self.receiving.on_train(datagrams);
    }

    /// Counts claimed payload that was not received in its place, and was moved there.
    pub fn on_moved(&mut self, bytes: u64) {
        self.receiving.on_moved(bytes);
    }

    fn place_granted(
        &mut self,
        header: &Header,
        claim: Result<Claim, DropReason>,
        stu: u32,
    ) -> Result<Span, DropReason> {
        self.receiving.note_burst(&self.cx, header);
        let span = self.receiving.on_data(&mut self.cx, header, claim, stu)?;
        self.session.on_heard(&mut self.cx);
        Ok(span)
    }

    /// A train announces the peer's Transfer `s_id`, which was granted to receive `id` in advance.
    fn on_announced_by_train(
        &mut self,
        now: Instant,
        id: TransferId,
        s_id: u32,
    ) -> Result<(), DropReason> {
        let Some(rts) = self.receiving.announced_by_train(id, s_id) else {
            return Ok(());
        };
        self.cx.enter(now);
        if self.receiving.on_request_to_send(&mut self.cx, &rts)? {
            self.match_target(&rts);
        }
        Ok(())
    }

    /// Counts a train that was dropped because a part was missing or wrong.
    pub fn on_spoiled_train(&mut self) {
        self.cx.counters.trains_broken += 1;
    }

    /// Takes the value for which [`Placement::Value`] was returned.
    pub fn on_value(&mut self, now: Instant, number: u32, id: TransferId, value: u64) {
        self.cx.enter(now);
        self.initiator
            .on_value(&mut self.cx, &mut self.sending, number, id, value);
        self.settle();
    }

    /// Counts a datagram that the lane dropped: its checksum was wrong, or it could not be opened.
    pub fn on_dropped(&mut self, reason: DropReason) {
        self.cx.counters.count_drop(reason, 1);
    }

    /// Takes the header of eager Data, which announces its Transfer.
    fn place_eager(
        &mut self,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Placement, DropReason> {
        let rts = RequestToSend::of_eager(header, len).map_err(|_| DropReason::Malformed)?;
        self.session.on_heard(&mut self.cx);
        self.receiving.note_burst(&self.cx, header);
        let placed = self.take_eager(&rts, header, len, stu);
        self.receiving
            .answer_eager(&mut self.cx, header, placed.is_err());
        placed
    }

    fn take_eager(
        &mut self,
        rts: &RequestToSend,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Placement, DropReason> {
        let Connection {
            cx,
            sending,
            receiving,
            initiator,
            responder,
            ..
        } = self;
        // Number of the message, if the payload is the message itself.
        let bare = match rts.target {
            Target::Message(number) if header.flags.contains(Flags::MEMORY) => Some(number),
            _ => None,
        };
        if bare.is_some() {
            initiator.on_piggyback(cx, sending, header.b_id);
        }
        if receiving.on_eager_announced(cx, rts)? {
            let awaited = header.flags.contains(Flags::AWAITED);
            let execute = |number| responder.on_bare_message(cx, receiving, number, rts, awaited);
            if !bare.is_some_and(execute) {
                self.match_target(rts);
            }
            self.receiving.hold(&mut self.cx, rts)?;
        }
        self.receiving.on_eager(&mut self.cx, rts, header, len, stu)
    }

    fn place(&mut self, header: &Header, len: u32, stu: u32) -> Result<Placement, DropReason> {
        let Connection {
            cx,
            session,
            sending,
            receiving,
            initiator,
            responder,
        } = self;
        // A datagram of frames is no operation; its frames are. A train has its header at the end.
        let others = [Flags::FRAMES, Flags::TRAIN];
        if header.op != Op::Data || others.iter().any(|&it| header.flags.contains(it)) {
            return Err(DropReason::Unexpected);
        }
        if !session.owns(cx, header.d_port, header.d_key) {
            return Err(DropReason::WrongKey);
        }
        if !session.is_established() {
            return Err(DropReason::Unexpected);
        }
        if DatagramPart::is(header) {
            session.on_heard(cx);
            let slot = receiving.on_datagram(cx, header, len);
            return slot.map(Placement::Datagram);
        }
        if header.flags.contains(Flags::EAGER) {
            return self.place_eager(header, len, stu);
        }
        if header.d_id & HANDLE != 0 {
            session.on_heard(cx);
            // Payload granted to a large put is identified by its Block, not by the handle.
            initiator.on_piggyback(cx, sending, header.param);
            return responder.on_put(cx, receiving, header, len);
        }
        let claim = receiving.claim(header, len);
        // Ungranted payload may answer a Get or a FetchOp.
        if claim == Err(DropReason::NoGrant)
            && let Some(placement) = initiator.on_answer(cx, sending, header, len)?
        {
            session.on_heard(cx);
            return Ok(placement);
        }
        self.place_granted(header, claim, stu).map(Placement::Move)
    }
}
