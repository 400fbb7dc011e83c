//! Defines the operations that request and report the state of a Transfer: arrived and missing ranges.

use super::{OPTIONS_LEN, Options, be32, be64, out_of_range};
use crate::header::{Field, Flags, Header, ParseError};

/// Ranges that fit in the options of one State.
pub const MAX_RANGES: usize = 4;

/// A range of bytes within a Block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte, from the start of the Block.
    pub start: u32,
    /// Length in bytes, not 0; `start + len` fits 32 bits.
    pub len: u32,
}

/// At most [`MAX_RANGES`] ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges {
    list: [Range; MAX_RANGES],
    count: u8,
}

impl Ranges {
    /// No range.
    pub const EMPTY: Ranges = Ranges {
        list: [Range { start: 0, len: 0 }; MAX_RANGES],
        count: 0,
    };

    /// Adds `range`. False if full, or if `range` is empty or ends beyond 2^32 - 1.
    pub fn push(&mut self, range: Range) -> bool {
        let valid = range.len != 0 && range.start.checked_add(range.len).is_some();
        let Some(place) = self.list.get_mut(usize::from(self.count)).filter(|_| valid) else {
            return false;
        };
        *place = range;
        self.count += 1;
        true
    }

    /// The ranges.
    pub fn as_slice(&self) -> &[Range] {
        &self.list[..usize::from(self.count)]
    }

    pub(super) fn emit(&self) -> Options {
        let mut options = [0; OPTIONS_LEN];
        for (place, range) in options.chunks_exact_mut(8).zip(self.as_slice()) {
            place[..4].copy_from_slice(&range.start.to_be_bytes());
            place[4..].copy_from_slice(&range.len.to_be_bytes());
        }
        options
    }

    pub(super) fn parse(options: &Options) -> Result<Ranges, ParseError> {
        let mut ranges = Ranges::EMPTY;
        for chunk in options.chunks_exact(8) {
            let range = Range {
                start: be32(chunk, 0),
                len: be32(chunk, 4),
            };
            if range.len == 0 {
                break;
            }
            if !ranges.push(range) {
                return Err(out_of_range(Field::Options, u64::from(range.start)));
            }
        }
        Ok(ranges)
    }
}

/// Asks for a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestState {
    /// Block asked about.
    pub b_num: u32,
    /// The receiver's Transfer identifier, 0 if not known yet.
    pub d_id: u32,
    /// The sender's Transfer identifier.
    pub s_id: u32,
    /// Echoed in the State.
    pub sync: u32,
}

/// What a [`State`] refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occasion {
    /// Answers the Request_State or Send_State with this Sync.
    Reply(u32),
    /// Unsolicited: the newest burst of Data seen so far (its Sync), 0 if none.
    Seen(u32),
}

/// Totals that a connection has received, for its sender's congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Payload bytes received for the first time, since the connection began.
    pub received: u64,
    /// Microseconds between the arrival of the burst named by [`Occasion`] and this report.
    pub delay_us: u32,
    /// STUs that arrived marked "congestion experienced", modulo 2^32.
    pub marked: u32,
    /// STUs that arrived ECN-capable, marked or not, modulo 2^32. Stays 0 if the path clears the field.
    pub capable: u32,
    /// Datagrams may come as trains from now on.
    pub trains: bool,
}

/// The byte of the options whose lowest bit is [`Progress::trains`].
const TRAINS: usize = 20;

/// The content of a [`State`]'s options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    /// Missing ranges of the Block, to be retransmitted. Empty: nothing is requested.
    Missing(Ranges),
    /// The progress of the connection.
    Progress(Progress),
}

impl Report {
    /// No missing ranges, no progress.
    pub const NOTHING: Report = Report::Missing(Ranges::EMPTY);
}

/// Reports the received Blocks of a Transfer, and the missing ranges of one Block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What it refers to.
    pub occasion: Occasion,
    /// Whether all Blocks are complete.
    pub complete: bool,
    /// This end has no such Transfer.
    pub unknown: bool,
    /// Blocks below this number are complete.
    pub blocks_complete: u32,
    /// The Block of this report.
    pub b_num: u32,
    /// End of the last byte received of that Block, from its start.
    pub reached: u32,
    /// The Data sender's Transfer identifier.
    pub d_id: u32,
    /// The Data receiver's Transfer identifier.
    pub s_id: u32,
    /// Details of that Block, or of the connection.
    pub report: Report,
}

impl Progress {
    pub(super) fn emit(&self) -> Options {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&self.received.to_be_bytes());
        options[8..12].copy_from_slice(&self.delay_us.to_be_bytes());
        options[12..16].copy_from_slice(&self.marked.to_be_bytes());
        options[16..20].copy_from_slice(&self.capable.to_be_bytes());
        options[TRAINS] = self.trains.into();
        options
    }

    pub(super) fn parse(options: &Options) -> Progress {
        Progress {
            received: be64(options, 0),
            delay_us: be32(options, 8),
            marked: be32(options, 12),
            capable: be32(options, 16),
            trains: options[TRAINS] & 1 != 0,
        }
    }
}

impl State {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let (sync, is_reply) = match self.occasion {
            Occasion::Reply(sync) => (sync, true),
            Occasion::Seen(burst) => (burst, false),
        };
        let (options, is_progress) = match &self.report {
            Report::Missing(ranges) => (ranges.emit(), false),
            Report::Progress(progress) => (progress.emit(), true),
        };
        let header = Header {
            flags: Flags::NONE
                .with_if(Flags::REPLY, is_reply)
                .with_if(Flags::COMPLETE, self.complete)
                .with_if(Flags::UNKNOWN, self.unknown)
                .with_if(Flags::PROGRESS, is_progress),
            sync,
            bufx: self.blocks_complete,
            offset: self.reached,
            b_num: self.b_num,
            d_id: self.d_id,
            s_id: self.s_id,
            ..header
        };
        (header, Some(options))
    }

    pub(super) fn parse(header: &Header, options: &Options) -> Result<State, ParseError> {
        let occasion = match header.flags.contains(Flags::REPLY) {
            true => Occasion::Reply(header.sync),
            false => Occasion::Seen(header.sync),
        };
        let report = match header.flags.contains(Flags::PROGRESS) {
            true => Report::Progress(Progress::parse(options)),
            false => Report::Missing(Ranges::parse(options)?),
        };
        Ok(State {
            occasion,
            complete: header.flags.contains(Flags::COMPLETE),
            unknown: header.flags.contains(Flags::UNKNOWN),
            blocks_complete: header.bufx,
            reached: header.offset,
            b_num: header.b_num,
            d_id: header.d_id,
            s_id: header.s_id,
            report,
        })
    }
}
