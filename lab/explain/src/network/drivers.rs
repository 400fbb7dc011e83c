//! Reads the statistics of network drivers, as `ethtool -S` shows them.

use std::fs::File;
use std::io;

use nix::sched::{CloneFlags, setns};
use serde::Serialize;

use super::tally::{Counter, Readings, Tally};
use crate::stack::printable;

/// Interfaces of a namespace that are asked for.
const INTERFACES_LIMIT: usize = 64;
/// Parts of the names of counters that are of packets dropped or damaged.
const PARTS: [&str; 3] = ["drop", "discard", "error"];
/// The same, where a word of the name begins with them.
const BEGINNINGS: [&str; 2] = ["miss", "err"];

/// A driver's counter of dropped, missed or damaged packets that rose. Drivers choose the names. They may count a
/// packet in several counters, and in those behind [`Drop`](super::Drop).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverStatistic {
    /// The network namespace.
    pub namespace: String,
    /// The interface.
    pub interface: String,
    /// The driver's name for it.
    pub name: String,
    /// By how much it rose.
    pub count: u64,
}

/// The statistics of one namespace. Each reading asks every driver, some of which ask their hardware, so there are two: the
/// first and the last.
pub(super) struct Drivers {
    /// The namespace. `None`: the caller's.
    there: Option<File>,
    tally: Tally,
    started: bool,
}

impl Drivers {
    pub(super) fn new(there: Option<File>, began_at_0: bool) -> Drivers {
        Drivers {
            there,
            tally: match began_at_0 {
                true => Tally::from_0(),
                false => Tally::default(),
            },
            started: began_at_0,
        }
    }

    /// The first reading, unless all began at 0.
    pub(super) fn begin(&mut self, interfaces: Vec<String>) -> Result<(), String> {
        match std::mem::replace(&mut self.started, true) {
            true => Ok(()),
            false => self.read(interfaces),
        }
    }

    /// A reading. An error is why there is none.
    pub(super) fn read(&mut self, interfaces: Vec<String>) -> Result<(), String> {
        let there = self.there.as_ref();
        // A thread that goes there and ends.
        let read = std::thread::scope(|scope| {
            let reading = scope.spawn(move || {
                if let Some(file) = there {
                    setns(file, CloneFlags::CLONE_NEWNET)?;
                }
                let mut readings = Readings::new();
                for interface in interfaces.into_iter().take(INTERFACES_LIMIT) {
                    readings.extend(of_loss(
                        &interface,
                        zerolane_lane::driver_statistics(&interface)?,
                    ));
                }
                Ok(readings)
            });
            let failed = |_| Err(io::Error::other("the thread failed"));
            reading.join().unwrap_or_else(failed)
        });
        self.tally
            .update(read.map_err(|why: io::Error| why.to_string())?);
        Ok(())
    }

    pub(super) fn statistics(&self, namespace: &str) -> impl Iterator<Item = DriverStatistic> {
        self.tally.rises().filter_map(|(counter, count)| {
            let Counter::Driver(interface, name) = counter else {
                return None;
            };
            Some(DriverStatistic {
                namespace: namespace.into(),
                interface: interface.clone(),
                name: name.clone(),
                count,
            })
        })
    }
}

/// The counters of packets dropped, missed or damaged.
fn of_loss(interface: &str, counters: Vec<(String, u64)>) -> Readings {
    let counters = counters.into_iter().filter(|(name, _)| is_of_loss(name));
    counters
        .map(|(name, number)| {
            let name = printable(name.trim());
            (Counter::Driver(interface.into(), name), number)
        })
        .collect()
}

fn is_of_loss(name: &str) -> bool {
    let name = name.to_lowercase();
    let mut words = name.split(|it: char| !it.is_alphabetic());
    PARTS.iter().any(|it| name.contains(it))
        || words.any(|word| BEGINNINGS.iter().any(|it| word.starts_with(it)))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Of virtio_net, shortened, and names as other drivers have them.
    const NAMES: [(&str, u64); 13] = [
        ("rx_drops", 3),
        ("rx_xdp_packets", 12),
        ("rx_xdp_drops", 0),
        ("rx_kicks", 1194),
        ("tx_tx_timeouts", 0),
        ("rx0_drops", 3),
        ("rx_missed_errors", u64::MAX),
        ("port.rx_dropped", 7),
        ("[1]: rx_discards_phy", 5),
        ("tx_retransmissions", 4),
        ("rx_err", 2),
        ("rx_fault", 0),
        ("peer_ifindex", 2),
    ];

    fn counters(names: &[(&str, u64)]) -> Vec<(String, u64)> {
        let owned = names.iter().map(|&(name, count)| (name.to_owned(), count));
        owned.collect()
    }

    #[test]
    fn of_loss__are_those_with_its_names() {
        let found = of_loss("eth0", counters(&NAMES));
        let found: Vec<_> = found
            .into_iter()
            .map(|(counter, count)| match counter {
                Counter::Driver(interface, name) if interface == "eth0" => (name, count),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            ("[1]: rx_discards_phy", 5),
            ("port.rx_dropped", 7),
            ("rx0_drops", 3),
            ("rx_drops", 3),
            ("rx_err", 2),
            ("rx_missed_errors", u64::MAX),
            ("rx_xdp_drops", 0),
        ];
        assert_eq!(found, expected.map(|it| (it.0.to_owned(), it.1)));
    }

    #[test]
    fn statistics__are_what_rose() {
        let mut drivers = Drivers::new(None, false);
        for drops in [3, 10] {
            let counters = counters(&[("rx_drops", drops), ("rx_errors", 1)]);
            drivers.tally.update(of_loss("eth0", counters));
        }
        let found: Vec<_> = drivers.statistics("here").collect();
        let expected = DriverStatistic {
            namespace: "here".into(),
            interface: "eth0".into(),
            name: "rx_drops".into(),
            count: 7,
        };
        assert_eq!(found, [expected]);
    }
}
