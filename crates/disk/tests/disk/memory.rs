//! What an initiator may have of a target: memory and connections.

use std::sync::Arc;

use zerolane::security::Identity;
use zerolane_block::cdb::Command;
use zerolane_block::sst::{ManagementUnit, Outcome};
use zerolane_block::store::Store;
use zerolane_block::{Answer, Function, Status};
use zerolane_disk::message::{self, Data};
use zerolane_disk::target::{News, Settings};

use super::support::gated::Gated;
use super::support::hooked::Hooked;
use super::support::raw::{self, Raw};
use super::support::{self, Served, memory};

const DISK: u64 = 1 << 20;
/// What an initiator has here.
const MOST: u64 = 64 << 10;

fn settings() -> Settings {
    Settings {
        initiator_bytes: MOST as usize,
        initiator_connections: 3,
        ..Settings::default()
    }
}

fn open(served: &Served, identity: &Arc<Identity>) -> Raw {
    let mut raw = Raw::open(served.address, &support::of(identity));
    raw.settle();
    raw
}

/// Sends a write of ones in that slot.
fn write(raw: &mut Raw, slot: u16, at: u64, bytes: u64) -> u64 {
    raw.data.write(0, &vec![1; bytes as usize]);
    let mut unit = raw.unit(&raw::write(at / 512, bytes / 512), 0, bytes);
    unit.slot = slot;
    raw.send(&message::command(&unit, &Data::At(raw.place())));
    unit.tag
}

fn is_good(raw: &mut Raw, tag: u64) {
    let status = raw.status();
    let good = matches!(
        status.outcome,
        Outcome::Response {
            status: Status::Good,
            ..
        }
    );
    assert!(good && status.tag == tag, "{status:?}");
}

fn is_written(store: &Hooked<Gated>, at: u64, bytes: u64) -> bool {
    let mut found = vec![0; bytes as usize];
    store.read(at, &mut found).unwrap();
    found.iter().any(|&it| it != 0)
}

#[test]
fn memory__is_an_initiators_over_all_its_connections() {
    let (store, served) = Gated::served_with(DISK, settings());
    let identity = support::identity();
    let (mut first, mut second) = (open(&served, &identity), open(&served, &identity));
    let mut other = open(&served, &support::identity());
    let one = write(&mut first, 0, 0, MOST);
    first.turn_until(|| store.has_one_yet());
    let two = write(&mut second, 0, MOST, MOST);
    // Needs no memory: the write before it is known to be there.
    let ready = second.unit(&Command::TestUnitReady, 0, 0);
    second.post(&zerolane_block::sst::CommandUnit { slot: 1, ..ready });
    is_good(&mut second, ready.tag);
    let three = write(&mut other, 0, 2 * MOST, MOST);
    is_good(&mut other, three);
    let is_early = is_written(&store, MOST, MOST);
    store.open();
    assert!(!is_early, "there is no memory for it");
    is_good(&mut first, one);
    is_good(&mut second, two);
    assert!(is_written(&store, MOST, MOST));
    assert_eq!(served.end(), [].into());
}

