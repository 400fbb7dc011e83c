//! Predicts bytes on the memory bus per byte of payload (P4.3).
//!
//! For each pass over the payload, the paper counts the part that is not in the cache: a line that is read is fetched once,
//! a line that is written is fetched and, when evicted, written back. Its figures are 1 byte per byte if the sender's buffer
//! fits the cache and 2 to 4 if it does not, and 2 and 4 for a receiver; each includes 1 for the network card's own access.
//! Between two namespaces of one machine there is no card, so its access is left out here, and both ends share the
//! last-level cache.
//!
//! | pass | in the cache | not in it |
//! |---|---|---|
//! | the sender reads the memory (copy, digest, seal; given: the receiver's copy does) | 0 | 1 |
//! | the kernel's buffers, a slot: used again and again | 0 | 0 |
//! | the receiver writes the memory | 0 | 2 |
//! | a file that is read: file, memory | 0 | 1, 2 |
//! | a file that is written, other memory copied to | 0 | 2 |
//! | the piece just received is read: if it is no longer in the cache | 0 | 1 |

use crate::costs::Caches;
use crate::row::{Row, Sink, Source};

/// Bytes that the kernel's buffers hold of a flow at most, as far as the cache is concerned.
const IN_FLIGHT: usize = 2 << 20;

/// Bytes on the bus for each byte of payload, of both ends together.
pub(crate) fn bus_bytes_per_byte(row: &Row, caches: &Caches) -> f64 {
    let memories = working_set(row);
    if memories <= caches.last {
        return 0.0;
    }
    let source = match row.source {
        Source::Memory => 1.0,
        // The file is read, the memory written; a piece of it is then read from the cache if it fits.
        Source::Read => 3.0 + missing(row.piece, caches),
    };
    let sink = match row.sink {
        Sink::None => 0.0,
        Sink::Touch | Sink::Checksum => missing(row.piece, caches),
        Sink::Copy | Sink::File => 2.0 + missing(row.piece, caches),
    };
    source + 2.0 + sink
}

/// For a recently written piece: 1 if it is no longer in the cache.
fn missing(piece: usize, caches: &Caches) -> f64 {
    f64::from(u8::from(piece.saturating_add(IN_FLIGHT) > caches.last))
}

/// All memory that a row goes through again and again, bytes.
fn working_set(row: &Row) -> usize {
    let files = usize::from(row.source == Source::Read)
        + usize::from(matches!(row.sink, Sink::Copy | Sink::File));
    row.buffer
        .saturating_mul(2 + files)
        .saturating_add(IN_FLIGHT)
}
