//! Operations on the peer's memory, and messages.

use super::inline::MAX_INLINE;
use super::post::{Posted, Sort};
use super::{Completion, Driver, DriverError, NotPosted};
use crate::{Lane, Memory, Region};
use zerolane_core::{
    Atomic, Connection, Instant, PostError, RegionName, RemotePlace, RemoteRegion, Span,
    TransferError, TransferId, WorkFlags,
};
use zerolane_wire::Rights;

/// What kind of request a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkKind {
    /// A Transfer sent.
    Send,
    /// A Transfer received.
    Receive,
    /// A Transfer offered to the peer's Read.
    Offer,
    /// A Transfer read.
    Read,
    /// A put.
    Put,
    /// A get.
    Get,
    /// An atomic operation.
    FetchOp,
    /// A message sent.
    Message,
    /// A message received.
    MessageReceived,
    /// A put of the peer that came with a number. Nothing was posted for it.
    Immediate,
    /// A region asked for by name.
    Open,
}

impl WorkKind {
    /// Whether this end brings something to the peer: closing waits for it.
    pub fn is_outgoing(self) -> bool {
        matches!(
            self,
            WorkKind::Send
                | WorkKind::Offer
                | WorkKind::Put
                | WorkKind::FetchOp
                | WorkKind::Message
        )
    }
}

impl<L: Lane> Driver<L> {
    /// Puts `memory` at `place`.
    ///
    /// # Errors
    /// See [`PostError`]. The memory comes back.
    pub fn post_put(
        &mut self,
        place: RemotePlace,
        memory: Memory,
        immediate: Option<u32>,
        flags: WorkFlags,
    ) -> Result<TransferId, NotPosted<Memory>> {
        let sort = Sort::new(WorkKind::Put, flags.signalled);
        let told = told(flags);
        self.post(memory, false, sort, |core, now, span| {
            core.post_put(now, place, span, immediate, told)
        })
    }

    /// Puts a copy of at most [`MAX_INLINE`] bytes at `place`: `data` is the caller's again at once.
    ///
    /// # Errors
    /// See [`PostError`]; `Full` also while the copies in flight fill their ring.
    ///
    /// # Panics
    /// `data` is longer.
    pub fn post_put_inline(
        &mut self,
        place: RemotePlace,
        data: &[u8],
        immediate: Option<u32>,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        self.post_inline(data, |core, now, span| {
            core.post_put(now, place, span, immediate, flags)
        })
    }

    fn post_inline(
        &mut self,
        data: &[u8],
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, PostError> {
        assert!(data.len() <= MAX_INLINE, "{} bytes inline", data.len());
        let copied = self
            .inline
            .copy(data, &mut self.memory, || self.core.oldest_work());
        let span = copied.ok().flatten().ok_or(PostError::Full)?;
        let id = post(&mut self.core, self.clock.now(), span)?;
        self.inline.take(id, span);
        Ok(id)
    }

    /// Gets what is at `place` into `region`.
    ///
    /// # Errors
    /// See [`PostError`]. The memory comes back.
    pub fn post_get(
        &mut self,
        place: RemotePlace,
        region: Region,
        flags: WorkFlags,
    ) -> Result<TransferId, NotPosted<Region>> {
        let sort = Sort::new(WorkKind::Get, flags.signalled);
        let told = told(flags);
        self.post(region, true, sort, |core, now, span| {
            core.post_get(now, place, span, told)
        })
    }

    /// Does `atomic` on the word at `place`.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_fetch_op(
        &mut self,
        place: RemotePlace,
        atomic: Atomic,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        let now = self.clock.now();
        let id = self.core.post_fetch_op(now, place, atomic, told(flags))?;
        self.note(id, Sort::new(WorkKind::FetchOp, flags.signalled));
        Ok(id)
    }

