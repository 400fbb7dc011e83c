//! Sets up a disk of another host behind the door: the target in one thread, the door in another.

use std::fs::{self, File};
use std::io::{self, PipeWriter, pipe};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zerolane::{Connection, Options};
use zerolane_block::store::FileStore;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::initiator::{self, Dial, Queue};
use zerolane_disk::target::{Server as Target, Settings};
use zerolane_nbd::server::{Server, ServerEvent};

/// Bytes of the disk.
pub(crate) const DISK: usize = 16 << 20;

fn lun() -> Lun {
    Lun::new(0).unwrap()
}

/// A target of an image, in a thread.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// At `listen`, if that has a port.
    pub(crate) fn new(image: &Path, block: u32, listen: SocketAddr) -> Served {
        let store = opened(image);
        let disk = Disk::of(&store, block, Identity::named("test")).unwrap();
        let mut server = Target::new(Settings::default()).unwrap();
        server
            .add_unit(lun(), "disk0", disk, Arc::new(store))
            .unwrap();
        let endpoint = server.listen(listen, Options::default()).unwrap();
        let (address, _) = server.endpoint(endpoint).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let stop_asked = move || stopping.load(Ordering::Relaxed);
        let thread = std::thread::spawn(move || server.serve(stop_asked, drop).unwrap());
        Served {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The door of it.
pub(crate) struct Door {
    pub(crate) uri: String,
    pub(crate) socket: PathBuf,
    pub(crate) news: Receiver<ServerEvent>,
    stop: Option<PipeWriter>,
    /// Its thread, below `/proc`.
    task: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub(crate) fn new(directory: &Path, address: SocketAddr, read_only: bool) -> Door {
        let dial: Dial = Box::new(move || Connection::connect(address, &Options::default()));
        let queue = Queue::open(dial, lun(), initiator::Options::default()).unwrap();
        let socket = directory.join("socket");
        let server = Server::bind(&socket, read_only).unwrap();
        let (stopped, stop) = pipe().unwrap();
        let (tell, news) = channel();
        let (started, began) = channel();
        let thread = std::thread::spawn(move || {
            started.send(fs::read_link("/proc/thread-self")).unwrap();
            // A test that has no use for the news does not listen.
            let tell = |it| tell.send(it).unwrap_or_default();
            server.serve(&queue, stopped, tell).unwrap();
        });
        Door {
            uri: format!("nbd+unix:///?socket={}", socket.display()),
            socket,
            news,
            stop: Some(stop),
            task: Path::new("/proc").join(began.recv().unwrap().unwrap()),
            thread: Some(thread),
        }
    }
}

impl Door {
    /// How often its thread went to sleep.
    pub(crate) fn sleeps(&self) -> u64 {
        let status = fs::read_to_string(self.task.join("status")).unwrap();
        let mut lines = status.lines();
        let count = lines.find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Its end is readable.
        self.stop = None;
        let _ = self.thread.take().map(JoinHandle::join);
        assert!(!self.socket.exists(), "the socket is gone with the door");
    }
}

/// An image, a target of it, and the door.
pub(crate) struct Lab {
    pub(crate) door: Door,
    pub(crate) served: Option<Served>,
    pub(crate) image: PathBuf,
    pub(crate) directory: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new(read_only: bool) -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(DISK as u64).unwrap();
        // No other test listens at this address, and takes its port between two targets.
        let loopback = "127.0.0.3:0".parse().unwrap();
        let served = Served::new(&image, 512, loopback);
        let door = Door::new(directory.path(), served.address, read_only);
        Lab {
            door,
            served: Some(served),
            image,
            directory,
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// The target ends, and another one begins at its address.
    pub(crate) fn restart(&mut self) {
        let address = self.served.take().unwrap().address;
        self.served = Some(Served::new(&self.image, 512, address));
    }
}

/// The image. Programs that other tests start have its lock, as all descriptors, from their fork until they are executed.
fn opened(image: &Path) -> FileStore {
    let start = Instant::now();
    loop {
        match FileStore::open(image, false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(start.elapsed() < Duration::from_secs(20), "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Whether all of `programs` are installed; says which is not.
pub(crate) fn are_there(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null());
        command.output().is_err()
    });
    if let Some(missing) = missing {
        eprintln!("skipped: {missing} is not installed");
    }
    missing.is_none()
}

pub(crate) fn output(program: &str, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

/// What `program` says; it succeeds.
pub(crate) fn run(program: &str, words: &[&str]) -> String {
    let output = output(program, words);
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Content of which a part is holes.
pub(crate) fn content(seed: u64) -> Vec<u8> {
    let mut next = seed;
    let mut bytes = vec![0; DISK];
    for (number, piece) in bytes.chunks_mut(64 << 10).enumerate() {
        for byte in piece.iter_mut().filter(|_| number % 3 != 1) {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (next >> 56) as u8;
        }
    }
    bytes
}
