//! Tests that hostile initiators are disconnected and counted, and that others continue.

use std::sync::Arc;

use zerolane::{Region, RegionKey};
use zerolane_block::Residual;
use zerolane_block::cdb::Command;
use zerolane_block::sst::{CommandUnit, Outcome};
use zerolane_disk::initiator::{Options, Queue};
use zerolane_disk::message::{self, Data, Place};
use zerolane_disk::target::Offence;

use super::support::raw::{Raw, SLOTS, login, read, write};
use super::support::{self, Served, memory};

const DISK: u64 = 1 << 20;

/// A target, an honest queue whose disk is full of ones, and what a hostile one does that logged in.
fn is_cut_off(offence: Offence, act: impl FnOnce(&mut Raw)) {
    with_connected(offence, |raw| {
        raw.log_in(7);
        raw.settle();
        act(raw);
    });
}

fn with_connected(offence: Offence, act: impl FnOnce(&mut Raw)) {
    let (unit, behind) = (memory(DISK), memory(DISK));
    let stores = [Arc::clone(&unit.store), Arc::clone(&behind.store)];
    let served = Served::new(vec![unit, behind]);
    let honest: Queue = support::open(served.address, 0, Options::default());
    support::write(&honest, 0, &vec![1; DISK as usize]).unwrap();
    let mut raw = Raw::connect(served.address, &support::of(&support::identity()));
    act(&mut raw);
    raw.wait_until_cut_off();
    assert_eq!(
        support::read(&honest, 0, DISK).unwrap(),
        vec![1; DISK as usize]
    );
    let mut other = vec![7; DISK as usize];
    stores[1].read(0, &mut other).unwrap();
    assert!(other.iter().all(|&it| it == 0), "the other unit");
    let repairs = honest.repairs().reconnects;
    drop(honest);
    assert_eq!(served.end(), [(offence, 1)].into(), "counted once");
    assert_eq!(repairs, 0, "others go on");
}

#[test]
fn hostile__messages_that_are_none() {
    for bytes in [&b"x"[..], &[1; 56], &[0; 128], &[2; 32], &[1; 88], b""] {
        is_cut_off(Offence::Message, |raw| raw.send(bytes));
    }
}

#[test]
fn hostile__commands_before_the_login_and_a_second_login() {
    with_connected(Offence::Login, |raw| {
        let unit = raw.unit(&Command::TestUnitReady, 0, 0);
        raw.post(&unit);
    });
    is_cut_off(Offence::Login, |raw| {
        let bytes = message::login(&login(8), &raw.status_key);
        raw.send(&bytes);
    });
}

#[test]
fn hostile__a_status_region_that_is_too_small() {
    with_connected(Offence::StatusRegion, |raw| {
        let mut login = login(8);
        login.slots = SLOTS + 1;
        let bytes = message::login(&login, &raw.status_key);
        raw.send(&bytes);
    });
}

#[test]
fn hostile__slots_that_it_has_not_or_that_are_in_use() {
    is_cut_off(Offence::Slot, |raw| {
        let unit = raw.unit(&Command::TestUnitReady, 0, 0);
        let slot = SLOTS;
        raw.post(&CommandUnit { slot, ..unit });
    });
    is_cut_off(Offence::Slot, |raw| {
        // Its data takes longer than the next message.
        raw.data.write(0, &vec![1; 1 << 20]);
        for _ in 0..2 {
            let unit = raw.unit(&write(0, DISK / 512), 0, 1 << 20);
            raw.post(&unit);
        }
    });
}

#[test]
fn hostile__huge_lengths() {
    is_cut_off(Offence::Length, |raw| {
        let huge = 1 << 40;
        let mut bytes = raw.data_key.to_bytes();
        bytes[16..].copy_from_slice(&huge_key_length(huge));
        let region = RegionKey::from_bytes(bytes).unwrap();
        let unit = raw.unit(&read(0, DISK / 512), huge, 0);
        raw.send(&message::command(
            &unit,
            &Data::At(Place { region, offset: 0 }),
        ));
    });
}

fn huge_key_length(bytes: u64) -> [u8; 8] {
    bytes.to_be_bytes()
}

