//! Reports to the user how requests ended.

use super::direct::Direct;
use super::post::{Posted, RequestInfo};
use super::receives::is_unused;
use super::{Driver, WorkKind};
use crate::lane::Lane;
use crate::memory::Memory;
use core::fmt;
use std::ops::Deref;
use zerolane_core::{Delivery, Event, RegionId, RemoteRegion, TransferError, TransferId, limits};
use zerolane_wire::Reason;

/// A request that is over, and the memory that was posted for it.
#[derive(Debug)]
pub struct Completion {
    /// The request; 0 for an immediate of the peer.
    pub id: TransferId,
    /// The kind of the request.
    pub kind: WorkKind,
    /// The user's number for the request: see [`Report`](super::Report).
    pub context: u64,
    /// Bytes moved, or why the request failed.
    pub result: Result<u64, TransferError>,
    /// The memory posted; `None` if it was borrowed or copied, or there was none.
    pub memory: Option<Memory>,
    /// The memory came from the connection's [`ReceivePool`](crate::ReceivePool).
    pub pooled: bool,
    /// The delivery that the sender requested (receives only).
    pub delivery: Delivery,
    /// The old word of an atomic operation; the number of an immediate; for a receive or get that failed, the number of
    /// bytes at its start that are verified and in place.
    pub value: u64,
    /// The control of a received message.
    pub control: MessageControl,
    /// The region that was opened by name; of an immediate, the one of this end that its put wrote.
    pub region: Option<RemoteRegion>,
}

impl Completion {
    /// The completion of a request that was over when it was posted.
    pub(super) fn of_direct(done: Direct, info: RequestInfo, memory: Option<Memory>) -> Completion {
        Completion {
            id: done.id,
            kind: info.kind,
            context: info.report.context,
            result: done.result,
            memory,
            pooled: false,
            delivery: Delivery::Interrupt,
            value: done.value,
            control: MessageControl::default(),
            region: None,
        }
    }

    /// The same without its memory, if that is a copy.
    fn without_copy(self, copied: bool) -> Completion {
        let memory = self.memory.filter(|_| !copied);
        Completion { memory, ..self }
    }
}

/// The control of a message: up to 128 bytes.
#[derive(Clone, Copy)]
pub struct MessageControl {
    bytes: [u8; limits::MAX_CONTROL as usize],
    len: u8,
}

impl Default for MessageControl {
    fn default() -> MessageControl {
        MessageControl {
            bytes: [0; limits::MAX_CONTROL as usize],
            len: 0,
        }
    }
}

impl Deref for MessageControl {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for MessageControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MessageControl").field(&&**self).finish()
    }
}

/// A completion whose memory the lane still holds.
pub(super) struct Held {
    pub(super) region: RegionId,
    pub(super) completion: Completion,
    /// Its memory is a copy, which the user does not get.
    copied: bool,
    /// Whether to report its end.
    reported: bool,
}

/// How a request ended.
struct Ending {
    id: TransferId,
    /// `None`: the number of bytes posted.
    result: Option<Result<u64, TransferError>>,
    delivery: Delivery,
    value: u64,
    /// Length of the control in bytes.
    control: u32,
    region: Option<RemoteRegion>,
}

impl Ending {
    fn of(id: TransferId, result: Option<Result<u64, TransferError>>) -> Ending {
        Ending {
            id,
            result,
            delivery: Delivery::Interrupt,
            value: 0,
            control: 0,
            region: None,
        }
    }
}

