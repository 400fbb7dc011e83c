//! Tests random requests against a model, over links that lose and delay, and over connections that break.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use netlab::udp::Relay;
use netsim::link::{LinkConfig, Loss};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::store::{MemoryStore, Store};
use zerolane_disk::initiator::{Dial, DisplaySense, Error, Options, Queue, Request};
use zerolane_disk::target::ServerEvent;

use super::support::gated::{Gated, LONG};
use super::support::model::Model;
use super::support::paced::Paced;
use super::support::{self, BLOCK, Served, Shown, memory, seeds};

const DISK: u64 = 8 << 20;

#[test]
fn queue__random_requests_do_what_the_model_does() {
    seeds::each(3, |mut rng| {
        let served = Served::new(vec![memory(DISK)]);
        // Short commands, so that requests are several.
        let options = Options {
            depth: rng.u16(1..=40),
            transfer_bytes: 64 << 10,
            ..Options::default()
        };
        let queue = support::open(served.address, 0, options);
        let mut model = Model::new(DISK, 24);
        for _ in 0..600 {
            model.step(&queue, &mut rng, 300 << 10).unwrap();
        }
        model.check(&queue);
        assert_eq!(queue.repairs().reconnects, 0);
        drop(queue);
        assert!(served.end().is_empty(), "no initiator was cut off");
    });
}

#[test]
fn queue__does_so_over_a_link_that_loses_and_delays() {
    seeds::each(1, |mut rng| {
        let served = Served::new(vec![memory(DISK)]);
        let link = LinkConfig {
            delay: Duration::from_millis(3),
            loss: Loss::Random(0.01),
            ..LinkConfig::default()
        };
        let relay = Relay::start(served.address, link, link, rng.u64(..)).unwrap();
        let queue = support::open(relay.addr(), 0, Options::default());
        let mut model = Model::new(DISK, 24);
        for _ in 0..200 {
            model.step(&queue, &mut rng, 128 << 10).unwrap();
        }
        model.check(&queue);
    });
}

#[test]
fn queue__goes_on_over_links_that_break() {
    seeds::each(1, |mut rng| {
        let served = Served::new(vec![memory(DISK)]);
        let link = LinkConfig::default();
        let relay = Relay::start(served.address, link, link, rng.u64(..)).unwrap();
        let dial = support::dial(relay.addr(), support::brief());
        let queue = Queue::open(dial, support::lun(0), Options::default()).unwrap();
        let mut model = Model::new(DISK, 24);
        for _ in 0..3 {
            for _ in 0..60 {
                model.step(&queue, &mut rng, 128 << 10).unwrap();
            }
            relay.set_up(false);
            // In progress while there is no link, for longer than a dead peer is waited for.
            let pending = queue.start(Request::Flush);
            std::thread::sleep(Duration::from_secs(4));
            relay.set_up(true);
            pending.wait().result.unwrap();
        }
        model.check(&queue);
        assert!(queue.repairs().reconnects > 0, "the link was down");
    });
}

/// Connects to where the target is by then.
fn dial_at(address: &Arc<Mutex<SocketAddr>>, options: zerolane::Options) -> Dial {
    let to = Arc::clone(address);
    Box::new(move || {
        let to = *to.lock().unwrap();
        zerolane::Connection::connect(to, &options)
    })
}

#[test]
fn queue__goes_on_when_its_target_is_started_anew() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(DISK));
    let unit = || Shown {
        store: Arc::clone(&store),
        read_only: false,
    };
    let mut served = Served::new(vec![unit()]);
    let address = Arc::new(Mutex::new(served.address));
    let dial = dial_at(&address, support::of(&support::identity()));
    let queue = Queue::open(dial, support::lun(0), Options::default()).unwrap();
    seeds::each(1, |mut rng| {
        let mut model = Model::new(DISK, 24);
        support::write(&queue, 0, &vec![0; DISK as usize]).unwrap();
        for round in 1..=3 {
            for _ in 0..50 {
                model.step(&queue, &mut rng, 128 << 10).unwrap();
            }
            // Nothing is in doubt when it ends.
            model.settle().unwrap();
            support::flush(&queue).unwrap();
            served = Served::new(vec![unit()]);
            *address.lock().unwrap() = served.address;
            support::read(&queue, 0, 4096).unwrap();
            assert_eq!(queue.repairs().reconnects, round);
        }
        model.check(&queue);
    });
}

