//! Tests that an initiator learns which bytes are mapped.

use zerolane_block::store::Store;
use zerolane_disk::initiator::{Error, Extent, Options, Request};
use zerolane_disk::remote::RemoteStore;

use super::support::{self, BLOCK, Served, memory, seeds};

const DISK: u64 = 4 << 20;
/// What a memory store takes at a time.
const PAGE: u64 = 4096;

#[test]
fn extents__are_those_of_the_store() {
    seeds::each(2, |mut rng| {
        let served = Served::new(vec![memory(DISK)]);
        let queue = support::open(served.address, 0, Options::default());
        let pages = (DISK / PAGE) as usize;
        let mut mapped = vec![false; pages];
        for _ in 0..40 {
            let first = rng.usize(0..pages);
            let count = rng.usize(1..=(pages - first).min(30));
            let (at, bytes) = (first as u64 * PAGE, count as u64 * PAGE);
            let writes = rng.u32(0..3) > 0;
            match writes {
                true => support::write(&queue, at, &vec![1; bytes as usize]).unwrap(),
                false => {
                    let unmap = true;
                    let done = queue.call(Request::Zero { at, bytes, unmap });
                    done.result.unwrap();
                }
            }
            mapped[first..first + count].fill(writes);
        }
        for most in [1, 3, 256] {
            let mut next = 0;
            while next < DISK {
                let found = queue.extents(next, most).unwrap();
                assert!(
                    (1..=most).contains(&found.len()),
                    "{} of {most}",
                    found.len()
                );
                for Extent {
                    at,
                    bytes,
                    mapped: is,
                } in found
                {
                    assert_eq!(at, next);
                    let of = (at / PAGE) as usize..((at + bytes) / PAGE) as usize;
                    assert!(mapped[of].iter().all(|&it| it == is), "{bytes} at {at}");
                    next = at + bytes;
                }
            }
            assert_eq!(next, DISK);
        }
        // From within a block, and as a door of this host has it.
        let within = queue.extents(PAGE + 100, 1).unwrap()[0];
        assert_eq!((within.at, within.mapped), (PAGE + 100, mapped[1]));
        let failed = queue.extents(DISK, 1).unwrap_err();
        assert!(matches!(failed, Error::Range { .. }), "{failed}");
        let run = RemoteStore::new(queue).run(2 * PAGE).unwrap();
        assert_eq!(run.mapped, mapped[2]);
        assert!(run.bytes.is_multiple_of(BLOCK));
        assert!(served.end().is_empty(), "no initiator was cut off");
    });
}
