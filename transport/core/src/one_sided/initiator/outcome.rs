//! Handles the peer's answers to requests, and reports completions to the user.

use super::Initiator;
use super::send_queue::{CompletedRequest, Outcome};
use crate::context::{Context, Debt};
use crate::counters::DropReason;
use crate::event::{Event, TransferError};
use crate::limits;
use crate::profile::Conduct;
use crate::receiving::Receiving;
use crate::request::{RemotePlace, RemoteRegion, Request, RequestKind};
use crate::sending::{Ended, Sending};
use crate::timers::Timer;
use crate::transfer::{HANDLE, TransferId};
use crate::transmit::join;
use zerolane_wire::{Answer, MemoryRegionAvailable, MemoryState, Operation, Reason, RequestAnswer};

impl Initiator {
    /// Takes the value of an atomic operation.
    pub(crate) fn on_value(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        number: u32,
        id: TransferId,
        value: u64,
    ) {
        if !self.send_queue.value(cx.now, number, id, value) {
            return;
        }
        cx.recovery
            .operations_confirmed(number.wrapping_add(1), cx.now);
        cx.owe(Debt::Progress);
        if cx.profile.confirms_operations() {
            let complete = Operation::FetchOpComplete {
                sync: number,
                s_id: id,
            };
            cx.push_control(complete);
        }
        self.report_completed(cx, sending);
    }

    /// The peer sent the low half of the number it expects next.
    pub(crate) fn on_piggyback(&mut self, cx: &mut Context, sending: &mut Sending, low: u16) {
        let expected = self.send_queue.widen(low);
        if !self.send_queue.has_executed(expected.wrapping_sub(1)) {
            self.on_executed(cx, sending, expected);
        }
    }

    /// The peer executed all numbered operations below `expected`.
    pub(crate) fn on_executed(&mut self, cx: &mut Context, sending: &mut Sending, expected: u32) {
        if self.confirm(cx, expected) {
            self.report_completed(cx, sending);
        }
    }

    /// Confirms all numbered operations below `expected`. False if that number is impossible.
    fn confirm(&mut self, cx: &mut Context, expected: u32) -> bool {
        let news = !self.send_queue.has_executed(expected.wrapping_sub(1));
        let right = self.send_queue.confirm(cx.now, expected);
        if news && right {
            cx.recovery.operations_confirmed(expected, cx.now);
            cx.owe(Debt::Progress);
        }
        right
    }

    pub(crate) fn on_memory_state(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        it: &MemoryState,
    ) -> Result<(), DropReason> {
        if !self.confirm(cx, it.expected) {
            return Err(DropReason::Duplicate);
        }
        self.takes_trains = it.trains;
        if it.resend {
            cx.recovery.untime_operation();
            self.go_back(cx);
        }
        self.report_completed(cx, sending);
        Ok(())
    }

    /// Reports the completed numbered operations, in order.
    fn report_completed(&mut self, cx: &mut Context, sending: &mut Sending) {
        if cx.endings.len() > 0 {
            // An End that follows a message may leave now.
            cx.timers.set_earlier(Timer::Answers, cx.now);
        }
        while let Some(over) = self.send_queue.pop() {
            if over.reported {
                report(cx, sending, &over);
            }
        }
        cx.owe(Debt::Start);
    }

    /// An outgoing Transfer ended: reports it to the user.
    pub(crate) fn on_transfer_ended(&mut self, cx: &mut Context, ended: Ended) {
        cx.events.push_back(match ended {
            Ended::Failed(id, error) => Event::Failed { id, error },
            Ended::Complete(id) => Event::Sent { id },
        });
    }

    /// Takes the answer to a request that is no announcement. False if it answers something else.
    pub(crate) fn on_request_answered(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        receiving: &mut Receiving,
        it: &RequestAnswer,
    ) -> bool {
        let id = it.d_id;
        if it.numbered {
            self.on_numbered_answered(cx, sending, it);
            return true;
        }
        let Answer::Refused(reason) = it.answer else {
            return false;
        };
        let known = self.gets.remove(id).is_some()
            || self.forget_request(id)
            || receiving.on_get_refused(cx, id);
        if known {
            let error = TransferError::Refused(reason);
            cx.events.push_back(Event::Failed { id, error });
            cx.owe(Debt::Start);
        }
        known
    }

    fn on_numbered_answered(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        it: &RequestAnswer,
    ) {
        let id = it.d_id;
        // It waits for the peer's program, so it gives no round trip.
        cx.recovery.untime_operation();
        if let Answer::Later(_) = it.answer {
            let until = cx.now + limits::NOT_READY_INTERVAL;
            self.payload_refused_until = cx.now + limits::LATE_RECEIVES;
            if self.send_queue.pause(cx.now, id, until) {
                cx.timers.set_earlier(Timer::Memory, until);
            }
        } else if let Some(number) = self.send_queue.refuse(cx.now, id, |kind| error(kind, it)) {
            cx.push_control(Operation::FetchOpComplete {
                sync: number,
                s_id: id,
            });
        }
        self.report_completed(cx, sending);
    }

    pub(crate) fn on_region_available(
        &mut self,
        cx: &mut Context,
        it: &MemoryRegionAvailable,
    ) -> Result<(), DropReason> {
        let start = RemotePlace {
            handle: it.handle,
            mx: it.mx,
            address: join(it.bufx, it.offset, cx.peer_buffer_log2()),
        };
        if it.handle & HANDLE == 0 || start.address.checked_add(it.length).is_none() {
            return Err(DropReason::Malformed);
        }
        if !self.forget_request(it.d_id) {
            return Err(DropReason::Duplicate);
        }
        cx.recovery.progress();
        let region = RemoteRegion {
            start,
            length: it.length,
            rights: it.rights,
        };
        cx.events.push_back(Event::Region {
            id: it.d_id,
            region,
        });
        cx.owe(Debt::Start);
        Ok(())
    }
}

/// Reports a completed numbered operation.
fn report(cx: &mut Context, sending: &mut Sending, over: &CompletedRequest) {
    let Request { flags, kind, .. } = &over.request;
    let id = over.id;
    let with_payload = matches!(
        kind,
        RequestKind::Message {
            payload: Some(_),
            ..
        }
    );
    let event = match over.outcome {
        // Its Transfer reports.
        Outcome::Done if with_payload => return,
        Outcome::Failed(error) => {
            if with_payload && !sending.cancel_transfer(cx, id, Reason::Cancelled) {
                return;
            }
            Event::Failed { id, error }
        }
        // As a Transfer, the payload of a message always reports.
        _ if !flags.signalled && !matches!(kind, RequestKind::Payload(_)) => return,
        Outcome::Done => Event::Sent { id },
        Outcome::Value(value) => Event::Fetched { id, value },
    };
    cx.events.push_back(event);
}

/// The error that a refusal means to the Initiator.
fn error(kind: &RequestKind, it: &RequestAnswer) -> TransferError {
    let reason = match it.answer {
        Answer::Refused(reason) | Answer::Later(reason) => reason,
    };
    match (kind, reason) {
        (RequestKind::Message { payload, .. }, Reason::MessageTooLarge) => {
            TransferError::MessageTooLarge {
                length: payload.map_or(0, |span| span.len),
                room: it.room,
            }
        }
        (&RequestKind::MessageHead { length, .. }, Reason::MessageTooLarge) => {
            TransferError::MessageTooLarge {
                length: length.into(),
                room: it.room,
            }
        }
        _ => TransferError::Refused(reason),
    }
}
