//! Sends past the socket: assembles each datagram in the outgoing frame, in one pass over its payload.

use super::sealing::{SealError, seal_datagram, seal_operation};
use super::{Protection, Sender};
use crate::error::LaneError;
use crate::ethernet::Queues;
use crate::lane::Turn;
use crate::memory::Registry;
use std::io;
use zerolane_core::{ControlDatagram, DataBurst, OperationBurst, Span, Transmit};
use zerolane_handshake::Exchange;

impl Sender {
    /// Sends `transmit` by `queues`: all of it, or nothing if there is no room.
    pub(super) fn framed(
        &mut self,
        queues: &mut Queues,
        transmit: &Transmit,
        exchange: Option<&mut Exchange>,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        let datagrams = match transmit {
            Transmit::Handshake | Transmit::Control(_) => 1,
            Transmit::Data(it) => it.segments,
            Transmit::Operations(it) => it.segments,
        };
        if !queues.has_room(datagrams as usize) {
            return Ok(Err(no_room()));
        }
        match transmit {
            Transmit::Handshake => {
                let message =
                    exchange.and_then(|it| it.message(turn.now, || crate::seal::random().ok()));
                if let Some(message) = message {
                    turn.account.datagrams_sent += 1;
                    let none = &mut Protection::Plain;
                    put(none, queues, (message.bytes(), None), turn.memory)?;
                }
            }
            Transmit::Control(it) => self.framed_control(queues, it, turn),
            Transmit::Data(it) => self.framed_data(queues, it, turn)?,
            Transmit::Operations(it) => self.framed_operations(queues, it, turn)?,
        }
        let calls = match transmit {
            Transmit::Handshake | Transmit::Control(_) => &mut turn.account.tx_control_syscalls,
            Transmit::Data(_) | Transmit::Operations(_) => &mut turn.account.tx_data_syscalls,
        };
        Ok(queues.flush(calls))
    }

    fn framed_control(&mut self, queues: &mut Queues, it: &ControlDatagram, turn: &mut Turn<'_>) {
        let Some(place) = queues.place() else {
            return;
        };
        let content = it.bytes();
        let put = match &mut self.protection {
            Protection::Plain => {
                let len = it.pad_to.max(content.len());
                let room = place.get_mut(..len);
                room.map(|room| {
                    room[..content.len()].copy_from_slice(content);
                    room[content.len()..].fill(0);
                    len
                })
            }
            Protection::Sealed(keys) => seal_operation(keys, content, it.pad_to, place).ok(),
        };
        // A path probe longer than any frame counts as lost.
        if let Some(len) = put {
            turn.account.datagrams_sent += 1;
            queues.push(len);
        }
    }

    fn framed_data(
        &mut self,
        queues: &mut Queues,
        burst: &DataBurst,
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        self.headers(burst, turn.core.uses_checksums(), turn.memory)?;
        self.count_payload(burst, turn);
        let mut at = 0;
        for head in self.buffers.headers.iter().take(burst.segments as usize) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            let what = (&head[..], Some(burst.span.part(at, len)));
            put(&mut self.protection, queues, what, turn.memory)?;
            at += len;
        }
        Ok(())
    }

    fn framed_operations(
        &mut self,
        queues: &mut Queues,
        burst: &OperationBurst,
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        self.grow(turn.now);
        turn.account.datagrams_sent += u64::from(burst.segments);
        for datagram in burst.datagrams() {
            let payload = self.push_datagram(datagram, turn)?;
            let what = (&self.buffers.small[..], payload);
            put(&mut self.protection, queues, what, turn.memory)?;
        }
        Ok(())
    }
}

/// Sends a datagram of `head` and the bytes of `payload`, sealed in protected modes. It counts as lost if the
/// cryptography refuses it.
fn put(
    protection: &mut Protection,
    queues: &mut Queues,
    (head, payload): (&[u8], Option<Span>),
    memory: &Registry,
) -> Result<(), LaneError> {
    let Some(place) = queues.place() else {
        return Ok(());
    };
    let put = match protection {
        Protection::Plain => copy(head, payload, place, memory),
        Protection::Sealed(keys) => seal_datagram(keys, (head, payload), place, memory),
    };
    match (put, payload) {
        (Ok(len), _) => queues.push(len),
        (Err(SealError::Gone), Some(span)) => return Err(LaneError::Fault(span.region)),
        (Err(_), _) => {}
    }
    Ok(())
}

/// Copies an unsealed datagram to the start of `place`. Returns its length.
fn copy(
    head: &[u8],
    payload: Option<Span>,
    place: &mut [u8],
    memory: &Registry,
) -> Result<usize, SealError> {
    let len = head.len() + payload.map_or(0, |it| it.len as usize);
    let place = place.get_mut(..len).ok_or(SealError::Refused)?;
    let (start, rest) = place.split_at_mut(head.len());
    start.copy_from_slice(head);
    match payload {
        Some(span) if !memory.read(span, rest) => Err(SealError::Gone),
        _ => Ok(len),
    }
}

/// The error of a socket without room.
fn no_room() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    #[test]
    fn no_room__is_waited_for_as_a_full_socket_is() {
        assert!(crate::datagram::message::is_full(&super::no_room()));
    }
}
