//! Tests that a warm Transfer of any length makes only a few allocations.
#![allow(non_snake_case)]

use super::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of this thread.
struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards all calls to the system's allocator; counting touches none of its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(start, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Carries out one Transfer from a to b, and returns the memory.
fn send(a: &mut End, b: &mut End, from: Memory, to: Region) -> (Memory, Region) {
    b.post_target(WorkRequest::Receive, Report::default(), to)
        .expect("posted");
    a.post_source(
        WorkRequest::Send {
            delivery: Delivery::Interrupt,
        },
        Report::default(),
        from,
    )
    .expect("posted");
    drive(a, b, |a, b| a.has_completion() && b.has_completion());
    let sent = a.next_completion().expect("over");
    let received = b.next_completion().expect("over");
    assert!(sent.result.is_ok() && sent.result == received.result);
    let Some(Memory::Exclusive(received)) = received.memory else {
        panic!("a region was posted");
    };
    (sent.memory.expect("posted"), received)
}

/// The allocations of `rounds` Transfers of `len` bytes, at both ends together.
fn taken(a: &mut End, b: &mut End, len: usize, rounds: u64) -> u64 {
    let expected = content(len, 0);
    let mut from = region(&expected).into();
    let mut to = Region::anonymous(len).expect("memory");
    let before = TAKEN.get();
    for _ in 0..rounds {
        (from, to) = send(a, b, from, to);
    }
    let taken = TAKEN.get() - before;
    assert!(to[..] == expected[..], "content");
    taken
}

/// Allocations of one Transfer, at both ends together. It is 1; timers that expire add a few. A long Transfer has 1024
/// STUs in 64 Blocks.
const PER_TRANSFER: u64 = 16;

const ROUNDS: u64 = 16;

#[test]
fn transfer__takes_no_memory_per_stu() {
    check(join(None, &plain()));
}

#[test]
fn transfer__sealed_takes_no_memory_per_stu() {
    check(join(None, &sealed()));
}

fn check((mut a, mut b): (End, End)) {
    // Queues and tables grow to their final size, and path probes settle.
    taken(&mut a, &mut b, 64 << 20, 2);
    taken(&mut a, &mut b, 1 << 20, 32);
    for len in [64 << 10, 64 << 20] {
        let before = b.account().bytes_moved();
        let taken = taken(&mut a, &mut b, len, ROUNDS);
        let moved = b.account().bytes_moved() - before;
        eprintln!("{ROUNDS} Transfers of {len} bytes: {taken} allocations, {moved} bytes moved");
        assert!(taken <= PER_TRANSFER * ROUNDS, "{taken} of {len}");
        // A busy kernel hands a burst over in pieces, which are not where the receiver expected them.
        let bytes = ROUNDS * len as u64;
        assert!(moved <= bytes / 16, "{moved} of {bytes} bytes moved");
    }
    assert!(
        a.account().datagrams_sent > 16_000,
        "long ones have 1024 STUs each"
    );
}
