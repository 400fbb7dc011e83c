//! Parses and builds the parameter list of UNMAP (SBC-3, 5.28.2).

use super::{Next, Unit};
use crate::bytes::number;
use crate::cdb::Extent;
use crate::limits::{MAX_UNMAP_BYTES, MAX_UNMAP_RANGES};
use crate::sense::{Code, Sense};
use crate::work::Operation;

const HEAD_BYTES: usize = 8;
const RANGE_BYTES: usize = 16;

/// The parameter list that names `extents`; `None` if there are too many, or a block count does not fit 32 bits.
pub fn unmap_list(extents: &[Extent]) -> Option<Vec<u8>> {
    if extents.len() > MAX_UNMAP_RANGES {
        return None;
    }
    let ranges = extents.len() * RANGE_BYTES;
    let mut bytes = Vec::new();
    bytes.extend((ranges as u16 + 6).to_be_bytes());
    bytes.extend((ranges as u16).to_be_bytes());
    bytes.extend([0; 4]);
    for extent in extents {
        bytes.extend(extent.lba.to_be_bytes());
        bytes.extend(u32::try_from(extent.blocks).ok()?.to_be_bytes());
        bytes.extend([0; 4]);
    }
    Some(bytes)
}

/// The ranges in `list`. A truncated range is ignored, as the standard requires.
fn ranges(list: &[u8]) -> Result<Vec<Extent>, Sense> {
    const TOO_SHORT: Sense = Sense::illegal(Code::PARAMETER_LIST_LENGTH);
    let (head, body) = list.split_at_checked(HEAD_BYTES).ok_or(TOO_SHORT)?;
    let length = number(&head[2..4]) as usize;
    // The whole list's length counts what is behind its own field: the rest of the head, and the ranges.
    if number(&head[..2]) < length as u64 + 6 {
        return Err(Sense::parameter_byte(0));
    }
    let body = body.get(..length).ok_or(TOO_SHORT)?;
    let ranges = body.chunks_exact(RANGE_BYTES);
    if ranges.len() > MAX_UNMAP_RANGES {
        return Err(Sense::parameter_byte(2));
    }
    let extent = |range: &[u8]| Extent {
        lba: number(&range[..8]),
        blocks: number(&range[8..12]),
    };
    Ok(ranges.map(extent).collect())
}

impl Unit {
    /// Unmaps all ranges in `list`, or none if one range is wrong.
    pub(super) fn unmap(&self, list: &[u8]) -> Result<Next, Sense> {
        let ranges = ranges(list)?;
        let most = self.disk.geometry.blocks_in(MAX_UNMAP_BYTES);
        let mut sum = 0;
        for (index, range) in ranges.iter().enumerate() {
            self.check_range(range)?;
            sum += range.blocks;
            if sum > most {
                let byte = HEAD_BYTES + index * RANGE_BYTES + 8;
                return Err(Sense::parameter_byte(byte as u16));
            }
        }
        Ok(self.work(Operation::Unmap(ranges), !self.disk.write_cache))
    }
}
