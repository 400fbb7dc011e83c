//! Runs a group of hosts in threads, for tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use zerolane::{Connection, Security};

use crate::drive::Drive;
use crate::invitation::parse;
use crate::{Cast, Content, Destination, Error, Host, Outcome, Progress, Received, Receiver};

/// A directory for all files of a test.
pub(super) struct Group {
    directory: tempfile::TempDir,
}

/// Hosts that wait or receive.
pub(super) struct Hosts {
    pub(super) addresses: Vec<SocketAddr>,
    running: Vec<JoinHandle<Result<Received, Error>>>,
    stop: Arc<AtomicBool>,
}

/// Bytes without repetition.
pub(super) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// Casts, to be over some time.
pub(super) fn run(
    _: &Group,
    cast: Cast,
    content: &Content,
    mut watch: impl FnMut(&Progress<'_>),
) -> Result<Outcome, Error> {
    let started = std::time::Instant::now();
    cast.run(
        content,
        &|| started.elapsed() > Duration::from_secs(120),
        &mut watch,
    )
}

pub(super) fn all_have_it(outcome: &Outcome) {
    let all = outcome.hosts.iter().all(|it| it.result.is_ok());
    assert!(all, "{outcome:?}");
}

/// Casts to these hosts, which all have it then.
pub(super) fn reach_all(group: &Group, cast: Cast, hosts: Hosts, content: &Content) {
    all_have_it(&run(group, cast, content, |_| {}).unwrap());
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
}

impl Group {
    pub(super) fn new() -> Group {
        Group {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn file(&self, name: &str, bytes: &[u8]) -> Content {
        std::fs::write(self.path(name), bytes).unwrap();
        Content::open(&self.path(name), &|| false).unwrap()
    }

    pub(super) fn target(&self, index: usize) -> PathBuf {
        self.path(&format!("target-{index}"))
    }

    pub(super) fn to(&self, index: usize) -> Destination {
        Destination::Path {
            path: self.target(index),
            force: false,
        }
    }

    pub(super) fn start(&self, count: usize) -> Hosts {
        self.start_at((0..count).map(|it| self.to(it)).collect())
    }

    pub(super) fn start_at(&self, destinations: Vec<Destination>) -> Hosts {
        self.start_as(destinations, |_, _| {})
    }

    /// `change` changes what drives the host of each index.
    pub(super) fn start_as(
        &self,
        destinations: Vec<Destination>,
        change: impl Fn(usize, &mut Drive) + Copy + Send + 'static,
    ) -> Hosts {
        self.start_with(|it| it, destinations, change)
    }

    /// The same of hosts with these options.
    pub(super) fn start_with(
        &self,
        options: impl Fn(Receiver) -> Receiver,
        destinations: Vec<Destination>,
        change: impl Fn(usize, &mut Drive) + Copy + Send + 'static,
    ) -> Hosts {
        let stop = Arc::new(AtomicBool::new(false));
        let mut hosts = Hosts {
            addresses: Vec::new(),
            running: Vec::new(),
            stop,
        };
        for (index, destination) in destinations.into_iter().enumerate() {
            let receiver = receiver("127.0.0.1:0".parse().unwrap(), destination);
            let receiver = options(receiver);
            hosts.addresses.push(receiver.local_addr());
            let stop = Arc::clone(&hosts.stop);
            hosts.running.push(std::thread::spawn(move || {
                receiver.run_as(&|| stop.load(Ordering::Relaxed), &mut |_| {}, &mut |it| {
                    change(index, it)
                })
            }));
        }
        hosts
    }

    pub(super) fn has_hidden_files(&self) -> bool {
        let names = std::fs::read_dir(self.directory.path()).unwrap();
        names
            .into_iter()
            .any(|it| it.unwrap().file_name().to_string_lossy().starts_with('.'))
    }
}

/// A word as it is sent.
pub(super) fn word(word: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_extend(word, b"ZLi\x05".to_vec()).unwrap()
}

/// The next word of the other end.
pub(super) fn hear<T: for<'a> serde::Deserialize<'a>>(connection: &mut Connection) -> T {
    let mut buffer = vec![0; crate::limits::WORD_BYTES];
    let len = connection.recv_into(&mut buffer).unwrap();
    parse(&buffer[..len]).unwrap()
}

pub(super) fn receiver(at: SocketAddr, destination: Destination) -> Receiver {
    Receiver::bind(at, Security::default(), destination).unwrap()
}

pub(super) fn host(address: SocketAddr) -> Host {
    Host {
        name: address.to_string(),
        addresses: Ok(vec![address]),
        security: Security::default(),
    }
}

impl Hosts {
    /// A cast to all of them.
    pub(super) fn calls(&self) -> Cast {
        Cast {
            hosts: self.addresses.iter().copied().map(host).collect(),
            ..Cast::default()
        }
    }

    pub(super) fn join(self) -> Vec<Result<Received, Error>> {
        self.running
            .into_iter()
            .map(|it| it.join().unwrap())
            .collect()
    }

    /// Ends those that wait still.
    pub(super) fn stop(self) -> Vec<Result<Received, Error>> {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }
}
