//! Tests that initiators handle units that vanish or hang while open.

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zerolane_block::cdb::{Command, Extent, Form};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::sst::{CommandUnit, Outcome};
use zerolane_block::store::{MemoryStore, Store};
use zerolane_block::{Lun, Status};
use zerolane_disk::initiator::{DisplaySense, Error, Options, Request};
use zerolane_disk::target::Settings;

use super::support::gated::{Gated, LONG};
use super::support::hooked::{self, Hooks};
use super::support::raw::Raw;
use super::support::{self, Served, Shown, lun, memory, region};

const DISK: u64 = 1 << 20;

/// A command without data at that unit.
fn call(raw: &mut Raw, at: u16) -> (Status, Option<Sense>) {
    let mut unit = raw.unit(&Command::TestUnitReady, 0, 0);
    unit.lun = lun(at).encode();
    raw.post(&unit);
    match raw.status().outcome {
        Outcome::Response { status, sense, .. } => (status, sense),
        other => panic!("{other:?}"),
    }
}

fn units(raw: &mut Raw) -> Vec<u8> {
    let report = Command::ReportLuns {
        select: 0,
        allocation: 256,
    };
    raw.call(&report, &[], 256).1[8..].to_vec()
}

fn is_gone(result: Result<(), Error>) -> bool {
    let Err(Error::Sense(DisplaySense(sense))) = result else {
        return false;
    };
    sense == Sense::illegal(Code::UNIT_NOT_SUPPORTED)
}

#[test]
fn luns__that_vanish_are_not_supported_and_told_at_the_others() {
    let gated = hooked::store(DISK, Gated::default());
    let vanishing = Shown {
        store: gated.clone(),
        read_only: false,
    };
    let served = Served::new(vec![memory(DISK), vanishing]);
    let mut raw = Raw::open(served.address, &support::of(&support::identity()));
    for at in [0, 1] {
        // The attention of who has just come.
        assert_eq!(call(&mut raw, at).0, Status::CheckCondition);
        assert_eq!(call(&mut raw, at), (Status::Good, None));
    }
    assert_eq!(units(&mut raw), [lun(0).encode(), lun(1).encode()].concat());
    let [stays, goes] = [0, 1].map(|at| support::open(served.address, at, Options::default()));
    let (at, durable) = (0, false);
    let memory = region(&[7; 4096]);
    let write = Request::Write {
        at,
        memory,
        durable,
    };
    let started = goes.start(write);
    gated.has_one();
    served.with_server(|server| {
        assert!(server.remove_unit(lun(1)));
        assert!(!server.remove_unit(lun(1)), "it is gone");
    });
    // Whether or not what was begun is over.
    for _ in 0..2 {
        let gone = Sense::illegal(Code::UNIT_NOT_SUPPORTED);
        assert_eq!(call(&mut raw, 1), (Status::CheckCondition, Some(gone)));
        assert!(is_gone(support::flush(&goes)));
        gated.open();
    }
    started.wait().result.unwrap();
    let mut found = [0; 4096];
    gated.read(0, &mut found).unwrap();
    assert_eq!(found, [7; 4096], "what was begun is done");
    let changed = Sense::new(Key::UnitAttention, Code::LUNS_CHANGED);
    let told = (Status::CheckCondition, Some(changed));
    assert_eq!(call(&mut raw, 0), told);
    assert_eq!(call(&mut raw, 0), (Status::Good, None), "it is told once");
    assert_eq!(units(&mut raw), lun(0).encode());
    // A queue repeats what failed for the news.
    support::write(&stays, 0, &[1; 512]).unwrap();
    assert_eq!(stays.repairs().reconnects, 0);
    assert_eq!(served.end().len(), 0, "nobody is cut off");
}

/// What an initiator that has not connected before finds.
#[test]
fn luns__that_have_vanished_make_room_for_others() {
    let served = Served::new(vec![memory(DISK), memory(DISK)]);
    served.with_server(|server| {
        server.remove_unit(lun(1));
        let store = Arc::new(MemoryStore::new(2 * DISK));
        let identity = zerolane_block::Identity::named("another");
        let disk = zerolane_block::Disk::of(&*store, 512, identity).unwrap();
        server.add_unit(lun(1), "disk1", disk, store).unwrap();
    });
    let queue = support::open(served.address, 1, Options::default());
    assert_eq!(queue.unit().bytes(), 2 * DISK);
    assert_eq!(Lun::new(queue.unit().lun), Some(lun(1)));
}

/// An initiator that stays connected knows it by its number alone: what it writes is not for this one.
#[test]
fn luns__that_are_other_disks_by_now_are_not_written_for_them() {
    let served = Served::new(vec![memory(DISK), memory(DISK)]);
    let queue = support::open(served.address, 0, Options::default());
    support::write(&queue, 0, &[1; 512]).unwrap();
    let store = Arc::new(MemoryStore::new(DISK));
    let added = store.clone();
    served.with_server(|server| {
        server.remove_unit(lun(0));
        let identity = zerolane_block::Identity::named("another");
        let disk = zerolane_block::Disk::of(&*added, 512, identity).unwrap();
        server.add_unit(lun(0), "another", disk, added).unwrap();
    });
    let failed = support::write(&queue, 0, &[2; 512]).unwrap_err();
    assert!(matches!(failed, Error::OtherDisk { .. }), "{failed}");
    let mut found = [1; 512];
    store.read(0, &mut found).unwrap();
    assert_eq!(found, [0; 512]);
}

/// A disk whose flushes wait until they are let go.
#[derive(Debug, Default)]
struct Hanging {
    is_over: Mutex<bool>,
    news: Condvar,
}

impl Hanging {
    fn end(&self) {
        *self.is_over.lock().unwrap() = true;
        self.news.notify_all();
    }
}

impl Hooks for Hanging {
    fn before_flush(&self) -> io::Result<()> {
        let is_over = self.is_over.lock().unwrap();
        let waited = self.news.wait_timeout_while(is_over, LONG, |it| !*it);
        drop(waited.unwrap());
        Ok(())
    }
}

#[test]
fn luns__that_hang_leave_a_thread_to_others() {
    const THREADS: u16 = 3;
    let hanging = hooked::store(DISK, Hanging::default());
    let shown = Shown {
        store: hanging.clone(),
        read_only: false,
    };
    let settings = Settings {
        threads: THREADS.into(),
        ..Settings::default()
    };
    let units = vec![shown, memory(DISK)];
    let served = Served::with(units, settings, zerolane::Options::default());
    let other = support::open(served.address, 1, Options::default());
    let mut raw = Raw::open(served.address, &support::of(&support::identity()));
    raw.settle();
    let flush = Command::SynchronizeCache {
        form: Form::Ten,
        extent: Extent::default(),
        immediate: false,
    };
    for slot in 0..THREADS {
        let unit = raw.unit(&flush, 0, 0);
        raw.post(&CommandUnit { slot, ..unit });
    }
    // When this is answered they are there.
    let unit = raw.unit(&Command::TestUnitReady, 0, 0);
    let slot = THREADS;
    raw.post(&CommandUnit { slot, ..unit });
    assert_eq!(raw.status().tag, unit.tag);
    let (tell, told) = channel();
    other.submit(Request::Flush, move |done| drop(tell.send(done.result)));
    let flushed = told.recv_timeout(Duration::from_secs(20));
    // This must come first, because the target waits for its threads.
    hanging.end();
    flushed.expect("it waited for the other disk").unwrap();
    for _ in 0..THREADS {
        raw.status();
    }
}