    /// Sends a message: up to 128 bytes of control, which are copied, and a payload of any length.
    ///
    /// # Errors
    /// See [`PostError`]; `Full` also while the copies in flight fill their ring. The payload comes back.
    pub fn post_message(
        &mut self,
        control: &[u8],
        payload: Option<Memory>,
        flags: WorkFlags,
    ) -> Result<TransferId, NotPosted<Option<Memory>>> {
        let refused = |reason, memory| NotPosted { reason, memory };
        if control.len() > zerolane_core::limits::MAX_CONTROL as usize {
            return Err(refused(PostError::ControlTooLong, payload));
        }
        let sort = Sort::new(WorkKind::Message, flags.signalled);
        let Some(payload) = payload else {
            let send = |core: &mut Connection, now, control| {
                core.post_message(now, control, None, told(flags))
            };
            let id = self.post_inline(control, send);
            let id = id.map_err(|reason| refused(reason, None))?;
            self.note(id, sort);
            return Ok(id);
        };
        let copied = self
            .inline
            .copy(control, &mut self.memory, || self.core.oldest_work());
        let Some(control) = copied.ok().flatten() else {
            return Err(refused(PostError::Full, Some(payload)));
        };
        let posted = self.post(payload, false, sort, |core, now, payload| {
            core.post_message(now, control, Some(payload), told(flags))
        });
        let id = posted.map_err(|it| refused(it.reason, Some(it.memory)))?;
        self.inline.take(id, control);
        Ok(id)
    }

    /// Receives a message, its payload into `payload`.
    ///
    /// # Errors
    /// See [`PostError`]. The region comes back.
    pub fn post_message_receive(
        &mut self,
        payload: Option<Region>,
    ) -> Result<TransferId, NotPosted<Option<Region>>> {
        let refused = |reason, memory| NotPosted { reason, memory };
        let Some(slot) = self.controls.take(&mut self.memory) else {
            return Err(refused(PostError::Full, payload));
        };
        let sort = Sort {
            control: Some(slot),
            ..Sort::new(WorkKind::MessageReceived, true)
        };
        let control = self.controls.span(slot);
        let posted = match payload {
            Some(region) => self
                .post(region, true, sort, |core, _, payload| {
                    core.post_message_receive(control, Some(payload))
                })
                .map_err(|it| refused(it.reason, Some(it.memory))),
            None => {
                let id = self.core.post_message_receive(control, None);
                if let Ok(id) = id {
                    self.note(id, sort);
                }
                id.map_err(|reason| refused(reason, None))
            }
        };
        if posted.is_err() {
            self.controls.give_back(slot);
        }
        posted
    }

    /// Remembers a request without memory of its own.
    fn note(&mut self, id: TransferId, sort: Sort) {
        self.posted.insert(id, Posted::without_memory(sort));
    }

    /// Puts `data` and waits until it is there.
    ///
    /// # Errors
    /// The put's failure inside, the connection's outside.
    pub fn put(
        &mut self,
        place: RemotePlace,
        data: &[u8],
        immediate: Option<u32>,
    ) -> Result<Result<u64, TransferError>, DriverError> {
        let sort = Sort::new(WorkKind::Put, true);
        let put = self.lend_to_send(data, sort, |core, now, span| {
            core.post_put(now, place, span, immediate, WorkFlags::default())
        });
        Ok(put?.result)
    }

    /// Gets into `buffer` and waits until all of it is there.
    ///
    /// # Errors
    /// The get's failure inside, the connection's outside.
    pub fn get(
        &mut self,
        place: RemotePlace,
        buffer: &mut [u8],
    ) -> Result<Result<u64, TransferError>, DriverError> {
        let sort = Sort::new(WorkKind::Get, true);
        let got = self.lend_to_receive(buffer, sort, |core, now, span| {
            core.post_get(now, place, span, WorkFlags::default())
        });
        Ok(got?.result)
    }