#[test]
fn hostile__data_outside_of_its_region() {
    is_cut_off(Offence::Message, |raw| {
        let unit = raw.unit(&read(0, 1), 512, 0);
        let mut place = raw.place();
        place.offset = (1 << 20) - 511;
        raw.send(&message::command(&unit, &Data::At(place)));
    });
}

#[test]
fn hostile__memory_that_it_does_not_export() {
    let made_up = |raw: &Raw| {
        let mut bytes = raw.data_key.to_bytes();
        bytes[0] ^= 0x55;
        bytes[3] ^= 0x55;
        let region = RegionKey::from_bytes(bytes).unwrap();
        Place { region, offset: 0 }
    };
    is_cut_off(Offence::Memory, |raw| {
        let unit = raw.unit(&write(0, 64), 0, 32 << 10);
        let place = made_up(raw);
        raw.send(&message::command(&unit, &Data::At(place)));
    });
    is_cut_off(Offence::Memory, |raw| {
        let unit = raw.unit(&read(0, 64), 32 << 10, 0);
        let place = made_up(raw);
        raw.send(&message::command(&unit, &Data::At(place)));
    });
}

#[test]
fn hostile__transfers() {
    is_cut_off(Offence::Transfer, |raw| {
        let _ = raw.connection.post_send(Region::from_vec(vec![1; 64]));
        let _ = raw.connection.post_send(Region::from_vec(vec![1; 1 << 20]));
    });
}

/// Bytes that are nearly messages: parsing says yes or no, and what it takes lies in its region.
#[test]
fn hostile__random_messages_are_taken_or_refused() {
    support::seeds::each(1, |mut rng| {
        let mut taken = 0;
        for _ in 0..200_000 {
            let length = [0, 31, 32, 55, 56, 87, 88, 128][rng.usize(0..8)];
            let mut bytes = vec![0; length];
            for byte in &mut bytes {
                // Mostly what a field may be.
                *byte = if rng.u32(0..8) == 0 { rng.u8(..) } else { 0 };
            }
            if let Some(first) = bytes.first_mut() {
                *first = [1, 1, 2, b'Z'][rng.usize(0..4)];
            }
            match message::parse(&bytes) {
                Ok(message::Message::Command(unit, Data::At(place))) => {
                    let most = unit.data_in.max(unit.data_out);
                    let end = place.offset.checked_add(most).unwrap();
                    assert!(most == 0 || end <= place.region.len());
                    taken += 1;
                }
                Ok(message::Message::Command(unit, Data::InCapsule)) => {
                    assert!(unit.data_in == 0 && unit.data_out > 0);
                    taken += 1;
                }
                Ok(_) => taken += 1,
                Err(_) => {}
            }
        }
        assert!(taken > 1000, "{taken} are messages");
    });
}

/// What is wrong with a command, and not with the messages, is told.
#[test]
fn hostile__commands_beyond_the_end_are_answered_and_write_nothing() {
    let unit = memory(DISK);
    let store = Arc::clone(&unit.store);
    let served = Served::new(vec![unit, memory(DISK)]);
    let mut raw = Raw::open(served.address, &support::of(&support::identity()));
    raw.settle();
    let failed = |it: &Outcome| matches!(it, Outcome::Response { sense: Some(_), .. });
    for (lba, blocks) in [(DISK / 512, 1), (DISK / 512 - 1, 2), (u64::MAX, 1)] {
        let (outcome, _) = raw.call(&write(lba, blocks), &vec![9; blocks as usize * 512], 0);
        assert!(failed(&outcome), "{outcome:?}");
    }
    let stored = || {
        let mut found = vec![1; DISK as usize];
        store.read(0, &mut found).unwrap();
        found
    };
    assert!(stored().iter().all(|&it| it == 0));
    // Less data than it says: no more is written than there is.
    let (outcome, _) = raw.call(&write(0, 4), &[9; 512], 0);
    let residual = Residual::Over(3 * 512);
    assert!(
        matches!(outcome, Outcome::Response { sense: None, residual: it, .. } if it == residual),
        "{outcome:?}"
    );
    let found = stored();
    assert_eq!(found[..512], [9; 512]);
    assert!(found[512..].iter().all(|&it| it == 0));
}
