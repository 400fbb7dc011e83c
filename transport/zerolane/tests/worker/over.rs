//! Tests that each request ends once, and frees its memory, when its worker ends.

use super::handles::spawned;
use super::{PATIENCE, anywhere};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zerolane::request::{
    Fetch, Get, GetPieces, Message, OpenRegion, Put, PutPieces, ReceiveMessage,
};
use zerolane::worker::{ConnectionHandle, Pending, Worker, WorkerHandle};
use zerolane::{
    Completion, Connection, Endpoint, ExportedRegion, FetchOp, Options, Region, RegionKey, Rights,
};

const LEN: usize = 4096;

/// Memory whose existence can be checked: each region maps the same file.
pub(super) struct Mappings {
    file: File,
    name: String,
    len: usize,
}

impl Mappings {
    pub(super) fn new() -> Mappings {
        Mappings::of(LEN)
    }

    /// Of `len` bytes.
    pub(super) fn of(len: usize) -> Mappings {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("mappings-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let file = memfd_create(name.as_str(), MFdFlags::MFD_ALLOW_SEALING).expect("memory");
        let file = File::from(file);
        file.set_len(len as u64).expect("room");
        let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).expect("a memfd");
        Mappings { file, name, len }
    }

    pub(super) fn region(&self) -> Region {
        Region::map_sealed(&self.file, 0, self.len).expect("sealed")
    }

    pub(super) fn count(&self) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
        let name = format!("/memfd:{} ", self.name);
        maps.lines().filter(|it| it.contains(&name)).count()
    }
}

/// A request: checks that it is over, and returns whether it succeeded.
type Asked = (&'static str, Box<dyn FnOnce() -> bool>);

fn request(name: &'static str, mut pending: Pending<Completion>) -> Asked {
    let over = move || {
        let over = pending.wait_for(PATIENCE);
        let over = over.unwrap_or_else(|| panic!("{name}: nothing came of it"));
        over.is_ok_and(|it| it.result.is_ok())
    };
    (name, Box::new(over))
}

fn other<T: 'static>(name: &'static str, mut pending: Pending<T>) -> Asked {
    let over = move || {
        let over = pending.wait_for(PATIENCE);
        let over = over.unwrap_or_else(|| panic!("{name}: nothing came of it"));
        over.is_ok()
    };
    (name, Box::new(over))
}

/// The other end of a connection, which is not driven.
struct Silent {
    _connection: Connection,
    _memory: ExportedRegion,
    key: RegionKey,
}

fn silent() -> (SocketAddr, std::thread::JoinHandle<Silent>) {
    let mut endpoint = Endpoint::bind(anywhere(), Options::default()).expect("a port");
    let address = endpoint.local_addr();
    let accepting = std::thread::spawn(move || {
        let accepted = endpoint.accept(Some(PATIENCE)).expect("no error");
        let mut connection = accepted.expect("in time");
        let memory = ExportedRegion::new(Region::anonymous(1 << 20).expect("memory"));
        let memory = memory.expect("page-aligned");
        let key = connection.export(&memory, Rights::ALL).expect("exported");
        Silent {
            _connection: connection,
            _memory: memory,
            key,
        }
    });
    (address, accepting)
}

/// Makes one request of each kind.
fn ask(
    worker: &WorkerHandle,
    client: &ConnectionHandle,
    key: &RegionKey,
    nowhere: SocketAddr,
    memory: &Mappings,
) -> Vec<Asked> {
    let region = || memory.region();
    let receiving = client.recv(region());
    let arrived = client.wait_arrived(receiving.id(), 0);
    let two = vec![(0, region().into()), (LEN as u64, region().into())];
    let into = vec![(0, region()), (8, region())];
    vec![
        request("recv", receiving),
        other("wait_arrived", arrived),
        other("announced", client.announced()),
        other("immediate", client.immediate()),
        request(
            "recv_message",
            client.post(ReceiveMessage::new().payload(region())),
        ),
        request("send", client.send(region())),
        request("message", client.post(Message::new(b"c").payload(region()))),
        request("put", client.post(Put::new(key, 0, region()))),
        request("put_vectored", client.post(PutPieces::new(key, two))),
        request("get", client.post(Get::new(key, 0, region()))),
        request("get_vectored", client.post(GetPieces::new(key, into))),
        request(
            "fetch_op",
            client.post(Fetch::new(key, 0, FetchOp::Increment)),
        ),
        request(
            "open_region",
            client.post(OpenRegion::new("none", Rights::ALL)),
        ),
        other("connect", worker.connect(nowhere, &Options::default())),
    ]
}

