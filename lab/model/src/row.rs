//! Describes what is predicted: a row of `bench bulk` or `bench stream`.

use serde::Serialize;

/// What carries the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// The kernel's TCP, by send and recv.
    Tcp,
    /// The same, but the sender's pages are given by vmsplice and splice.
    TcpSplice,
    /// The same from a file in memory, by sendfile.
    TcpSendfile,
    /// Zerolane without protection: trains with a digest.
    Plain,
    /// Zerolane as users get it: sealed trains.
    Encrypted,
}

impl Carrier {
    /// Whether it is the kernel's TCP.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        matches!(
            self,
            Carrier::Tcp | Carrier::TcpSplice | Carrier::TcpSendfile
        )
    }
}

/// The sender's source of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Memory, a mapped file's included.
    Memory,
    /// A file, read into memory a piece at a time.
    Read,
}

/// What the receiver does with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sink {
    /// Nothing.
    None,
    /// Reads one word of 64 bytes.
    Touch,
    /// Copies it to other memory.
    Copy,
    /// Adds up all words.
    Checksum,
    /// Writes it to a file in memory.
    File,
}

/// A buffer that goes from memory to memory over and over, piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What carries it.
    pub carrier: Carrier,
    /// Where it comes from.
    pub source: Source,
    /// Where it goes.
    pub sink: Sink,
    /// The memory at each end, bytes.
    pub buffer: usize,
    /// What is handed over at a time, a Transfer of Zerolane's, bytes.
    pub piece: usize,
}

impl Row {
    /// From memory to memory, and nothing else.
    #[must_use]
    pub fn memory(carrier: Carrier, buffer: usize, piece: usize) -> Row {
        Row {
            carrier,
            source: Source::Memory,
            sink: Sink::None,
            buffer,
            piece,
        }
    }
}
