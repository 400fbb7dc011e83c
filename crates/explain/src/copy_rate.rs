//! How fast this machine copies memory.

use std::hint::black_box;
use std::time::Instant;

/// More than the caches of most processors hold.
const BUFFER_BYTES: usize = 64 << 20;
/// As much as a socket's buffer holds at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// The best counts: whatever ran beside only made the others slower.
const ROUNDS: usize = 3;

/// Bytes per second at which one CPU copies out of memory that it has not in its caches into a buffer that it has,
/// as a kernel does that moves payload between a program's memory and its own. Takes about 50 ms.
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
