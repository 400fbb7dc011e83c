//! Tests that errors of the store become the right sense data.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zerolane_block::Status;
use zerolane_block::cdb::{Command, Form};
use zerolane_block::limits::FAILING_PATIENCE;
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::store::{FileStore, MemoryStore, Run, Store};

use crate::support::{BLOCK, BLOCKS, Rig, extent, read, write};

/// A disk that fails as it is told.
#[derive(Debug)]
struct Failing {
    memory: MemoryStore,
    error: Mutex<Option<i32>>,
    /// Blocks that fail; all, if none are named.
    bad: Mutex<Vec<u64>>,
}

impl Failing {
    fn rig() -> (Rig, Arc<Failing>) {
        let memory = MemoryStore::new(BLOCKS * BLOCK as u64);
        let store = Arc::new(Failing {
            memory,
            error: Mutex::default(),
            bad: Mutex::default(),
        });
        (Rig::of(store.clone()), store)
    }

    fn with(&self, errno: i32) {
        *self.error.lock().unwrap() = Some(errno);
    }

    /// Fails at these blocks from now on, and only there.
    fn with_at(&self, errno: i32, blocks: &[u64]) {
        *self.bad.lock().unwrap() = blocks.to_vec();
        self.with(errno);
    }

    /// Of a command on these bytes.
    fn go_at(&self, at: u64, bytes: u64) -> io::Result<()> {
        let block = BLOCK as u64;
        let blocks = at / block..(at + bytes).div_ceil(block);
        let bad = self.bad.lock().unwrap();
        if bad.is_empty() || bad.iter().any(|it| blocks.contains(it)) {
            return self.go();
        }
        Ok(())
    }

    fn go(&self) -> io::Result<()> {
        match *self.error.lock().unwrap() {
            Some(0) => Err(ErrorKind::UnexpectedEof.into()),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }
}

impl Store for Failing {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.go_at(at, into.len() as u64)?;
        self.memory.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.go_at(at, from.len() as u64)?;
        self.memory.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        self.go()
    }
    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.go_at(at, bytes)?;
        self.memory.unmap(at, bytes)
    }
    fn run(&self, at: u64) -> io::Result<Run> {
        self.go()?;
        self.memory.run(at)
    }
}

const EPERM: i32 = 1;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENOMEM: i32 = 12;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EBADE: i32 = 52;
const EDQUOT: i32 = 122;
/// Not a number of the system's: the file is shorter than it was.
const END: i32 = 0;

fn writers() -> [(Command, Vec<u8>); 4] {
    let at = extent(9, 1);
    let list = zerolane_block::unmap_list(&[at]).unwrap();
    let same = Command::WriteSame {
        form: Form::Ten,
        extent: at,
        unmap: false,
        no_data: false,
    };
    [
        (write(at), vec![1; BLOCK]),
        (same, vec![1; BLOCK]),
        (
            Command::Unmap {
                parameter_bytes: list.len() as u16,
            },
            list,
        ),
        (
            Command::WriteSame {
                form: Form::Ten,
                extent: at,
                unmap: true,
                no_data: false,
            },
            vec![0; BLOCK],
        ),
    ]
}

#[test]
fn errors__of_writes_have_the_sense_data_that_initiators_act_on() {
    let (mut rig, store) = Failing::rig();
    for (errno, key, code) in [
        (EIO, Key::MediumError, Code::WRITE_ERROR),
        (ENOSPC, Key::DataProtect, Code::SPACE_ALLOCATION_FAILED),
        (EDQUOT, Key::DataProtect, Code::SPACE_ALLOCATION_FAILED),
        (EROFS, Key::DataProtect, Code::WRITE_PROTECTED),
        (EPERM, Key::DataProtect, Code::WRITE_PROTECTED),
        (ENXIO, Key::NotReady, Code::NOT_READY),
        (ENOMEM, Key::HardwareError, Code::INTERNAL_FAILURE),
    ] {
        store.with(errno);
        for (command, out) in writers() {
            let sense = rig.fails(&command, &out, 0);
            assert_eq!((sense.key, sense.code), (key, code), "{errno} {command:?}");
            let lba = (key == Key::MediumError).then_some(9);
            assert_eq!(sense.information, lba);
        }
    }
}