#[test]
fn queue__short_reads_are_answered_while_others_are_still_to_be_done() {
    // All answers fit the window of a connection that has just begun.
    const READS: u64 = 24;
    const BYTES: u64 = BLOCK;
    let (store, served) = Paced::served(DISK, 8);
    let queue = support::open(served.address, 0, Options::default());
    for number in 0..READS {
        let memory = support::region(&[1; BYTES as usize]);
        let told = Arc::clone(&store);
        let at = number * BYTES;
        queue.submit(Request::Read { at, memory }, move |done| {
            done.result.unwrap();
            assert!(done.memory.iter().all(|&it| it == 0), "it reads zeros");
            told.one_ended();
        });
    }
    // On their way to the target, whose thread waits in the first read.
    std::thread::sleep(Duration::from_millis(50));
    store.all_submitted();
    assert!(
        !store.stalled(READS as usize),
        "answers waited for all reads"
    );
}

/// The target has confirmed the command, and is gone before its status leaves: nothing of the initiator's is outstanding.
#[test]
fn queue__misses_a_target_that_has_its_commands() {
    let (store, first) = Gated::served(DISK);
    let link = LinkConfig::default();
    let relay = Relay::start(first.address, link, link, 1).unwrap();
    let address = Arc::new(Mutex::new(relay.addr()));
    let never = Options {
        command_patience: Duration::from_secs(3600),
        ..Options::default()
    };
    let dial = dial_at(&address, support::brief());
    let queue = Queue::open(dial, support::lun(0), never).unwrap();
    let pending = queue.start(Request::Write {
        at: 0,
        memory: support::region(&[7; 512]),
        durable: false,
    });
    store.has_one();
    // Long enough for the confirmation. If it is not, this shows less.
    std::thread::sleep(Duration::from_millis(100));
    relay.set_up(false);
    let second = Served::new(vec![Shown {
        store: Arc::clone(&store) as Arc<dyn Store>,
        read_only: false,
    }]);
    *address.lock().unwrap() = second.address;
    let (over, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || over.send(pending.wait().result));
    let result = ended.recv_timeout(LONG).expect("it is repeated");
    store.open();
    result.unwrap();
    assert_eq!(queue.repairs().repeats, 1);
    assert_eq!(support::read(&queue, 0, 512).unwrap(), [7; 512]);
}

/// Nothing waits for the target while it is away, for longer than it is waited for.
#[test]
fn queue__without_requests_awaits_its_target() {
    let mut served = Served::new(vec![memory(DISK)]);
    let address = Arc::new(Mutex::new(served.address));
    let options = Options {
        // Also for each answer while it is opened.
        patience: Duration::from_secs(2),
        ..Options::default()
    };
    let queue = Queue::open(
        dial_at(&address, support::of(&support::identity())),
        support::lun(0),
        options,
    )
    .unwrap();
    drop(served);
    std::thread::sleep(Duration::from_secs(5));
    served = Served::new(vec![memory(DISK)]);
    *address.lock().unwrap() = served.address;
    assert_eq!(support::read(&queue, 0, 512).unwrap(), [0; 512]);
}

#[test]
fn queue__patience_ends_and_all_fails() {
    let served = Served::new(vec![memory(DISK)]);
    let options = Options {
        // Also for each answer while it is opened.
        patience: Duration::from_secs(5),
        ..Options::default()
    };
    let queue = support::open(served.address, 0, options);
    support::write(&queue, 0, &[1; 512]).unwrap();
    drop(served);
    let failed = support::write(&queue, 0, &[2; 512]).unwrap_err();
    assert!(matches!(failed, Error::Unreachable { .. }), "{failed}");
    let failed = support::flush(&queue).unwrap_err();
    assert!(matches!(failed, Error::Unreachable { .. }), "{failed}");
}

