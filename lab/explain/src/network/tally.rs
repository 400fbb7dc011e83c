//! Computes how far each counter rose between two readings.

use std::collections::BTreeMap;

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    /// A line and column of `snmp`, `netstat` or `snmp6`, written together: `UdpRcvbufErrors`.
    Mib(String),
    /// A column of `dev`, by the interface.
    Interface(String, usize),
    /// Drops of a queueing discipline at the root of an interface: interface, kind.
    Queue(String, String),
    /// A statistic of an interface's driver: interface, name.
    Driver(String, String),
    /// Drops of a UDP socket: protocol, port, inode.
    Socket(&'static str, u16, u64),
    /// Packets that the backlog of that CPU had no room for.
    Backlog(usize),
}

impl Counter {
    pub(super) fn mib(name: &str) -> Counter {
        Counter::Mib(name.into())
    }
}

pub(super) type Readings = BTreeMap<Counter, u64>;

/// The first and last reading of each counter. One that appears later began at 0; one that is gone keeps its
/// last reading.
#[derive(Debug, Default)]
pub(super) struct Tally {
    first: Option<Readings>,
    last: Readings,
}

impl Tally {
    /// All counters began at 0.
    pub(super) fn from_0() -> Tally {
        Tally {
            first: Some(Readings::new()),
            last: Readings::new(),
        }
    }

    pub(super) fn update(&mut self, readings: Readings) {
        self.first.get_or_insert_with(|| readings.clone());
        self.last.extend(readings);
    }

    /// What was read so far.
    pub(super) fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.last.keys()
    }

    /// By how much `counter` rose.
    pub(super) fn rise(&self, counter: &Counter) -> u64 {
        let before = self
            .first
            .as_ref()
            .and_then(|it| it.get(counter))
            .unwrap_or(&0);
        self.last
            .get(counter)
            .map_or(0, |now| now.saturating_sub(*before))
    }

    /// The counters that rose, and by how much.
    pub(super) fn rises(&self) -> impl Iterator<Item = (&Counter, u64)> {
        let all = self.last.keys().map(|it| (it, self.rise(it)));
        all.filter(|it| it.1 > 0)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn rise__of_counters_that_come_and_go() {
        let [old, new] = [Counter::mib("old"), Counter::mib("new")];
        let mut tally = Tally::default();
        tally.update([(old.clone(), 5)].into());
        tally.update([(old.clone(), 7), (new.clone(), 3)].into());
        tally.update([(new.clone(), 4)].into());
        assert_eq!((tally.rise(&old), tally.rise(&new)), (2, 4));
        assert_eq!(tally.rises().count(), 2);
        let mut fresh = Tally::from_0();
        fresh.update([(old.clone(), 5)].into());
        assert_eq!(fresh.rise(&old), 5);
        fresh.update([(old.clone(), 0)].into());
        assert_eq!(fresh.rise(&old), 0);
    }
}
