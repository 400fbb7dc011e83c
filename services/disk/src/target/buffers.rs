//! Keeps buffers for payload, and reuses them for later commands.

use std::collections::HashMap;
use std::io;

use zerolane::Region;

use crate::limits::SPARE_BYTES;

/// Below this memory is cheap to make, bytes.
const SMALL: usize = 64 << 10;

/// Regions by their length: initiators ask for the same lengths again and again.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    spare: HashMap<usize, Vec<Region>>,
    bytes: usize,
}

impl Buffers {
    /// A region of that length, with any content.
    pub(super) fn take(&mut self, length: usize) -> io::Result<Region> {
        if length < SMALL {
            return Ok(Region::from_vec(vec![0; length]));
        }
        match self.spare.get_mut(&length).and_then(Vec::pop) {
            Some(region) => {
                self.bytes -= length;
                Ok(region)
            }
            None => Region::anonymous(length),
        }
    }

    /// Returns a region that is no longer needed.
    pub(super) fn give(&mut self, region: Region) {
        let length = region.len();
        if length < SMALL {
            return;
        }
        if self.bytes + length > SPARE_BYTES {
            // Of other lengths than are asked for at present.
            self.spare.clear();
            self.bytes = 0;
        }
        self.bytes += length;
        self.spare.entry(length).or_default().push(region);
    }
}
