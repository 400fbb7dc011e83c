//! Operations that ask for and tell the state of a Transfer: what has arrived and what is missing.

use super::{OPTIONS_LEN, Options, be32, out_of_range};
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

/// Up to [`MAX_RANGES`] ranges.
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

    /// Adds `range`; false if full, or if `range` is empty or ends beyond 2^32 - 1.
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

/// Reports what has been received of a Transfer, and what is missing of one Block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Answers a Request_State or a Send_State with this Sync; unsolicited if `None`.
    pub reply_to: Option<u32>,
    /// All Blocks complete.
    pub complete: bool,
    /// No such Transfer here.
    pub unknown: bool,
    /// Blocks below this number are complete.
    pub blocks_complete: u32,
    /// The Block reported.
    pub b_num: u32,
    /// End of the last byte received of that Block, from its start.
    pub reached: u32,
    /// The Data sender's Transfer identifier.
    pub d_id: u32,
    /// The Data receiver's Transfer identifier.
    pub s_id: u32,
    /// Missing ranges of that Block, to be sent again. Empty: nothing is asked for.
    pub missing: Ranges,
}

impl State {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            flags: Flags::NONE
                .with_if(Flags::REPLY, self.reply_to.is_some())
                .with_if(Flags::COMPLETE, self.complete)
                .with_if(Flags::UNKNOWN, self.unknown),
            sync: self.reply_to.unwrap_or(0),
            bufx: self.blocks_complete,
            offset: self.reached,
            b_num: self.b_num,
            d_id: self.d_id,
            s_id: self.s_id,
            ..header
        };
        (header, Some(self.missing.emit()))
    }

    pub(super) fn parse(header: &Header, options: &Options) -> Result<State, ParseError> {
        Ok(State {
            reply_to: header.flags.contains(Flags::REPLY).then_some(header.sync),
            complete: header.flags.contains(Flags::COMPLETE),
            unknown: header.flags.contains(Flags::UNKNOWN),
            blocks_complete: header.bufx,
            reached: header.offset,
            b_num: header.b_num,
            d_id: header.d_id,
            s_id: header.s_id,
            missing: Ranges::parse(options)?,
        })
    }
}