/// All are over, and failed: there was no other end.
fn end(asked: Vec<Asked>, memory: &Mappings) {
    for (name, over) in asked {
        assert!(!over(), "{name}: done without a peer");
    }
    assert_eq!(memory.count(), 0, "regions that are left");
}

#[test]
fn drop__of_a_thread_with_everything_outstanding_ends_each_request_once() {
    let memory = Mappings::new();
    let nowhere = UdpSocket::bind(anywhere()).expect("a port");
    let to = nowhere.local_addr().expect("bound");
    let (address, accepting) = silent();
    let worker = spawned();
    let client = worker.connect(address, &Options::default());
    let client = client.wait().expect("connected");
    let peer = accepting.join().expect("no panic");
    let asked = ask(&worker, &client, &peer.key, to, &memory);
    // They were taken, and begun.
    client.account().wait().expect("open");
    assert!(memory.count() >= 8, "{} regions", memory.count());
    drop(worker);
    end(asked, &memory);
}

#[test]
fn drop__with_submissions_that_were_not_taken_ends_each_request_once() {
    let memory = Mappings::new();
    let nowhere = UdpSocket::bind(anywhere()).expect("a port");
    let to = nowhere.local_addr().expect("bound");
    let (address, accepting) = silent();
    let mut worker = Worker::new().expect("descriptors");
    let handle = worker.handle();
    let mut connecting = handle.connect(address, &Options::default());
    let limit = Instant::now() + PATIENCE;
    let client = loop {
        let brief = Some(Duration::from_millis(1));
        worker.wait(brief).expect("allowed");
        if let Some(connected) = connecting.wait_for(Duration::ZERO) {
            break connected.expect("connected");
        }
        assert!(Instant::now() < limit, "nothing in time");
    };
    let peer = accepting.join().expect("no panic");
    let mut asked = ask(&handle, &client, &peer.key, to, &memory);
    while worker.progress().expect("allowed") {}
    asked.extend(ask(&handle, &client, &peer.key, to, &memory));
    asked.push(other("close", client.clone().close()));
    drop(worker);
    asked.extend(ask(&handle, &client, &peer.key, to, &memory));
    end(asked, &memory);
}

/// Requested by another thread at the moment of the end.
#[test]
fn drop__while_another_thread_asks_ends_each_request_once() {
    let memory = Mappings::new();
    let nowhere = UdpSocket::bind(anywhere()).expect("a port");
    let to = nowhere.local_addr().expect("bound");
    let (address, accepting) = silent();
    let worker = spawned();
    let client = worker.connect(address, &Options::default());
    let client = client.wait().expect("connected");
    let peer = accepting.join().expect("no panic");
    let (started, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let handle = (*worker).clone();
        let (key, memory) = (peer.key, &memory);
        scope.spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..50 {
                asked.extend(ask(&handle, &client, &key, to, memory));
                let _ = started.send(());
            }
            for (name, over) in asked {
                assert!(!over(), "{name}: done without a peer");
            }
        });
        begins.recv().expect("it asks");
        drop(worker);
    });
    assert_eq!(memory.count(), 0, "regions that are left");
}

/// A connection made after the end would live on, and the worker with it.
#[test]
fn stop__makes_nothing_that_is_asked_for_behind_it() {
    let nowhere = UdpSocket::bind(anywhere()).expect("a port");
    let to = nowhere.local_addr().expect("bound");
    let worker = Worker::new().expect("descriptors");
    let handle = worker.handle();
    handle.stop();
    let listening = handle.listen(anywhere(), Options::default());
    let connecting = handle.connect(to, &Options::default());
    let worker = worker.spawn().expect("a thread");
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(worker.stop()));
    let listening = listening.wait();
    let ended = ended.recv_timeout(PATIENCE / 4);
    ended.expect("in time").expect("stopped");
    assert!(listening.is_err(), "it is over");
    assert!(connecting.wait().is_err(), "it is over");
}
