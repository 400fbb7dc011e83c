//! Sends trains: sealed into the lane's own memory, or plain from the user's; given to the kernel if that is possible
//! and cheaper, else copied by it.

use super::give::{Given, SLOT, TRAIN_END};
use super::method::Method;
use super::sealing::{SealError, seal_train};
use super::{Output, Protection, Sender};
use crate::datagram::message::{emit_train_end, iovec};
use crate::error::LaneError;
use crate::lane::Turn;
use crate::memory::Region;
use crate::seal::digest::Digest;
use socket2::Socket;
use std::io;
use std::time::Duration;
use zerolane_core::DataBurst;
use zerolane_wire::{HEADER_LEN, MAX_TRAIN, Train};

/// Most payload of a plain train, in bytes: with its end it spans at most 17 page fragments, wherever it begins, which
/// is what one packet of the kernel can refer to.
const MAX_PLAIN: u32 = 15 * 4096;

impl Sender {
    /// Most payload of a train, in bytes; 0: no trains are sent.
    pub(super) fn longest_train(&self) -> u32 {
        match self.protection {
            _ if !self.gso => 0,
            Protection::Sealed(_) => MAX_TRAIN,
            Protection::Plain => MAX_PLAIN,
        }
    }

    pub(super) fn train(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        train: Train,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        // The next burst, probably another train, has full length and not that of a lent one.
        self.lendable = false;
        // The segment size of given data is a setting of the socket, which the path's thread uses as well.
        let method = match self.output {
            Output::Thread(_) => Method::Copied,
            Output::Socket | Output::Frames(_) => self.chooser.method(),
        };
        let started = self.chooser.is_timing().then(|| turn.clock.now());
        let outcome = match self.protection {
            Protection::Sealed(_) => self.sealed_train(socket, burst, (train, method), turn)?,
            Protection::Plain => self.plain_train(socket, burst, (train, method), turn)?,
        };
        Ok(outcome.map(|method| {
            let took = started.map_or(Duration::ZERO, |started| turn.clock.now() - started);
            self.chooser.note(method, train.len as usize, took);
        }))
    }

    /// Returns the method by which the train left.
    fn sealed_train(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        (train, method): (Train, Method),
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<Method>, LaneError> {
        let Protection::Sealed(keys) = &mut self.protection else {
            return Ok(Ok(Method::Copied));
        };
        let mut slot = self.giver.slot_for(method);
        let room = slot.as_deref_mut().unwrap_or(&mut self.buffers.stage);
        let bytes = match seal_train(keys, burst, train, room, turn.memory) {
            Ok(len) => iovec(room.as_ptr(), len),
            Err(error) => {
                self.giver.put_back(slot.map(Given::Slot));
                return match error {
                    SealError::Gone => Err(LaneError::Fault(burst.span.region)),
                    SealError::Refused => Ok(Ok(Method::Copied)),
                };
            }
        };
        self.count(burst, turn);
        Ok(self.give(socket, burst, slot, bytes, turn))
    }

    /// Sends a train with a digest: from where its payload lies, if that is one piece which only the lane and its user
    /// access; else from a copy, so that the digest matches the bytes sent.
    fn plain_train(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        (train, method): (Train, Method),
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<Method>, LaneError> {
        let region = burst.span.region;
        let head = burst.train_header(train).emit();
        let whole = turn.memory.source(burst.span);
        let Some(payload) = whole.filter(|_| turn.memory.is_exclusive(region)) else {
            return self.copied_train(socket, burst, (train, &head, method), turn);
        };
        let gone = || LaneError::Fault(region);
        let digest = turn.memory.digest(&head, burst.span).ok_or_else(gone)?;
        let mut own = self.giver.end_for(method, socket);
        let mut copied = [0; TRAIN_END];
        let end = own.as_deref_mut().unwrap_or(&mut copied);
        let len = emit_train_end(end, train, &head, &digest);
        let pieces = [
            iovec(payload, burst.span.len as usize),
            iovec(end.as_ptr(), len),
        ];
        self.count(burst, turn);
        let mut own = own.map(|end| Given::Lent(region, end));
        if let Some(it) = own.take_if(|_| turn.memory.is_lendable(region)) {
            let what = (burst.number(), burst.stu as usize);
            match self.giver.give(socket, &pieces, it, what) {
                Ok(()) => {
                    note_given(burst, turn);
                    return Ok(Ok(Method::Given));
                }
                Err(it) => own = Some(it),
            }
        }
        self.buffers.iovs.clear();
        self.buffers.iovs.extend(pieces);
        let outcome = self.send_burst(socket, burst, turn.account);
        // The last piece may refer to it until here.
        self.giver.put_back(own);
        match outcome {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Err(gone()),
            outcome => Ok(outcome.map(|()| Method::Copied)),
        }
    }

    /// Sends such a train from a copy.
    fn copied_train(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        (train, head, method): (Train, &[u8; HEADER_LEN], Method),
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<Method>, LaneError> {
        let mut slot = self.giver.slot_for(method);
        let room = match &mut slot {
            Some(slot) => &mut slot[..],
            None => {
                self.buffers.linear.resize(SLOT, 0);
                &mut self.buffers.linear[..]
            }
        };
        let (payload, rest) = room.split_at_mut(burst.span.len as usize);
        if !turn.memory.read(burst.span, payload) {
            self.giver.put_back(slot.map(Given::Slot));
            return Err(LaneError::Fault(burst.span.region));
        }
        let digest = Digest::of(head, payload);
        let end = payload.len() + emit_train_end(rest, train, head, &digest);
        let bytes = iovec(room.as_ptr(), end);
        self.count(burst, turn);
        Ok(self.give(socket, burst, slot, bytes, turn))
    }

    /// Gives `bytes`, which lie in `slot` if there is one; has them copied if giving is refused. Returns which.
    fn give(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        slot: Option<Region>,
        bytes: libc::iovec,
        turn: &mut Turn<'_>,
    ) -> io::Result<Method> {
        let what = (burst.number(), burst.stu as usize);
        let given = slot.map(|it| self.giver.give(socket, &[bytes], Given::Slot(it), what));
        let refused = match given {
            Some(Ok(())) => {
                note_given(burst, turn);
                return Ok(Method::Given);
            }
            Some(Err(slot)) => Some(slot),
            None => None,
        };
        self.buffers.iovs.clear();
        self.buffers.iovs.push(bytes);
        let outcome = self.send_burst(socket, burst, turn.account);
        self.giver.put_back(refused);
        outcome.map(|()| Method::Copied)
    }
}

/// Counts a given burst, which takes one call more.
fn note_given(burst: &DataBurst, turn: &mut Turn<'_>) {
    turn.account.bytes_sent_zerocopy += burst.span.len;
    turn.account.tx_data_syscalls += 1;
}
