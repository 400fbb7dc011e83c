//! All counters of one namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;

use super::proc::{self, column};
use super::queues::Queues;
use super::tally::{Counter, Readings, Tally};
use super::{Interface, Socket};
use crate::stack::printable;

/// A file of `/proc/PID/net`, and what its text says.
type Source = (&'static str, Parse);
type Parse = fn(&str) -> Readings;

/// The files that are read.
const SOURCES: [Source; 6] = [
    ("dev", proc::interfaces),
    ("snmp", proc::mibs),
    ("netstat", proc::mibs),
    ("snmp6", proc::mibs6),
    ("udp", |text| proc::sockets("udp", text)),
    ("udp6", |text| proc::sockets("udp6", text)),
];

/// A network namespace. Its open files keep it, so that what was counted can be read after the last process in it
/// has ended.
pub(super) struct Namespace {
    name: String,
    files: Vec<(File, Parse)>,
    queues: Result<Queues, String>,
    tally: Tally,
    /// Who has a socket that lost datagrams, by inode.
    owners: BTreeMap<u64, String>,
}

impl Namespace {
    /// Of the process at `process`; `own`: which is the calling thread's.
    pub(super) fn open(process: &Path, name: String, own: bool, began_at_0: bool) -> Namespace {
        let open = |(file, parse): Source| {
            // Without IPv6 some are not there.
            let file = File::open(process.join("net").join(file)).ok()?;
            Some((file, parse))
        };
        let queues = match own {
            true => Queues::here(),
            false => File::open(process.join("ns/net")).and_then(|it| Queues::there(&it)),
        };
        Namespace {
            queues: queues.map_err(|why| format!("drops of queueing disciplines in {name}: {why}")),
            files: SOURCES.into_iter().filter_map(open).collect(),
            tally: if began_at_0 {
                Tally::from_0()
            } else {
                Tally::default()
            },
            owners: BTreeMap::new(),
            name,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Reads all counters. An error is what could not be read, and why.
    pub(super) fn read(&mut self, pids: &[u32]) -> Result<(), String> {
        let mut readings = Readings::new();
        for (file, parse) in &mut self.files {
            let mut text = String::new();
            if file
                .rewind()
                .and_then(|()| file.read_to_string(&mut text))
                .is_ok()
            {
                readings.extend(parse(&text));
            }
        }
        let queues = self.queues.as_mut().map_err(|why| why.clone());
        let queues = queues.and_then(|it| {
            it.read()
                .map_err(|why| format!("queueing disciplines: {why}"))
        });
        let failed = queues.map(|it| readings.extend(it));
        self.tally.update(readings);
        self.find_owners(pids);
        failed
    }

    /// Among `pids`, while they live.
    fn find_owners(&mut self, pids: &[u32]) {
        let losing: BTreeSet<u64> = self.lossy_sockets().map(|it| it.2).collect();
        if losing.iter().all(|it| self.owners.contains_key(it)) {
            return;
        }
        for pid in pids {
            for inode in sockets_of(*pid).intersection(&losing) {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                self.owners
                    .entry(*inode)
                    .or_insert_with(|| format!("{pid} {}", printable(name.trim_end())));
            }
        }
    }

    /// Protocol, port, inode and drops.
    fn lossy_sockets(&self) -> impl Iterator<Item = (&'static str, u16, u64, u64)> {
        self.tally
            .rises()
            .filter_map(|(counter, rise)| match counter {
                Counter::Socket(protocol, port, inode) => Some((*protocol, *port, *inode, rise)),
                _ => None,
            })
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = Socket> {
        self.lossy_sockets()
            .map(|(protocol, port, inode, drops)| Socket {
                namespace: self.name.clone(),
                protocol,
                port,
                drops,
                owner: self.owners.get(&inode).cloned(),
            })
    }

    /// Those that carried something.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        let mut found = BTreeMap::<&str, Interface>::new();
        for (counter, rise) in self.tally.rises() {
            let Counter::Interface(name, at) = counter else {
                continue;
            };
            let interface = found.entry(name).or_insert_with(|| Interface {
                namespace: self.name.clone(),
                name: name.clone(),
                ..Interface::default()
            });
            match *at {
                column::RX_BYTES => interface.rx_bytes = rise,
                column::RX_PACKETS => interface.rx_packets = rise,
                column::TX_BYTES => interface.tx_bytes = rise,
                column::TX_PACKETS => interface.tx_packets = rise,
                _ => {}
            }
        }
        found.into_values().collect()
    }
}

/// The inodes of a process's sockets.
fn sockets_of(pid: u32) -> BTreeSet<u64> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let targets = files.filter_map(|it| fs::read_link(it.path()).ok());
    let inode = |target: std::path::PathBuf| {
        let inode = target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?;
        inode.parse().ok()
    };
    targets.filter_map(inode).collect()
}