/// As [`Rig::fails`], of a command that did not take so long that the block was not looked for to the end.
fn fails_soon(rig: &mut Rig, command: &Command, out: &[u8], room: usize) -> Sense {
    let tries = (0..20).map(|_| {
        let since = Instant::now();
        let sense = rig.fails(command, out, room);
        (since.elapsed() < FAILING_PATIENCE).then_some(sense)
    });
    tries.flatten().next().expect("one that is quick")
}

#[test]
fn errors__of_reads_name_the_block() {
    let (mut rig, store) = Failing::rig();
    for (errno, key, code, lba) in [
        (EIO, Key::MediumError, Code::READ_ERROR, Some(7)),
        (END, Key::MediumError, Code::READ_ERROR, Some(7)),
        (ENXIO, Key::NotReady, Code::NOT_READY, None),
        (EPERM, Key::HardwareError, Code::INTERNAL_FAILURE, None),
    ] {
        store.with(errno);
        let expected = Sense {
            information: lba,
            ..Sense::new(key, code)
        };
        assert_eq!(
            fails_soon(&mut rig, &read(extent(7, 2)), &[], 2 * BLOCK),
            expected
        );
        let verify = |compare| Command::Verify {
            form: Form::Ten,
            extent: extent(7, 2),
            dpo: false,
            compare,
        };
        assert_eq!(fails_soon(&mut rig, &verify(false), &[], 0), expected);
        assert_eq!(
            fails_soon(&mut rig, &verify(true), &[0; 2 * BLOCK], 0),
            expected
        );
        let status = Command::GetLbaStatus {
            lba: 7,
            allocation: 255,
        };
        assert_eq!(fails_soon(&mut rig, &status, &[], 255), expected);
    }
}

/// A device, or a disk of another host, that another initiator has reserved there.
#[test]
fn errors__of_a_medium_that_is_reserved_are_no_sense_data() {
    let (mut rig, store) = Failing::rig();
    store.with(EBADE);
    let reading = (read(extent(7, 2)), Vec::new());
    for (command, out) in writers().into_iter().chain([reading]) {
        let (response, _) = rig.run(&command, &out, 2 * BLOCK);
        let expected = (Status::ReservationConflict, None);
        assert_eq!((response.status, response.sense), expected, "{command:?}");
    }
}

#[test]
fn errors__of_flushes_fail_whatever_waits_for_the_medium() {
    let (mut rig, store) = Failing::rig();
    store.with(EIO);
    let form = Form::Ten;
    let expected = Sense::new(Key::MediumError, Code::WRITE_ERROR);
    let synchronize = Command::SynchronizeCache {
        form,
        extent: extent(0, 0),
        immediate: false,
    };
    assert_eq!(rig.fails(&synchronize, &[], 0), expected);
    let stop = Command::StartStop {
        immediate: false,
        start: false,
        no_flush: false,
    };
    assert_eq!(rig.fails(&stop, &[], 0), expected);
}

