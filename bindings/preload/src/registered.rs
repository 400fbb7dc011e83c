//! Remembers which epoll set a descriptor was added to, because a program may add a socket before it connects, and the
//! socket that takes its place is in no set.

use crate::real;
use libc::{EBADF, ENOENT, EPOLL_CTL_MOD, c_int, epoll_event};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Descriptors that are remembered, by number: those beyond stay plain TCP if they are in a set.
const DESCRIPTORS: usize = 1 << 16;

struct Slot {
    /// 0: none. Otherwise one more than the set's number; -1: more than one set.
    set: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
}

impl Slot {
    fn event(&self) -> epoll_event {
        epoll_event {
            events: self.events.load(Ordering::Relaxed),
            u64: self.data.load(Ordering::Relaxed),
        }
    }
}

/// Touched where descriptors are: the rest costs no memory.
static SLOTS: [Slot; DESCRIPTORS] = [const {
    Slot {
        set: AtomicI32::new(0),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
    }
}; DESCRIPTORS];

fn slot(descriptor: c_int) -> Option<&'static Slot> {
    SLOTS.get(usize::try_from(descriptor).ok()?)
}

/// Where a descriptor is registered.
pub(crate) enum Where {
    Nowhere,
    /// In this set, with this event.
    In(c_int, epoll_event),
    /// Not known, or in several.
    Unclear,
}

/// A set has this event for `descriptor` now.
pub(crate) fn note(set: c_int, descriptor: c_int, event: Option<epoll_event>) {
    let Some(slot) = slot(descriptor) else {
        return;
    };
    let before = slot.set.load(Ordering::Relaxed);
    match event {
        None if before == set + 1 => slot.set.store(0, Ordering::Relaxed),
        None => {}
        Some(event) => {
            let other = before > 0
                && before != set + 1
                && is_in(before - 1, descriptor, slot.event()) != Some(false);
            slot.events.store(event.events, Ordering::Relaxed);
            slot.data.store(event.u64, Ordering::Relaxed);
            // Which of several sets still has it is never known again.
            let set = if other || before < 0 { -1 } else { set + 1 };
            slot.set.store(set, Ordering::Relaxed);
        }
    }
}

/// Where `descriptor` is registered now: what was remembered may be of a descriptor that was closed since.
pub(crate) fn find(descriptor: c_int) -> Where {
    let Some(slot) = slot(descriptor) else {
        return Where::Unclear;
    };
    match slot.set.load(Ordering::Relaxed) {
        0 => Where::Nowhere,
        -1 => Where::Unclear,
        set => match is_in(set - 1, descriptor, slot.event()) {
            Some(true) => Where::In(set - 1, slot.event()),
            Some(false) => Where::Nowhere,
            None => Where::Unclear,
        },
    }
}

/// Whether the set has the descriptor, with this event. `None`: the kernel does not say.
///
/// Sets the event that the set has. Adding and removing one would show it to other threads that wait at the set.
fn is_in(set: c_int, descriptor: c_int, mut event: epoll_event) -> Option<bool> {
    // SAFETY: the event outlives the call; the kernel checks both numbers.
    match unsafe { real::epoll_ctl::call(set, EPOLL_CTL_MOD, descriptor, &raw mut event) } {
        0 => Some(true),
        _ if [ENOENT, EBADF].contains(&crate::runner::errno()) => Some(false),
        _ => None,
    }
}
