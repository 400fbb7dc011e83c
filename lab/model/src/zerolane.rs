//! Predicts Zerolane's trains.
//!
//! | per train | sender | receiver |
//! |---|---|---|
//! | plain | digest of the memory; copy or page lending, whichever is cheaper | the kernel's copy to the memory; digest of that, from the cache |
//! | encrypted | sealed from the memory; then copied, or lent from slots that the other core has read meanwhile | the kernel's copy into one buffer, from slots that the other core has written; opened from there into the memory |
//! | both | the library's work per train | the same |
//!
//! Each Transfer adds the library's announcement, grant and confirmation at each end. The end with less work spins.

use crate::costs::{Cost, KIB, MemoryCosts, SLOTS, TRAIN, TrainCosts, UnitCosts, at};
use crate::memory::{memory, shared, sink, source};
use crate::row::{Carrier, Row};
use crate::stage::{End, Stage, Work};

/// What the ends take for each byte of this row.
pub(crate) fn work(row: &Row, costs: &UnitCosts) -> Work {
    let sealed = row.carrier == Carrier::Encrypted;
    let library = if sealed {
        &costs.encrypted
    } else {
        &costs.plain
    };
    let work = |overlap: f64, bytes, cost: fn(&MemoryCosts) -> Cost| {
        shared(costs, bytes, overlap, |bytes| memory(costs, bytes, cost))
    };
    let train = |overlap: f64, bytes, cost: fn(&TrainCosts) -> Cost| {
        shared(costs, bytes, overlap, |bytes| {
            at(&costs.trains, bytes, cost) / TRAIN as f64
        })
    };
    // At the sender: the work on the payload, and the cheaper call.
    let sends = |overlap| match sealed {
        true => (
            work(overlap, row.buffer, |it| it.seal),
            train(overlap, TRAIN, |it| it.copied),
            train(overlap, SLOTS, |it| it.given) + sealed_again(costs),
        ),
        false => (
            work(overlap, row.buffer, |it| it.digest),
            // The digest has just read it.
            train(overlap, row.buffer, |it| it.copied) - read_again(row, costs),
            train(overlap, row.buffer, |it| it.given),
        ),
    };
    let receives = |overlap: f64, is_given: bool| {
        let received: fn(&TrainCosts) -> Cost = match is_given {
            true => |it| it.received_given,
            false => |it| it.received,
        };
        let handed = if is_given { read_handed(costs) } else { 0.0 };
        match sealed {
            true => (
                train(overlap, TRAIN, received) + handed,
                work(overlap, row.buffer, |it| it.open),
            ),
            false => (
                train(overlap, row.buffer, received),
                work(overlap, TRAIN, |it| it.digest),
            ),
        }
    };
    let per_train = |cost: Cost| cost.median / TRAIN as f64;
    let per_transfer = |cost: Cost| cost.median / row.piece.max(1) as f64;
    let own = [
        (
            per_train(library.send_train),
            per_transfer(library.send_transfer),
        ),
        (
            per_train(library.receive_train),
            per_transfer(library.receive_transfer),
        ),
    ];
    let (source, sink) = (source(row, costs), sink(row, costs));
    let sides = |overlap| {
        let (payload, copied, given) = sends(overlap);
        let is_given = given < copied;
        let (copy, opened) = receives(overlap, is_given);
        [
            [payload, copied.min(given), own[0].0, own[0].1],
            [copy, opened, own[1].0, own[1].1],
        ]
    };
    let total = |parts: [f64; 4]| parts.iter().sum::<f64>();
    let beside = [source, sink].map(|it| it.map_or(0.0, |it| it.ns_per_byte));
    let [send, receive] = sides(0.0).map(total);
    let alone = [send + beside[0], receive + beside[1]];
    let overlap = alone[0].min(alone[1]) / alone[0].max(alone[1]).max(f64::MIN_POSITIVE);
    let sides = sides(overlap);
    let names = match sealed {
        true => [
            [
                "sealing",
                "sending trains",
                "the library, for trains",
                "the library, for Transfers",
            ],
            [
                "receiving trains",
                "opening",
                "the library, for trains",
                "the library, for Transfers",
            ],
        ],
        false => [
            [
                "digest",
                "sending trains",
                "the library, for trains",
                "the library, for Transfers",
            ],
            [
                "receiving trains",
                "digest",
                "the library, for trains",
                "the library, for Transfers",
            ],
        ],
    };
    let mut stages = Vec::new();
    for (at, end) in [End::Sender, End::Receiver].into_iter().enumerate() {
        for (what, ns_per_byte) in names[at].into_iter().zip(sides[at]) {
            stages.push(Stage {
                end,
                what,
                ns_per_byte,
            });
        }
    }
    stages.extend(source);
    stages.extend(sink);
    let mut work = Work {
        stages,
        tx_waits: 0.0,
        rx_waits: 0.0,
    };
    let (tx, rx) = (work.of(End::Sender), work.of(End::Receiver));
    (work.tx_waits, work.rx_waits) = ((rx - tx).max(0.0), (tx - rx).max(0.0));
    work
}

/// What a copy from this memory takes more than one from the cache, nanoseconds a byte.
fn read_again(row: &Row, costs: &UnitCosts) -> f64 {
    let copy = |bytes| memory(costs, bytes, |it| it.copy_from);
    (copy(row.buffer) - copy(TRAIN)).max(0.0)
}

/// What sealing into a slot that the other core has read takes more than into memory that stays in the cache, nanoseconds a
/// byte.
fn sealed_again(costs: &UnitCosts) -> f64 {
    excess(costs, costs.handed.seal, |it| it.seal)
}

/// What a copy from a slot that the other core has written takes more than one from the cache, nanoseconds a byte.
fn read_handed(costs: &UnitCosts) -> f64 {
    excess(costs, costs.handed.read, |it| it.copy_from)
}

fn excess(costs: &UnitCosts, handed: Cost, near: fn(&MemoryCosts) -> Cost) -> f64 {
    (handed.median / KIB - memory(costs, TRAIN, near)).max(0.0)
}
