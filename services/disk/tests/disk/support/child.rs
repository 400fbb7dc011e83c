//! Runs a target in a child process that a test can kill. The child is this test program, started for one test that serves.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zerolane::Options;
use zerolane_block::store::{FileStore, Run, Store};
use zerolane_disk::initiator::{self, Queue};
use zerolane_disk::target::{Server, Settings};

use super::Shown;

/// In the environment of the child: image, address, kind of store.
const IMAGE: &str = "ZEROLANE_TEST_IMAGE";
const LISTEN: &str = "ZEROLANE_TEST_LISTEN";
const STORE: &str = "ZEROLANE_TEST_STORE";
/// What the child says first.
const READY: &str = "listening on ";

/// What the child's disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file: the kernel has what was written.
    File,
    /// A file with a cache in the process, which is lost with it.
    Cached,
}

/// Any port of an address at which no other test listens: none takes the port of a target that is killed before the next one
/// has it.
pub fn anywhere() -> SocketAddr {
    "127.0.0.2:0".parse().unwrap()
}

/// A queue to such a target, which may be killed meanwhile: a queue tries its first connection once.
pub fn queue_to(address: SocketAddr) -> Queue {
    // What is killed is missed soon. By UDP, which a queue has that connects while its target starts, nothing tells it.
    let options = super::brief();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let dial = super::dial(address, options.clone());
        match Queue::open(dial, super::lun(0), initiator::Options::default()) {
            Ok(queue) => return queue,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The test that serves. Does nothing unless it was started to.
pub fn serve() {
    let Ok(image) = std::env::var(IMAGE) else {
        return;
    };
    let listen: SocketAddr = std::env::var(LISTEN).unwrap().parse().unwrap();
    let store: Arc<dyn Store> = match std::env::var(STORE).unwrap().as_str() {
        "File" => Arc::new(FileStore::open(Path::new(&image), false).unwrap()),
        _ => Arc::new(Cached::open(Path::new(&image)).unwrap()),
    };
    let mut server = Server::new(Settings::default()).unwrap();
    let read_only = false;
    super::add(&mut server, vec![Shown { store, read_only }]);
    let endpoint = server.listen(listen, Options::default()).unwrap();
    let (address, _) = server.endpoint(endpoint).unwrap();
    println!("\n{READY}{address}");
    server.serve(|| false, drop).unwrap();
}

/// A running child. Dropped, it is killed.
pub struct Target {
    child: Child,
    pub address: SocketAddr,
    _said: BufReader<ChildStdout>,
}

impl Target {
    /// Serves `image` at `listen`; `test` is the name of the test that serves.
    pub fn start(test: &str, image: &Path, listen: SocketAddr, kind: Kind) -> Target {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(IMAGE, image)
            .env(LISTEN, listen.to_string())
            .env(STORE, format!("{kind:?}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "the target ended");
            if let Some(address) = line.trim().strip_prefix(READY) {
                break address.parse().unwrap();
            }
        };
        Target {
            child,
            address,
            _said: said,
        }
    }

    /// As by kill -9.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A disk with a write-back cache of its own: what was not flushed is gone with the process.
#[derive(Debug)]
struct Cached {
    file: File,
    bytes: u64,
    blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
}

const BLOCK: u64 = super::BLOCK;

impl Cached {
    fn open(path: &Path) -> io::Result<Cached> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Cached {
            file,
            bytes,
            blocks: Mutex::default(),
        })
    }
}

impl Store for Cached {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.read_exact_at(into, at)?;
        for (number, block) in into.chunks_mut(BLOCK as usize).enumerate() {
            if let Some(cached) = blocks.get(&(at + number as u64 * BLOCK)) {
                block.copy_from_slice(cached);
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, block) in from.chunks(BLOCK as usize).enumerate() {
            blocks.insert(at + number as u64 * BLOCK, block.to_vec());
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, block) in std::mem::take(&mut *blocks) {
            self.file.write_all_at(&block, at)?;
        }
        Ok(())
    }

    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.write(at, &vec![0; bytes as usize])?;
        Ok(true)
    }

    fn run(&self, at: u64) -> io::Result<Run> {
        let bytes = self.bytes - at;
        Ok(Run {
            mapped: true,
            bytes,
        })
    }
}
