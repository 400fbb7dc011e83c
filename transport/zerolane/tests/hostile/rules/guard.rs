//! Surrounds memory with guards that detect writes.

use zerolane::Region;

/// Bytes on each side.
const GUARD_BYTES: usize = 8192;
/// The byte in the guards, and in fresh memory between them.
pub(super) const UNTOUCHED: u8 = 0xa5;

pub(super) struct Guards([Region; 2]);

impl Guards {
    /// `len` bytes, a multiple of 8, and the guards around them.
    pub(super) fn around(len: usize) -> (Guards, Region) {
        let mut before = Region::anonymous(2 * GUARD_BYTES + len).unwrap();
        before.fill(UNTOUCHED);
        let mut between = before.split_off(GUARD_BYTES);
        let behind = between.split_off(len);
        (Guards([before, behind]), between)
    }

    /// # Panics
    /// Panics if a guard was written.
    pub(super) fn check(&self) {
        let [before, behind] = &self.0;
        let untouched = |region: &Region| region.iter().all(|&byte| byte == UNTOUCHED);
        assert!(untouched(before), "written before the grant");
        assert!(untouched(behind), "written behind the grant");
    }
}

/// The length up to the last byte that was written.
pub(super) fn touched(region: &[u8]) -> usize {
    let last = region.iter().rposition(|&byte| byte != UNTOUCHED);
    last.map_or(0, |at| at + 1)
}
