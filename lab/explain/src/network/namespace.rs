//! Reads all counters of one namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;

use super::drivers::{DriverStatistic, Drivers};
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
    drivers: Result<Drivers, String>,
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
        let there = match own {
            true => Ok(None),
            false => File::open(process.join("ns/net")).map(Some),
        };
        let queues = match &there {
            Ok(None) => Queues::here().map_err(|why| why.to_string()),
            Ok(Some(there)) => Queues::there(there).map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        let drivers = there.map(|it| Drivers::new(it, began_at_0));
        Namespace {
            queues: queues.map_err(|why| format!("drops of queueing disciplines in {name}: {why}")),
            drivers: drivers.map_err(|why| format!("statistics of drivers in {name}: {why}")),
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

    /// Reads all counters but those of drivers, which are only read here for the first time. The errors are what could not
    /// be read, and why.
    pub(super) fn read(&mut self, pids: &[u32]) -> Vec<String> {
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
        let queues = queues.map(|it| readings.extend(it));
        self.tally.update(readings);
        self.find_owners(pids);
        let drivers = self.of_drivers(Drivers::begin);
        [queues, drivers]
            .into_iter()
            .filter_map(Result::err)
            .collect()
    }

    /// Reads what drivers count, for the last time. An error is why not.
    pub(super) fn read_drivers(&mut self) -> Result<(), String> {
        self.of_drivers(Drivers::read)
    }

    fn of_drivers(
        &mut self,
        read: impl FnOnce(&mut Drivers, Vec<String>) -> Result<(), String>,
    ) -> Result<(), String> {
        let names = self.tally.counters().filter_map(|it| match it {
            Counter::Interface(name, column::RX_BYTES) => Some(name.clone()),
            _ => None,
        });
        let names = names.collect();
        let drivers = self.drivers.as_mut().map_err(|why| why.clone())?;
        let name = &self.name;
        read(drivers, names).map_err(|why| format!("statistics of drivers in {name}: {why}"))
    }

    /// What drivers counted of packets dropped, missed or damaged.
    pub(super) fn driver_statistics(&self) -> Vec<DriverStatistic> {
        let drivers = self.drivers.iter();
        drivers.flat_map(|it| it.statistics(&self.name)).collect()
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
