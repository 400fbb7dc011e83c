//! Keeps the operations that a program posted until they complete.

use crate::endpoint::Endpoint;
use crate::errno::Cause;
use std::sync::Arc;
use zerolane::RequestId;

/// What an operation does: the counter that it advances, and the queue that it reports to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Read,
    Write,
}

/// Where bytes go when an operation completes. The program keeps the memory until then.
#[derive(Debug, Default)]
pub(crate) enum Place {
    #[default]
    Nowhere,
    /// Pieces of one received message: address and length of each.
    Pieces(Vec<(usize, usize)>),
    /// Words before an atomic operation, each with the bytes of a word.
    Words { at: Vec<usize>, bytes: usize },
}

/// An operation between its call and its completion.
pub(crate) struct Operation {
    /// None for a receive of a shared context: its message tells.
    pub(crate) endpoint: Option<Arc<Endpoint>>,
    /// The program's context, as a number.
    pub(crate) context: usize,
    pub(crate) kind: Kind,
    /// Flags of its completion.
    pub(crate) flags: u64,
    /// Whether success is reported to the queue.
    pub(crate) reported: bool,
    /// Start of the program's memory.
    pub(crate) buffer: usize,
    pub(crate) place: Place,
    /// Requests that make it up and are not over.
    pub(crate) left: usize,
    pub(crate) requests: Vec<RequestId>,
    /// The first failure of its requests.
    pub(crate) failure: Option<Cause>,
}

/// The context of requests that report nothing: their failures are the connection's.
pub(crate) const SILENT: u64 = u64::MAX;

/// Operations by number. The upper half of a request's context is its index among those of the operation.
#[derive(Default)]
pub(crate) struct Operations {
    all: Vec<Option<Operation>>,
    free: Vec<u32>,
}

impl Operations {
    pub(crate) fn insert(&mut self, operation: Operation) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = Some(operation);
                number
            }
            None => {
                self.all.push(Some(operation));
                // Operations in flight are far fewer: limits of connections and memory.
                (self.all.len() - 1) as u32
            }
        }
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Operation> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Operation> {
        let operation = self.all.get_mut(number as usize)?.take();
        if operation.is_some() {
            self.free.push(number);
        }
        operation
    }

    /// The numbers of the operations for which `wanted` holds.
    pub(crate) fn find(&self, mut wanted: impl FnMut(&Operation) -> bool) -> Vec<u32> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(at, it)| it.as_ref().is_some_and(&mut wanted).then_some(at as u32))
            .collect()
    }
}

/// Whether an operation was posted to `endpoint`.
pub(crate) fn is_of(operation: &Operation, endpoint: &Arc<Endpoint>) -> bool {
    let own = operation.endpoint.as_ref();
    own.is_some_and(|it| Arc::ptr_eq(it, endpoint))
}
