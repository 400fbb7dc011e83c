//! Tests that a worker forgets revoked exports.

#![allow(non_snake_case)]
use super::*;
use zerolane_lane::Region;

#[test]
fn export__what_was_revoked_leaves_no_more_than_what_lives() {
    let mut worker = Worker::new().expect("descriptors");
    for n in 0..10_000 {
        let memory = ExportedRegion::new(Region::anonymous(8).expect("memory")).expect("aligned");
        let number = RegionNumber::new(n).expect("small");
        worker
            .export_numbered(number, &memory, Rights::ALL)
            .expect("a new number");
        memory.end();
        let kept = worker.numbered.regions.len();
        assert!(kept <= 1, "{kept}");
    }
}
