//! Block devices as disks. Where there are no loop devices, the tests say so and are skipped.

use std::fs;

use zerolane_block::store::{FileStore, Store};
use zerolane_block::{Disk, GeometryError, Identity};

use super::support::BLOCK;
use super::support::device::Loop;

const DISK: u64 = 4 << 20;

/// Of 4096 bytes. The kernel refuses to punch holes that are no whole blocks of the device.
#[test]
fn device__of_long_blocks_is_a_disk_of_such_blocks() {
    const LONG: u32 = 4096;
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = Loop::new(directory.path(), DISK, LONG) else {
        return;
    };
    let store = FileStore::open(&device.path, false).unwrap();
    let identity = Identity::named("test");
    let refused = Disk::of(&store, BLOCK as u32, identity).unwrap_err();
    let expected = GeometryError::Part {
        block_bytes: BLOCK as u32,
        least: LONG,
    };
    assert_eq!(refused, expected);
    assert_eq!(Disk::block_bytes_of(&store), LONG);
    Disk::of(&store, LONG, identity).unwrap();
    let mut model: Vec<u8> = (0..DISK).map(|it| (it / 512) as u8 | 1).collect();
    store.write(0, &model).unwrap();
    for (at, bytes) in [(512, 512), (4096, 4096), (8192 + 3584, 1024), (65536, 8704)] {
        store.unmap(at, bytes).unwrap();
        model[at as usize..][..bytes as usize].fill(0);
    }
    store.flush().unwrap();
    let mut found = vec![0; DISK as usize];
    store.read(0, &mut found).unwrap();
    assert!(found == model);
    assert!(fs::read(&device.file).unwrap() == model);
}
