//! Sends many queued small operations as one burst.

use super::gathered::is_lost_offload;
use super::give::TRAIN_END;
use super::sealing::{SealError, seal_bytes, seal_datagram};
use super::{Buffers, Protection, Sender};
use crate::datagram::message::{emit_train_end, iovec};
use crate::error::LaneError;
use crate::lane::Turn;
use crate::seal::digest::Digest;
use crate::socket;
use socket2::Socket;
use std::io;
use zerolane_core::{OperationBurst, OperationDatagram, Outgoing, Span};
use zerolane_wire::checksum::Sum;
use zerolane_wire::{HEADER_LEN, Header, Train};

/// Longest payload that is copied after its header, so that a whole burst is one piece for the kernel, in bytes. Longer
/// payload is gathered where it lies.
const SHORT: u64 = 256;

impl Sender {
    /// Sends a burst of small operations.
    pub(super) fn operations(
        &mut self,
        socket: &Socket,
        burst: &OperationBurst,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        self.grow(turn.now);
        turn.account.datagrams_sent += u64::from(burst.segments);
        if let Some((train, header)) = burst.as_train() {
            return self.frames_train(socket, burst, (train, &header.emit()), turn);
        }
        if self.segments() && burst.segments > 1 {
            let segment = burst.segment as usize;
            match self.send_datagrams(socket, burst.datagrams(), segment, turn)? {
                Err(error)
                    if is_lost_offload(&error, segment, socket::path_datagram_now(socket)) =>
                {
                    self.gso = false;
                }
                outcome => return Ok(outcome),
            }
        }
        for datagram in burst.datagrams() {
            let sent = self.send_datagrams(socket, std::iter::once(datagram), 0, turn)?;
            if sent.is_err() {
                // The operations that left will be repeated with it, and are counted once.
                return Ok(sent);
            }
        }
        Ok(Ok(()))
    }

    /// Sends a train of frames: a copy, because the frames lie between the payloads.
    fn frames_train(
        &mut self,
        socket: &Socket,
        burst: &OperationBurst,
        (train, head): (Train, &[u8; HEADER_LEN]),
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        self.buffers.small.clear();
        for it in burst.datagrams().flat_map(|it| it.operations()) {
            self.buffers.small.extend_from_slice(it.head);
            if let Some(payload) = it.payload {
                self.push_payload(payload, turn)?;
            }
        }
        let Buffers { small, stage, .. } = &mut *self.buffers;
        let bytes = match &mut self.protection {
            Protection::Plain => {
                let digest = Digest::of(head, small);
                let len = small.len();
                small.resize(len + TRAIN_END, 0);
                let end = emit_train_end(&mut small[len..], train, head, &digest);
                iovec(small.as_ptr(), len + end)
            }
            Protection::Sealed(keys) => match seal_bytes(keys, (head, train), small, stage) {
                Ok(len) => iovec(stage.as_ptr(), len),
                // Counts as lost.
                Err(_) => return Ok(Ok(())),
            },
        };
        self.buffers.iovs.clear();
        self.buffers.iovs.push(bytes);
        turn.account.tx_data_syscalls += 1;
        Ok(self.send_cut(socket, burst.segment as usize, turn.account))
    }

