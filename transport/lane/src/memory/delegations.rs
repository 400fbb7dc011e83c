//! Lists the accesses of other threads to the memory of one registry.

use crate::memory::delegated::{self, DelegatedAccess, Recall};
use std::cell::{Cell, RefCell};
use zerolane_core::{RegionId, Span};

/// The delegated accesses of one registry.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    list: RefCell<Vec<Delegation>>,
    /// Number of write accesses handed out.
    writings: Cell<u64>,
}

/// Another thread's access to posted memory.
#[derive(Debug)]
struct Delegation {
    span: Span,
    /// Its number, if it writes.
    writes: Option<Writing>,
    recall: Recall,
}

/// Another thread's write access: see [`Delegations::take_written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writing(u64);

impl Delegation {
    /// Whether it writes bytes of `span`.
    fn writes_in(&self, span: Span) -> bool {
        let of = self.span;
        self.writes.is_some()
            && of.region == span.region
            && of.offset < span.end()
            && span.offset < of.end()
    }
}

impl Delegations {
    /// Permits another thread to read `span`. The access ends by itself, or the registry ends it.
    pub(crate) fn read(&self, span: Span) -> DelegatedAccess {
        self.delegate(span, None)
    }

    /// Permits another thread to write `span`, at the address from [`Registry::target`]. The owner must
    /// [take](Delegations::take_written) the result. Until then nothing else is put into `span`.
    ///
    /// [`Registry::target`]: crate::memory::Registry::target
    pub(crate) fn write(&self, span: Span) -> (DelegatedAccess, Writing) {
        let writing = Writing(self.writings.get());
        self.writings.set(writing.0 + 1);
        (self.delegate(span, Some(writing)), writing)
    }

    fn delegate(&self, span: Span, writes: Option<Writing>) -> DelegatedAccess {
        let (access, recall) = delegated::delegate();
        let mut list = self.list.borrow_mut();
        list.retain(|it| it.writes.is_some() || !it.recall.is_over());
        list.push(Delegation {
            span,
            writes,
            recall,
        });
        access
    }

    /// Takes the bytes that another thread reports as written. False if its access was called off, even after the
    /// write, because other bytes are in their place then.
    pub(crate) fn take_written(&self, writing: Writing) -> bool {
        let mut list = self.list.borrow_mut();
        let at = list.iter().position(|it| it.writes == Some(writing));
        at.map(|at| list.swap_remove(at)).is_some()
    }

    /// Whether another thread may write bytes of `span`, or wrote bytes that were not taken.
    pub(super) fn has_writer(&self, span: Span) -> bool {
        self.list.borrow().iter().any(|it| it.writes_in(span))
    }

    /// Whether no other thread accesses posted memory or will.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.list.borrow().iter().all(|it| it.recall.is_over())
    }

    /// Gives up a write access that will not be [taken](Delegations::take_written). On return the thread no longer
    /// accesses the memory.
    pub(crate) fn give_up(&self, writing: Writing) {
        self.call_back(|it| it.writes == Some(writing));
    }

    /// Ends all accesses that write bytes of `span` before it returns.
    pub(super) fn call_back_writers(&self, span: Span) {
        self.call_back(|it| it.writes_in(span));
    }

    /// Ends all accesses to `region` before it returns.
    pub(super) fn call_back_region(&self, region: RegionId) {
        self.call_back(|it| it.span.region == region);
    }

    /// Ends all accesses to posted memory before it returns.
    pub(crate) fn call_back_all(&self) {
        self.call_back(|_| true);
    }

    fn call_back(&self, which: impl Fn(&Delegation) -> bool) {
        let mut list = self.list.borrow_mut();
        if list.is_empty() {
            return;
        }
        for it in list.extract_if(.., |it| which(it)) {
            it.recall.call_off();
        }
    }
}
