//! Shares posted receives among several endpoints.

use crate::domain::Domain;
use crate::errno::{Errno, Outcome};
use crate::libfabric::*;
use crate::object::{Head, Object};
use crate::operations::Number;
use std::sync::Arc;
use zerolane::ReceivePool;

#[repr(C)]
pub(crate) struct SharedReceives {
    head: Head<fid_ep>,
    pub(crate) domain: Arc<Domain>,
    pool: ReceivePool,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for SharedReceives {
    type Fid = fid_ep;
    const CLASS: u32 = FI_CLASS_SRX_CTX;

    fn head(&self) -> &Head<fid_ep> {
        &self.head
    }
}

impl SharedReceives {
    pub(crate) fn new(head: fid_ep, domain: Arc<Domain>) -> SharedReceives {
        SharedReceives {
            head: Head::new(head),
            domain,
            pool: ReceivePool::new(),
        }
    }

    pub(crate) fn pool(&self) -> &ReceivePool {
        &self.pool
    }

    /// Takes out the first receive with this context. A context has no queue, so nothing reports it: the memory is the
    /// program's again on return.
    ///
    /// # Errors
    /// There is none, or a message has it.
    pub(crate) fn cancel(&self, context: usize) -> Outcome {
        let mut state = self.domain.engine().enter()?;
        let mut found = None;
        // No message comes while the worker is locked. The pool gives its first piece alone, so all go round once.
        for _ in 0..self.pool.len() {
            let Some((memory, own)) = self.pool.remove() else {
                break;
            };
            let (number, _) = Number::of_context(own);
            let operation = state.operations.get(number);
            if found.is_none() && operation.is_some_and(|it| it.context == context) {
                found = Some(number);
                continue;
            }
            self.pool
                .add(memory, own)
                .map_err(|it| Errno::from(it.error))?;
        }
        let number = found.ok_or(Errno(FI_ENOENT))?;
        state.operations.remove(number);
        Ok(())
    }
}
