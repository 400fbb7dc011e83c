//! Sending small operations: many queued together leave as one burst.

use super::gathered::is_lost_offload;
use super::seal_buffer::SealError;
use super::{MAX_SEGMENTS, Protection, Sender, iovec};
use crate::udp::socket;
use crate::{LaneError, Turn};
use socket2::Socket;
use std::io;
use zerolane_core::{OperationBurst, Outgoing};
use zerolane_wire::{HEADER_LEN, Header, OPTIONS_LEN};

/// Payload up to this many bytes is put behind its header, so that a whole burst is one piece for
/// the kernel; a longer one is gathered where it lies.
const SHORT: usize = 256;
/// Room for a burst: the pointers into it must hold.
pub(super) const ROOM: usize = MAX_SEGMENTS * (HEADER_LEN + OPTIONS_LEN + SHORT);

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
        turn.account.datagrams_sent += burst.operations.len() as u64;
        if self.gso && burst.operations.len() > 1 {
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
        for operation in &burst.operations {
            self.make_operations(std::slice::from_ref(operation), turn)?;
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
        for it in operations {
            self.buffers.small.clear();
            self.push_head(it, turn)?;
            // Before there is a key, the core sends no operations.
            let Protection::Sealed(stage) = &mut self.protection else {
                return Ok(());
            };
            end = match (
                stage.append(end, &self.buffers.small, it.payload, turn.memory),
                it.payload,
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

    fn gather_operations(
        &mut self,
        operations: &[Outgoing],
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        self.buffers.iovs.clear();
        self.buffers.small.clear();
        let mut open = 0;
        for it in operations {
            self.push_head(it, turn)?;
            let Some(payload) = it.payload else {
                continue;
            };
            let (at, len) = (self.buffers.small.len(), payload.len as usize);
            if len <= SHORT {
                self.buffers.small.resize(at + len, 0);
                if !turn.memory.read(payload, &mut self.buffers.small[at..]) {
                    return Err(LaneError::Fault(payload.region));
                }
                continue;
            }
            let fault = LaneError::Fault(payload.region);
            let start = turn.memory.source(payload).ok_or(fault)?;
            self.buffers
                .iovs
                .push(iovec(self.buffers.small[open..].as_ptr(), at - open));
            self.buffers.iovs.push(iovec(start, len));
            open = at;
        }
        if open < self.buffers.small.len() {
            let rest = &self.buffers.small[open..];
            self.buffers.iovs.push(iovec(rest.as_ptr(), rest.len()));
        }
        Ok(())
    }

    fn push_head(&mut self, it: &Outgoing, turn: &Turn<'_>) -> Result<(), LaneError> {
        let at = self.buffers.small.len();
        self.buffers.small.extend_from_slice(it.bytes());
        let data = it.bytes().len() == HEADER_LEN;
        if !turn.core.uses_checksums() || !data {
            return Ok(());
        }
        let rest = match it.payload {
            Some(payload) => turn.memory.sum(payload)?,
            None => zerolane_wire::checksum::Sum::of(&[]),
        };
        if let (Ok(header), Some(place)) = (
            Header::parse(it.bytes()),
            self.buffers.small[at..].first_chunk_mut::<HEADER_LEN>(),
        ) {
            header.sealed(rest).emit_into(place);
        }
        Ok(())
    }
}
