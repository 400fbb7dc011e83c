//! Assembles sealed datagrams: one contiguous piece for each burst, written in one pass over the payload, and cheaper
//! for the kernel to take than alternating headers and payload.

use crate::datagram::message::AROUND;
use crate::memory::Registry;
use crate::seal::{Sealer, TRAILER_LEN, Trailer};
use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};
use zerolane_core::{ControlDatagram, DataBurst, Span};
use zerolane_handshake::Cipher;
use zerolane_wire::{HEADER_LEN, Packet, Train};

/// Bytes of the largest burst, with headers and seals.
const STAGE: usize = 65_536;

/// Why there is nothing to send.
#[derive(Clone, Copy, Debug)]
pub(in crate::datagram) enum SealError {
    /// The payload is gone: a mapped file shrank.
    Gone,
    /// There are no keys yet, the cryptography refuses, or the core asks for more than fits a datagram. Never observed;
    /// counts as lost.
    Refused,
}

thread_local! {
    /// The room of all connections that this thread drives: a thousand of them share one.
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

#[derive(Debug, Default)]
pub(in crate::datagram) struct SealBuffer {
    /// Absent until the key exchange is over.
    sealer: Option<Sealer>,
    /// Lent by the thread for the length of a call: its content has left when the call ends.
    bytes: Box<[u8]>,
}

impl SealBuffer {
    /// Starts without room: datagrams can be staged only between [`SealBuffer::lend`] and [`SealBuffer::give_back`].
    pub(in crate::datagram) fn new(sealer: Sealer) -> SealBuffer {
        SealBuffer {
            sealer: Some(sealer),
            bytes: Box::default(),
        }
    }

    /// Takes the thread's room.
    pub(in crate::datagram) fn lend(&mut self) {
        self.bytes = SPARE.take().unwrap_or_else(|| vec![0; STAGE].into());
    }

    /// Returns the room to the thread's other connections.
    pub(in crate::datagram) fn give_back(&mut self) {
        SPARE.set(Some(std::mem::take(&mut self.bytes)));
    }

    pub(super) fn cipher(&self) -> Option<Cipher> {
        self.sealer.as_ref().map(Sealer::cipher)
    }

    pub(super) fn sealer(&mut self) -> Result<&mut Sealer, SealError> {
        self.sealer.as_mut().ok_or(SealError::Refused)
    }

    /// Seals a control datagram: its header, and its options or padding.
    pub(super) fn control(&mut self, datagram: &ControlDatagram) -> Result<&[u8], SealError> {
        self.operation(datagram.bytes(), datagram.pad_to)
    }

    /// Seals a control operation that belongs to no connection.
    pub(in crate::datagram) fn packet(&mut self, packet: &Packet) -> Result<&[u8], SealError> {
        let (bytes, len) = packet.emit();
        self.operation(&bytes[..len], 0)
    }

    fn operation(&mut self, content: &[u8], pad_to: usize) -> Result<&[u8], SealError> {
        let sealer = self.sealer.as_mut().ok_or(SealError::Refused)?;
        let len = seal_operation(sealer, content, pad_to, &mut self.bytes)?;
        Ok(&self.bytes[..len])
    }

    /// Seals a burst: `headers` and the payload of `burst`, one datagram after another.
    pub(super) fn data(
        &mut self,
        burst: &DataBurst,
        headers: &[[u8; HEADER_LEN]],
        memory: &Registry,
    ) -> Result<&[u8], SealError> {
        let (mut at, mut filled) = (0, 0);
        for header in headers.iter().take(burst.segments as usize) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            filled = self.append(filled, header, Some(burst.span.part(at, len)), memory)?;
            at += len;
        }
        Ok(&self.bytes[..filled])
    }

    /// Seals a train as one unit, in `room` or the thread's: payload, padding, header, trailer.
    pub(super) fn train<'r>(
        &'r mut self,
        burst: &DataBurst,
        train: Train,
        room: Option<&'r mut [u8]>,
        memory: &Registry,
    ) -> Result<&'r [u8], SealError> {
        let len = train.len as usize;
        let head = burst.train_header(train).emit();
        let behind = len + usize::from(train.padding);
        let end = behind + AROUND;
        let sealer = self.sealer.as_mut().ok_or(SealError::Refused)?;
        let room = room.unwrap_or(&mut self.bytes);
        let place = room.get_mut(..end).ok_or(SealError::Refused)?;
        let (payload, rest) = place.split_at_mut(len);
        let trailer = seal_span(sealer, &head, burst.span, payload, memory)?;
        rest[..behind - len].fill(0);
        rest[behind - len..][..HEADER_LEN].copy_from_slice(&head);
        rest[behind - len + HEADER_LEN..].copy_from_slice(&trailer);
        Ok(place)
    }

    /// Seals one datagram at `at`, made of `head` and the bytes of `payload`. Returns its end.
    pub(super) fn append(
        &mut self,
        at: usize,
        head: &[u8],
        payload: Option<Span>,
        memory: &Registry,
    ) -> Result<usize, SealError> {
        let sealer = self.sealer.as_mut().ok_or(SealError::Refused)?;
        let place = self.bytes.get_mut(at..).ok_or(SealError::Refused)?;
        let len = seal_datagram(sealer, (head, payload), place, memory)?;
        Ok(at + len)
    }

    /// The staged bytes before `end`.
    pub(super) fn staged(&self, end: usize) -> &[u8] {
        &self.bytes[..end]
    }
}

