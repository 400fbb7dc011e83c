//! Bytes on the memory bus for each byte of payload (P4.3).
//!
//! The paper counts, for each pass over the payload, what of it is not in the cache: a line that is read is fetched once,
//! a line that is written is fetched and, when it has to make room, written back. Its figures are 1 byte a byte where a
//! sender's buffer fits the cache and 2 to 4 where it does not, 2 and 4 for a receiver; in each, 1 is the network card's
//! own access. Between two namespaces of one machine there is no card: its access is left out here, and the last cache is
//! that of both ends.
//!
//! | pass | in the cache | not in it |
//! |---|---|---|
//! | the sender reads the memory (copy, digest, seal; given: the receiver's copy does) | 0 | 1 |
//! | the kernel's buffers, a slot: used again and again | 0 | 0 |
//! | the receiver writes the memory | 0 | 2 |
//! | a file that is read: file, memory | 0 | 1, 2 |
//! | a file that is written, other memory copied to | 0 | 2 |
//! | the piece just received is looked through: if it is not in the cache any more | 0 | 1 |

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

/// Of a piece that was written a moment ago: 1 if it is not in the cache any more.
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
