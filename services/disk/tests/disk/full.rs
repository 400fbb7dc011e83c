//! Tests that an initiator learns that the file system of an image is full.

use std::fs::File;
use std::sync::Arc;

use zerolane_block::sense::{Code, Key};
use zerolane_block::store::FileStore;
use zerolane_disk::initiator::{DisplaySense, Error, Options};

use super::support::device::Mounted;
use super::support::{self, Served, Shown};

#[test]
fn full__the_initiator_is_told_that_there_is_no_space() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let path = mounted.path().join("image");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let store = Arc::new(FileStore::open(&path, false).unwrap());
    let read_only = false;
    let served = Served::new(vec![Shown { store, read_only }]);
    let queue = support::open(served.address, 0, Options::default());
    let piece = vec![7; 256 << 10];
    let mut failed = None;
    let mut written = 0;
    for at in (0..8 << 20).step_by(piece.len()) {
        match support::write(&queue, at, &piece) {
            Ok(()) => written = at + piece.len() as u64,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let Some(Error::Sense(DisplaySense(sense))) = failed else {
        panic!("{failed:?}");
    };
    let expected = (Key::DataProtect, Code::SPACE_ALLOCATION_FAILED);
    assert_eq!((sense.key, sense.code), expected);
    // What there was space for is there, and space that is given back can be used.
    let there = support::read(&queue, 0, written).unwrap();
    assert!(written > 0 && there.iter().all(|&it| it == 7));
    let zero = zerolane_disk::initiator::Request::Zero {
        at: 0,
        bytes: written,
        unmap: true,
    };
    queue.call(zero).result.unwrap();
    support::write(&queue, 4 << 20, &piece).unwrap();
    drop(queue);
    drop(served);
}
