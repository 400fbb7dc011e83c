//! Holds unit costs, as each was measured alone.

use serde::{Deserialize, Serialize};

/// Payload of a train of a plain connection, bytes, for which the costs of trains are measured.
pub const TRAIN: usize = 60 << 10;
/// What slots that are given to the kernel go through before they are used again, bytes: what is in flight.
pub const SLOTS: usize = 2 << 20;
/// Bytes after its payload: a header of 40 and a digest of 8.
pub const TRAIN_END: usize = 48;

/// Bytes of the unit that costs of memory are of.
pub(crate) const KIB: f64 = 1024.0;

/// A cost: the median, least and largest of its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The least of the samples.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Cost {
    /// Of samples; `None` of none.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Cost> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let median = sorted[sorted.len() / 2];
        Some(Cost { min, median, max })
    }
}

/// The unit costs of a machine. Times are in nanoseconds; those of memory and of TCP in nanoseconds per KiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitCosts {
    /// Its caches.
    pub caches: Caches,
    /// A system call that does next to nothing.
    pub system_call: Cost,
    /// To wake a thread on the other core.
    pub wake: WakeCosts,
    /// What the memory of both cores gives to each where both copy from memory in no cache: the time of a copy then over
    /// its time alone, at least 1.
    pub contention: Cost,
    /// By how much memory there is, ascending.
    pub memory: Vec<MemoryCosts>,
    /// Of memory that passes from core to core.
    pub handed: HandedCosts,
    /// By how much memory there is, ascending.
    pub tcp: Vec<TcpCosts>,
    /// The same.
    pub trains: Vec<TrainCosts>,
    /// Of a connection without protection.
    pub plain: LibraryCosts,
    /// Of one that encrypts.
    pub encrypted: LibraryCosts,
}

/// Bytes of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caches {
    /// A core's own largest one.
    pub own: usize,
    /// The largest one, which the cores may share.
    pub last: usize,
}

/// A thread wakes another, which sleeps on another core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeCosts {
    /// From the call of the one to the return of the other's.
    pub latency: Cost,
    /// CPU time of the call that wakes.
    pub waker: Cost,
    /// CPU time of falling asleep and of being woken.
    pub woken: Cost,
}

/// Work on memory, a train or a piece at a time; nanoseconds per KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryCosts {
    /// How much memory is gone through, over and over.
    pub bytes: usize,
    /// The digest of plain trains.
    pub digest: Cost,
    /// All words added up.
    pub sum: Cost,
    /// One word of 64 bytes.
    pub touch: Cost,
    /// Copied from there to memory in the cache.
    pub copy_from: Cost,
    /// Copied there from memory in the cache.
    pub copy_to: Cost,
    /// Copied from there to as much other memory.
    pub copy: Cost,
    /// Sealed from there into memory in the cache.
    pub seal: Cost,
    /// Opened there from memory in the cache.
    pub open: Cost,
    /// Read there from a file in memory of that length.
    pub read_file: Cost,
    /// Written from there to such a file.
    pub write_file: Cost,
}

/// Slots of [`SLOTS`] bytes that the one core seals into and the other one reads, by turns; nanoseconds per KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandedCosts {
    /// Sealed from memory in the cache into what the other core has read.
    pub seal: Cost,
    /// Copied from what the other core has written to memory in the cache.
    pub read: Cost,
}

/// A stream of TCP by how its sender has its bytes sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpCosts {
    /// How much memory it is sent from, and received into.
    pub bytes: usize,
    /// By send.
    pub send: Way,
    /// By vmsplice and splice.
    pub splice: Way,
    /// By sendfile from a file in memory.
    pub sendfile: Way,
}

/// The one end of a stream while the other does nothing; nanoseconds per KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// Sent, up to the receiver's queue.
    pub send: Cost,
    /// Received from there, acknowledgements included.
    pub receive: Cost,
    /// Sent where the receiver has no room: what has room leaves, the rest is queued.
    pub queue: Cost,
    /// Received then: its acknowledgements make room, and have what is queued sent, on the receiver's core.
    pub receive_clocked: Cost,
}

/// A train of [`TRAIN`] and [`TRAIN_END`] bytes, the one end while the other does nothing; nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainCosts {
    /// How much memory it is sent from, and received into.
    pub bytes: usize,
    /// What it is cut after, bytes of UDP payload.
    pub datagram: usize,
    /// Copied by the kernel, up to the receiver's queue.
    pub copied: Cost,
    /// Received after that.
    pub received: Cost,
    /// Given to the kernel by vmsplice and splice.
    pub given: Cost,
    /// Received after that.
    pub received_given: Cost,
}

/// What the library takes beside the kernel's calls for trains and the work on their payload; nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LibraryCosts {
    /// A Transfer, at the sender: announced, granted, confirmed.
    pub send_transfer: Cost,
    /// The same at the receiver.
    pub receive_transfer: Cost,
    /// A train more, at the sender.
    pub send_train: Cost,
    /// The same at the receiver.
    pub receive_train: Cost,
}

/// What is measured by how much memory there is.
pub(crate) trait BySize {
    fn bytes(&self) -> usize;
}

macro_rules! by_size {
    ($($name:ty),*) => { $(impl BySize for $name {
        fn bytes(&self) -> usize { self.bytes }
    })* };
}
by_size!(MemoryCosts, TcpCosts, TrainCosts);

/// Median of `cost` at so many bytes: between two sizes that were measured by the logarithm of the size, beyond them as
/// at the nearest. 0 if none was measured.
pub(crate) fn at<T: BySize>(measured: &[T], bytes: usize, cost: impl Fn(&T) -> Cost) -> f64 {
    let point = |it: &T| ((it.bytes().max(1) as f64).ln(), cost(it).median);
    let place = (bytes.max(1) as f64).ln();
    let above = measured.iter().position(|it| it.bytes() >= bytes);
    match above {
        None => measured.last().map_or(0.0, |it| point(it).1),
        Some(0) => point(&measured[0]).1,
        Some(above) => {
            let ((left, low), (right, high)) =
                (point(&measured[above - 1]), point(&measured[above]));
            low + (high - low) * (place - left) / (right - left)
        }
    }
}
