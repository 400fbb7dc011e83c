//! Tests that commands work the same with their data in a capsule.

use std::sync::Arc;

use zerolane_block::cdb::{Command, Extent, Form};
use zerolane_block::sense::{Code, Key};
use zerolane_block::sst::{LOGIN_BYTES, ManagementUnit, Outcome};
use zerolane_block::store::Store;
use zerolane_block::{Answer, Attribute, Function, Status};
use zerolane_disk::initiator::Options;
use zerolane_disk::limits::CAPSULE_BYTES;
use zerolane_disk::message::{self, Data};
use zerolane_disk::target::{Offence, Settings};

use super::support::gated::Gated;
use super::support::model::Model;
use super::support::raw::{Raw, login};
use super::support::{self, Served, memory, seeds};

const DISK: u64 = 1 << 20;

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent { lba, blocks }
}

fn write(lba: u64, blocks: u64) -> Command {
    Command::Write {
        form: Form::Sixteen,
        extent: extent(lba, blocks),
        dpo: false,
        fua: true,
    }
}

fn with_capsules(address: std::net::SocketAddr) -> Raw {
    let mut raw = Raw::connect(address, &support::of(&support::identity()));
    raw.log_in_with(7, CAPSULE_BYTES);
    raw.settle();
    raw
}

fn stored(store: &dyn Store) -> Vec<u8> {
    let mut found = vec![0; store.bytes() as usize];
    store.read(0, &mut found).unwrap();
    found
}

fn sense(outcome: &Outcome) -> Option<(Key, Code)> {
    match outcome {
        Outcome::Response { sense, .. } => sense.map(|it| (it.key, it.code)),
        Outcome::Managed(_) => None,
    }
}

fn is_good(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Response {
            status: Status::Good,
            ..
        }
    )
}

#[test]
fn capsules__commands_do_with_their_data_what_they_do_with_data_that_is_fetched() {
    let unit = memory(DISK);
    let store = Arc::clone(&unit.store);
    let served = Served::new(vec![unit]);
    let mut raw = with_capsules(served.address);
    assert!(is_good(&raw.call_in_capsule(&write(8, 8), &[3; 4096])));
    assert!(is_good(&raw.call_in_capsule(&write(16, 32), &[4; 16384])));
    let mut expected = vec![0; DISK as usize];
    expected[4096..8192].fill(3);
    expected[8192..8192 + 16384].fill(4);
    assert!(stored(&*store) == expected);
    let compare = Command::CompareAndWrite {
        extent: extent(8, 1),
        dpo: false,
        fua: true,
    };
    let both = |old: u8, new: u8| [[old; 512], [new; 512]].concat();
    assert!(is_good(&raw.call_in_capsule(&compare, &both(3, 5))));
    expected[4096..4608].fill(5);
    assert!(stored(&*store) == expected);
    let differs = raw.call_in_capsule(&compare, &both(3, 6));
    assert_eq!(sense(&differs), Some((Key::Miscompare, Code::MISCOMPARE)));
    assert!(stored(&*store) == expected);
    // Parameters come the same way.
    let same = Command::WriteSame {
        form: Form::Sixteen,
        extent: extent(100, 10),
        unmap: false,
        no_data: false,
    };
    assert!(is_good(&raw.call_in_capsule(&same, &[8; 512])));
    expected[51200..51200 + 5120].fill(8);
    assert!(stored(&*store) == expected);
    drop(raw);
    assert!(served.end().is_empty());
}

#[test]
fn capsules__data_that_is_not_as_long_as_its_command_takes_is_refused_and_nothing_written() {
    let (unit, behind) = (memory(DISK), memory(DISK));
    let stores = [Arc::clone(&unit.store), Arc::clone(&behind.store)];
    let served = Served::new(vec![unit, behind]);
    let mut raw = with_capsules(served.address);
    let last = DISK / 512 - 1;
    let compare = Command::CompareAndWrite {
        extent: extent(0, 1),
        dpo: false,
        fua: false,
    };
    for (command, bytes) in [
        (write(0, 2), 512),
        (write(0, 1), 1024),
        (write(0, 2), 1023),
        (write(0, 2048), 16384),
        (write(last, 1), 1024),
        (compare, 2048),
        (compare, 512),
    ] {
        let outcome = raw.call_in_capsule(&command, &vec![9; bytes]);
        let refused = sense(&outcome);
        let of = |code| Some((Key::IllegalRequest, code));
        assert_eq!(
            refused,
            of(Code::INVALID_FIELD_IN_IU),
            "{command:?} {bytes}"
        );
    }
    let outcome = raw.call_in_capsule(&write(last, 2), &[9; 1024]);
    let beyond = Some((Key::IllegalRequest, Code::LBA_OUT_OF_RANGE));
    assert_eq!(sense(&outcome), beyond);
    for store in stores {
        assert!(stored(&*store).iter().all(|&it| it == 0));
    }
}

