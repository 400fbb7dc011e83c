//! Counts packets in every network namespace of the observed processes.
//!
//! | module | what it does |
//! |---|---|
//! | `tally` | counters, and by how much they rose |
//! | `proc` | the files of `/proc/PID/net` |
//! | `queues` | drops of queueing disciplines, by netlink |
//! | `drivers` | statistics of drivers |
//! | `namespace` | all counters of one namespace |
//! | `places` | which counter means a drop where |

mod drivers;
mod namespace;
mod places;
mod proc;
mod queues;
mod tally;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use namespace::Namespace;
use tally::{Counter, Tally};

pub use drivers::DriverStatistic;
pub use places::Drop;

/// Namespaces that are watched at a time. Those of further processes are not.
const NAMESPACES_LIMIT: usize = 64;
/// Where `ip netns` names namespaces.
const NAMED: &str = "/run/netns";

/// The traffic of an interface while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The network namespace: its name, `this` for that of the caller, or its number.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// Bytes received, headers included.
    pub rx_bytes: u64,
    /// Packets received. A packet that the interface or the kernel segments or merges counts once.
    pub rx_packets: u64,
    /// Bytes sent, headers included.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
}

/// A UDP socket that lost datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// The network namespace.
    pub namespace: String,
    /// `udp` or `udp6`.
    pub protocol: &'static str,
    /// Its port.
    pub port: u16,
    /// Datagrams dropped for lack of room, or for a wrong checksum.
    pub drops: u64,
    /// Number and name of the process that owns it. `None` if it was not found in time.
    pub owner: Option<String>,
}

/// All that was counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) drops: Vec<Drop>,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) drivers: Vec<DriverStatistic>,
    /// Bytes that were carried: the largest of what interfaces received and sent, and of what IP did.
    pub(crate) bytes: u64,
    /// What could not be counted, and why.
    pub(crate) missing: BTreeSet<String>,
}

/// Watches the caller's namespace and those of the processes it is told of.
pub(crate) struct Network {
    /// By inode.
    watched: HashMap<u64, Namespace>,
    own: u64,
    /// The namespaces that were there at the start. Counters of later ones began at 0.
    before: BTreeSet<u64>,
    /// Of the machine: the backlogs of its CPUs.
    backlog: Tally,
    missing: BTreeSet<String>,
}

impl Network {
    /// Begins with the calling thread's namespace.
    pub(crate) fn start() -> Network {
        let own_path = Path::new("/proc/thread-self");
        let own = namespace_of(own_path).unwrap_or(0);
        let mut network = Network {
            watched: HashMap::new(),
            own,
            before: present(),
            backlog: Tally::default(),
            missing: BTreeSet::new(),
        };
        network.before.insert(own);
        network.watch(own_path);
        network.poll(&[]);
        network
    }

    /// Reads all counters, also of the namespaces of `pids`. What is gone at the end was read here last.
    pub(crate) fn poll(&mut self, pids: &[u32]) {
        for pid in pids {
            self.watch(Path::new(&format!("/proc/{pid}")));
        }
        for namespace in self.watched.values_mut() {
            self.missing.extend(namespace.read(pids));
        }
        let backlog = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        self.backlog.update(proc::backlog(&backlog));
    }

    /// Watches the namespace of the process at `process`, a directory of `/proc`.
    fn watch(&mut self, process: &Path) {
        let Some(number) = namespace_of(process) else {
            return;
        };
        if self.watched.contains_key(&number) || self.watched.len() >= NAMESPACES_LIMIT {
            return;
        }
        let name = match number == self.own {
            true => "this".into(),
            false => name_of(number).unwrap_or_else(|| number.to_string()),
        };
        let began_at_0 = !self.before.contains(&number);
        let namespace = Namespace::open(process, name, number == self.own, began_at_0);
        self.watched.insert(number, namespace);
    }

    /// All that rose since the start.
    pub(crate) fn finish(mut self, pids: &[u32]) -> Counted {
        self.poll(pids);
        for namespace in self.watched.values_mut() {
            self.missing.extend(namespace.read_drivers().err());
        }
        let mut namespaces: Vec<_> = self.watched.into_values().collect();
        namespaces.sort_by(|a, b| a.name().cmp(b.name()));
        let mut counted = Counted {
            missing: self.missing,
            ..Counted::default()
        };
        let mut ip = [0, 0];
        for namespace in &namespaces {
            counted.interfaces.extend(namespace.interfaces());
            counted.sockets.extend(namespace.sockets());
            counted.drivers.extend(namespace.driver_statistics());
            counted
                .drops
                .extend(places::drops(namespace.name(), namespace.tally()));
            ip[0] += namespace.tally().rise(&Counter::mib("IpExtInOctets"));
            ip[0] += namespace.tally().rise(&Counter::mib("Ip6InOctets"));
            ip[1] += namespace.tally().rise(&Counter::mib("IpExtOutOctets"));
            ip[1] += namespace.tally().rise(&Counter::mib("Ip6OutOctets"));
        }
        counted
            .drops
            .extend(places::drops("machine", &self.backlog));
        let sum = |of: fn(&Interface) -> u64| counted.interfaces.iter().map(of).sum::<u64>();
        let carried = [sum(|it| it.rx_bytes), sum(|it| it.tx_bytes), ip[0], ip[1]];
        counted.bytes = carried.into_iter().max().unwrap_or(0);
        counted
    }
}

/// The inode of the network namespace of the process at `process`.
fn namespace_of(process: &Path) -> Option<u64> {
    Some(fs::metadata(process.join("ns/net")).ok()?.ino())
}

fn named() -> impl Iterator<Item = PathBuf> {
    let names = fs::read_dir(NAMED).into_iter().flatten().flatten();
    names.map(|it| it.path())
}

fn name_of(number: u64) -> Option<String> {
    let mut paths = named();
    let found = paths.find(|it| fs::metadata(it).is_ok_and(|it| it.ino() == number))?;
    Some(found.file_name()?.to_string_lossy().into_owned())
}

/// The namespaces of all processes, and all that have a name.
fn present() -> BTreeSet<u64> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_processes = processes.filter_map(|it| namespace_of(&it.path()));
    let of_names = named().filter_map(|it| Some(fs::metadata(it).ok()?.ino()));
    of_processes.chain(of_names).collect()
}
