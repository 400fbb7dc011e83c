//! How fast this machine copies memory.

use std::hint::black_box;
use std::time::Instant;

/// What sockets on both ends hold together: more than a CPU's own cache, and not more than the one that all share.
const BUFFER_BYTES: usize = 8 << 20;
/// As much as a socket's buffer holds at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// The best counts: whatever ran beside only made the others slower.
const ROUNDS: usize = 10;

/// Bytes per second at which one CPU copies out of memory that it has not in its own cache into memory that it has:
/// of the kernel's memory and the program's, one is usually so and the other so. Takes a few milliseconds.
pub(crate) fn measure() -> f64 {
    let source = vec![1_u8; BUFFER_BYTES];
    let mut target = vec![0_u8; CHUNK_BYTES];
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for chunk in source.chunks_exact(CHUNK_BYTES) {
            black_box(&mut target).copy_from_slice(black_box(chunk));
        }
        let rate = BUFFER_BYTES as f64 / start.elapsed().as_secs_f64();
        best = best.max(rate);
    }
    best
}
