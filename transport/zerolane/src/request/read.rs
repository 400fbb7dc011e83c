//! Offers memory to the peer's reads, and reads what it offers.

use super::{How, Request, options, sealed};
use crate::connection::Connection;
use crate::error::Error;
#[cfg(doc)]
use crate::memory::FileRegion;
use zerolane_lane::{Delivery, Memory, NotPosted, Region, TransferId, WorkRequest, Writable};

/// Offers memory to the peer's next [`Read`].
#[derive(Debug)]
pub struct Offer {
    memory: Memory,
    delivery: Delivery,
    how: How,
}

impl Offer {
    /// Offers `memory`, which comes back with the completion.
    pub fn new(memory: impl Into<Memory>) -> Offer {
        Offer {
            memory: memory.into(),
            delivery: Delivery::Interrupt,
            how: How::default(),
        }
    }
}

options!(Offer: context, signalled, delivery);

impl Request for Offer {
    type Memory = Memory;

    fn into_memory(self) -> Memory {
        self.memory
    }
}

impl sealed::Post for Offer {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let offer = WorkRequest::Offer {
            delivery: self.delivery,
        };
        let posted = connection
            .driver
            .post_source(offer, self.how.report(), self.memory);
        posted.map_err(|NotPosted { reason, memory }| (reason.into(), Offer { memory, ..self }))
    }

    fn give_back(self) -> Option<Memory> {
        Some(self.memory)
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Reads the memory that the peer offers, as soon as it does (the Read sequence).
#[derive(Debug)]
pub struct Read<M = Region> {
    memory: M,
    how: How,
}

impl<M: Writable> Read<M> {
    /// Reads into `memory`, a [`Region`] or a [`FileRegion`], which comes back with the completion.
    pub fn new(memory: M) -> Read<M> {
        Read {
            memory,
            how: How::default(),
        }
    }
}

options!(Read<M>: context, signalled);

impl<M: Writable> Request for Read<M> {
    type Memory = M;

    fn into_memory(self) -> M {
        self.memory
    }
}

impl<M: Writable> sealed::Post for Read<M> {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let driver = &mut connection.driver;
        let posted = driver.post_target(WorkRequest::Read, self.how.report(), self.memory);
        posted.map_err(|NotPosted { reason, memory }| (reason.into(), Read { memory, ..self }))
    }

    fn give_back(self) -> Option<Memory> {
        Some(self.memory.into())
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}
