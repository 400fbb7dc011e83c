//! Sending small operations: many queued together leave as one burst.

use super::gathered::is_lost_offload;
use super::stage::Unstaged;
use super::{MAX_SEGMENTS, Protection, Sender, iovec};
use crate::udp::socket;
use crate::{LaneError, Turn};
use socket2::Socket;
use std::io;
use std::ops::Range;
use zerolane_core::{OperationBurst, Outgoing};
use zerolane_wire::{HEADER_LEN, Header, OPTIONS_LEN};

/// Payload up to this many bytes is put behind its header, so that a whole burst is one piece for
/// the kernel; a longer one is gathered where it lies.
const SHORT: usize = 256;
/// Room for a burst: the pointers into it must hold.
const ROOM: usize = MAX_SEGMENTS * (HEADER_LEN + OPTIONS_LEN + SHORT);

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
        turn.account.datagrams_sent += u64::from(burst.count);
        if self.gso && burst.count > 1 {
            let whole = self.make_operations(burst, 0..burst.count, turn)?;
            turn.account.tx_data_syscalls += 1;
            // What is over by now would leave a gap where the kernel cuts.
            let segment = burst.segment as usize;
            let sent = match whole {
                true => self.send_gathered(socket, segment, 0),
                false => Err(io::ErrorKind::Interrupted.into()),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
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
        for index in 0..burst.count {
            if !self.make_operations(burst, index..index + 1, turn)? {
                continue;
            }
            turn.account.tx_data_syscalls += 1;
            if let Err(error) = self.send_gathered(socket, 0, 0) {
                // Those that left will be repeated with it: they are counted once.
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Makes iovecs of the operations `range` of `burst`, sealed if they are to be. False if one of
    /// them is over.
    fn make_operations(
        &mut self,
        burst: &OperationBurst,
        range: Range<u32>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        match self.protection {
            Protection::Plain => self.gather_operations(burst, range, turn),
            Protection::Waiting | Protection::Sealed(_) => self.seal_operations(burst, range, turn),
        }
    }

    fn seal_operations(
        &mut self,
        burst: &OperationBurst,
        range: Range<u32>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let mut end = 0;
        for index in range {
            let Some(it) = turn.core.operation(burst, index) else {
                return Ok(false);
            };
            self.small.clear();
            self.push_head(&it, turn)?;
            let Protection::Sealed(stage) = &mut self.protection else {
                return Ok(false);
            };
            end = match (
                stage.append(end, &self.small, it.payload, turn.memory),
                it.payload,
            ) {
                (Ok(end), _) => end,
                (Err(Unstaged::Gone), Some(span)) => return Err(LaneError::Fault(span.region)),
                (Err(_), _) => return Ok(false),
            };
        }
        if let Protection::Sealed(stage) = &self.protection {
            let staged = stage.staged(end);
            self.iovs.clear();
            self.iovs.push(iovec(staged.as_ptr(), staged.len()));
        }
        Ok(true)
    }

    fn gather_operations(
        &mut self,
        burst: &OperationBurst,
        range: Range<u32>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        self.iovs.clear();
        self.small.clear();
        self.small.reserve_exact(ROOM);
        let mut open = 0;
        for index in range {
            let Some(it) = turn.core.operation(burst, index) else {
                return Ok(false);
            };
            self.push_head(&it, turn)?;
            let Some(payload) = it.payload else {
                continue;
            };
            let (at, len) = (self.small.len(), payload.len as usize);
            if len <= SHORT {
                self.small.resize(at + len, 0);
                if !turn.memory.read(payload, &mut self.small[at..]) {
                    return Err(LaneError::Fault(payload.region));
                }
                continue;
            }
            let fault = LaneError::Fault(payload.region);
            let start = turn.memory.source(payload).ok_or(fault)?;
            self.iovs
                .push(iovec(self.small[open..].as_ptr(), at - open));
            self.iovs.push(iovec(start, len));
            open = at;
        }
        if open < self.small.len() {
            let rest = &self.small[open..];
            self.iovs.push(iovec(rest.as_ptr(), rest.len()));
        }
        Ok(true)
    }

    fn push_head(&mut self, it: &Outgoing, turn: &Turn<'_>) -> Result<(), LaneError> {
        let at = self.small.len();
        self.small.extend_from_slice(it.bytes());
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
            self.small[at..].first_chunk_mut::<HEADER_LEN>(),
        ) {
            header.sealed(rest).emit_into(place);
        }
        Ok(())
    }
}
