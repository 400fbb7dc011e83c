//! Tests that errors of the medium reach initiators over the wire.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::store::FileStore;
use zerolane_disk::initiator::{DisplaySense, Error, Options};

use super::support::hooked::{self, Hooks};
use super::support::{self, BLOCK, Served, Shown};

const DISK: u64 = 1 << 20;
const EIO: i32 = 5;
const ENODEV: i32 = 19;

/// A disk all of whose calls fail with this error number, if it is one.
#[derive(Debug, Default)]
struct Broken(AtomicI32);

impl Broken {
    fn go(&self) -> io::Result<()> {
        match self.0.load(Ordering::SeqCst) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Hooks for Broken {
    fn before_read(&self, _at: u64, _bytes: usize) -> io::Result<()> {
        self.go()
    }

    fn before_write(&self) -> io::Result<()> {
        self.go()
    }

    fn before_flush(&self) -> io::Result<()> {
        self.go()
    }
}

fn sense<T: std::fmt::Debug>(result: Result<T, Error>) -> Sense {
    match result {
        Err(Error::Sense(DisplaySense(sense))) => sense,
        other => panic!("{other:?}"),
    }
}

#[test]
fn media__errors_are_told_with_what_they_are_and_end_with_them() {
    let (store, served) = hooked::served(DISK, Broken::default());
    let queue = support::open(served.address, 0, Options::default());
    support::write(&queue, 8 * BLOCK, &[7; 4096]).unwrap();
    store.0.store(EIO, Ordering::SeqCst);
    let error = |code| Sense::new(Key::MediumError, code);
    assert_eq!(
        sense(support::read(&queue, 8 * BLOCK, 4096)),
        error(Code::READ_ERROR).with_information(8)
    );
    assert_eq!(
        sense(support::write(&queue, 16 * BLOCK, &[1; 4096])),
        error(Code::WRITE_ERROR).with_information(16)
    );
    assert_eq!(sense(support::flush(&queue)), error(Code::WRITE_ERROR));
    // The device is gone.
    store.0.store(ENODEV, Ordering::SeqCst);
    let gone = Sense::new(Key::NotReady, Code::NOT_READY);
    assert_eq!(sense(support::read(&queue, 8 * BLOCK, 4096)), gone);
    assert_eq!(sense(support::write(&queue, 0, &[1; 512])), gone);
    assert_eq!(sense(support::flush(&queue)), gone);
    store.0.store(0, Ordering::SeqCst);
    assert_eq!(support::read(&queue, 8 * BLOCK, 4096).unwrap(), [7; 4096]);
    assert_eq!(queue.repairs().reconnects, 0);
}

#[test]
fn media__of_an_image_that_became_shorter_fail_where_it_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    File::create(&path).unwrap().set_len(DISK).unwrap();
    let store = Arc::new(FileStore::open(&path, false).unwrap());
    let read_only = false;
    let served = Served::new(vec![Shown { store, read_only }]);
    let queue = support::open(served.address, 0, Options::default());
    let image = File::options().write(true).open(&path).unwrap();
    image.set_len(DISK / 2).unwrap();
    let lba = DISK / 2 / BLOCK;
    let expected = Sense::new(Key::MediumError, Code::READ_ERROR).with_information(lba);
    assert_eq!(sense(support::read(&queue, DISK / 2, 4096)), expected);
    assert_eq!(support::read(&queue, 0, 4096).unwrap(), [0; 4096]);
}