    /// Sends a message whose payload is borrowed, and waits until the peer has it.
    ///
    /// # Errors
    /// The message's failure inside, the connection's outside.
    pub fn send_message(
        &mut self,
        control: &[u8],
        payload: &[u8],
    ) -> Result<Result<u64, TransferError>, DriverError> {
        if control.len() > zerolane_core::limits::MAX_CONTROL as usize {
            return Err(PostError::ControlTooLong.into());
        }
        let copied = self
            .inline
            .copy(control, &mut self.memory, || self.core.oldest_work())?;
        let control = copied.ok_or(PostError::Full)?;
        let mut taken = None;
        let inline = &mut taken;
        let sort = Sort::new(WorkKind::Message, true);
        let sent = self.lend_to_send(payload, sort, |core, now, payload| {
            let flags = WorkFlags::default();
            let id = core.post_message(now, control, Some(payload), flags)?;
            *inline = Some(id);
            Ok(id)
        });
        // Until here nothing else was posted, so the copy was not overwritten.
        if let Some(id) = taken {
            self.inline.take(id, control);
        }
        Ok(sent?.result)
    }

    /// Receives a message, its payload into `payload`, and waits for it.
    ///
    /// # Errors
    /// The connection's; the message's failure is in the completion.
    pub fn receive_message(&mut self, payload: &mut [u8]) -> Result<Completion, DriverError> {
        let slot = self.controls.take(&mut self.memory);
        let slot = slot.ok_or(PostError::Full)?;
        let sort = Sort {
            control: Some(slot),
            ..Sort::new(WorkKind::MessageReceived, true)
        };
        let control = self.controls.span(slot);
        let mut refused = false;
        let received = self.lend_to_receive(payload, sort, |core, _, payload| {
            let posted = core.post_message_receive(control, Some(payload));
            refused = posted.is_err();
            posted
        });
        if refused {
            self.controls.give_back(slot);
        }
        received
    }

    /// Does `atomic` on the word at `place` and waits for the word before.
    ///
    /// # Errors
    /// The operation's failure inside, the connection's outside.
    pub fn fetch_op(
        &mut self,
        place: RemotePlace,
        atomic: Atomic,
    ) -> Result<Result<u64, TransferError>, DriverError> {
        let id = self.post_fetch_op(place, atomic, WorkFlags::default())?;
        let completion = self.await_request(id)?;
        Ok(completion.result.map(|_| completion.value))
    }

    /// Asks for a region of the peer by name and waits for the answer.
    ///
    /// # Errors
    /// The refusal inside, the connection's outside.
    pub fn open_region(
        &mut self,
        name: RegionName,
        rights: Rights,
    ) -> Result<Result<RemoteRegion, TransferError>, DriverError> {
        let now = self.clock.now();
        let id = self.core.request_region(now, name, rights)?;
        self.note(id, Sort::new(WorkKind::Open, true));
        let completion = self.await_request(id)?;
        match completion.result {
            Err(error) => Ok(Err(error)),
            Ok(_) => match self.opened.take() {
                Some(region) => Ok(Ok(region)),
                None => Err(self.closed_error()),
            },
        }
    }
}

/// What the driver keeps memory for is always told to it.
fn told(flags: WorkFlags) -> WorkFlags {
    WorkFlags {
        signalled: true,
        ..flags
    }
}

/// Slots for the control of messages to be received, in pieces that are had as needed.
#[derive(Default)]
pub(super) struct Controls {
    pieces: Vec<Span>,
    free: Vec<u32>,
}

const SLOT: usize = zerolane_core::limits::MAX_CONTROL as usize;
const SLOTS_PER_PIECE: u32 = 32;

impl Controls {
    fn take(&mut self, registry: &mut crate::Registry) -> Option<u32> {
        if self.free.is_empty() {
            let piece = registry.allocate(SLOT * SLOTS_PER_PIECE as usize).ok()?;
            let first = self.pieces.len() as u32 * SLOTS_PER_PIECE;
            self.pieces.push(piece);
            self.free.extend((first..first + SLOTS_PER_PIECE).rev());
        }
        self.free.pop()
    }

    pub(super) fn span(&self, slot: u32) -> Span {
        let (piece, index) = (slot / SLOTS_PER_PIECE, slot % SLOTS_PER_PIECE);
        self.pieces[piece as usize].part(u64::from(index) * SLOT as u64, SLOT as u64)
    }

    pub(super) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }
}
