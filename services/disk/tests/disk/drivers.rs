//! Tests that every request completes, whichever thread drives.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zerolane_block::store::{MemoryStore, Store};
use zerolane_disk::initiator::{Options, Queue, Request};

use super::support::{self, Served, Shown};

const THREADS: u64 = 8;
const ROUNDS: u64 = 120;
/// Of each thread, bytes.
const PART: u64 = 64 << 10;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Writes and reads a part of the disk: waiting, waiting for another first, told by a callback, and not at all.
fn work(queue: &Queue, part: u64, told: &Sender<u64>) {
    for round in 0..ROUNDS {
        let at = part * PART + round % 8 * 4096;
        let content = [(part * 31 + round) as u8; 4096];
        support::write(queue, at, &content).unwrap();
        let memory = || support::region(&[0; 4096]);
        let read = |memory| Request::Read { at, memory };
        let first = queue.start(read(memory()));
        let second = queue.start(read(memory()));
        assert_eq!(second.wait().memory[..], content);
        assert_eq!(first.wait().memory[..], content);
        drop(queue.start(read(memory())));
        if round % 4 == part % 4 {
            let (over, came) = channel();
            // A test that has failed listens no more.
            queue.submit(read(memory()), move |done| over.send(done).unwrap_or(()));
            let done = came
                .recv_timeout(PATIENCE)
                .expect("none waited, and none drove");
            assert_eq!(done.memory[..], content);
        }
    }
    told.send(part).unwrap();
}

#[test]
fn drivers__each_request_is_over_whoever_waits() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(THREADS * PART));
    let unit = || Shown {
        store: Arc::clone(&store),
        read_only: false,
    };
    let mut served = Served::new(vec![unit()]);
    let address = Arc::new(Mutex::new(served.address));
    let (to, options) = (Arc::clone(&address), support::of(&support::identity()));
    let dial = Box::new(move || {
        let to = *to.lock().unwrap();
        zerolane::Connection::connect(to, &options)
    });
    let options = Options {
        depth: 6,
        ..Options::default()
    };
    let queue = Arc::new(Queue::open(dial, support::lun(0), options).unwrap());
    let (told, ended) = channel();
    for part in 0..THREADS {
        let (queue, told) = (Arc::clone(&queue), told.clone());
        // Not joined: one that is forgotten would not end.
        std::thread::spawn(move || work(&queue, part, &told));
    }
    // A thread that waits finds the connection broken, and the queue's own reconnects.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        drop(served);
        served = Served::new(vec![unit()]);
        *address.lock().unwrap() = served.address;
    }
    for number in 0..THREADS {
        let part = ended.recv_timeout(PATIENCE);
        part.unwrap_or_else(|_| panic!("{number} of {THREADS} threads were over"));
    }
    assert!(queue.repairs().reconnects > 0, "its targets ended");
}

/// Requests that no thread waits for are over when the queue is closed, and so is a thread that waits.
#[test]
fn drivers__a_queue_that_is_closed_lets_all_go() {
    let served = Served::new(vec![support::memory(PART)]);
    let (told, ended) = channel();
    for round in 0..40u64 {
        let queue = support::open(served.address, 0, Options::default());
        let read = || Request::Read {
            at: 0,
            memory: support::region(&[1; 4096]),
        };
        let waits = queue.start(read());
        let over = told.clone();
        // A test that has failed listens no more.
        queue.submit(read(), move |done| {
            over.send(done.memory.len()).unwrap_or(())
        });
        let over = told.clone();
        std::thread::spawn(move || over.send(waits.wait().memory.len()).unwrap_or(()));
        std::thread::sleep(Duration::from_micros(100 * (round % 8)));
        drop(queue);
        for _ in 0..2 {
            let length = ended.recv_timeout(PATIENCE);
            assert_eq!(
                length.expect("one was forgotten"),
                4096,
                "memory comes back"
            );
        }
    }
}
