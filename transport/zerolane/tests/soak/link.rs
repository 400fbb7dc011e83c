//! Chooses the soak's links by seed.

use netsim::link::{LinkConfig, Loss, Reorder};
use std::fmt;
use std::time::Duration;

/// A kind of link, the same in all directions.
#[derive(Clone, Copy)]
pub struct Path {
    rtt_us: u64,
    jitter_us: u64,
    mbits: u64,
    loss: f64,
    reorder: f64,
    reorder_by_us: u64,
    duplicate: f64,
    queue: usize,
}

/// Loses, reorders by more than a burst, duplicates and jitters: used by every second seed.
const BAD: Path = Path {
    rtt_us: 5_000,
    jitter_us: 1_000,
    mbits: 200,
    loss: 0.02,
    reorder: 0.05,
    reorder_by_us: 1_000,
    duplicate: 0.02,
    queue: 1000,
};

const OTHERS: [Path; 5] = [
    // Reorders, but loses nothing.
    Path {
        loss: 0.0,
        duplicate: 0.0,
        jitter_us: 0,
        ..BAD
    },
    // Long.
    Path {
        rtt_us: 60_000,
        loss: 0.01,
        reorder: 0.02,
        reorder_by_us: 3_000,
        ..BAD
    },
    // Thin.
    Path {
        rtt_us: 20_000,
        mbits: 20,
        loss: 0.01,
        duplicate: 0.01,
        queue: 100,
        ..BAD
    },
    // A shallow queue.
    Path {
        rtt_us: 1_000,
        jitter_us: 0,
        loss: 0.0,
        reorder: 0.0,
        duplicate: 0.0,
        queue: 20,
        ..BAD
    },
    // Near, fast, and almost reliable.
    Path {
        rtt_us: 500,
        jitter_us: 100,
        mbits: 1_000,
        loss: 0.001,
        reorder: 0.01,
        reorder_by_us: 200,
        duplicate: 0.001,
        ..BAD
    },
];

impl Path {
    pub fn of_seed(seed: u64) -> Path {
        match seed % 2 {
            0 => BAD,
            _ => OTHERS[(seed / 2 % OTHERS.len() as u64) as usize],
        }
    }

    pub fn config(self) -> LinkConfig {
        LinkConfig {
            delay: Duration::from_micros(self.rtt_us / 2),
            jitter: Duration::from_micros(self.jitter_us),
            loss: Loss::Random(self.loss),
            reorder: Reorder {
                probability: self.reorder,
                by: Duration::from_micros(self.reorder_by_us),
            },
            duplicate: self.duplicate,
            rate_bits_per_s: Some(self.mbits * 1_000_000),
            queue_packets: self.queue,
            ..LinkConfig::default()
        }
    }

    /// Time that the link needs for `bytes` of one initiator while the others send and receive as much, generously.
    pub fn explains(self, bytes: u64) -> Duration {
        const SHARED_BY: u64 = 2 * super::INITIATORS as u64;
        let carried = Duration::from_micros(bytes * 8 * SHARED_BY / self.mbits);
        carried + 40 * Duration::from_micros(self.rtt_us)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "--loss {}% --rtt {}us --rate {}mbit --reorder {}%:{}us --duplicate {}% --jitter {}us, queue {}",
            self.loss * 100.0,
            self.rtt_us,
            self.mbits,
            self.reorder * 100.0,
            self.reorder_by_us,
            self.duplicate * 100.0,
            self.jitter_us,
            self.queue
        )
    }
}
