//! Tests that block devices work as disks. Skips, with a message, where there are no loop devices.

use std::fs::{self, File};
use std::sync::Arc;
use std::thread;

use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::store::{FileStore, Store};
use zerolane_block::{Disk, GeometryError, Identity};
use zerolane_disk::initiator::{DisplaySense, Error, Options, Request};

use super::support::device::{Loop, Mounted};
use super::support::model::Model;
use super::support::{self, BLOCK, Served, Shown, seeds};

const DISK: u64 = 4 << 20;

fn shown(store: &Arc<FileStore>) -> Shown {
    Shown {
        store: store.clone(),
        read_only: false,
    }
}

fn sense<T: std::fmt::Debug>(result: Result<T, Error>) -> Sense {
    match result {
        Err(Error::Sense(DisplaySense(sense))) => sense,
        other => panic!("{other:?}"),
    }
}

#[test]
fn device__random_requests_do_what_the_model_does() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = Loop::new(directory.path(), DISK, 512) else {
        return;
    };
    seeds::each(1, |mut rng| {
        let store = Arc::new(FileStore::open(&device.path, false).unwrap());
        assert!(store.is_device() && store.bytes() == DISK);
        let served = Served::new(vec![shown(&store)]);
        let queue = support::open(served.address, 0, Options::default());
        support::write(&queue, 0, &vec![0; DISK as usize]).unwrap();
        let mut model = Model::new(DISK, 16);
        for _ in 0..300 {
            model.step(&queue, &mut rng, 64 << 10).unwrap();
        }
        model.check(&queue);
        support::flush(&queue).unwrap();
        let file = fs::read(&device.file).unwrap();
        assert!(file == model.content, "what was flushed is on the medium");
    });
}

/// Of 4096 bytes. The kernel refuses to punch holes that are no whole blocks of the device.
#[test]
fn device__of_long_blocks_is_a_disk_of_such_blocks() {
    const LONG: u32 = 4096;
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = Loop::new(directory.path(), DISK, LONG) else {
        return;
    };
    let store = Arc::new(FileStore::open(&device.path, false).unwrap());
    let identity = Identity::named("test");
    let refused = Disk::of(&*store, BLOCK as u32, identity).unwrap_err();
    let expected = GeometryError::Part {
        block_bytes: BLOCK as u32,
        least: LONG,
    };
    assert_eq!(refused, expected);
    assert_eq!(Disk::block_bytes_of(&*store), LONG);
    Disk::of(&*store, LONG, identity).unwrap();
    let mut model: Vec<u8> = (0..DISK).map(|it| (it / 512) as u8 | 1).collect();
    store.write(0, &model).unwrap();
    for (at, bytes) in [
        (512u64, 512u64),
        (4096, 4096),
        (8192 + 3584, 1024),
        (65536, 8704),
    ] {
        let is_whole = [at, bytes].iter().all(|it| it.is_multiple_of(LONG.into()));
        let is_done = store.unmap(at, bytes).unwrap();
        assert!(is_whole || !is_done, "a part of a block: {at}, {bytes}");
        if is_done {
            model[at as usize..][..bytes as usize].fill(0);
        }
    }
    store.flush().unwrap();
    let mut found = vec![0; DISK as usize];
    store.read(0, &mut found).unwrap();
    assert!(found == model);
    assert!(fs::read(&device.file).unwrap() == model);
}

/// ramfs makes none. Initiators are told so, and what they trim all the same is not written: `mkfs` trims all of a disk first.
#[test]
fn file__that_can_have_no_holes_is_no_thin_disk_and_stays_as_it_is() {
    let Some(mounted) = Mounted::of("ramfs", "mode=700") else {
        return;
    };
    let image = mounted.path().join("image");
    let content: Vec<u8> = (0..DISK).map(|it| (it / 512) as u8 | 1).collect();
    fs::write(&image, &content).unwrap();
    let store = Arc::new(FileStore::open(&image, false).unwrap());
    assert!(!store.gives_back());
    let served = Served::new(vec![shown(&store)]);
    let queue = support::open(served.address, 0, Options::default());
    assert!(!queue.unit().thin);
    assert!(!store.unmap(0, DISK).unwrap());
    assert!(fs::read(&image).unwrap() == content);
    // Zeros that are asked for come, with space.
    let zero = Request::Zero {
        at: 4096,
        bytes: 8192,
        unmap: true,
    };
    queue.call(zero).result.unwrap();
    assert_eq!(support::read(&queue, 4096, 8192).unwrap(), [0; 8192]);
    assert_eq!(support::read(&queue, 0, 4096).unwrap(), content[..4096]);
}

/// Its medium ends before it does: reads of what is behind fail, and only those.
#[test]
fn device__that_cannot_be_read_is_told_with_the_block() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = Loop::new(directory.path(), DISK, 512) else {
        return;
    };
    let medium = File::options().write(true).open(&device.file).unwrap();
    medium.set_len(1 << 20).unwrap();
    let store = Arc::new(FileStore::open(&device.path, false).unwrap());
    let served = Served::new(vec![shown(&store)]);
    let queue = support::open(served.address, 0, Options::default());
    let lba = (2 << 20) / BLOCK;
    let expected = Sense::new(Key::MediumError, Code::READ_ERROR).with_information(lba);
    for _ in 0..2 {
        assert_eq!(sense(support::read(&queue, 2 << 20, 4096)), expected);
    }
    assert_eq!(support::read(&queue, 0, 4096).unwrap(), [0; 4096]);
}

/// What was written is in the kernel's cache when it turns out that the medium has no room: it tells one `fdatasync` of it.
#[test]
fn device__whose_writes_are_lost_fails_all_flushes_of_all_initiators() {
    const THREADS: usize = 4;
    for _ in 0..8 {
        let Some(mounted) = Mounted::new() else {
            return;
        };
        let Some(device) = Loop::new(mounted.path(), DISK, 512) else {
            return;
        };
        let store = Arc::new(FileStore::open(&device.path, false).unwrap());
        let served = Served::new(vec![shown(&store)]);
        let queues = [(); THREADS].map(|()| support::open(served.address, 0, Options::default()));
        support::write(&queues[0], 0, &vec![7; 2 << 20]).unwrap();
        let flush = |number: usize| {
            let fua = Request::Write {
                at: DISK - 4096,
                memory: support::region(&[1; 4096]),
                durable: true,
            };
            let request = if number.is_multiple_of(2) {
                Request::Flush
            } else {
                fua
            };
            sense(queues[number].call(request).result)
        };
        let told: Vec<Sense> = thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|number| scope.spawn(move || flush(number)));
            threads.map(|it| it.join().unwrap()).to_vec()
        });
        let expected = Sense::new(Key::MediumError, Code::WRITE_ERROR);
        assert_eq!(told, [expected; THREADS]);
        for number in 0..THREADS {
            assert_eq!(flush(number), expected, "it is sticky");
        }
    }
}
