//! Operates on the peer's memory: puts, gets, atomic operations, and regions by name.

use super::{How, Request, options, sealed};
use crate::connection::Connection;
use crate::error::Error;
use crate::fetch_op::FetchOp;
use crate::key::{RegionKey, region_name};
#[cfg(doc)]
use crate::memory::FileRegion;
use std::borrow::Cow;
use zerolane_lane::limits::MAX_INLINE;
use zerolane_lane::{
    Atomic, Memory, NotPosted, PostError, Region, TransferId, WorkRequest, Writable,
};
use zerolane_wire::Rights;

/// Writes memory to the peer's memory; several pieces are placed one after another. It completes when the data is placed
/// and visible at the peer.
#[derive(Debug)]
pub struct Put {
    to: RegionKey,
    offset: u64,
    memory: Memory,
    immediate: Option<u32>,
    how: How,
}

impl Put {
    /// Writes `memory` to `offset` of the region `to`. It comes back with the completion.
    pub fn new(to: &RegionKey, offset: u64, memory: impl Into<Memory>) -> Put {
        Put {
            to: *to,
            offset,
            memory: memory.into(),
            immediate: None,
            how: How::default(),
        }
    }
}

options!(Put: context, signalled, awaited, fence, immediate);

impl Request for Put {
    type Memory = Memory;

    fn into_memory(self) -> Memory {
        self.memory
    }
}

impl sealed::Post for Put {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let len = self.memory.len() as u64;
        let place = self.to.place(self.offset, len, Rights::WRITE);
        let place = match connection.vectored.check_order().and(place) {
            Ok(place) => place,
            Err(reason) => return Err((reason.into(), self)),
        };
        let put = WorkRequest::Put {
            place,
            immediate: self.immediate,
            flags: self.how.flags(),
        };
        let posted = connection
            .driver
            .post_source(put, self.how.report(), self.memory);
        posted.map_err(|NotPosted { reason, memory }| (reason.into(), Put { memory, ..self }))
    }

    fn give_back(self) -> Option<Memory> {
        Some(self.memory)
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Writes a copy of at most [`MAX_INLINE`] bytes to the peer's memory: the bytes may change as soon as the request is
/// posted. Without [`PutInline::signalled`] it needs no completion, as libfabric's inject. Puts posted together are sent
/// in one burst.
#[derive(Debug)]
pub struct PutInline<'a> {
    to: RegionKey,
    offset: u64,
    data: Cow<'a, [u8]>,
    immediate: Option<u32>,
    how: How,
}