    /// Sends `datagrams`, sealed in protected modes, by one call, segmented every `segment` bytes; 0: as one datagram.
    fn send_datagrams<'a>(
        &mut self,
        socket: &Socket,
        datagrams: impl Iterator<Item = OperationDatagram<'a>> + Clone,
        segment: usize,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        match self.protection {
            Protection::Plain => self.gather_operations(datagrams, turn)?,
            Protection::Sealed(_) => self.seal_operations(datagrams, turn)?,
        }
        if self.buffers.iovs.is_empty() {
            // The cryptography refused: counts as lost.
            return Ok(Ok(()));
        }
        turn.account.tx_data_syscalls += 1;
        Ok(self.send_gathered(socket, segment, 0))
    }

    fn seal_operations<'a>(
        &mut self,
        datagrams: impl Iterator<Item = OperationDatagram<'a>>,
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        let mut end = 0;
        self.buffers.iovs.clear();
        for datagram in datagrams {
            let payload = self.push_datagram(datagram, turn)?;
            let Protection::Sealed(keys) = &mut self.protection else {
                return Ok(());
            };
            let what = (&self.buffers.small[..], payload);
            let place = &mut self.buffers.stage[end..];
            match (seal_datagram(keys, what, place, turn.memory), payload) {
                (Ok(len), _) => end += len,
                (Err(SealError::Gone), Some(span)) => return Err(LaneError::Fault(span.region)),
                (Err(_), _) => break,
            }
        }
        if end > 0 {
            let start = self.buffers.stage.as_ptr();
            self.buffers.iovs.push(iovec(start, end));
        }
        Ok(())
    }

    /// Makes a datagram in the buffer. The payload of an operation alone in it is returned instead, and follows it.
    pub(super) fn push_datagram(
        &mut self,
        datagram: OperationDatagram<'_>,
        turn: &Turn<'_>,
    ) -> Result<Option<Span>, LaneError> {
        self.buffers.small.clear();
        let mut behind = None;
        let operations = datagram.operations();
        let alone = operations.len() == 1;
        for it in operations {
            self.buffers.small.extend_from_slice(it.head);
            match it.payload {
                payload if alone => behind = payload,
                Some(payload) => self.push_payload(payload, turn)?,
                None => {}
            }
            self.push_padding(&it);
        }
        self.add_checksum(0, datagram, turn)?;
        Ok(behind)
    }

    fn push_payload(&mut self, payload: Span, turn: &Turn<'_>) -> Result<(), LaneError> {
        if let Some(bytes) = turn.memory.bytes(payload) {
            self.buffers.small.extend_from_slice(bytes);
            return Ok(());
        }
        let at = self.buffers.small.len();
        self.buffers.small.resize(at + payload.len as usize, 0);
        match turn.memory.read(payload, &mut self.buffers.small[at..]) {
            true => Ok(()),
            false => Err(LaneError::Fault(payload.region)),
        }
    }

    fn push_padding(&mut self, it: &Outgoing<'_>) {
        if it.padding > 0 {
            let len = self.buffers.small.len();
            self.buffers.small.resize(len + it.padding as usize, 0);
        }
    }

    fn gather_operations<'a>(
        &mut self,
        datagrams: impl Iterator<Item = OperationDatagram<'a>> + Clone,
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        self.buffers.iovs.clear();
        self.buffers.small.clear();
        // Reserved now, because pointers into the buffer must stay valid.
        let copied = datagrams.clone().flat_map(|it| it.operations());
        self.buffers
            .small
            .reserve_exact(copied.map(copied_len).sum());
        let mut open = 0;
        for datagram in datagrams {
            let at = self.buffers.small.len();
            for it in datagram.operations() {
                self.buffers.small.extend_from_slice(it.head);
                match it.payload {
                    Some(payload) if is_short(payload) => self.push_payload(payload, turn)?,
                    Some(payload) => {
                        let fault = LaneError::Fault(payload.region);
                        let start = turn.memory.source(payload).ok_or(fault)?;
                        let rest = &self.buffers.small[open..];
                        self.buffers.iovs.push(iovec(rest.as_ptr(), rest.len()));
                        self.buffers.iovs.push(iovec(start, payload.len as usize));
                        open = self.buffers.small.len();
                    }
                    None => {}
                }
                self.push_padding(&it);
            }
            self.add_checksum(at, datagram, turn)?;
        }
        if open < self.buffers.small.len() {
            let rest = &self.buffers.small[open..];
            self.buffers.iovs.push(iovec(rest.as_ptr(), rest.len()));
        }
        Ok(())
    }

    /// Adds a checksum over the whole datagram, whose header is at `at`, if its Data has one.
    fn add_checksum(
        &mut self,
        at: usize,
        datagram: OperationDatagram<'_>,
        turn: &Turn<'_>,
    ) -> Result<(), LaneError> {
        let place = self.buffers.small[at..].first_chunk_mut::<HEADER_LEN>();
        let Some(place) = place.filter(|it| turn.core.uses_checksums() && Header::is_data(it))
        else {
            return Ok(());
        };
        let mut rest = Sum::of(&[]);
        for (index, it) in datagram.operations().enumerate() {
            let head = if index == 0 { HEADER_LEN } else { 0 };
            rest = rest.join(Sum::of(&it.head[head..]));
            if let Some(payload) = it.payload {
                rest = rest.join(turn.memory.sum(payload)?);
            }
        }
        if let Ok(header) = Header::parse(&place[..]) {
            header.sealed(rest).emit_into(place);
        }
        Ok(())
    }
}

/// Whether a payload is copied after its header.
fn is_short(payload: Span) -> bool {
    payload.len <= SHORT
}

/// Bytes of an operation that are copied for the send.
fn copied_len(it: Outgoing<'_>) -> usize {
    let payload = it.payload.filter(|&it| is_short(it));
    it.head.len() + payload.map_or(0, |it| it.len as usize) + it.padding as usize
}
