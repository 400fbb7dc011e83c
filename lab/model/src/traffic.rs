//! Predicts bytes on the memory bus per byte of payload, by carrier and end, the adapter's own included (P4.3).
//!
//! For each pass over the payload, the paper counts what is not in the cache: a line that is read is fetched once; a line
//! that is written is fetched and, when evicted, written back; the adapter reads and writes memory itself. An end's
//! memory is gone through again and again, so it stays in the cache as a whole or not at all.
//!
//! | pass | fits the cache | does not |
//! |---|---|---|
//! | sender: the CPU reads the memory (copy, digest, seal) | 0 | 1 |
//! | sender: the CPU writes the socket buffer, or a slot, which is used again | 0 | 0 to 2 |
//! | sender: the adapter reads what was written, or the memory if that was lent | 1 | 1 |
//! | receiver: the adapter writes the socket buffer, or the memory by itself (RDMA) | 1 | 1 |
//! | receiver: the CPU reads the socket buffer, which the adapter's write took out of the cache | 1 | 1 |
//! | receiver: the CPU writes the memory | 0 | 2 |
//! | source: a file is read, the memory written, a piece of it read if it is no longer in the cache | 0 | 2 or 3 |
//! | sink: a file or other memory written; the piece just received read if it is no longer in the cache | 0 | 0 to 3 |
//!
//! Between two namespaces there is no adapter: the receiver's CPU reads what the sender's CPU wrote, or the sender's
//! memory if that was lent, from the cache that both share.
//!
//! The paper expects 2 to 4 bytes at a sender whose memory does not fit, and more of them the larger it is: the memory
//! pushes the socket buffer out. `likely` takes that share as 1 - cache / (memory + socket buffer), as where any line is
//! evicted as likely as any other.

use serde::Serialize;

use crate::costs::Caches;
use crate::row::{Carrier, Row, Sink, Source};

/// Bytes that the kernel's buffers hold of a flow at most, as far as the cache is concerned.
const IN_FLIGHT: usize = 2 << 20;

/// How payload moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Movement {
    /// TCP by send and recv.
    Tcp,
    /// TCP whose sender lends its pages.
    TcpLent,
    /// Zerolane without protection: a digest, then pages lent.
    Plain,
    /// Zerolane, sealed into slots.
    Encrypted,
    /// The adapters alone, from memory to memory.
    Rdma,
}

impl From<Carrier> for Movement {
    fn from(carrier: Carrier) -> Movement {
        match carrier {
            Carrier::Tcp => Movement::Tcp,
            Carrier::TcpSplice | Carrier::TcpSendfile => Movement::TcpLent,
            Carrier::Plain => Movement::Plain,
            Carrier::Encrypted => Movement::Encrypted,
        }
    }
}

/// What lies between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Adapter {
    /// An adapter at each end, which reads and writes memory by itself; each end has caches of its own.
    Own,
    /// None: both ends share a machine and its last cache.
    None,
}

/// Sizes at an end, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Memory of the program, used again for each message: the message's length.
    pub message: usize,
    /// Socket buffer, or slots.
    pub socket: usize,
    /// Largest cache.
    pub cache: usize,
}

impl Sizes {
    /// Whether a message stays in the cache, with the socket buffer.
    fn fits(&self) -> bool {
        self.message.saturating_add(self.socket) <= self.cache
    }

    /// Of the socket buffer, what the message pushed out of the cache before it is used again.
    fn pushed_out(&self) -> Bytes {
        let live = self.message.saturating_add(self.socket) as f64;
        match self.fits() {
            true => Bytes::exactly(0.0),
            false => Bytes {
                least: 0.0,
                likely: 1.0 - self.cache as f64 / live,
                most: 1.0,
            },
        }
    }

    /// `bytes` if the message does not fit.
    fn unless_it_fits(&self, bytes: f64) -> Bytes {
        Bytes::exactly(if self.fits() { 0.0 } else { bytes })
    }
}

/// Bytes on the bus for each byte of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bytes {
    /// With a cache that keeps what is used again soon.
    pub least: f64,
    /// With one that evicts any line as likely as any other.
    pub likely: f64,
    /// With one that keeps nothing of the socket buffer.
    pub most: f64,
}

impl Bytes {
    fn exactly(bytes: f64) -> Bytes {
        Bytes {
            least: bytes,
            likely: bytes,
            most: bytes,
        }
    }

    fn times(self, factor: f64) -> Bytes {
        Bytes {
            least: self.least * factor,
            likely: self.likely * factor,
            most: self.most * factor,
        }
    }
}

impl std::ops::Add for Bytes {
    type Output = Bytes;

    fn add(self, other: Bytes) -> Bytes {
        Bytes {
            least: self.least + other.least,
            likely: self.likely + other.likely,
            most: self.most + other.most,
        }
    }
}

