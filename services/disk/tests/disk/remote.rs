//! Tests that a unit of another host works as a store.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zerolane_block::cdb::{Command, Extent, ReserveOut};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::store::Store;
use zerolane_block::{
    Access, Attribute, Disk, Identity, Initiator, Request, Response, Status, Target, execute,
};
use zerolane_disk::initiator::Options;
use zerolane_disk::remote::RemoteStore;

use crate::reservations::reserve;
use crate::support::hooked::{self, Hooks};
use crate::support::raw::{self, Raw};
use crate::support::{self, BLOCK, Served, Shown, lun, memory, open};

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

/// What an initiator of a door gets for `command`, whose data is `out` and goes to `into`. The engine of the door does not know
/// whether the disk may be written.
fn done_through_a_door(
    store: RemoteStore,
    command: &Command,
    out: &[u8],
    into: &mut [u8],
) -> Response {
    let disk = Disk {
        read_only: false,
        ..Disk::of(&store, BLOCK as u32, Identity::named("door")).unwrap()
    };
    let mut door = Target::new();
    door.add_unit(lun(0), disk, Arc::new(store)).unwrap();
    let initiator = Initiator::named(b"behind the door").unwrap();
    let nexus = door.attach(initiator, Access::default()).unwrap();
    let mut call = |command: &Command, out: &[u8], into: &mut [u8]| {
        let cdb = command.cdb().unwrap();
        let request = Request {
            tag: 1,
            lun: lun(0).encode(),
            attribute: Attribute::Simple,
            cdb: cdb.as_bytes(),
            data_in: 0,
            data_out: 0,
            in_capsule: false,
        };
        let response = execute(&mut door, nexus, &request, out, into);
        response.unwrap().unwrap()
    };
    // The attention of who has just come.
    call(&Command::TestUnitReady, &[], &mut []);
    call(command, out, into)
}

fn written_through_a_door(store: RemoteStore) -> Response {
    done_through_a_door(store, &raw::write(0, 1), &[1; BLOCK as usize], &mut [])
}

#[test]
fn remote__that_is_reserved_is_a_conflict_at_a_door() {
    const WRITERS: u64 = 7;
    let served = Served::new(vec![memory(BYTES)]);
    let mut holder = Raw::open(served.address, &support::of(&support::identity()));
    holder.settle();
    reserve(&mut holder, ReserveOut::Register, 0, WRITERS);
    reserve(&mut holder, ReserveOut::Reserve, WRITERS, 0);
    let store = RemoteStore::new(open(served.address, 0, Options::default()));
    let response = written_through_a_door(store);
    let expected = (Status::ReservationConflict, None);
    assert_eq!((response.status, response.sense), expected);
}

#[test]
fn remote__that_may_not_be_written_is_protected_at_a_door() {
    let unit = Shown {
        read_only: true,
        ..memory(BYTES)
    };
    let served = Served::new(vec![unit]);
    let store = RemoteStore::new(open(served.address, 0, Options::default()));
    let response = written_through_a_door(store);
    let protected = Sense::new(Key::DataProtect, Code::WRITE_PROTECTED);
    assert_eq!(response.sense, Some(protected));
}

/// A disk with a bad block.
#[derive(Debug, Default)]
struct Scratched {
    reads: AtomicU64,
}

const BAD: u64 = 37;

impl Hooks for Scratched {
    fn before_read(&self, at: u64, bytes: usize) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match (at..at + bytes as u64).contains(&(BAD * BLOCK)) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

/// The disk's host has found it, and the door does not look for it again: of 64 blocks 7 more reads.
#[test]
fn remote__that_has_a_bad_block_names_it_at_a_door() {
    let (disk, served) = hooked::served(BYTES, Scratched::default());
    let store = RemoteStore::new(open(served.address, 0, Options::default()));
    let mut into = vec![0; 64 * BLOCK as usize];
    let response = done_through_a_door(store, &raw::read(8, 64), &[], &mut into);
    let error = Sense::new(Key::MediumError, Code::READ_ERROR);
    assert_eq!(response.sense, Some(error.with_information(BAD)));
    let reads = disk.reads.load(Ordering::SeqCst);
    assert!((2..=8).contains(&reads), "{reads}");
}

/// A disk whose first read waits for the second, for a second.
#[derive(Debug, Default)]
struct Meeting {
    reads: Mutex<u64>,
    news: Condvar,
}

impl Hooks for Meeting {
    fn before_read(&self, _at: u64, _bytes: usize) -> io::Result<()> {
        let mut reads = self.reads.lock().unwrap();
        *reads += 1;
        self.news.notify_all();
        let second = Duration::from_secs(1);
        let waited = self.news.wait_timeout_while(reads, second, |it| *it < 2);
        drop(waited.unwrap());
        Ok(())
    }
}

#[test]
fn remote__is_compared_and_written_by_one_door_at_a_time() {
    let (disk, served) = hooked::served(BYTES, Meeting::default());
    let command = Command::CompareAndWrite {
        extent: Extent { lba: 3, blocks: 1 },
        dpo: false,
        fua: true,
    };
    let block = BLOCK as usize;
    let through_a_door = |new: u8| {
        let store = RemoteStore::new(open(served.address, 0, Options::default()));
        let both = [vec![0; block], vec![new; block]].concat();
        done_through_a_door(store, &command, &both, &mut [])
    };
    let responses = std::thread::scope(|scope| {
        let doors = [1, 2].map(|new| scope.spawn(move || (new, through_a_door(new))));
        doors.map(|it| it.join().unwrap())
    });
    let differs = Sense::new(Key::Miscompare, Code::MISCOMPARE).with_information(0);
    let [one, two] = responses;
    let (won, lost) = match one.1.status {
        Status::Good => (one, two),
        _ => (two, one),
    };
    assert_eq!((won.1.status, lost.1.sense), (Status::Good, Some(differs)));
    let mut found = vec![0; block];
    disk.read(3 * BLOCK, &mut found).unwrap();
    assert_eq!(found, vec![won.0; block]);
}
