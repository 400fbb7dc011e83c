//! Tests that files with holes and memory keep the contract of a store.
#![allow(non_snake_case)]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Mode, mkfifoat};
use zerolane_block::store::{FileStore, InUse, MemoryStore, Run, Store};

const SIZE: u64 = 1 << 20;

fn image(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("image");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    path
}

fn battery(store: &dyn Store) {
    assert_eq!(store.bytes(), SIZE);
    let mut all = vec![7; SIZE as usize];
    store.read(0, &mut all).unwrap();
    assert!(
        all.iter().all(|&it| it == 0),
        "what was never written is zero"
    );
    let bytes: Vec<u8> = (0..20_000u32).map(|it| it as u8 | 1).collect();
    store.write(5_000, &bytes).unwrap();
    store.flush().unwrap();
    let mut got = vec![0; bytes.len()];
    store.read(5_000, &mut got).unwrap();
    assert_eq!(got, bytes);
    let mut expected = bytes.clone();
    if store.unmap(6_000, 10_000).unwrap() {
        expected[1_000..11_000].fill(0);
    }
    store.read(5_000, &mut got).unwrap();
    assert_eq!(got, expected);
    assert!(store.unmap(0, 0).unwrap());
    store.expect(0, SIZE);
    for (at, length) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1), (u64::MAX, 2)] {
        let outside = Some(ErrorKind::UnexpectedEof);
        let mut buffer = vec![0; length];
        assert_eq!(
            store.read(at, &mut buffer).err().map(|it| it.kind()),
            outside
        );
        assert_eq!(store.write(at, &buffer).err().map(|it| it.kind()), outside);
        assert_eq!(
            store.unmap(at, length as u64).err().map(|it| it.kind()),
            outside
        );
        assert!(store.run(at.max(SIZE)).is_err());
    }
}

#[test]
fn memory__is_a_store() {
    battery(&MemoryStore::new(SIZE));
}

#[test]
fn file__is_a_store_and_does_not_grow() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    battery(&FileStore::open(&path, false).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
}

#[test]
fn file__holes_stay_and_are_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let store = FileStore::open(&path, false).unwrap();
    let used = || fs::metadata(&path).unwrap().blocks() * 512;
    if used() > 0 || store.run(0).unwrap().mapped {
        println!("skipped: this file system has no holes");
        return;
    }
    assert_eq!(
        store.run(0).unwrap(),
        Run {
            mapped: false,
            bytes: SIZE
        }
    );
    store.write(256 << 10, &[1; 256 << 10]).unwrap();
    store.flush().unwrap();
    assert!((256 << 10..512 << 10).contains(&used()), "{}", used());
    assert_eq!(
        store.run(0).unwrap(),
        Run {
            mapped: false,
            bytes: 256 << 10
        }
    );
    assert_eq!(
        store.run(300 << 10).unwrap(),
        Run {
            mapped: true,
            bytes: 212 << 10
        }
    );
    store.unmap(256 << 10, 256 << 10).unwrap();
    assert_eq!(
        store.run(0).unwrap(),
        Run {
            mapped: false,
            bytes: SIZE
        }
    );
    assert_eq!(used(), 0);
}

#[test]
fn file__is_written_by_one_at_a_time_and_read_by_many() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let first = FileStore::open(&path, false).unwrap();
    let second = FileStore::open(&path, false).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::WouldBlock);
    let holder: &InUse = second.get_ref().unwrap().downcast_ref().unwrap();
    assert!(holder.is_here(), "{holder}");
    let reader = FileStore::open(&path, true).unwrap();
    assert!(reader.is_read_only() && !first.is_read_only());
    assert!(reader.write(0, &[1]).is_err());
    reader.flush().unwrap();
    drop(first);
    FileStore::open(&path, false).unwrap();
}

/// That it can make holes is asked of the file system, which takes the question for a change.
#[test]
fn file__that_is_opened_is_as_old_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(long_ago).unwrap();
    let before = fs::metadata(&path).unwrap();
    let store = FileStore::open(&path, false).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.modified().unwrap(), long_ago);
    assert_eq!(after.blocks(), before.blocks());
    drop(store);
}

#[test]
fn file__that_became_shorter_fails_to_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let store = FileStore::open(&path, false).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let error = store.read(4096, &mut [0; 512]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let run = store.run(8192).unwrap();
    assert_eq!(run.bytes, SIZE - 8192);
}

#[test]
fn file__what_is_neither_file_nor_device_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path(), Path::new("/dev/null")] {
        let error = FileStore::open(path, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}", path.display());
    }
    let fifo = directory.path().join("fifo");
    // Not by a program: while that is started it has the locks of images that other tests have open.
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    assert_eq!(
        FileStore::open(&fifo, false).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}
