//! Posts receives, and puts their completions into order.

use crate::engine::State;
use crate::errno::{self, Cause, Errno, Outcome};
use crate::libfabric::iovec;
use crate::operations::{Operation, Place};
use crate::pieces::{region, total};
use std::collections::VecDeque;
use zerolane::failure::TransferError;
use zerolane::request::ReceiveMessage;
use zerolane::worker::ConnectionId;
use zerolane::{ReceivePool, Region};

/// Receives that an endpoint keeps until it is connected.
pub(crate) const MOST_EARLY: usize = 4096;

/// A receive that is not posted yet.
pub(crate) struct Receive {
    operation: Operation,
    memory: Region,
}

impl Receive {
    /// # Errors
    /// The pieces are invalid.
    pub(crate) fn new(mut operation: Operation, pieces: &[iovec]) -> Outcome<Receive> {
        let total = total(pieces)?;
        operation.buffer = pieces.first().map_or(0, |it| it.iov_base as usize);
        let memory = match pieces {
            [] => Region::empty(),
            [one] => region(one),
            // The library receives into one piece, so several cost a copy.
            several => {
                let all = several.iter().map(|it| (it.iov_base as usize, it.iov_len));
                operation.place = Place::Pieces(all.collect());
                Region::from_vec(vec![0; total])
            }
        };
        Ok(Receive { operation, memory })
    }

    pub(crate) fn context(&self) -> usize {
        self.operation.context
    }

    /// Its operation, cancelled.
    pub(crate) fn cancelled(mut self) -> Operation {
        self.operation.failure = Some(cancelled());
        self.operation
    }

    /// # Errors
    /// There is no connection, or no room.
    pub(crate) fn post(
        mut self,
        state: &mut State,
        id: ConnectionId,
        arrivals: &mut Arrivals,
    ) -> Outcome {
        self.operation.sequence = Some(arrivals.next());
        let number = state.operations.insert(self.operation);
        let connection = state.worker.connection(id).ok_or(Errno::NOT_CONNECTED);
        let receive = ReceiveMessage::new().payload(self.memory);
        let posted = connection.and_then(|it| {
            let posted = it.post(receive.context(number.context(0)));
            posted.map_err(|refused| Errno::from(refused.error))
        });
        match posted {
            Ok(request) => {
                if let Some(operation) = state.operations.get(number) {
                    operation.requests.push(request);
                }
                arrivals.expect();
                Ok(())
            }
            Err(errno) => {
                state.operations.remove(number);
                Err(errno)
            }
        }
    }

    /// Adds it to a pool.
    ///
    /// # Errors
    /// The pool is closed.
    pub(crate) fn add(self, state: &mut State, pool: &ReceivePool) -> Outcome {
        let number = state.operations.insert(self.operation);
        let added = pool.add(self.memory, number.context(0));
        added.map_err(|refused| {
            state.operations.remove(number);
            refused.error.into()
        })
    }
}

/// A message that was received, or a receive that failed.
pub(crate) struct Arrived {
    pub(crate) operation: Operation,
    pub(crate) length: usize,
    pub(crate) data: Option<u32>,
}

/// Puts the completions of an endpoint's receives into the order of the receives. The library matches messages in order,
/// but a short one may be complete before a long one that was sent first; programs such as ofi_rxm rely on the order.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// The sequence number of the first of `waiting`.
    first: u64,
    waiting: VecDeque<Option<Arrived>>,
}

impl Arrivals {
    fn next(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    fn expect(&mut self) {
        self.waiting.push_back(None);
    }

    /// Notes an end.
    pub(crate) fn end(&mut self, sequence: u64, arrived: Arrived) {
        let at = sequence.checked_sub(self.first);
        let place = at.and_then(|at| self.waiting.get_mut(at as usize));
        if let Some(place) = place {
            *place = Some(arrived);
        }
    }

    /// Takes the first, if it has ended.
    pub(crate) fn take(&mut self) -> Option<Arrived> {
        let arrived = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.first += 1;
        Some(arrived)
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}

pub(crate) fn cancelled() -> Cause {
    errno::failed(TransferError::Cancelled)
}
