//! A unit of another host as a store.

use std::io::ErrorKind;

use zerolane_block::store::Store;
use zerolane_disk::initiator::Options;
use zerolane_disk::remote::RemoteStore;

use crate::support::{BLOCK, Served, Shown, memory, open};

const BYTES: u64 = 1 << 20;

#[test]
fn remote__is_the_disk_that_is_served() {
    let served = Served::new(vec![memory(BYTES)]);
    let store = RemoteStore::new(open(served.address, 0, Options::default()));
    assert_eq!(
        (store.bytes(), store.is_read_only(), store.gives_back()),
        (BYTES, false, true)
    );
    let content: Vec<u8> = (0..8 * BLOCK).map(|it| (it / 3) as u8).collect();
    store.write(BLOCK, &content).unwrap();
    store.flush().unwrap();
    // Parts of blocks, as initiators have room for.
    for (at, bytes) in [
        (0, 8 * BLOCK),
        (0, 200),
        (3, 1),
        (BLOCK - 1, 2),
        (511, 1024),
    ] {
        let mut read = vec![0; bytes as usize];
        store.read(BLOCK + at, &mut read).unwrap();
        assert_eq!(
            read,
            content[at as usize..(at + bytes) as usize],
            "{at}+{bytes}"
        );
    }
    store.unmap(2 * BLOCK, BLOCK).unwrap();
    let mut read = vec![1; 3 * BLOCK as usize];
    store.read(BLOCK, &mut read).unwrap();
    let block = BLOCK as usize;
    assert_eq!(read[..block], content[..block]);
    assert_eq!(read[block..2 * block], [0; BLOCK as usize]);
    assert_eq!(read[2 * block..], content[2 * block..3 * block]);
}

#[test]
fn remote__says_by_the_kind_of_error_what_may_not_be_written() {
    let unit = Shown {
        read_only: true,
        ..memory(BYTES)
    };
    let served = Served::new(vec![unit]);
    let store = RemoteStore::new(open(served.address, 0, Options::default()));
    assert!(store.is_read_only());
    let refused = store.write(0, &[1; BLOCK as usize]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
}