#[test]
fn queue__what_does_not_fit_is_refused() {
    let served = Served::new(vec![memory(DISK)]);
    let queue = support::open(served.address, 0, Options::default());
    for (at, bytes) in [
        (DISK, 512),
        (DISK - 512, 1024),
        (1, 512),
        (0, 100),
        (u64::MAX, 512),
    ] {
        let failed = support::read(&queue, at, bytes).unwrap_err();
        assert!(matches!(failed, Error::Range { .. }), "{failed}");
    }
    support::read(&queue, DISK - 512, 512).unwrap();
    let memory = support::region(&[7; 520]);
    let mut memory = memory;
    let tail = memory.split_off(4).split_off(4);
    drop(memory);
    let mut odd = support::region(&[7; 516]).split_off(4);
    assert_eq!(odd.len(), 512);
    odd.fill(1);
    drop(tail);
    let request = Request::Write {
        at: 0,
        memory: odd,
        durable: false,
    };
    let done = queue.call(request);
    assert!(matches!(done.result, Err(Error::Misaligned)));
    assert_eq!(done.memory[..], [1; 512], "it comes back");
}

#[test]
fn queue__another_disk_in_its_place_is_not_written() {
    let mut served = Served::new(vec![memory(DISK)]);
    let address = Arc::new(Mutex::new(served.address));
    let (to, options) = (Arc::clone(&address), support::of(&support::identity()));
    let dial = Box::new(move || {
        let to = *to.lock().unwrap();
        zerolane::Connection::connect(to, &options)
    });
    let queue = Queue::open(dial, support::lun(0), Options::default()).unwrap();
    let other = memory(DISK / 2);
    let store = Arc::clone(&other.store);
    served = Served::new(vec![other]);
    *address.lock().unwrap() = served.address;
    let failed = support::write(&queue, 0, &[2; 512]).unwrap_err();
    assert!(matches!(failed, Error::OtherDisk { .. }), "{failed}");
    let mut found = [1; 512];
    store.read(0, &mut found).unwrap();
    assert_eq!(found, [0; 512]);
    drop(served);
}

#[test]
fn queue__what_an_older_connection_began_is_over_before_the_newer_one_begins() {
    let (store, served) = Gated::served(DISK);
    let options = Options {
        command_patience: Duration::from_secs(2),
        ..Options::default()
    };
    let queue = support::open(served.address, 0, options);
    let (over, is_over) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let told: Arc<AtomicBool> = Arc::clone(&over);
    let finished: Arc<(Mutex<bool>, Condvar)> = is_over;
    let finishing = Arc::clone(&finished);
    let request = Request::Write {
        at: 0,
        memory: support::region(&[1; 4096]),
        durable: false,
    };
    queue.submit(request, move |done| {
        done.result.unwrap();
        told.store(true, Ordering::SeqCst);
        *finishing.0.lock().unwrap() = true;
        finishing.1.notify_all();
    });
    store.has_one();
    // The older connection is gone; its write waits at the store, and so does the newer connection's login.
    served.until_told(|news| {
        news.iter()
            .any(|it| matches!(it, ServerEvent::Disconnected(..)))
    });
    std::thread::sleep(Duration::from_secs(1));
    let overtook = over.load(Ordering::SeqCst);
    // This must come first, because the target waits for its threads.
    store.open();
    assert!(!overtook, "the repeat overtook");
    let done = finished.0.lock().unwrap();
    drop(finished.1.wait_while(done, |it| !*it).unwrap());
    support::write(&queue, 0, &[2; 4096]).unwrap();
    assert_eq!(support::read(&queue, 0, 4096).unwrap(), [2; 4096]);
    assert!(queue.repairs().reconnects > 0);
}

