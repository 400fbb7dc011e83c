//! Tests that a target waits while an initiator makes progress, however slow, and gives up on silence.

use std::time::{Duration, Instant};

use netlab::udp::Relay;
use netsim::link::LinkConfig;
use zerolane::request::Message;
use zerolane::{Options, Region};
use zerolane_block::cdb::Command;
use zerolane_disk::initiator::{self, Queue, Request};
use zerolane_disk::message::{self, Data};
use zerolane_disk::target::{Offence, ServerEvent, Settings};

use super::support::raw::{Raw, login, write};
use super::support::{self, Served, memory};

const DISK: u64 = 16 << 20;

fn served(settings: Settings) -> Served {
    Served::with(vec![memory(DISK)], settings, Options::default())
}

/// Reads and writes that take longer than the patience, in both directions at once.
#[test]
fn patience__a_slow_link_is_no_silence() {
    let served = served(Settings {
        data_patience: Duration::from_secs(8),
        ..Settings::default()
    });
    let link = LinkConfig {
        rate_bits_per_s: Some(4_000_000),
        queue_packets: 64,
        mtu: Some(1500),
        ..LinkConfig::default()
    };
    let relay = Relay::start(served.address, link, link, 7).unwrap();
    let options = support::of(&support::identity()).with(|it| {
        // The link's queue is full at first, and answers are late.
        it.times.idle = Duration::from_secs(20);
    });
    let dial = support::dial(relay.addr(), options);
    let queue = Queue::open(dial, support::lun(0), initiator::Options::default()).unwrap();
    let bytes = 5 << 20;
    let written = queue.start(Request::Write {
        at: 0,
        memory: support::region(&vec![5; bytes]),
        durable: false,
    });
    let read = queue.start(Request::Read {
        at: DISK / 2,
        memory: Region::anonymous(bytes).unwrap(),
    });
    written.wait().result.unwrap();
    read.wait().result.unwrap();
    let repairs = queue.repairs();
    let told = served.news.lock().unwrap().clone();
    assert_eq!((repairs.reconnects, repairs.repeats), (0, 0), "{told:?}");
    drop(queue);
    assert_eq!(served.end(), [].into());
}

#[test]
fn patience__without_a_login_ends() {
    let served = served(Settings {
        login_patience: Duration::from_millis(300),
        ..Settings::default()
    });
    let raw = Raw::connect(served.address, &support::of(&support::identity()));
    raw.wait_until_cut_off();
    assert_eq!(served.end(), [(Offence::Silence, 1)].into());
}

/// Its data is asked for, and it does nothing more.
#[test]
fn patience__with_data_that_does_not_come_ends() {
    let served = served(Settings {
        data_patience: Duration::from_secs(1),
        ..Settings::default()
    });
    let mut raw = Raw::open(served.address, &support::of(&support::identity()));
    raw.settle();
    let unit = raw.unit(&write(0, 2048), 0, 1 << 20);
    raw.post(&unit);
    // The command leaves, and none of its data.
    raw.connection.poll().unwrap();
    let is_cut_off = |it: &ServerEvent| matches!(it, ServerEvent::CutOff(_, Offence::Silence));
    served.until_told(|news| news.iter().any(is_cut_off));
    assert_eq!(served.end(), [(Offence::Silence, 1)].into());
}

/// The target's login finds no receive, so all that it puts waits behind that.
#[test]
fn patience__with_statuses_that_are_not_taken_ends() {
    let served = served(Settings::default());
    let mut raw = Raw::connect(served.address, &support::of(&support::identity()));
    raw.send(&message::login(&login(7), &raw.status_key));
    let is_cut_off = |it: &ServerEvent| matches!(it, ServerEvent::CutOff(_, Offence::Full));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !served.news.lock().unwrap().iter().any(is_cut_off) {
        assert!(Instant::now() < deadline, "{:?}", served.news);
        let unit = raw.unit(&Command::TestUnitReady, 0, 0);
        let command = message::command(&unit, &Data::None);
        // There may be as many on their way as there can be.
        let _ = raw.connection.post(Message::new(&command).signalled(false));
        if raw.connection.wait(Some(Duration::ZERO)).is_err() {
            // Its end is told there, too.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(served.end(), [(Offence::Full, 1)].into());
}

/// No clock shows when it is over.
#[test]
fn patience__of_a_queue_may_be_without_end() {
    let served = served(Settings::default());
    let dial = || support::dial(served.address, support::of(&support::identity()));
    let units = Queue::units(dial(), Duration::MAX).unwrap();
    assert_eq!(units.len(), 1);
    let options = initiator::Options {
        patience: Duration::MAX,
        command_patience: Duration::MAX,
        ..initiator::Options::default()
    };
    let queue = Queue::open(dial(), support::lun(0), options).unwrap();
    queue.call(Request::Flush).result.unwrap();
    drop(queue);
    served.end();
}
