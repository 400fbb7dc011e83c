//! Tests that lost writes are reported: those in the kernel's cache that cannot reach the medium.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use zerolane::Options;
use zerolane_block::sense::{Code, Key};
use zerolane_disk::initiator::{self, Dial, DisplaySense, Error, Queue, Request};
use zerolane_disk::target::{Server, ServerEvent, Settings};

use super::support::gated::Gated;
use super::support::hooked::{self, Hooked, Hooks};
use super::support::{self, Served, Shown};

const DISK: u64 = 1 << 20;

/// A disk as a file is one: writes fail behind its back when it is told so, and all flushes after that.
#[derive(Debug, Default)]
struct Losing(AtomicBool);

impl Hooks for Losing {
    fn before_flush(&self) -> io::Result<()> {
        match self.has_failed() {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }

    fn has_failed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn outlives_process(&self) -> bool {
        true
    }
}

/// A disk whose first flush waits until it is let go, and fails.
#[derive(Debug, Default)]
struct Late {
    gate: Gated,
    has_failed: AtomicBool,
}

impl Hooks for Late {
    fn before_flush(&self) -> io::Result<()> {
        self.gate.pass();
        self.has_failed.store(true, Ordering::SeqCst);
        Err(io::Error::from_raw_os_error(5))
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    fn outlives_process(&self) -> bool {
        true
    }
}

fn settings(record: &Path) -> Settings {
    Settings {
        losses: Some(record.to_owned()),
        ..Settings::default()
    }
}

fn shown<H: Hooks + 'static>(store: &Arc<Hooked<H>>) -> Shown {
    Shown {
        store: store.clone(),
        read_only: false,
    }
}

/// A target of a disk that has lost nothing yet, which is the same disk each time.
fn serve(record: &Path) -> (Arc<Hooked<Losing>>, Served) {
    let store = hooked::store(DISK, Losing::default());
    let served = Served::with(vec![shown(&store)], settings(record), Options::default());
    (store, served)
}

/// Opens the disk of whatever target is at `address` at the time.
fn open(address: &Arc<Mutex<std::net::SocketAddr>>) -> Queue {
    let (address, options) = (Arc::clone(address), support::of(&support::identity()));
    let dial: Dial =
        Box::new(move || zerolane::Connection::connect(*address.lock().unwrap(), &options));
    Queue::open(dial, support::lun(0), initiator::Options::default()).unwrap()
}

fn is_write_error(result: Result<(), Error>) -> bool {
    let Err(Error::Sense(DisplaySense(sense))) = result else {
        return false;
    };
    (sense.key, sense.code) == (Key::MediumError, Code::WRITE_ERROR)
}

/// A flush reports the loss. Initiators that do not flush learn of it after the target restarts.
#[test]
fn losses__are_told_to_who_flushes_and_after_a_restart_to_who_did_not() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("lost_writes");
    let (store, served) = serve(&record);
    let address = Arc::new(Mutex::new(served.address));
    let [silent, flushed, flushing] = [(); 3].map(|()| open(&address));
    support::write(&flushed, 0, &[1; 4096]).unwrap();
    support::flush(&flushed).unwrap();
    support::write(&silent, 8192, &[2; 4096]).unwrap();
    support::write(&flushing, 12288, &[2; 4096]).unwrap();
    store.0.store(true, Ordering::SeqCst);
    assert!(is_write_error(support::flush(&flushing)));
    let fua = Request::Write {
        at: 16384,
        memory: support::region(&[3; 4096]),
        durable: true,
    };
    assert!(is_write_error(flushing.call(fua).result));
    assert!(is_write_error(support::flush(&flushing)), "it is sticky");
    let told = served.news.lock().unwrap().clone();
    let lost = lost("disk0");
    assert_eq!(told.iter().filter(|it| **it == lost).count(), 1, "{told:?}");
    drop(served);
    // The disk works again.
    let (_store, served) = serve(&record);
    *address.lock().unwrap() = served.address;
    for queue in [&silent, &flushing] {
        for _ in 0..2 {
            let result = support::flush(queue);
            assert!(matches!(result, Err(Error::Lost)), "{result:?}");
        }
    }
    support::flush(&flushed).unwrap();
    let anew = open(&address);
    support::write(&anew, 8192, &[2; 4096]).unwrap();
    support::flush(&anew).unwrap();
}