fn exchange(queue: &Queue, at: u64, old: &[u8], new: &[u8]) -> Result<(), Error> {
    let memory = support::region(&[old, new].concat());
    queue.call(Request::CompareAndWrite { at, memory }).result
}

#[test]
fn queue__writes_what_it_has_compared() {
    let served = Served::new(vec![memory(DISK)]);
    let queue = support::open(served.address, 0, Options::default());
    let [zeros, ones, twos] = [0, 1, 2].map(|it| [it; 1024]);
    exchange(&queue, 1024, &zeros, &ones).unwrap();
    let failed = exchange(&queue, 1024, &zeros, &twos).unwrap_err();
    let differs = Sense::new(Key::Miscompare, Code::MISCOMPARE).with_information(0);
    assert!(
        matches!(failed, Error::Sense(DisplaySense(it)) if it == differs),
        "{failed}"
    );
    assert_eq!(support::read(&queue, 1024, 1024).unwrap(), ones);
    for (at, old, new) in [
        (1, &zeros[..], &ones[..]),
        (0, &zeros[..512], &ones[..513]),
        (DISK - 512, &zeros, &ones),
        (0, &[0; 256 * 512], &[1; 256 * 512]),
        (0, &[0; DISK as usize / 2], &[1; DISK as usize / 2]),
    ] {
        let failed = exchange(&queue, at, old, new).unwrap_err();
        assert!(matches!(failed, Error::Range { .. }), "{failed}");
    }
}

/// Repeated, it would differ from what it has written itself.
#[test]
fn queue__does_not_repeat_a_comparison() {
    let (store, served) = Gated::served(DISK);
    let options = Options {
        // From when it is sent on: the comparison is at the gate before.
        command_patience: Duration::from_secs(5),
        ..Options::default()
    };
    let queue = support::open(served.address, 0, options);
    let memory = support::region(&[[0; 512], [1; 512]].concat());
    let pending = queue.start(Request::CompareAndWrite { at: 0, memory });
    store.has_one();
    served.until_told(|news| {
        news.iter()
            .any(|it| matches!(it, ServerEvent::Disconnected(..)))
    });
    store.open();
    let failed = pending.wait().result.unwrap_err();
    assert!(matches!(failed, Error::InDoubt), "{failed}");
    let repeats = queue.repairs().repeats;
    // What was begun is over when that is told.
    assert_eq!(support::read(&queue, 0, 512).unwrap(), [1; 512]);
    assert_eq!(repeats, 0);
}

/// A target that ends with requests in progress and more of them waiting: none is forgotten.
#[test]
fn queue__forgets_no_request_when_its_target_ends() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(DISK));
    let unit = || Shown {
        store: Arc::clone(&store),
        read_only: false,
    };
    let mut served = Served::new(vec![unit()]);
    let address = Arc::new(Mutex::new(served.address));
    let dial = dial_at(&address, support::of(&support::identity()));
    let options = Options {
        depth: 8,
        ..Options::default()
    };
    let queue = Queue::open(dial, support::lun(0), options).unwrap();
    let (told, over) = std::sync::mpsc::channel();
    for round in 0..30u64 {
        let count = 200;
        for number in 0..count {
            let memory = support::region(&[number as u8; 4096]);
            let (at, told) = ((number * 4096) % DISK, told.clone());
            let request = match number % 2 {
                0 => Request::Read { at, memory },
                _ => Request::Write {
                    at,
                    memory,
                    durable: false,
                },
            };
            // A test that has failed listens no more.
            queue.submit(request, move |done| drop(told.send(done.result)));
        }
        std::thread::sleep(Duration::from_micros(500 * round));
        drop(served);
        served = Served::new(vec![unit()]);
        *address.lock().unwrap() = served.address;
        for number in 0..count {
            let result = over.recv_timeout(Duration::from_secs(120));
            let result = result.unwrap_or_else(|_| panic!("{number} of {count} were over"));
            result.unwrap();
        }
    }
}