/// Long commands, of which one block or another fails: the first of them is named, wherever it is.
#[test]
fn errors__name_the_first_block_that_failed() {
    let (mut rig, store) = Failing::rig();
    let all = extent(3, 1000);
    let bytes = all.blocks as usize * BLOCK;
    let verify = |compare| Command::Verify {
        form: Form::Ten,
        extent: all,
        dpo: false,
        compare,
    };
    let same = |unmap| Command::WriteSame {
        form: Form::Ten,
        extent: all,
        unmap,
        no_data: false,
    };
    let list = zerolane_block::unmap_list(&[extent(2000, 5), all]).unwrap();
    let unmap = Command::Unmap {
        parameter_bytes: list.len() as u16,
    };
    for first in [3, 4, 7, 511, 512, 600, 1001, 1002] {
        // Another fails behind it, and blocks that the command does not touch.
        store.with_at(EIO, &[2, first, 1002, 1003]);
        for (command, out, room) in [
            (read(all), vec![], bytes),
            // An initiator that has not room for all of it, and for a part of a block.
            (read(extent(3, 2000)), vec![], bytes - 100),
            (verify(false), vec![], 0),
            (verify(true), vec![0; bytes], 0),
            (write(all), vec![0; bytes], 0),
            (same(false), vec![0; BLOCK], 0),
            (same(true), vec![0; BLOCK], 0),
            (unmap, list.clone(), 0),
        ] {
            let sense = fails_soon(&mut rig, &command, &out, room);
            assert_eq!(sense.key, Key::MediumError, "{command:?}");
            assert_eq!(sense.information, Some(first), "{command:?}");
        }
    }
}

/// An image that has become shorter, in the middle of a block.
#[test]
fn errors__of_an_image_that_is_shorter_name_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let file = File::create(&path).unwrap();
    file.set_len(BLOCKS * BLOCK as u64).unwrap();
    let mut rig = Rig::of(Arc::new(FileStore::open(&path, false).unwrap()));
    file.set_len(100 * BLOCK as u64 + 7).unwrap();
    let all = extent(10, 200);
    let sense = fails_soon(&mut rig, &read(all), &[], 200 * BLOCK);
    let expected = Sense::new(Key::MediumError, Code::READ_ERROR).with_information(100);
    assert_eq!(sense, expected);
    rig.read(extent(10, 90));
}

/// A disk of which each read is told its number first, and may fail.
#[derive(Debug)]
struct Reading {
    memory: MemoryStore,
    reads: AtomicU64,
    before: fn(u64) -> io::Result<()>,
}

impl Reading {
    fn new(before: fn(u64) -> io::Result<()>) -> Arc<Reading> {
        Arc::new(Reading {
            memory: MemoryStore::new(BLOCKS * BLOCK as u64),
            reads: AtomicU64::new(0),
            before,
        })
    }
}

impl Store for Reading {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        (self.before)(self.reads.fetch_add(1, Ordering::Relaxed))?;
        self.memory.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.memory.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.memory.unmap(at, bytes)
    }
    fn run(&self, at: u64) -> io::Result<Run> {
        self.memory.run(at)
    }
}

/// An error that does not recur names no block.
#[test]
fn errors__that_pass_name_no_block() {
    let store = Reading::new(|number| match number {
        0 => Err(io::Error::from_raw_os_error(EIO)),
        _ => Ok(()),
    });
    let mut rig = Rig::of(store);
    let sense = rig.fails(&read(extent(0, 8)), &[], 8 * BLOCK);
    assert_eq!(sense, Sense::new(Key::MediumError, Code::READ_ERROR));
}

/// A disk that tries a bad sector for long: it is not asked for that again and again, and no block is named.
#[test]
fn errors__of_a_slow_medium_are_told_after_one_attempt() {
    let store = Reading::new(|_| {
        std::thread::sleep(FAILING_PATIENCE + Duration::from_millis(1));
        Err(io::Error::from_raw_os_error(EIO))
    });
    let mut rig = Rig::of(store.clone());
    let error = Sense::new(Key::MediumError, Code::READ_ERROR);
    assert_eq!(rig.fails(&read(extent(0, 8)), &[], 8 * BLOCK), error);
    assert_eq!(store.reads.load(Ordering::Relaxed), 1);
    // Of one block it is known which one.
    let known = error.with_information(3);
    assert_eq!(rig.fails(&read(extent(3, 1)), &[], BLOCK), known);
    assert_eq!(store.reads.load(Ordering::Relaxed), 2);
}