#[test]
fn losses__that_there_are_none_of_are_not_told_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("lost_writes");
    let (_store, served) = serve(&record);
    let address = Arc::new(Mutex::new(served.address));
    let queue = open(&address);
    support::write(&queue, 0, &[1; 4096]).unwrap();
    drop(served);
    let (_store, served) = serve(&record);
    *address.lock().unwrap() = served.address;
    support::flush(&queue).unwrap();
    assert_eq!(queue.repairs().reconnects, 1);
    assert!(!record.exists());
}

fn lost(unit: &str) -> ServerEvent {
    ServerEvent::Lost {
        unit: unit.into(),
        recorded: Ok(()),
    }
}

/// The kernel reports a loss after all initiators are gone.
#[test]
fn losses__of_flushes_in_progress_at_the_end_are_told_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("lost_writes");
    let store = hooked::store(DISK, Late::default());
    let mut server = Server::new(settings(&record)).unwrap();
    support::add(&mut server, vec![shown(&store)]);
    let on = "127.0.0.1:0".parse().unwrap();
    let endpoint = server.listen(on, Options::default()).unwrap();
    let address = server.endpoint(endpoint).unwrap().0;
    let stop = Arc::new(AtomicBool::new(false));
    let (stopping, gate) = (Arc::clone(&stop), Arc::clone(&store));
    let serving = std::thread::spawn(move || {
        let stop = || stopping.load(Ordering::SeqCst);
        server.serve(stop, drop).unwrap();
        gate.gate.open();
        let mut told = Vec::new();
        server.end(|it| told.push(it));
        told
    });
    let address = Arc::new(Mutex::new(address));
    let queue = open(&address);
    support::write(&queue, 0, &[1; 4096]).unwrap();
    let flush = queue.start(Request::Flush);
    store.gate.has_one();
    // One that is begun before the end, and has the disk behind it.
    let mut next = Server::new(settings(&record)).unwrap();
    stop.store(true, Ordering::SeqCst);
    assert_eq!(serving.join().unwrap(), [lost("disk0")]);
    // The queue repeats its flush, which this disk does.
    let works = hooked::store(DISK, Losing::default());
    support::add(&mut next, vec![shown(&works)]);
    let served = Served::of(next, Options::default());
    *address.lock().unwrap() = served.address;
    let result = flush.wait().result;
    assert!(matches!(result, Err(Error::Lost)), "{result:?}");
}

#[test]
fn losses__of_a_unit_that_is_taken_away_are_written_down() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("lost_writes");
    let store = hooked::store(DISK, Late::default());
    let served = Served::with(vec![shown(&store)], settings(&record), Options::default());
    let queue = open(&Arc::new(Mutex::new(served.address)));
    let flush = queue.start(Request::Flush);
    store.gate.has_one();
    served.with_server(|server| assert!(server.remove_unit(support::lun(0))));
    store.gate.open();
    assert!(is_write_error(flush.wait().result));
    assert!(served.news.lock().unwrap().contains(&lost("disk0")));
    assert!(record.exists());
}

/// The file is opened anew, and the kernel has told its error: a flush of what was written before would be well.
#[test]
fn losses__of_a_disk_that_is_added_again_are_told() {
    let directory = tempfile::tempdir().unwrap();
    for losses in [Some(directory.path().join("lost_writes")), None] {
        let store = hooked::store(DISK, Losing::default());
        let settings = Settings {
            losses,
            ..Settings::default()
        };
        let served = Served::with(vec![shown(&store)], settings, Options::default());
        let queue = open(&Arc::new(Mutex::new(served.address)));
        support::write(&queue, 0, &[1; 4096]).unwrap();
        store.0.store(true, Ordering::SeqCst);
        served.with_server(|server| {
            assert!(server.remove_unit(support::lun(0)));
            let works = hooked::store(DISK, Losing::default());
            support::add(server, vec![shown(&works)]);
        });
        let result = support::flush(&queue);
        assert!(matches!(result, Err(Error::Lost)), "{result:?}");
    }
}
