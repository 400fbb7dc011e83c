//! Finds the mapped extents of a unit, by GET LBA STATUS.

use zerolane::Region;

use super::Queue;
use super::error::Error;
use super::request::{Done, Request};
use super::unit::Unit;

/// A run of a unit's bytes with the same state. The next run may have the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte.
    pub at: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// Whether the bytes are mapped. Unmapped ones read as zeros.
    pub mapped: bool,
}

/// What is before the descriptors, and a descriptor, bytes.
const HEAD: usize = 8;
const DESCRIPTOR: usize = 16;

impl Queue {
    /// The extents from `at` on, without a gap: one at least, and `most` at most (1 to 256), which may end before the
    /// unit does.
    ///
    /// # Errors
    /// `at` is not on the unit, or the command failed.
    pub fn extents(&self, at: u64, most: usize) -> Result<Vec<Extent>, Error> {
        let unit = self.unit();
        let room = HEAD + DESCRIPTOR * most.clamp(1, 256);
        let memory = Region::anonymous(room).map_err(|error| Error::System(error.to_string()))?;
        let block = u64::from(unit.block_bytes);
        let start = at - at % block;
        let Done { result, memory } = self.call(Request::Status { at: start, memory });
        result?;
        self.extents_in(&memory, at)
    }

    /// Parses `answer`, the memory of a [`Request::Status`] of the block of `at`, into the extents from `at` on.
    ///
    /// # Errors
    /// The answer is malformed.
    pub fn extents_in(&self, answer: &[u8], at: u64) -> Result<Vec<Extent>, Error> {
        let unit = self.unit();
        let start = at - at % u64::from(unit.block_bytes);
        let mut found = parse(answer, start, unit)?;
        if let Some(first) = found.first_mut() {
            (first.at, first.bytes) = (at, first.bytes - (at - start));
        }
        Ok(found)
    }
}

/// Parses the target's answer for the block at `start`. The bytes after the answer are arbitrary.
fn parse(bytes: &[u8], start: u64, unit: &Unit) -> Result<Vec<Extent>, Error> {
    let wrong = |words: &str| Error::Protocol(format!("GET LBA STATUS: {words}"));
    let length = bytes.first_chunk().map(|it| u32::from_be_bytes(*it));
    let length = length.ok_or_else(|| wrong("no length"))? as usize;
    let list = bytes.get(HEAD..).unwrap_or_default();
    // The length counts all descriptors, also those that did not fit the buffer.
    let told = length.saturating_sub(HEAD - 4).min(list.len());
    let (mut next, mut found) = (start, Vec::new());
    for descriptor in list[..told].chunks_exact(DESCRIPTOR) {
        let lba = descriptor.first_chunk().map(|it| u64::from_be_bytes(*it));
        let blocks = descriptor[8..]
            .first_chunk()
            .map(|it| u32::from_be_bytes(*it));
        let (Some(lba), Some(blocks)) = (lba, blocks) else {
            break;
        };
        let bytes = u64::from(blocks) * u64::from(unit.block_bytes);
        let at = lba.checked_mul(unit.block_bytes.into());
        if at != Some(next) || bytes == 0 || bytes > unit.bytes().saturating_sub(next) {
            return Err(wrong("blocks that were not requested"));
        }
        found.push(Extent {
            at: next,
            bytes,
            mapped: descriptor[12] & 0xf == 0,
        });
        next += bytes;
    }
    match found.is_empty() {
        true => Err(wrong("no descriptor")),
        false => Ok(found),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn unit() -> Unit {
        Unit {
            lun: 0,
            block_bytes: 512,
            blocks: 100,
            read_only: false,
            thin: true,
            serial: String::new(),
        }
    }

    /// An answer with these descriptors: block, blocks, and how they are.
    fn answer(list: &[(u64, u32, u8)]) -> Vec<u8> {
        let length = 4 + DESCRIPTOR as u32 * list.len() as u32;
        let mut bytes = [length.to_be_bytes(), [0; 4]].concat();
        for (lba, blocks, how) in list {
            bytes.extend(lba.to_be_bytes());
            bytes.extend(blocks.to_be_bytes());
            bytes.extend([*how, 0, 0, 0]);
        }
        bytes
    }

    #[test]
    fn parse__descriptors_without_a_gap() {
        let mut bytes = answer(&[(4, 6, 0), (10, 90, 1)]);
        let extent = |at, bytes, mapped| Extent { at, bytes, mapped };
        let both = [
            extent(4 * 512, 6 * 512, true),
            extent(10 * 512, 90 * 512, false),
        ];
        assert_eq!(parse(&bytes, 4 * 512, &unit()).unwrap(), both);
        // Memory of before behind it, and a length of more than there was room for.
        bytes.extend([0xff; 40]);
        assert_eq!(parse(&bytes, 4 * 512, &unit()).unwrap(), both);
        bytes.truncate(HEAD + DESCRIPTOR);
        assert_eq!(parse(&bytes, 4 * 512, &unit()).unwrap(), both[..1]);
    }

    #[test]
    fn parse__refuses_what_was_not_asked_for() {
        for list in [
            &[][..],
            &[(5, 6, 0)],
            &[(4, 0, 0)],
            &[(4, 97, 0)],
            &[(4, 6, 0), (11, 1, 0)],
            &[(u64::MAX, 1, 0)],
        ] {
            assert!(parse(&answer(list), 4 * 512, &unit()).is_err(), "{list:?}");
        }
        for length in 0..HEAD + DESCRIPTOR {
            let bytes = &answer(&[(4, 6, 0)])[..length];
            assert!(parse(bytes, 4 * 512, &unit()).is_err(), "{length} bytes");
        }
    }
}
