//! Keeps the memory of finished requests for later ones: mapping fresh pages costs more than a short request.

use std::collections::HashMap;
use std::io;

use zerolane::Region;

/// Bytes that are kept. Clients ask for few lengths.
const KEPT: usize = 64 << 20;

/// Regions that are not in use, by length.
#[derive(Default)]
pub(super) struct Pool {
    free: HashMap<usize, Vec<Region>>,
    bytes: usize,
}

impl Pool {
    /// A region of so many bytes. What is in it is of an earlier request, or zeros.
    pub(super) fn take(&mut self, bytes: usize) -> io::Result<Region> {
        if let Some(region) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            self.bytes -= bytes;
            return Ok(region);
        }
        Region::anonymous(bytes)
    }

    /// Keeps `region`, in place of others if there is too much.
    pub(super) fn give(&mut self, region: Region) {
        let bytes = region.len();
        if bytes == 0 || bytes > KEPT {
            return;
        }
        if self.bytes + bytes > KEPT {
            self.free.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.free.entry(bytes).or_default().push(region);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn pool__keeps_what_it_gets_and_no_more_than_its_bound() {
        let mut pool = Pool::default();
        let mut region = pool.take(4096).unwrap();
        region[0] = 7;
        pool.give(region);
        assert_eq!(pool.take(8192).unwrap()[0], 0);
        assert_eq!(pool.take(4096).unwrap()[0], 7, "the same one");
        for length in 1..100 {
            pool.give(Region::anonymous(length << 20).unwrap());
            let kept: usize = pool.free.values().flatten().map(|it| it.len()).sum();
            assert!(kept <= KEPT && kept == pool.bytes, "{kept}");
        }
    }
}