#[test]
fn capsules__without_room_for_it_data_ends_its_connection() {
    let ends = |capsule_bytes, bytes: u64| {
        let served = Served::new(vec![memory(DISK)]);
        let mut raw = Raw::connect(served.address, &support::of(&support::identity()));
        raw.log_in_with(7, capsule_bytes);
        raw.settle();
        let unit = raw.unit(&write(0, bytes / 512), 0, bytes);
        raw.send(&message::command(&unit, &Data::InCapsule));
        raw.wait_until_cut_off();
        assert_eq!(served.end(), [(Offence::Capsule, 1)].into());
    };
    ends(CAPSULE_BYTES, u64::from(CAPSULE_BYTES) + 512);
    ends(4096, 4096 + 512);
    ends(0, 512);
}

/// The lesser of both counts, and an end that knows of no capsules hears of none.
#[test]
fn capsules__are_as_long_as_both_ends_say() {
    for (own, theirs, agreed) in [
        (CAPSULE_BYTES, CAPSULE_BYTES, CAPSULE_BYTES),
        (4096, CAPSULE_BYTES, 4096),
        (CAPSULE_BYTES, 512, 512),
        (CAPSULE_BYTES, u32::MAX, CAPSULE_BYTES),
        (0, CAPSULE_BYTES, 0),
        (CAPSULE_BYTES, 0, 0),
    ] {
        let settings = Settings {
            capsule_bytes: own,
            ..Settings::default()
        };
        let served = Served::with(vec![memory(DISK)], settings, Default::default());
        let mut raw = Raw::connect(served.address, &support::of(&support::identity()));
        let answer = raw.log_in_with(7, theirs);
        let (login, key) = message::parse_target_login(&answer).unwrap();
        assert_eq!(login.capsule_bytes, agreed, "{own} and {theirs}");
        assert_eq!(key.is_some(), agreed > 0);
        if agreed == 0 {
            // As it was before there were capsules.
            assert_eq!(answer.len(), LOGIN_BYTES);
            assert_eq!(answer[16..24], [0; 8]);
        }
    }
    let mut before = login(7);
    before.capsule_bytes = 0;
    assert_eq!(
        before.encode()[16..24],
        [0; 8],
        "what an older initiator says"
    );
}

#[test]
fn capsules__are_not_needed() {
    seeds::each(1, |mut rng| {
        let settings = Settings {
            capsule_bytes: 0,
            ..Settings::default()
        };
        let served = Served::with(vec![memory(DISK)], settings, Default::default());
        let queue = support::open(served.address, 0, Options::default());
        let mut model = Model::new(DISK, 24);
        for _ in 0..300 {
            model.step(&queue, &mut rng, 32 << 10).unwrap();
        }
        model.check(&queue);
        drop(queue);
        assert!(served.end().is_empty());
    });
}

/// A command that waits is aborted; its slot and capsule are used by another. Neither is the first written, nor what the
/// second has where the first belongs.
#[test]
fn capsules__of_a_command_that_was_aborted_are_not_written() {
    let (store, served) = Gated::served(DISK);
    let mut raw = with_capsules(served.address);
    let post = |raw: &mut Raw, slot, lba, content| {
        let mut unit = raw.unit(&write(lba, 1), 0, 512);
        unit.slot = slot;
        unit.attribute = Attribute::Ordered;
        raw.put_capsule(slot, &[content; 512]);
        raw.send(&message::command(&unit, &Data::InCapsule));
        unit.tag
    };
    let first = post(&mut raw, 0, 0, 1);
    raw.turn_until(|| store.has_one_yet());
    let waits = post(&mut raw, 1, 1, 2);
    let abort = ManagementUnit {
        slot: 2,
        tag: 1000,
        lun: support::lun(0).encode(),
        function: Function::AbortTask(waits),
    };
    raw.send(&abort.encode());
    let answer = raw.status();
    assert_eq!(answer.outcome, Outcome::Managed(Answer::Complete));
    let third = post(&mut raw, 1, 2, 3);
    store.open();
    for tag in [first, third] {
        let status = raw.status();
        assert!(status.tag == tag && is_good(&status.outcome), "{status:?}");
    }
    let mut expected = vec![0; DISK as usize];
    expected[..512].fill(1);
    expected[1024..1536].fill(3);
    assert!(stored(&*store) == expected);
}

/// What an initiator writes into a capsule after its command began is not written to the disk.
#[test]
fn capsules__are_copied_before_they_are_worked_with() {
    let (store, served) = Gated::served(DISK);
    let mut raw = with_capsules(served.address);
    raw.put_capsule(0, &[1; 4096]);
    let unit = raw.unit(&write(0, 8), 0, 4096);
    raw.send(&message::command(&unit, &Data::InCapsule));
    raw.turn_until(|| store.has_one_yet());
    let (region, _) = raw.capsules.unwrap();
    raw.connection.put(&region, 0, &[2; 4096]).unwrap();
    store.open();
    assert!(is_good(&raw.status().outcome));
    assert!(stored(&*store)[..4096] == [1; 4096]);
}