impl<'a> PutInline<'a> {
    /// Writes a copy of `data` to `offset` of the region `to`. For a
    /// [`ConnectionHandle`](crate::worker::ConnectionHandle), which posts later, `data` is a `Vec`.
    pub fn new(to: &RegionKey, offset: u64, data: impl Into<Cow<'a, [u8]>>) -> PutInline<'a> {
        PutInline {
            to: *to,
            offset,
            data: data.into(),
            immediate: None,
            how: How::default(),
        }
    }
}

options!(PutInline<'_>: context, signalled, awaited, fence, immediate);

impl Request for PutInline<'_> {
    type Memory = ();

    fn into_memory(self) {}
}

impl sealed::Post for PutInline<'_> {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let len = self.data.len();
        let place = self.to.place(self.offset, len as u64, Rights::WRITE);
        let place = match connection.vectored.check_order().and(place) {
            Ok(_) if len > MAX_INLINE => return Err((Error::NotInline { len }, self)),
            Ok(place) => place,
            Err(reason) => return Err((reason.into(), self)),
        };
        let put = WorkRequest::Put {
            place,
            immediate: self.immediate,
            flags: self.how.flags(),
        };
        let posted = connection
            .driver
            .post_inline(put, self.how.report(), &self.data);
        posted.map_err(|reason| (reason.into(), self))
    }

    fn give_back(self) -> Option<Memory> {
        None
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Reads the peer's memory.
#[derive(Debug)]
pub struct Get<M = Region> {
    from: RegionKey,
    offset: u64,
    into: M,
    how: How,
}

impl<M: Writable> Get<M> {
    /// Reads from `offset` of the region `from`, as many bytes as `into` has, which is a [`Region`] or a [`FileRegion`]
    /// and comes back with the completion.
    pub fn new(from: &RegionKey, offset: u64, into: M) -> Get<M> {
        Get {
            from: *from,
            offset,
            into,
            how: How::default(),
        }
    }
}

options!(Get<M>: context, signalled, fence);

impl<M: Writable> Request for Get<M> {
    type Memory = M;

    fn into_memory(self) -> M {
        self.into
    }
}

impl<M: Writable> sealed::Post for Get<M> {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let len = self.into.length() as u64;
        let place = self.from.place(self.offset, len, Rights::READ);
        let place = match connection.vectored.check_order().and(place) {
            Ok(place) => place,
            Err(reason) => return Err((reason.into(), self)),
        };
        let get = WorkRequest::Get {
            place,
            flags: self.how.flags(),
        };
        let posted = connection
            .driver
            .post_target(get, self.how.report(), self.into);
        posted.map_err(|NotPosted { reason, memory }| {
            let into = memory;
            (reason.into(), Get { into, ..self })
        })
    }

    fn give_back(self) -> Option<Memory> {
        Some(self.into.into())
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// An atomic operation on an aligned word of the peer's memory, of 64 or 32 bits. The completion has the word's previous
/// value.
#[derive(Debug)]
pub struct Fetch {
    on: RegionKey,
    offset: u64,
    atomic: Atomic,
    how: How,
}

impl Fetch {
    /// Does `op` on the word of 64 bits at `offset` of the region `on`.
    pub fn new(on: &RegionKey, offset: u64, op: FetchOp) -> Fetch {
        Fetch::of(on, offset, op.into())
    }

    /// Does `op` on the word of 32 bits at `offset` of the region `on`, which must have the 8 aligned bytes that hold the
    /// word.
    pub fn new_u32(on: &RegionKey, offset: u64, op: FetchOp<u32>) -> Fetch {
        Fetch::of(on, offset, op.into())
    }

    fn of(on: &RegionKey, offset: u64, atomic: Atomic) -> Fetch {
        Fetch {
            on: *on,
            offset,
            atomic,
            how: How::default(),
        }
    }

    /// # Errors
    /// The word is misaligned, outside the region, or the region grants no atomic operations.
    pub(crate) fn request(&self) -> Result<WorkRequest<'static>, PostError> {
        let len = u64::from(self.atomic.word.bytes());
        if !self.offset.is_multiple_of(len) {
            return Err(PostError::Misaligned);
        }
        Ok(WorkRequest::FetchOp {
            place: self.on.place(self.offset, len, Rights::ATOMIC)?,
            atomic: self.atomic,
            flags: self.how.flags(),
        })
    }
}

options!(Fetch: context, signalled, fence);

impl Request for Fetch {
    type Memory = ();

    fn into_memory(self) {}
}

impl sealed::Post for Fetch {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let report = self.how.report();
        let posted = connection.vectored.check_order().and(self.request());
        let posted = posted.and_then(|request| connection.driver.post_bare(request, report));
        posted.map_err(|reason| (reason.into(), self))
    }

    fn give_back(self) -> Option<Memory> {
        None
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Asks the peer for the region that it exported by a name. The completion has the key.
#[derive(Debug)]
pub struct OpenRegion<'a> {
    name: Cow<'a, str>,
    rights: Rights,
    how: How,
}

impl<'a> OpenRegion<'a> {
    /// Asks for the region `name`, of 1 to 32 bytes without NUL, to use with `rights`.
    pub fn new(name: impl Into<Cow<'a, str>>, rights: Rights) -> OpenRegion<'a> {
        OpenRegion {
            name: name.into(),
            rights,
            how: How::default(),
        }
    }
}

options!(OpenRegion<'_>: context);

impl Request for OpenRegion<'_> {
    type Memory = ();

    fn into_memory(self) {}
}

impl sealed::Post for OpenRegion<'_> {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let name = match region_name(&self.name) {
            Ok(name) => name,
            Err(error) => return Err((error, self)),
        };
        let request = WorkRequest::OpenRegion {
            name,
            rights: self.rights,
        };
        let posted = connection.driver.post_bare(request, self.how.report());
        posted.map_err(|reason| (reason.into(), self))
    }

    fn give_back(self) -> Option<Memory> {
        None
    }

    fn signal(self) -> Self {
        self
    }
}
