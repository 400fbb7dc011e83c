//! Sending small operations: many queued together leave as one burst.

use super::gathered::is_lost_offload;
use super::seal_buffer::SealError;
use super::{MAX_SEGMENTS, Protection, Sender, iovec};
use crate::udp::socket;
use crate::{LaneError, Turn};
use socket2::Socket;
use std::io;
use zerolane_core::{OperationBurst, Outgoing, Span};
use zerolane_wire::checksum::Sum;
use zerolane_wire::{HEADER_LEN, Header};

/// Payload up to this many bytes is put behind its header, so that a whole burst is one piece for
/// the kernel; a longer one is gathered where it lies.
const SHORT: u64 = 256;

impl Sender {
    /// Sends a burst of small operations.
    pub(super) fn operations(
        &mut self,
        socket: &Socket,
        burst: &OperationBurst,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        self.burst = (self.burst * 2).min(MAX_SEGMENTS as u32);
        self.last = turn.now;
        turn.account.datagrams_sent += u64::from(burst.segments);
        if self.gso && burst.segments > 1 {
            let segment = burst.segment as usize;
            self.make_operations(&burst.operations, turn)?;
            match self.send_operations(socket, segment, turn) {
                Err(error)
                    if is_lost_offload(&error, segment, socket::path_datagram_now(socket)) =>
                {
                    self.gso = false;
                }
                outcome => return Ok(outcome),
            }
        }
        self.operations_separately(socket, burst, turn)
    }

    fn operations_separately(
        &mut self,
        socket: &Socket,
        burst: &OperationBurst,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        for datagram in burst.datagrams() {
            self.make_operations(datagram, turn)?;
            if let Err(error) = self.send_operations(socket, 0, turn) {
                // Those that left will be repeated with it: they are counted once.
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Sends what [`Sender::make_operations`] made, cut at `segment` bytes; 0 for one datagram.
    fn send_operations(
        &mut self,
        socket: &Socket,
        segment: usize,
        turn: &mut Turn<'_>,
    ) -> io::Result<()> {
        if self.buffers.iovs.is_empty() {
            // The cryptography refused: as if lost.
            return Ok(());
        }
        turn.account.tx_data_syscalls += 1;
        self.send_gathered(socket, segment, 0)
    }

    /// Makes iovecs of `operations`, sealed if they are to be.
    fn make_operations(
        &mut self,
        operations: &[Outgoing],
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        match self.protection {
            Protection::Plain => self.gather_operations(operations, turn),
            Protection::Waiting | Protection::Sealed(_) => self.seal_operations(operations, turn),
        }
    }

    fn seal_operations(
        &mut self,
        operations: &[Outgoing],
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        let mut end = 0;
        self.buffers.iovs.clear();
        for datagram in Outgoing::datagrams(operations) {
            self.buffers.small.clear();
            self.push_head(datagram, turn)?;
            let payload = match datagram {
                [alone] => alone.payload,
                frames => {
                    self.push_frames(frames, turn)?;
                    None
                }
            };
            // Before there is a key, the core sends no operations.
            let Protection::Sealed(stage) = &mut self.protection else {
                return Ok(());
            };
            end = match (
                stage.append(end, &self.buffers.small, payload, turn.memory),
                payload,
            ) {
                (Ok(end), _) => end,
                (Err(SealError::Gone), Some(span)) => return Err(LaneError::Fault(span.region)),
                (Err(_), _) => break,
            };
        }
        if let (Protection::Sealed(stage), true) = (&self.protection, end > 0) {
            let staged = stage.staged(end);
            self.buffers.iovs.push(iovec(staged.as_ptr(), staged.len()));
        }
        Ok(())
    }

    /// All of the datagram that is behind its head.
    fn push_frames(&mut self, frames: &[Outgoing], turn: &Turn<'_>) -> Result<(), LaneError> {
        for (index, it) in frames.iter().enumerate() {
            if index > 0 {
                self.buffers.small.extend_from_slice(it.bytes());
            }
            if let Some(payload) = it.payload {
                self.push_payload(payload, turn)?;
            }
            self.push_padding(it);
        }
        Ok(())
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

    fn push_padding(&mut self, it: &Outgoing) {
        self.buffers
            .small
            .resize(self.buffers.small.len() + it.padding as usize, 0);
    }

    fn gather_operations(
        &mut self,
        operations: &[Outgoing],
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        self.buffers.iovs.clear();
        self.buffers.small.clear();
        // The pointers into it must hold.
        let room = operations.iter().map(copied_len).sum();
        self.buffers.small.reserve_exact(room);
        let mut open = 0;
        for datagram in Outgoing::datagrams(operations) {
            self.push_head(datagram, turn)?;
            for (index, it) in datagram.iter().enumerate() {
                if index > 0 {
                    self.buffers.small.extend_from_slice(it.bytes());
                }
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
                self.push_padding(it);
            }
        }
        if open < self.buffers.small.len() {
            let rest = &self.buffers.small[open..];
            self.buffers.iovs.push(iovec(rest.as_ptr(), rest.len()));
        }
        Ok(())
    }

    /// What the first operation of a datagram has in front of its payload: the header, with a checksum over all
    /// of the datagram if Data has one.
    fn push_head(&mut self, datagram: &[Outgoing], turn: &Turn<'_>) -> Result<(), LaneError> {
        let [first, others @ ..] = datagram else {
            return Ok(());
        };
        let at = self.buffers.small.len();
        self.buffers.small.extend_from_slice(first.bytes());
        let Some((header, head)) = first.bytes().split_first_chunk::<HEADER_LEN>() else {
            return Ok(());
        };
        if !turn.core.uses_checksums() || !Header::is_data(header) {
            return Ok(());
        }
        let payload = |it: &Outgoing| match it.payload {
            Some(payload) => turn.memory.sum(payload),
            None => Ok(Sum::of(&[])),
        };
        let mut rest = Sum::of(head).join(payload(first)?);
        for it in others {
            rest = rest.join(Sum::of(it.bytes())).join(payload(it)?);
        }
        if let (Ok(header), Some(place)) = (
            Header::parse(header),
            self.buffers.small[at..].first_chunk_mut::<HEADER_LEN>(),
        ) {
            header.sealed(rest).emit_into(place);
        }
        Ok(())
    }
}

/// Whether a payload is put behind its header.
fn is_short(payload: Span) -> bool {
    payload.len <= SHORT
}

/// Bytes of an operation that are copied to be sent.
fn copied_len(it: &Outgoing) -> usize {
    let payload = it.payload.filter(|&it| is_short(it));
    it.bytes().len() + payload.map_or(0, |it| it.len as usize) + it.padding as usize
}
