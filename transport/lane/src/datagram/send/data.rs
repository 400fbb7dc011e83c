//! Sends payload: a burst of STUs, plain or sealed, copied by the kernel or lent to it.

use super::sealing::{SealError, seal_burst};
use super::{Buffers, Protection, Sender};
use crate::account::Account;
use crate::datagram::message::iovec;
use crate::datagram::zerocopy::Headers;
use crate::error::LaneError;
use crate::lane::Turn;
use crate::memory::Registry;
use socket2::Socket;
use std::io;
use zerolane_core::{DataBurst, RegionId};
use zerolane_wire::HEADER_LEN;

/// Most pieces of one call: the kernel's UIO_MAXIOV. A burst of more pieces is copied into one.
const MAX_IOVECS: usize = 1024;

impl Sender {
    pub(super) fn data(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        if let Some(outcome) = self.hand_over(burst, turn) {
            return Ok(outcome);
        }
        let gone = LaneError::Fault(burst.span.region);
        if let Some(train) = burst.train {
            return self.train(socket, burst, train, turn);
        }
        self.headers(burst, turn.core.uses_checksums(), turn.memory)?;
        match &mut self.protection {
            Protection::Plain => match turn.memory.source(burst.span) {
                Some(payload) => {
                    self.gather(burst, payload);
                    if self.swap {
                        self.swap_neighbours(burst);
                    }
                }
                None => self.gather_pieces(burst, turn)?,
            },
            Protection::Sealed(keys) => {
                let Buffers { headers, stage, .. } = &mut *self.buffers;
                match seal_burst(keys, burst, headers, stage, turn.memory) {
                    Ok(len) => {
                        let sealed = iovec(stage.as_ptr(), len);
                        self.buffers.iovs.clear();
                        self.buffers.iovs.push(sealed);
                    }
                    Err(SealError::Gone) => return Err(gone),
                    Err(SealError::Refused) => return Ok(Ok(())),
                }
            }
        }
        self.count(burst, turn);
        self.lendable = turn.memory.is_lendable(burst.span.region);
        if let Some(outcome) = self.lend_burst(socket, burst, turn.account) {
            return Ok(outcome);
        }
        match self.send_burst(socket, burst, turn.account) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Err(gone),
            outcome => Ok(outcome),
        }
    }

    /// Counts a burst that left by one call.
    pub(super) fn count(&mut self, burst: &DataBurst, turn: &mut Turn<'_>) {
        self.count_payload(burst, turn);
        turn.account.tx_data_syscalls += 1;
    }

    /// Counts a burst that left by calls counted elsewhere.
    pub(super) fn count_payload(&mut self, burst: &DataBurst, turn: &mut Turn<'_>) {
        self.grow(turn.now);
        turn.account.datagrams_sent += u64::from(burst.segments);
        turn.account.bytes_sent += burst.span.len;
    }

    /// Sends the gathered pieces without the kernel's copy. `None` if they must be sent with a copy.
    fn lend_burst(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        account: &mut Account,
    ) -> Option<io::Result<()>> {
        let count = burst.segments as usize;
        if !self.lendable || !self.segments() || !self.zerocopy_tracker.pays(burst) {
            return None;
        }
        // The kernel will still read the headers when the next burst overwrites the shared ones.
        let mut own = self.zerocopy_tracker.headers();
        for (index, slot) in own.0.iter_mut().enumerate().take(count) {
            slot[..HEADER_LEN].copy_from_slice(&self.buffers.headers[index]);
            self.buffers.iovs[2 * index] = iovec(slot.as_ptr(), HEADER_LEN);
        }
        let segment = burst.stu as usize + HEADER_LEN;
        let outcome = self.lend(socket, segment, own, Some(burst.span.region));
        match outcome {
            Some(Ok(())) => account.tx_zerocopy_syscalls += 1,
            _ => {
                account.tx_data_syscalls += 1;
                for (index, header) in self.buffers.headers.iter().enumerate().take(count) {
                    self.buffers.iovs[2 * index] = iovec(header.as_ptr(), HEADER_LEN);
                }
            }
        }
        outcome
    }

    /// Lends the gathered pieces, with headers in `own`, to the kernel. `None` if the kernel refused for a reason of
    /// lending.
    pub(super) fn lend(
        &mut self,
        socket: &Socket,
        segment: usize,
        own: Box<Headers>,
        region: Option<RegionId>,
    ) -> Option<io::Result<()>> {
        match self.send_gathered(socket, segment, libc::MSG_ZEROCOPY) {
            Ok(()) => {
                self.zerocopy_tracker.lent(own, region);
                Some(Ok(()))
            }
            Err(error) if self.zerocopy_tracker.refused(own, &error) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Fills the headers.
    pub(super) fn headers(
        &mut self,
        burst: &DataBurst,
        checksums: bool,
        memory: &Registry,
    ) -> Result<(), LaneError> {
        burst.emit_headers(&mut self.buffers.headers[..]);
        if !checksums {
            return Ok(());
        }
        let mut at = 0;
        for (index, place) in (0..burst.segments).zip(self.buffers.headers.iter_mut()) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            let sum = memory.sum(burst.span.part(at, len))?;
            burst.header(index).sealed(sum).emit_into(place);
            at += len;
        }
        Ok(())
    }

    /// Fills the iovecs if the payload lies in several pieces: header, pieces, header, pieces.
    fn gather_pieces(&mut self, burst: &DataBurst, turn: &mut Turn<'_>) -> Result<(), LaneError> {
        let gone = LaneError::Fault(burst.span.region);
        let (mut at, mut count) = (0, 0);
        self.buffers.iovs.clear();
        for place in self.buffers.headers.iter().take(burst.segments as usize) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            self.buffers.iovs.push(iovec(place.as_ptr(), HEADER_LEN));
            let Some(pieces) = turn.memory.pieces(burst.span.part(at, len)) else {
                return Err(gone);
            };
            self.buffers.iovs.extend(
                pieces
                    .take(MAX_IOVECS)
                    .map(|(start, len)| iovec(start, len)),
            );
            count = self.buffers.iovs.len();
            if count > MAX_IOVECS {
                break;
            }
            at += len;
        }
        if count <= MAX_IOVECS {
            return Ok(());
        }
        self.buffers.linear.resize(burst.span.len as usize, 0);
        if !turn.memory.read(burst.span, &mut self.buffers.linear) {
            return Err(gone);
        }
        let payload = self.buffers.linear.as_ptr();
        self.gather(burst, payload);
        Ok(())
    }

    /// Moves each gathered datagram to the place of a neighbour, except one that is shorter than the others: only the last
    /// of a send may be.
    fn swap_neighbours(&mut self, burst: &DataBurst) {
        let whole = (burst.span.len / u64::from(burst.stu)) as usize;
        let datagrams = &mut self.buffers.iovs[..2 * whole];
        for pair in datagrams.chunks_exact_mut(4) {
            pair.rotate_left(2);
        }
        if let (true, Some(from)) = (whole % 2 == 1, datagrams.len().checked_sub(4)) {
            datagrams[from..].rotate_left(2);
        }
    }

    /// Fills the iovecs: header, payload, header, payload.
    fn gather(&mut self, burst: &DataBurst, payload: *const u8) {
        self.buffers.iovs.clear();
        let mut at = 0;
        for place in self.buffers.headers.iter().take(burst.segments as usize) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            self.buffers.iovs.push(iovec(place.as_ptr(), HEADER_LEN));
            // SAFETY: at + len <= span.len, and all of the span's bytes are readable at `payload`.
            self.buffers
                .iovs
                .push(iovec(unsafe { payload.add(at as usize) }, len as usize));
            at += len;
        }
    }
}