/// Memory of writes that no thread has begun is free when their initiator has gone, and of those that one has begun it is
/// not.
#[test]
fn memory__of_an_initiator_that_is_gone_is_free_as_far_as_no_thread_has_it() {
    let threads = 1;
    let (store, served) = Gated::served_with(
        DISK,
        Settings {
            threads,
            ..settings()
        },
    );
    let identity = support::identity();
    let mut first = open(&served, &identity);
    write(&mut first, 0, 0, MOST / 2);
    first.turn_until(|| store.has_one_yet());
    let queued = write(&mut first, 1, MOST, MOST / 2);
    // Until the target has its data it needs ours.
    let ready = |raw: &mut Raw, slot| {
        let unit = raw.unit(&Command::TestUnitReady, 0, 0);
        raw.post(&zerolane_block::sst::CommandUnit { slot, ..unit });
        is_good(raw, unit.tag);
    };
    for _ in 0..50 {
        ready(&mut first, 2);
    }
    assert!(queued > 0);
    drop(first);
    let mut second = open(&served, &identity);
    let (outcome, found) = second.call(&raw::read(0, MOST / 4 / 512), &[], MOST / 4);
    assert!(
        matches!(outcome, Outcome::Response { sense: None, .. }),
        "{outcome:?}"
    );
    assert_eq!(found, vec![0; MOST as usize / 4]);
    // More than is left beside the write that a thread has.
    let rest = second.unit(&raw::read(0, MOST / 512), MOST, 0);
    second.post(&rest);
    let ready = second.unit(&Command::TestUnitReady, 0, 0);
    second.post(&zerolane_block::sst::CommandUnit { slot: 1, ..ready });
    is_good(&mut second, ready.tag);
    store.open();
    is_good(&mut second, rest.tag);
    assert!(!is_written(&store, MOST, MOST / 2), "it was not begun");
    assert_eq!(served.end(), [].into());
}

#[test]
fn memory__and_connections_of_an_initiator_are_bounded() {
    let served = Served::with(vec![memory(DISK)], settings(), zerolane::Options::default());
    let identity = support::identity();
    let mut own: Vec<Raw> = (0..3).map(|_| open(&served, &identity)).collect();
    let mut more = Raw::stranger(served.address, &support::of(&identity));
    more.send(&message::login(
        &super::support::raw::login(99),
        &more.status_key,
    ));
    more.wait_until_cut_off();
    let is_told = |it: &News| matches!(it, News::Left(_, why) if why.contains("as many"));
    assert!(served.news.lock().unwrap().iter().any(is_told));
    // Others have their own, those that were there go on, and one that goes makes room.
    open(&served, &support::identity());
    own.iter_mut().for_each(Raw::settle);
    own.pop();
    let gone = |served: &Served| {
        let news = served.news.lock().unwrap();
        news.iter()
            .filter(|it| matches!(it, News::Left(_, why) if why.contains("peer")))
            .count()
    };
    while gone(&served) < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    open(&served, &identity);
    assert_eq!(served.end(), [].into());
}

/// Another clears the task set while a write of it waits for memory: the slot is its own again.
#[test]
fn memory__a_slot_whose_write_was_cleared_while_it_waited_is_free() {
    let (store, served) = Gated::served_with(DISK, settings());
    let mut victim = open(&served, &support::identity());
    let mut other = open(&served, &support::identity());
    write(&mut victim, 0, 0, MOST);
    victim.turn_until(|| store.has_one_yet());
    write(&mut victim, 1, MOST, MOST);
    let ready = victim.unit(&Command::TestUnitReady, 0, 0);
    victim.post(&zerolane_block::sst::CommandUnit { slot: 2, ..ready });
    is_good(&mut victim, ready.tag);
    let clear = ManagementUnit {
        slot: 0,
        tag: 1000,
        lun: support::lun(0).encode(),
        function: Function::ClearTaskSet,
    };
    other.send(&clear.encode());
    let ask = other.unit(&Command::TestUnitReady, 0, 0);
    other.post(&zerolane_block::sst::CommandUnit { slot: 1, ..ask });
    is_good(&mut other, ask.tag);
    // What was cleared is told by an attention.
    let next = victim.unit(&Command::TestUnitReady, 0, 0);
    victim.post(&zerolane_block::sst::CommandUnit { slot: 1, ..next });
    assert_eq!(victim.status().tag, next.tag);
    store.open();
    assert_eq!(
        other.status().outcome,
        Outcome::Managed(Answer::Complete),
        "all is over"
    );
    let (outcome, _) = victim.call(&Command::TestUnitReady, &[], 0);
    assert!(
        matches!(outcome, Outcome::Response { sense: None, .. }),
        "{outcome:?}"
    );
    assert!(!is_written(&store, MOST, MOST));
    assert_eq!(served.end(), [].into());
}
