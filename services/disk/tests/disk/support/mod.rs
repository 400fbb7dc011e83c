//! Sets up a target in a thread, queues to it, and a model of a disk.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part.

pub mod child;
pub mod device;
pub mod gated;
pub mod hooked;
pub mod model;
pub mod paced;
pub mod raw;
pub mod seeds;
pub mod writer;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zerolane::security::Identity;
use zerolane::{Connection, Options, Region, Security};
use zerolane_block::store::{MemoryStore, Store};
use zerolane_block::{Disk, Identity as DiskIdentity, Lun};
use zerolane_disk::initiator::{self, Dial, Done, Queue, Request};
use zerolane_disk::target::{Offences, Server, ServerEvent, Settings};

pub const BLOCK: u64 = 512;

pub fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

/// A unit of a test's target.
pub struct Shown {
    pub store: Arc<dyn Store>,
    pub read_only: bool,
}

pub fn memory(bytes: u64) -> Shown {
    Shown {
        store: Arc::new(MemoryStore::new(bytes)),
        read_only: false,
    }
}

/// Adds `units` as LUN 0 and so on, called `disk0` and so on.
pub fn add(server: &mut Server, units: Vec<Shown>) {
    for (number, unit) in units.into_iter().enumerate() {
        let name = format!("disk{number}");
        let disk = Disk::of(&*unit.store, BLOCK as u32, DiskIdentity::named(&name)).unwrap();
        let disk = Disk {
            read_only: unit.read_only || disk.read_only,
            ..disk
        };
        let lun = lun(number as u16);
        server.add_unit(lun, &name, disk, unit.store).unwrap();
    }
}

/// What is done with a target between two of its turns.
type Asked = Box<dyn FnOnce(&mut Server) + Send>;

/// A target that serves until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    /// Tells the target's thread to end, or to look into `asked`.
    stop: Arc<AtomicBool>,
    asked: Sender<Asked>,
    pub news: Arc<Mutex<Vec<ServerEvent>>>,
    thread: Option<JoinHandle<Offences>>,
}

impl Served {
    pub fn new(units: Vec<Shown>) -> Served {
        Served::with(units, Settings::default(), Options::default())
    }

    pub fn with(units: Vec<Shown>, settings: Settings, options: Options) -> Served {
        let mut server = Server::new(settings).unwrap();
        add(&mut server, units);
        Served::of(server, options)
    }

    pub fn of(mut server: Server, options: Options) -> Served {
        let endpoint = server.listen(own_address(), options).unwrap();
        let (address, _) = server.endpoint(endpoint).unwrap();
        let (stop, news) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopping, told) = (Arc::clone(&stop), Arc::clone(&news));
        let (asked, asks) = channel::<Asked>();
        let thread = std::thread::spawn(move || {
            let mut tell = |it| {
                let told: &Mutex<Vec<ServerEvent>> = &told;
                told.lock().unwrap().push(it);
            };
            let stop = || stopping.load(Ordering::Relaxed);
            loop {
                server.serve(stop, &mut tell).unwrap();
                let Ok(act) = asks.try_recv() else {
                    break;
                };
                stopping.store(false, Ordering::Relaxed);
                act(&mut server);
            }
            server.offences().clone()
        });
        Served {
            address,
            stop,
            asked,
            news,
            thread: Some(thread),
        }
    }

    /// Has `act` done with the target while its initiators stay connected, and waits for it.
    pub fn with_server(&self, act: impl FnOnce(&mut Server) + Send + 'static) {
        let (tell, told) = channel();
        let act: Asked = Box::new(move |server| {
            act(server);
            tell.send(()).unwrap();
        });
        self.asked.send(act).unwrap();
        self.stop.store(true, Ordering::Relaxed);
        told.recv().unwrap();
    }

    /// Waits until it has told such news.
    pub fn until_told(&self, is_such: impl Fn(&[ServerEvent]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_such(&self.news.lock().unwrap()) {
            assert!(Instant::now() < deadline, "{:?}", self.news);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it; says what initiators were cut off for.
    pub fn end(mut self) -> Offences {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Any port of a loopback address of its own: a queue that outlives its target must not find another test's target at the
/// same port.
fn own_address() -> SocketAddr {
    static LAST: AtomicU16 = AtomicU16::new(1);
    let [high, low] = LAST.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    ([127, 1, high, low], 0).into()
}

/// An identity that others have not.
pub fn identity() -> Arc<Identity> {
    Arc::new(Identity::from_secret(zerolane::security::random().unwrap()))
}

/// Options of an initiator with that identity.
pub fn of(identity: &Arc<Identity>) -> Options {
    Options::default().with(|it| {
        it.security = Security {
            identity: Some(Arc::clone(identity)),
            ..Security::default()
        };
        // Longer than a busy machine keeps a thread from going on.
        it.times.connect = Duration::from_secs(20);
    })
}

/// Of an identity of its own, by which a target that is silent is missed soon.
pub fn brief() -> Options {
    of(&identity()).with(|it| it.times.idle = Duration::from_secs(2))
}

pub fn dial(address: SocketAddr, options: Options) -> Dial {
    Box::new(move || Connection::connect(address, &options))
}

pub fn open(address: SocketAddr, number: u16, options: initiator::Options) -> Queue {
    let dial = dial(address, of(&identity()));
    Queue::open(dial, lun(number), options).unwrap()
}

pub fn region(bytes: &[u8]) -> Region {
    let mut region = Region::anonymous(bytes.len()).unwrap();
    region.copy_from_slice(bytes);
    region
}

pub fn read(queue: &Queue, at: u64, bytes: u64) -> Result<Vec<u8>, initiator::Error> {
    let memory = Region::anonymous(bytes as usize).unwrap();
    let Done { result, memory } = queue.call(Request::Read { at, memory });
    result.map(|()| memory.to_vec())
}

pub fn write(queue: &Queue, at: u64, bytes: &[u8]) -> Result<(), initiator::Error> {
    let memory = region(bytes);
    let durable = false;
    let done = queue.call(Request::Write {
        at,
        memory,
        durable,
    });
    assert_eq!(&done.memory[..], bytes, "the memory comes back as it was");
    done.result
}

pub fn flush(queue: &Queue) -> Result<(), initiator::Error> {
    queue.call(Request::Flush).result
}