/// Of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// At the sender.
    pub sender: Bytes,
    /// At the receiver.
    pub receiver: Bytes,
}

impl Traffic {
    /// Of a message from memory to memory, over again.
    #[must_use]
    pub fn of(way: Movement, sizes: &Sizes, adapter: Adapter) -> Traffic {
        Traffic {
            sender: sender(way, sizes, adapter),
            receiver: receiver(way, sizes, adapter),
        }
    }

    /// The same with what a cache may lose besides, where addresses meet in few of its lines: the paper's theoretical row.
    #[must_use]
    pub fn in_theory(way: Movement, sizes: &Sizes, adapter: Adapter) -> Traffic {
        let kept = Traffic::of(way, sizes, adapter);
        let lost = Traffic::of(way, &Sizes { cache: 0, ..*sizes }, adapter);
        let most = |kept: Bytes, lost: Bytes| Bytes {
            most: lost.most,
            ..kept
        };
        Traffic {
            sender: most(kept.sender, lost.sender),
            receiver: most(kept.receiver, lost.receiver),
        }
    }
}

fn sender(way: Movement, sizes: &Sizes, adapter: Adapter) -> Bytes {
    let read = sizes.unless_it_fits(1.0);
    let written = sizes.pushed_out().times(2.0);
    let by_cpu = match way {
        Movement::Tcp | Movement::Encrypted => read + written,
        Movement::Plain => read,
        Movement::TcpLent | Movement::Rdma => Bytes::default(),
    };
    match adapter {
        Adapter::Own => by_cpu + Bytes::exactly(1.0),
        Adapter::None => by_cpu,
    }
}

fn receiver(way: Movement, sizes: &Sizes, adapter: Adapter) -> Bytes {
    let (by_adapter, read) = match (adapter, way) {
        (Adapter::Own, Movement::Rdma) => return Bytes::exactly(1.0),
        (Adapter::Own, _) => (1.0, Bytes::exactly(1.0)),
        // What the sender's CPU wrote, or read for its digest, is in the cache unless it was pushed out since.
        (Adapter::None, Movement::Tcp | Movement::Encrypted | Movement::Plain) => {
            (0.0, sizes.pushed_out())
        }
        (Adapter::None, Movement::TcpLent | Movement::Rdma) => (0.0, sizes.unless_it_fits(1.0)),
    };
    Bytes::exactly(by_adapter) + read + sizes.unless_it_fits(2.0)
}

/// Of a row: what the machine of the row has between its ends, and what it would have with adapters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RowTraffic {
    /// Without adapters, both ends on one machine.
    pub here: Traffic,
    /// With an adapter at each end.
    pub with_adapters: Traffic,
}

/// Bytes on the bus for each byte of payload of this row.
pub(crate) fn of_row(row: &Row, caches: &Caches) -> RowTraffic {
    let traffic = |ends: usize, adapter| {
        let sizes = Sizes {
            message: working_set(row, ends),
            socket: IN_FLIGHT,
            cache: caches.last,
        };
        let Traffic { sender, receiver } = Traffic::of(row.carrier.into(), &sizes, adapter);
        let (source, sink) = match sizes.fits() {
            true => (0.0, 0.0),
            false => (of_source(row, caches), of_sink(row, caches)),
        };
        Traffic {
            sender: sender + Bytes::exactly(source),
            receiver: receiver + Bytes::exactly(sink),
        }
    };
    RowTraffic {
        here: traffic(2, Adapter::None),
        with_adapters: traffic(1, Adapter::Own),
    }
}

/// What a source takes beside the reading of the memory.
fn of_source(row: &Row, caches: &Caches) -> f64 {
    match row.source {
        Source::Memory => 0.0,
        // The file is read, the memory written; a piece of it is then read from the cache if it fits.
        Source::Read => 2.0 + missing(row.piece, caches),
    }
}

fn of_sink(row: &Row, caches: &Caches) -> f64 {
    match row.sink {
        Sink::None => 0.0,
        Sink::Touch | Sink::Checksum => missing(row.piece, caches),
        Sink::Copy | Sink::File => 2.0 + missing(row.piece, caches),
    }
}

/// For a recently written piece: 1 if it is no longer in the cache.
fn missing(piece: usize, caches: &Caches) -> f64 {
    f64::from(u8::from(piece.saturating_add(IN_FLIGHT) > caches.last))
}

/// All memory that this many of a row's ends go through again and again, bytes: of one, the end that has more.
fn working_set(row: &Row, ends: usize) -> usize {
    let files = [
        row.source == Source::Read,
        matches!(row.sink, Sink::Copy | Sink::File),
    ];
    let files = files.into_iter().filter(|it| *it).count();
    row.buffer.saturating_mul(ends + files.min(ends))
}
