//! Measures how fast this machine copies memory.

use std::hint::black_box;
use std::time::Instant;

/// What sockets on both ends hold together: more than a CPU's own cache, and not more than the one that all share.
const SHARED_BYTES: usize = 8 << 20;
/// More than the caches of most machines.
const LARGE_BYTES: usize = 64 << 20;
/// As much as a socket's buffer holds at a time; source and target together are within a CPU's own cache.
const CHUNK_BYTES: usize = 64 << 10;
/// The best counts: whatever ran beside only made the others slower.
const ROUNDS: usize = 10;

/// Bytes per second that one CPU copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CopyRates {
    /// From memory to memory, neither in a cache.
    pub(crate) slowest: f64,
    /// Out of memory that it has not in its own cache into memory that it has: of the kernel's memory and the program's,
    /// one is usually so and the other so.
    pub(crate) usual: f64,
    /// Within its own cache.
    pub(crate) fastest: f64,
}

/// Measures them, which takes some tens of milliseconds.
pub(crate) fn measure() -> CopyRates {
    let mut large = vec![1_u8; 2 * LARGE_BYTES];
    let (from, to) = large.split_at_mut(LARGE_BYTES);
    let start = Instant::now();
    black_box(&mut *to).copy_from_slice(black_box(from));
    let slowest = LARGE_BYTES as f64 / start.elapsed().as_secs_f64();
    let target = &mut to[..CHUNK_BYTES];
    let usual = best(&from[..SHARED_BYTES], target);
    let fastest = best(&from[..CHUNK_BYTES], target).max(usual);
    CopyRates {
        slowest: slowest.min(usual),
        usual,
        fastest,
    }
}

fn best(source: &[u8], target: &mut [u8]) -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for chunk in source.chunks_exact(CHUNK_BYTES) {
            black_box(&mut *target).copy_from_slice(black_box(chunk));
        }
        best = best.max(source.len() as f64 / start.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn measure__is_in_order() {
        let rates = measure();
        assert!(rates.slowest > 0.0, "{rates:?}");
        assert!(
            rates.slowest <= rates.usual && rates.usual <= rates.fastest,
            "{rates:?}"
        );
    }
}
