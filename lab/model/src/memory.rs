//! Predicts the memory costs of an end besides the carrier's: its source, its sink, and interference between both ends.

use crate::costs::{Cost, KIB, MemoryCosts, UnitCosts, at};
use crate::row::{Row, Sink, Source};
use crate::stage::{End, Stage};

/// The largest memory whose costs are those of the caches, bytes.
const CACHED: usize = 1 << 20;

/// What the source takes, if it takes anything.
pub(crate) fn source(row: &Row, costs: &UnitCosts) -> Option<Stage> {
    match row.source {
        Source::Memory => None,
        // The file and the memory take turns in the cache.
        Source::Read => Some(Stage {
            end: End::Sender,
            what: "reading the file",
            ns_per_byte: memory(costs, 2 * row.buffer, |it| it.read_file),
        }),
    }
}

/// What the sink takes, if it takes anything.
pub(crate) fn sink(row: &Row, costs: &UnitCosts) -> Option<Stage> {
    let cost = |bytes, cost: fn(&MemoryCosts) -> Cost| memory(costs, bytes, cost);
    let (what, ns_per_byte) = match row.sink {
        Sink::None => return None,
        // Of what came last.
        Sink::Touch => ("touching", cost(2 * row.piece, |it| it.touch)),
        Sink::Checksum => ("adding up", cost(2 * row.piece, |it| it.sum)),
        Sink::Copy => ("copying", cost(2 * row.buffer, |it| it.copy)),
        Sink::File => ("writing the file", cost(2 * row.buffer, |it| it.write_file)),
    };
    Some(Stage {
        end: End::Receiver,
        what,
        ns_per_byte,
    })
}

/// Nanoseconds a byte of work on memory of so many bytes.
pub(crate) fn memory(costs: &UnitCosts, bytes: usize, cost: impl Fn(&MemoryCosts) -> Cost) -> f64 {
    at(&costs.memory, bytes, cost) / KIB
}

/// `cost` of memory of so many bytes while the other end waits for memory, too, in such a share of the time: what exceeds
/// the cost of memory in the cache takes as much longer as two cores hinder each other.
pub(crate) fn shared(
    costs: &UnitCosts,
    bytes: usize,
    overlap: f64,
    cost: impl Fn(usize) -> f64,
) -> f64 {
    let alone = cost(bytes);
    let excess = (alone - cost(bytes.min(CACHED))).max(0.0);
    alone + excess * (costs.contention.median - 1.0).max(0.0) * overlap.clamp(0.0, 1.0)
}
