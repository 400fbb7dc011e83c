//! Sends and receives Transfers.

use super::{How, Request, options, sealed};
use crate::connection::Connection;
use crate::error::Error;
#[cfg(doc)]
use crate::{memory::FileRegion, request::InOrder};
use zerolane_lane::{
    Delivery, Memory, NotPosted, Region, TransferId, WorkKind, WorkRequest, Writable,
};

/// Sends memory as one Transfer, which fills one receive of the peer. A `Vec` of [`Memory`] is gathered from its pieces.
#[derive(Debug)]
pub struct Transfer {
    memory: Memory,
    delivery: Delivery,
    how: How,
}

impl Transfer {
    /// Sends `memory`, which comes back with the completion.
    pub fn new(memory: impl Into<Memory>) -> Transfer {
        Transfer {
            memory: memory.into(),
            delivery: Delivery::Interrupt,
            how: How::default(),
        }
    }
}

options!(Transfer: context, signalled, delivery);

impl Request for Transfer {
    type Memory = Memory;

    fn into_memory(self) -> Memory {
        self.memory
    }
}

impl sealed::Post for Transfer {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let send = WorkRequest::Send {
            delivery: self.delivery,
        };
        let posted = connection
            .driver
            .post_source(send, self.how.report(), self.memory);
        posted.map_err(|NotPosted { reason, memory }| (reason.into(), Transfer { memory, ..self }))
    }

    fn give_back(self) -> Option<Memory> {
        Some(self.memory)
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Receives a Transfer: the n-th receive posted gets the n-th Transfer sent, if it fits. Receives complete when their
/// Transfers do: after a lost datagram, a later one may complete first. ([`InOrder`] returns them in order, as verbs
/// does.)
#[derive(Debug)]
pub struct Receive<M = Region> {
    memory: M,
    how: How,
}

impl<M: Writable> Receive<M> {
    /// Receives into `memory`, a [`Region`] or a [`FileRegion`], which comes back with the completion.
    pub fn new(memory: M) -> Receive<M> {
        Receive {
            memory,
            how: How::default(),
        }
    }
}

options!(Receive<M>: context, signalled);

impl<M: Writable> Request for Receive<M> {
    type Memory = M;

    fn into_memory(self) -> M {
        self.memory
    }
}

impl<M: Writable> sealed::Post for Receive<M> {
    const TAKES: Option<WorkKind> = Some(WorkKind::Receive);

    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let driver = &mut connection.driver;
        let posted = driver.post_target(WorkRequest::Receive, self.how.report(), self.memory);
        posted.map_err(|NotPosted { reason, memory }| (reason.into(), Receive { memory, ..self }))
    }

    fn give_back(self) -> Option<Memory> {
        Some(self.memory.into())
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}