/// Seals a control operation at the start of `place`, padded to `pad_to` bytes. Returns its length.
pub(super) fn seal_operation(
    sealer: &mut Sealer,
    content: &[u8],
    pad_to: usize,
    place: &mut [u8],
) -> Result<usize, SealError> {
    let len = pad_to.max(content.len() + TRAILER_LEN);
    let place = place.get_mut(..len).ok_or(SealError::Refused)?;
    place[..content.len()].copy_from_slice(content);
    place[content.len()..].fill(0);
    seal(sealer, place)?;
    Ok(len)
}

/// Seals a datagram of `head` and the bytes of `payload` at the start of `place`. Returns its length.
pub(super) fn seal_datagram(
    sealer: &mut Sealer,
    (head, payload): (&[u8], Option<Span>),
    place: &mut [u8],
    memory: &Registry,
) -> Result<usize, SealError> {
    let len = payload.map_or(0, |span| span.len as usize);
    let end = head.len() + len + TRAILER_LEN;
    let place = place.get_mut(..end).ok_or(SealError::Refused)?;
    let (start, rest) = place.split_at_mut(head.len());
    start.copy_from_slice(head);
    if let Some(span) = payload {
        if let Ok(header) = head.try_into() {
            let (payload, trailer) = rest.split_last_chunk_mut().ok_or(SealError::Refused)?;
            *trailer = seal_span(sealer, header, span, payload, memory)?;
            return Ok(end);
        }
        if !memory.read(span, &mut rest[..len]) {
            return Err(SealError::Gone);
        }
    }
    seal(sealer, place)?;
    Ok(end)
}

/// Seals the bytes of `span` with `header` into `place`, which has the same length: in one pass if only the lane
/// accesses them, or if the cipher accepts their address.
fn seal_span(
    sealer: &mut Sealer,
    header: &[u8; HEADER_LEN],
    span: Span,
    place: &mut [u8],
    memory: &Registry,
) -> Result<Trailer, SealError> {
    let shared = memory.shared_source(span).filter(|_| sealer.seals_at());
    let sealed = if let Some(source) = memory.bytes(span) {
        sealer.seal_from(header, source, place)
    } else if let Some(source) = shared {
        // SAFETY: the registry has these bytes open, for this turn; `place` is the lane's own. Others access exported
        // memory atomically only, and never as a slice. The bytes are whole words, which libaegis loads once and by
        // vectors, so that none is torn.
        let sealed = unsafe { sealer.seal_at(header, (source, span.len as usize), place) };
        // As at the end of `shared::load`: later reads are no older.
        fence(Ordering::Acquire);
        sealed
    } else if memory.read(span, place) {
        sealer.seal(header, place)
    } else {
        return Err(SealError::Gone);
    };
    sealed.ok_or(SealError::Refused)
}

/// Seals a datagram that has room for the trailer at its end.
fn seal(sealer: &mut Sealer, datagram: &mut [u8]) -> Result<(), SealError> {
    let (header, rest) = datagram.split_first_chunk_mut().ok_or(SealError::Refused)?;
    let (payload, trailer) = rest.split_last_chunk_mut().ok_or(SealError::Refused)?;
    *trailer = sealer.seal(header, payload).ok_or(SealError::Refused)?;
    Ok(())
}
