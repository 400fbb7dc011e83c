//! Seals datagrams into the lane's memory: one contiguous piece for each burst, written in one pass over the payload, and
//! cheaper for the kernel to take than alternating headers and payload.

use crate::datagram::message::{AROUND, emit_train_end};
use crate::memory::Registry;
use crate::seal::{Sealer, TRAILER_LEN, Trailer};
use std::sync::atomic::{Ordering, fence};
use zerolane_core::{DataBurst, Span};
use zerolane_wire::{HEADER_LEN, Train};

/// Bytes of the largest burst, with headers and seals.
pub(super) const STAGE: usize = 65_536;

/// The keys of a connection that seals, once the key exchange is over.
pub(in crate::datagram) type Keys = Option<Box<Sealer>>;

/// Why there is nothing to send.
#[derive(Clone, Copy, Debug)]
pub(in crate::datagram) enum SealError {
    /// The payload is gone: a mapped file shrank.
    Gone,
    /// There are no keys yet, the cryptography refuses, or the core asks for more than fits a datagram. Never observed;
    /// counts as lost.
    Refused,
}

/// Seals a burst at the start of `place`: `headers` and the payload of `burst`, one datagram after another. Returns its
/// length.
pub(super) fn seal_burst(
    keys: &mut Keys,
    burst: &DataBurst,
    headers: &[[u8; HEADER_LEN]],
    place: &mut [u8],
    memory: &Registry,
) -> Result<usize, SealError> {
    let (mut at, mut filled) = (0, 0);
    for header in headers.iter().take(burst.segments as usize) {
        let len = u64::from(burst.stu).min(burst.span.len - at);
        let what = (&header[..], Some(burst.span.part(at, len)));
        filled += seal_datagram(keys, what, &mut place[filled..], memory)?;
        at += len;
    }
    Ok(filled)
}

/// Seals a train as one unit at the start of `place`: payload, padding, header, trailer. Returns its length.
pub(super) fn seal_train(
    keys: &mut Keys,
    burst: &DataBurst,
    train: Train,
    place: &mut [u8],
    memory: &Registry,
) -> Result<usize, SealError> {
    let sealer = keys.as_mut().ok_or(SealError::Refused)?;
    let head = burst.train_header(train).emit();
    let end = train.len as usize + usize::from(train.padding) + AROUND;
    let place = place.get_mut(..end).ok_or(SealError::Refused)?;
    let (payload, rest) = place.split_at_mut(train.len as usize);
    let trailer = seal_span(sealer, &head, burst.span, payload, memory)?;
    emit_train_end(rest, train, &head, &trailer);
    Ok(end)
}

/// Seals a train of `content` as one unit at the start of `place`. Returns its length.
pub(super) fn seal_bytes(
    keys: &mut Keys,
    (head, train): (&[u8; HEADER_LEN], Train),
    content: &[u8],
    place: &mut [u8],
) -> Result<usize, SealError> {
    let sealer = keys.as_mut().ok_or(SealError::Refused)?;
    let end = content.len() + usize::from(train.padding) + AROUND;
    let place = place.get_mut(..end).ok_or(SealError::Refused)?;
    let (sealed, rest) = place.split_at_mut(content.len());
    let trailer = sealer
        .seal_from(head, content, sealed)
        .ok_or(SealError::Refused)?;
    emit_train_end(rest, train, head, &trailer);
    Ok(end)
}

/// Seals a control operation at the start of `place`, padded to `pad_to` bytes. Returns its length.
pub(in crate::datagram) fn seal_operation(
    keys: &mut Keys,
    content: &[u8],
    pad_to: usize,
    place: &mut [u8],
) -> Result<usize, SealError> {
    let sealer = keys.as_mut().ok_or(SealError::Refused)?;
    let len = pad_to.max(content.len() + TRAILER_LEN);
    let place = place.get_mut(..len).ok_or(SealError::Refused)?;
    place[..content.len()].copy_from_slice(content);
    place[content.len()..].fill(0);
    seal(sealer, place)?;
    Ok(len)
}

/// Seals a datagram of `head` and the bytes of `payload` at the start of `place`. Returns its length.
pub(super) fn seal_datagram(
    keys: &mut Keys,
    (head, payload): (&[u8], Option<Span>),
    place: &mut [u8],
    memory: &Registry,
) -> Result<usize, SealError> {
    let sealer = keys.as_mut().ok_or(SealError::Refused)?;
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

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    /// The core is told of the end of the key exchange, but no datagram may leave in plain text if it is mistaken.
    #[test]
    fn seal__without_keys_nothing_is_written() {
        let (content, memory, mut room) = ([7; HEADER_LEN], Registry::default(), [0; 256]);
        let operation = seal_operation(&mut None, &content, 0, &mut room);
        let datagram = seal_datagram(&mut None, (&content, None), &mut room, &memory);
        for refused in [operation, datagram] {
            assert!(matches!(refused, Err(SealError::Refused)));
        }
        assert_eq!(room, [0; 256]);
    }
}