impl<L: Lane> Driver<L> {
    pub(super) fn collect(&mut self) {
        self.place_held();
        self.release_held();
        self.take_back_unmatched();
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Connected(_) => self.connected = true,
                Event::Closed(reason) => {
                    self.closed = Some(reason);
                    self.receives.stop_waiting();
                    self.completions.end();
                }
                Event::Announced { .. } => {}
                Event::Sent { id } => self.end(&Ending::of(id, None)),
                Event::Received {
                    id,
                    length,
                    delivery,
                } => self.end(&Ending {
                    delivery,
                    ..Ending::of(id, Some(Ok(length)))
                }),
                Event::Fetched { id, value } => self.end(&Ending {
                    value,
                    ..Ending::of(id, Some(Ok(8)))
                }),
                Event::Region { id, region } => self.end(&Ending {
                    region: Some(region),
                    ..Ending::of(id, None)
                }),
                Event::Message {
                    id,
                    control,
                    payload,
                } => self.end(&Ending {
                    control,
                    ..Ending::of(id, Some(Ok(payload)))
                }),
                Event::Immediate {
                    value,
                    region,
                    length,
                } => self.completions.push(Completion {
                    id: 0,
                    kind: WorkKind::Immediate,
                    context: 0,
                    result: Ok(length),
                    memory: None,
                    pooled: false,
                    delivery: Delivery::Interrupt,
                    value: u64::from(value),
                    control: MessageControl::default(),
                    region: Some(region),
                }),
                Event::Failed { id, error } => {
                    let value = self.core.take_arrived(id);
                    self.end(&Ending {
                        value,
                        ..Ending::of(id, Some(Err(error)))
                    });
                }
            }
        }
        if self.completions.has_unnotified() && self.core.announced().is_some() {
            // The peer waits for a receive, and memory for it may be in a completion that no wait returned for.
            self.completions.notify_all();
        }
        self.report_unread();
    }

    /// Sets how many completions were taken and not yet read by the user: the peer waits for such a user as it does for
    /// one that takes none.
    pub fn set_unread_external(&mut self, unread: usize) {
        self.unread_external = unread;
        self.report_unread();
    }

    pub(super) fn report_unread(&mut self) {
        self.core
            .set_unread(self.completions.notified() + self.unread_external);
    }

    /// Adds the completion of a request that the caller posts in pieces, of which none is in progress.
    pub fn add_completion(&mut self, completion: Completion) {
        self.completions.push(completion);
        self.report_unread();
    }

    /// Takes the next completion that is there already and not deferred.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let next = self.completions.pop()?;
        self.report_unread();
        Some(next)
    }

    /// Whether no request `id` is in progress, and nothing holds its memory.
    pub fn is_over(&self, id: TransferId) -> bool {
        !self.posted.contains_key(&id) && !self.held.iter().any(|held| held.completion.id == id)
    }

    /// Takes the completion of request `id`, whatever others are there.
    pub fn take_completion(&mut self, id: TransferId) -> Option<Completion> {
        let taken = self.completions.take(id);
        self.report_unread();
        taken
    }

    /// Sets whether the delivery that a sender requests counts. If not, as unless set, every completion ends a
    /// [`Driver::wait`].
    pub fn honour_delivery(&mut self, honours: bool) {
        self.completions.honour(honours);
        self.report_unread();
    }

    /// Makes the end of request `id` end a [`Driver::wait`], whatever delivery its sender requested, even if the
    /// request is over and its completion deferred. False if there is no such request, or its completion was taken.
    pub fn notify(&mut self, id: TransferId) -> bool {
        if let Some(posted) = self.posted.get_mut(&id) {
            posted.awaited = true;
            return true;
        }
        let found = self.completions.notify(id);
        self.report_unread();
        found || self.held.iter().any(|held| held.completion.id == id)
    }

    /// Reports the end of a request that was over when it was posted, unless the user wants no report.
    pub(super) fn report_direct(
        &mut self,
        done: Direct,
        info: RequestInfo,
        memory: Option<Memory>,
    ) -> TransferId {
        let id = done.id;
        if info.report.signalled || done.result.is_err() {
            self.completions
                .push(Completion::of_direct(done, info, memory));
            self.report_unread();
        }
        id
    }

    /// Reports the end of a request, unless the user wants no report.
    fn end(&mut self, it: &Ending) {
        // The driver does not remember copied puts one by one.
        let posted = self.posted.remove(&it.id);
        let posted = posted.unwrap_or_else(Posted::copied);
        if let Some(region) = posted.region {
            // Before any of its memory is freed.
            self.lane.recall(region);
            self.memory.close(region);
        }
        let result = match it.result {
            Some(Ok(_)) if posted.faulted => Err(TransferError::Refused(Reason::MemoryFault)),
            result => result.unwrap_or(Ok(posted.len)),
        };
        if posted.pooled {
            self.receives.on_message_over();
        }
        let unused = posted.pooled && is_unused(&result);
        let wanted = posted.info.report.signalled || result.is_err();
        let reported = !posted.abandoned && wanted && !unused;
        let held = posted.region.filter(|&region| self.lane.holds(region));
        if !reported && held.is_none() {
            let (context, memory) = (posted.info.report.context, posted.memory);
            self.receives.give_back(posted.pooled, memory, context);
            return self.receives.controls.give_back(posted.info.control);
        }
        let control = self.take_control(&posted, it.control);
        let completion = Completion {
            id: it.id,
            kind: posted.info.kind,
            context: posted.info.report.context,
            result,
            memory: posted.memory,
            pooled: posted.pooled,
            delivery: it.delivery,
            // Its memory is gone, in part or as a whole.
            value: if posted.faulted { 0 } else { it.value },
            control,
            region: it.region,
        };
        match held {
            Some(region) => self.held.push(Held {
                region,
                completion,
                copied: posted.info.copied,
                reported,
            }),
            None => {
                let copied = posted.info.copied;
                self.completions.push(completion.without_copy(copied));
            }
        }
        if posted.awaited {
            self.completions.notify(it.id);
        }
    }

    /// Gives the memory of a completion back, if it is that of a pool.
    pub fn recycle(&mut self, it: Completion) {
        self.receives.give_back(it.pooled, it.memory, it.context);
    }

    fn release_held(&mut self) {
        // Usually there are none.
        if self.held.is_empty() {
            return;
        }
        let lane = &self.lane;
        let released = self.held.extract_if(.., |held| !lane.holds(held.region));
        for held in released {
            let completion = held.completion.without_copy(held.copied);
            match held.reported {
                true => self.completions.push(completion),
                false => self.receives.give_back(
                    completion.pooled,
                    completion.memory,
                    completion.context,
                ),
            }
        }
    }

    /// Takes the received control out of its slot, and frees the slot.
    fn take_control(&mut self, posted: &Posted, len: u32) -> MessageControl {
        let mut control = MessageControl::default();
        let Some(slot) = posted.info.control else {
            return control;
        };
        let span = self.receives.controls.span(slot);
        if self.memory.read(span, &mut control.bytes[..len as usize]) {
            control.len = len as u8;
        }
        self.receives.controls.give_back(Some(slot));
        control
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    /// docs/reference/security.md states the amount: half a MiB, with room for as many more.
    #[test]
    fn memory__of_completions_not_looked_at() {
        assert!(2 * limits::MAX_UNREAD * size_of::<Completion>() <= 1 << 19);
    }
}
