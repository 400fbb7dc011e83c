//! Serves requests of NBD clients with one queue.

use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use zerolane::Region;
use zerolane_disk::initiator::{Done, Error, Extent, Queue, Request, Unit};

use crate::config;
use crate::failure::Failure;
use crate::memory::all_of;

/// Alignment of memory that can be lent.
const ALIGNMENT: usize = 8;

/// Extents that one command asks for, and most extents returned at a time: the client asks for the rest.
const AT_A_TIME: usize = 64;
const MOST_EXTENTS: usize = 1024;

/// The queue of all connections.
static QUEUE: Mutex<Option<Arc<Queue>>> = Mutex::new(None);

/// An NBD connection.
pub(crate) struct Handle {
    queue: Arc<Queue>,
}

/// Opens the disk for an NBD connection, with the existing queue unless it has failed.
pub(crate) fn open() -> Result<Handle, Failure> {
    let mut place = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(queue) = place.as_ref().filter(|it| it.failure().is_none()) {
        let queue = Arc::clone(queue);
        return Ok(Handle { queue });
    }
    let (lun, options) = config::wanted();
    let queue = Arc::new(Queue::open(config::dial()?, lun, options)?);
    *place = Some(Arc::clone(&queue));
    Ok(Handle { queue })
}

/// Closes the queue once no connection is left.
pub(crate) fn forget() {
    let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(queue);
}

impl Handle {
    pub(crate) fn unit(&self) -> &Unit {
        self.queue.unit()
    }

    /// Fills the `bytes` bytes at `start`.
    ///
    /// # Safety
    /// They are initialised, and nothing else reads or writes them during the call.
    pub(crate) unsafe fn read(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        at: u64,
    ) -> Result<(), Failure> {
        // SAFETY: as promised. The region is gone when this returns, because its loan is over.
        let lent = unsafe { lend(start, bytes) };
        if let Some((memory, _loan)) = lent {
            let Done { result, memory } = self.queue.call(Request::Read { at, memory });
            drop(memory);
            return Ok(result?);
        }
        let memory = own(bytes)?;
        let Done { result, memory } = self.queue.call(Request::Read { at, memory });
        result?;
        let from = all_of(&memory, bytes)?;
        // SAFETY: as promised; the other memory has the same length and is its own.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
        Ok(())
    }

    /// Writes the `bytes` bytes at `start`.
    ///
    /// # Safety
    /// They are initialised, and nothing writes them during the call.
    pub(crate) unsafe fn write(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        at: u64,
        durable: bool,
    ) -> Result<(), Failure> {
        // SAFETY: as promised; it is exported read-only, and gone when this returns, because its loan is over.
        let lent = unsafe { lend(start, bytes) };
        let (memory, _loan) = match lent {
            Some((memory, loan)) => (memory, Some(loan)),
            None => {
                let mut memory = own(bytes)?;
                // SAFETY: as promised; the other memory has the same length and is its own.
                unsafe {
                    start.copy_to_nonoverlapping(NonNull::from(&mut memory[..]).cast(), bytes)
                };
                (memory, None)
            }
        };
        let request = Request::Write {
            at,
            memory,
            durable,
        };
        let Done { result, memory } = self.queue.call(request);
        drop(memory);
        Ok(result?)
    }

    pub(crate) fn flush(&self) -> Result<(), Failure> {
        Ok(self.queue.call(Request::Flush).result?)
    }

    /// The extents of these bytes, or of the first of them.
    pub(crate) fn extents(
        &self,
        at: u64,
        bytes: u64,
        is_one: bool,
    ) -> Result<Vec<Extent>, Failure> {
        let (mut next, end) = (at, at.saturating_add(bytes).min(self.unit().bytes()));
        let mut all = Vec::new();
        while next < end && all.len() < MOST_EXTENTS {
            let found = self
                .queue
                .extents(next, if is_one { 1 } else { AT_A_TIME })?;
            all.extend(&found);
            match found.last() {
                Some(last) if !is_one => next = last.at + last.bytes,
                _ => break,
            }
        }
        Ok(all)
    }

    pub(crate) fn zero(
        &self,
        at: u64,
        bytes: u64,
        unmap: bool,
        durable: bool,
    ) -> Result<(), Failure> {
        self.queue.call(Request::Zero { at, bytes, unmap }).result?;
        match durable {
            true => self.flush(),
            false => Ok(()),
        }
    }
}

/// nbdkit's memory while a request uses it. Dropping the loan waits until nothing uses the memory: if a panic leaves a
/// call, nbdkit frees the buffer while the request may still be in the queue.
struct Loan(Receiver<()>);

impl Drop for Loan {
    fn drop(&mut self) {
        // Nothing is ever sent: this returns when the region, and the sender with it, is gone.
        let _ = self.0.recv();
    }
}

/// The bytes as a region, if they are aligned.
///
/// # Safety
/// They live, and nothing else uses them against the request, until the loan is dropped.
unsafe fn lend(start: NonNull<u8>, bytes: usize) -> Option<(Region, Loan)> {
    if !start.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        return None;
    }
    let (until_gone, gone) = channel::<()>();
    // SAFETY: as promised, because the loan lasts as long as the region.
    let region = unsafe { Region::foreign(start, bytes, false, Box::new(until_gone)) };
    Some((region, Loan(gone)))
}

fn own(bytes: usize) -> Result<Region, Failure> {
    Region::anonymous(bytes).map_err(|error| Failure::from(Error::System(error.to_string())))
}
