//! Counts the process's descriptors, allocated memory and mapped regions.

use cap::Cap;
use std::alloc::System;
use std::fmt;
use std::fs;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes that threads and libraries keep after their first use.
const KEPT: usize = 64 << 10;

/// Freed memory that the allocator may keep, bytes: receive buffers of 5 MiB for each concurrent thread, in arenas of
/// their own. If each rule's buffers were kept, it would be ten times as much.
const KEPT_RESIDENT: usize = 40 << 20;

pub(super) struct Holdings {
    descriptors: usize,
    allocated: usize,
    resident: usize,
}

impl Holdings {
    pub(super) fn now() -> Holdings {
        let page = 4096;
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let resident: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        Holdings {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            allocated: ALLOCATOR.allocated(),
            resident: resident * page,
        }
    }

    pub(super) fn assert_back_to(&self, before: &Holdings) {
        assert_eq!(self.descriptors, before.descriptors, "descriptors");
        let grown = self.allocated.saturating_sub(before.allocated);
        assert!(grown <= KEPT, "{grown} bytes not freed");
        let grown = self.resident.saturating_sub(before.resident);
        assert!(grown <= KEPT_RESIDENT, "{grown} bytes more in memory");
    }
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} KiB allocated, {} KiB in memory",
            self.descriptors,
            self.allocated >> 10,
            self.resident >> 10
        )
    }
}
