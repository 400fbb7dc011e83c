//! Tests that a warm Transfer of any length makes only a few allocations.
#![allow(non_snake_case)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::time::Duration;
use zerolane_lane::{AnyLane, Listener};
use zerolane_lane::{
    Delivery, Driver, LaneChoice, Memory, Options, Progress, Region, Report, Security, WorkRequest,
};

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

type End = Driver<AnyLane>;

fn drive(a: &mut End, b: &mut End, done: impl Fn(&End, &End) -> bool) {
    let mut idle = 0;
    while !done(a, b) {
        let turns = [a.turn().expect("a"), b.turn().expect("b")];
        let moved = turns.contains(&Progress::Moved);
        idle = if moved { 0 } else { idle + 1 };
        assert!(idle < 1 << 24, "stuck");
    }
}

fn pair(security: Security) -> (End, End) {
    let options = Options {
        lane: LaneChoice::Udp,
        security,
        ..Options::default()
    };
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let mut listener = Listener::bind(any, options.clone()).expect("bound");
    let mut a = zerolane_lane::connect(listener.local_addr(), &options).expect("connecting");
    let wait = Some(Duration::from_millis(1));
    // A key exchange takes several messages.
    let accepted = (0..10_000).find_map(|_| {
        a.turn().expect("asking");
        listener.accept(wait).expect("accepting")
    });
    let mut b = accepted.expect("asked");
    drive(&mut a, &mut b, |a, b| a.is_connected() && b.is_connected());
    (a, b)
}

/// Carries out one Transfer from a to b, and returns the memory.
fn transfer(a: &mut End, b: &mut End, from: Memory, to: Region) -> (Memory, Region) {
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
    let mut from = Region::anonymous(len).expect("memory");
    for (at, byte) in from.iter_mut().enumerate() {
        *byte = (at / 251 + at * 7) as u8;
    }
    let expected = from.to_vec();
    let (mut from, mut to) = (from.into(), Region::anonymous(len).expect("memory"));
    let before = TAKEN.get();
    for _ in 0..rounds {
        (from, to) = transfer(a, b, from, to);
    }
    let taken = TAKEN.get() - before;
    assert!(to[..] == expected[..], "content");
    taken
}

/// Allocations of one Transfer, at both ends together. It is 1; timers that expire on a busy machine add a few. A long
/// Transfer has 1024 STUs in 64 Blocks.
const PER_TRANSFER: u64 = 16;

const ROUNDS: u64 = 16;

/// Allocations for each STU would appear in each try, as would bytes that were not placed. Losses on a busy machine cause
/// both in some tries.
const TRIES: u32 = 20;

#[test]
fn transfer__takes_no_memory_per_stu() {
    check(pair(Security::plain()));
}

#[test]
fn transfer__sealed_takes_no_memory_per_stu() {
    check(pair(Security::default()));
}

fn check((mut a, mut b): (End, End)) {
    // Queues and tables grow to their final size, and path probes settle.
    taken(&mut a, &mut b, 64 << 20, 2);
    taken(&mut a, &mut b, 1 << 20, 32);
    for len in [64 << 10, 64 << 20] {
        let mut seen = Vec::new();
        let settled = (0..TRIES).any(|_| {
            let before = b.account().bytes_moved();
            let taken = taken(&mut a, &mut b, len, ROUNDS);
            let moved = b.account().bytes_moved() - before;
            seen.push((taken, moved));
            taken <= PER_TRANSFER * ROUNDS && moved == 0
        });
        eprintln!(
            "{ROUNDS} Transfers of {len} bytes, allocations and bytes moved by try: {seen:?}"
        );
        assert!(settled, "{len}: {seen:?}");
    }
    assert!(
        a.account().datagrams_sent > 16_000,
        "long ones have 1024 STUs each"
    );
}
