//! Tests that the limits on an initiator's memory and connections hold.

use std::sync::Arc;

use zerolane::security::Identity;
use zerolane_block::cdb::Command;
use zerolane_block::sst::{CommandUnit, ManagementUnit, Outcome};
use zerolane_block::store::Store;
use zerolane_block::{Answer, Function, Status};
use zerolane_disk::message::{self, Data};
use zerolane_disk::target::{ServerEvent, Settings};

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
    ready(&mut second, 1);
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

/// Sends a command without data; its answer says that those before it are there.
fn ready(raw: &mut Raw, slot: u16) {
    let unit = raw.unit(&Command::TestUnitReady, 0, 0);
    raw.post(&CommandUnit { slot, ..unit });
    is_good(raw, unit.tag);
}

fn of_threads(threads: usize) -> Settings {
    Settings {
        threads,
        ..settings()
    }
}

/// An initiator of which a thread has a write of half of the memory.
fn started(store: &Gated, served: &Served, identity: &Arc<Identity>) -> Raw {
    let mut raw = open(served, identity);
    write(&mut raw, 0, 0, MOST / 2);
    raw.turn_until(|| store.has_one_yet());
    raw
}

/// Its one thread has the first of both writes, so the other was not begun when their initiator goes.
#[test]
fn memory__of_an_initiator_that_is_gone_is_free_where_no_thread_has_it() {
    let (store, served) = Gated::served_with(DISK, of_threads(1));
    let identity = support::identity();
    let mut first = started(&store, &served, &identity);
    write(&mut first, 1, MOST, MOST / 2);
    // Until the target has its data it needs ours.
    for _ in 0..50 {
        ready(&mut first, 2);
    }
    drop(first);
    let mut second = open(&served, &identity);
    let (outcome, found) = second.call(&raw::read(0, MOST / 4 / 512), &[], MOST / 4);
    assert!(
        matches!(outcome, Outcome::Response { sense: None, .. }),
        "{outcome:?}"
    );
    assert_eq!(found, vec![0; MOST as usize / 4]);
    store.open();
    // By the thread, which would have done the write before.
    second.call(&raw::read(0, MOST / 512), &[], MOST);
    assert!(!is_written(&store, MOST, MOST / 2), "it was not begun");
    assert_eq!(served.end(), [].into());
}

/// Of two threads one has a write whose initiator has gone; the other would read what there is no memory for.
#[test]
fn memory__of_an_initiator_that_is_gone_is_not_free_where_a_thread_has_it() {
    let (store, served) = Gated::served_with(DISK, of_threads(2));
    let identity = support::identity();
    let first = started(&store, &served, &identity);
    drop(first);
    let mut second = open(&served, &identity);
    let mut other = open(&served, &support::identity());
    // More than is left beside the write.
    let rest = second.unit(&raw::read(0, MOST / 512), MOST, 0);
    second.post(&rest);
    ready(&mut second, 1);
    // Of jobs that it has the thread does the first one first.
    let (outcome, _) = other.call(&raw::read(0, MOST / 512), &[], MOST);
    assert!(
        matches!(outcome, Outcome::Response { sense: None, .. }),
        "{outcome:?}"
    );
    // No other status was before this one's.
    ready(&mut second, 1);
    store.open();
    is_good(&mut second, rest.tag);
    assert_eq!(served.end(), [].into());
}

#[test]
fn memory__and_connections_of_an_initiator_are_bounded() {
    let served = Served::with(vec![memory(DISK)], settings(), zerolane::Options::default());
    let identity = support::identity();
    let mut own: Vec<Raw> = (0..3).map(|_| open(&served, &identity)).collect();
    let mut more = Raw::connect(served.address, &support::of(&identity));
    more.send(&message::login(
        &super::support::raw::login(99),
        &more.status_key,
    ));
    more.wait_until_cut_off();
    let is_told = |it: &ServerEvent| matches!(it, ServerEvent::Disconnected(_, why) if why.contains("too many"));
    served.until_told(|news| news.iter().any(is_told));
    // Others have their own, those that were there go on, and one that goes makes room.
    open(&served, &support::identity());
    own.iter_mut().for_each(Raw::settle);
    own.pop();
    let is_gone =
        |it: &&ServerEvent| matches!(it, ServerEvent::Disconnected(_, why) if why.contains("peer"));
    served.until_told(|news| news.iter().filter(is_gone).count() == 2);
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
    ready(&mut victim, 2);
    let clear = ManagementUnit {
        slot: 0,
        tag: 1000,
        lun: support::lun(0).encode(),
        function: Function::ClearTaskSet,
    };
    other.send(&clear.encode());
    ready(&mut other, 1);
    // What was cleared is told by an attention.
    let next = victim.unit(&Command::TestUnitReady, 0, 0);
    victim.post(&CommandUnit { slot: 1, ..next });
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
