//! Describes jobs from a source to a sink, as in the thesis's yantt (P1.13).

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Laps, check_buffer};
use crate::job::operations::DATAGRAM_MAX;

/// The sender's source of the data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// Memory that was filled before
    Buffer,
    /// A file, by sendfile
    Sendfile,
    /// Memory, by vmsplice and splice
    Splice,
    /// A file that is read into memory, a piece at a time
    Read,
    /// A file that is mapped
    Mmap,
}

/// What the receiver does with the data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sink {
    /// Nothing: the data stays in memory
    None,
    /// Reads one word of every 64 bytes
    Touch,
    /// Copies it to other memory
    Copy,
    /// Adds up all words
    Checksum,
    /// Writes it to a file
    File,
}

impl Source {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Source::Buffer => "buffer",
            Source::Sendfile => "sendfile",
            Source::Splice => "splice",
            Source::Read => "read",
            Source::Mmap => "mmap",
        }
    }

    /// Whether it is the end's own memory, not a file's.
    pub(crate) fn is_memory(self) -> bool {
        matches!(self, Source::Buffer | Source::Splice | Source::Read)
    }
}

impl Sink {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sink::None => "none",
            Sink::Touch => "touch",
            Sink::Copy => "copy",
            Sink::Checksum => "checksum",
            Sink::File => "file",
        }
    }
}

/// What a receiver of Zerolane's predicts of the payload that comes next (P2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Speculation {
    /// Its place
    #[default]
    Right,
    /// Nothing: all payload is copied into its place
    None,
    /// The place of a neighbour, because the sender swaps neighbours
    Wrong,
}

impl Speculation {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Speculation::Right => "right",
            Speculation::None => "none",
            Speculation::Wrong => "wrong",
        }
    }
}

/// The overheads that Zerolane can switch on again, as they were before an optimisation removed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overheads {
    /// Each datagram is sent by a separate call.
    pub(crate) no_gso: bool,
    /// Each datagram is received alone.
    pub(crate) no_gro: bool,
    /// Payload is checksummed on top of what UDP does.
    pub(crate) checksum: bool,
    /// Every datagram has a header.
    pub(crate) no_trains: bool,
    /// What the receiver predicts.
    pub(crate) speculation: Speculation,
    /// Bytes of an STU, of which 32 are a Block of the classic profile, as in the thesis; `None`: as the path carries.
    pub(crate) stu: Option<u32>,
    /// Small datagrams that the sender sends between the Transfers, evenly over all laps.
    pub(crate) between: u64,
}

/// A buffer, or a file of its length in memory, that goes piece by piece from a source to a sink, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceSink {
    pub(crate) source: Source,
    pub(crate) sink: Sink,
    /// Bytes of a piece: what is handed over at a time, a Transfer of Zerolane's.
    pub(crate) piece: usize,
    /// How often the buffer is sent.
    pub(crate) laps: u64,
    /// Overheads that Zerolane must keep, and optimisations that it must not use.
    pub(crate) overheads: Overheads,
    /// Largest UDP payload that the path carries in one packet, bytes.
    pub(crate) datagram: usize,
    /// Whether a thread of the lowest priority measures the core's spare time.
    pub(crate) soak: bool,
    /// What is sent.
    pub(crate) seed: u64,
}

/// Pieces are multiples of this, bytes: what is touched is one word of it.
pub(crate) const LINE: usize = 64;
/// A buffer has at least so many bytes, so that enough of short pieces are in flight.
const LEAST_BYTES: usize = 1 << 20;
/// And this many pieces, so that one is in flight while another is read.
const LEAST_PIECES: usize = 2;
/// Sizes of an STU.
const STUS: std::ops::RangeInclusive<u32> = 512..=32 << 10;
/// STUs of a Block.
pub(crate) const STUS_OF_BLOCK: u32 = 32;
/// Datagrams between two Transfers, at most: they leave one by one.
const BETWEEN_MAX: u64 = 64;

impl SourceSink {
    /// The laps of the buffer.
    pub(crate) fn laps(&self) -> Laps {
        Laps {
            buffer: self.pieces().saturating_mul(self.piece),
            laps: self.laps,
            seed: self.seed,
        }
    }

    fn pieces(&self) -> usize {
        LEAST_BYTES.div_ceil(self.piece.max(1)).max(LEAST_PIECES)
    }

    /// The number of laps with at least `bytes` in total.
    pub(crate) fn of_bytes(self, bytes: u64) -> SourceSink {
        let buffer = self.laps().buffer.max(1) as u64;
        SourceSink {
            laps: bytes.div_ceil(buffer).max(1),
            ..self
        }
    }

    /// Refuses jobs that no honest orchestrator sends.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.piece > 0 && self.piece.is_multiple_of(LINE),
            "pieces of {} bytes: they are multiples of {LINE} bytes",
            self.piece
        );
        check_buffer(self.piece)?;
        ensure!(
            (2 * LINE..=DATAGRAM_MAX).contains(&self.datagram),
            "datagrams of {} bytes: they are {} to {DATAGRAM_MAX} bytes",
            self.datagram,
            2 * LINE
        );
        ensure!(
            self.overheads
                .stu
                .is_none_or(|it| STUS.contains(&it) && it.is_power_of_two()),
            "STUs of {:?} bytes: a power of two from 512 to 32768",
            self.overheads.stu
        );
        let transfers = self.pieces() as u64;
        let most = self
            .laps
            .saturating_mul(transfers)
            .saturating_mul(BETWEEN_MAX);
        ensure!(
            self.overheads.between <= most,
            "{} datagrams between Transfers: at most {BETWEEN_MAX} for each",
            self.overheads.between
        );
        self.laps().check()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const JOB: SourceSink = SourceSink {
        source: Source::Buffer,
        sink: Sink::None,
        piece: 64 << 10,
        laps: 3,
        overheads: Overheads {
            no_gso: false,
            no_gro: false,
            checksum: false,
            no_trains: false,
            speculation: Speculation::Right,
            stu: None,
            between: 0,
        },
        datagram: 1472,
        soak: false,
        seed: 5,
    };

    #[test]
    fn SourceSink__refuses_what_would_exhaust_the_end() {
        JOB.check().unwrap();
        let wrong: [fn(&mut SourceSink); 12] = [
            |job| job.piece = 0,
            |job| job.piece = usize::MAX,
            |job| job.piece = (64 << 10) + 8,
            |job| job.laps = 0,
            |job| job.laps = u64::MAX,
            |job| job.datagram = 8,
            |job| job.datagram = DATAGRAM_MAX + 1,
            |job| job.overheads.stu = Some(256),
            |job| job.overheads.stu = Some(1000),
            |job| job.overheads.stu = Some(1 << 31),
            |job| job.overheads.between = u64::MAX,
            |job| job.overheads.between = job.laps * job.pieces() as u64 * BETWEEN_MAX + 1,
        ];
        for spoil in wrong {
            let mut job = JOB;
            spoil(&mut job);
            assert!(job.check().is_err(), "{job:?}");
        }
    }

    #[test]
    fn of_bytes__whole_buffers_of_at_least_two_pieces() {
        let laps = |piece, bytes| {
            let laps = SourceSink { piece, ..JOB }.of_bytes(bytes).laps();
            (laps.buffer, laps.laps)
        };
        assert_eq!(laps(64 << 10, 3 << 20), (1 << 20, 3));
        assert_eq!(laps(64 << 10, (3 << 20) + 1), (1 << 20, 4));
        assert_eq!(laps(4 << 20, 1), (8 << 20, 1));
    }
}
