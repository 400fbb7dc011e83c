//! Chooses the link for each frame. Pure: no clock, no IO.

use super::LabConfig;
use super::frame::Destination;
use netsim::link::{Arrival, Link, LinkConfig, LinkStats};
use netsim::pair::seed_of_link;
use std::time::Duration;

/// The links of a star, by its ports: those of the first interfaces of all hosts, then those of the second ones, and so on.
/// What is of one index is a network: nothing goes from one to another.
#[derive(Debug)]
pub(super) struct Switch<F> {
    hosts: usize,
    /// The hosts' own interfaces; none if they are infinitely fast.
    interfaces: Vec<Link<Entering<F>>>,
    /// The links towards the hosts.
    links: Vec<Link<F>>,
}

/// A frame on its way from its sender's interface.
#[derive(Clone, Debug)]
struct Entering<F> {
    to: Destination,
    size_bytes: usize,
    frame: F,
}

/// A frame that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Departure<F> {
    pub(super) port: usize,
    pub(super) arrival: Arrival<F>,
}

impl<F: Clone> Switch<F> {
    pub(super) fn new(config: &LabConfig) -> Self {
        let interface = LinkConfig {
            rate_bits_per_s: config.interface_bits_per_s,
            queue_packets: usize::MAX,
            ..LinkConfig::default()
        };
        let limited = config.interface_bits_per_s.is_some();
        let seeds = (0..).map(|index| seed_of_link(config.seed, index));
        let ports = config.hosts * config.interfaces;
        let interfaces = if limited { ports } else { 0 };
        Self {
            hosts: config.hosts,
            interfaces: (0..interfaces).map(|_| Link::new(interface, 0)).collect(),
            links: seeds
                .take(ports)
                .map(|seed| Link::new(config.link, seed))
                .collect(),
        }
    }

    /// What is at port `from` sends a frame at time `at`.
    pub(super) fn send(
        &mut self,
        at: Duration,
        from: usize,
        to: Destination,
        size_bytes: usize,
        frame: F,
    ) {
        let entering = Entering {
            to,
            size_bytes,
            frame,
        };
        match self.interfaces.get_mut(from) {
            Some(interface) => interface.send(at, size_bytes, entering),
            None => self.enter(at, from, entering),
        }
    }

    /// Takes out one frame that is due at `now`, of those the one due first.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<Departure<F>> {
        self.advance(now);
        let dues = self.links.iter().enumerate();
        let (_, port) = dues
            .filter_map(|(port, link)| Some((link.next_delivery()?, port)))
            .min()?;
        let arrival = self.links[port].pop_arrival(now)?;
        Some(Departure { port, arrival })
    }

    /// When there is something to do next.
    pub(super) fn next_event(&self) -> Option<Duration> {
        let departures = self.links.iter().filter_map(Link::next_delivery);
        let entries = self.interfaces.iter().filter_map(Link::next_delivery);
        departures.chain(entries).min()
    }

    /// The shortest time that a frame is in flight: what is sent from now on
    /// is not due before that.
    pub(super) fn shortest_delay(&self) -> Duration {
        let delays = self.links.iter().map(|link| link.config().delay);
        delays.min().unwrap_or_default()
    }

    /// Moves on what has left its sender's interface, in order of time: the
    /// links take no steps back.
    fn advance(&mut self, now: Duration) {
        loop {
            let next = self.interfaces.iter().enumerate();
            let Some((_, from)) = next
                .filter_map(|(from, interface)| Some((interface.next_delivery()?, from)))
                .min()
            else {
                return;
            };
            match self.interfaces[from].pop_arrival(now) {
                Some(left) => self.enter(left.due, from, left.packet),
                None => return,
            }
        }
    }

    fn enter(&mut self, at: Duration, from: usize, entering: Entering<F>) {
        let Entering {
            to,
            size_bytes,
            frame,
        } = entering;
        let network = from / self.hosts;
        match to {
            Destination::Port(port) if port / self.hosts == network => {
                self.links[port].send(at, size_bytes, frame);
            }
            // An address of another network is none that this one knows.
            Destination::Port(_) | Destination::Others => {
                for (port, link) in self.links.iter_mut().enumerate() {
                    if port != from && port / self.hosts == network {
                        link.send(at, size_bytes, frame.clone());
                    }
                }
            }
        }
    }
}

impl<F> Switch<F> {
    pub(super) fn ports(&self) -> usize {
        self.links.len()
    }

    pub(super) fn link(&self, towards: usize) -> &Link<F> {
        &self.links[towards]
    }

    pub(super) fn link_mut(&mut self, towards: usize) -> &mut Link<F> {
        &mut self.links[towards]
    }

    pub(super) fn stats(&self) -> Vec<LinkStats> {
        self.links.iter().map(Link::stats).collect()
    }

    /// Frames on their way, wherever.
    pub(super) fn in_flight(&self) -> usize {
        let entering: usize = self.interfaces.iter().map(Link::in_flight).sum();
        entering + self.links.iter().map(Link::in_flight).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Three hosts, 1 ms for 1000 bytes at each port, 10 ms on the way.
    fn config() -> LabConfig {
        LabConfig {
            hosts: 3,
            link: LinkConfig {
                delay: ms(10),
                rate_bits_per_s: Some(8_000_000),
                queue_packets: 2,
                ..LinkConfig::default()
            },
            ..LabConfig::default()
        }
    }

    fn drain(switch: &mut Switch<&'static str>) -> Vec<(u64, usize, &'static str)> {
        let mut left = Vec::new();
        while let Some(next) = switch.next_event() {
            while let Some(Departure { port, arrival }) = switch.pop_due(next) {
                left.push((arrival.due.as_millis() as u64, port, arrival.packet));
            }
        }
        left
    }

    #[test]
    fn send__senders_share_the_port_of_their_receiver() {
        let mut switch = Switch::new(&config());
        switch.send(ms(0), 1, Destination::Port(0), 1000, "one");
        switch.send(ms(0), 2, Destination::Port(0), 1000, "two");
        switch.send(ms(0), 0, Destination::Port(1), 1000, "back");
        assert_eq!(
            drain(&mut switch),
            [(11, 0, "one"), (11, 1, "back"), (12, 0, "two")]
        );
    }

    #[test]
    fn send__the_port_drops_what_its_queue_does_not_hold() {
        let mut switch = Switch::new(&config());
        for sender in [1, 2, 1, 2, 1] {
            switch.send(ms(0), sender, Destination::Port(0), 1000, "");
        }
        let stats = switch.stats();
        assert_eq!((stats[0].sent, stats[0].queue_dropped), (5, 2));
        assert_eq!(stats[1].sent + stats[2].sent, 0);
        assert_eq!(switch.in_flight(), 3);
    }

    #[test]
    fn send__others_are_all_but_the_sender() {
        let mut switch = Switch::new(&config());
        switch.send(ms(0), 1, Destination::Others, 1000, "all");
        assert_eq!(drain(&mut switch), [(11, 0, "all"), (11, 2, "all")]);
    }

    #[test]
    fn send__nothing_goes_from_one_network_to_another() {
        let mut switch = Switch::new(&LabConfig {
            hosts: 2,
            interfaces: 2,
            ..config()
        });
        // Ports 0 and 1 are the first interfaces, 2 and 3 the second ones.
        switch.send(ms(0), 2, Destination::Port(3), 1000, "own");
        switch.send(ms(0), 2, Destination::Others, 1000, "all");
        switch.send(ms(2), 2, Destination::Port(1), 1000, "foreign");
        assert_eq!(
            drain(&mut switch),
            [(11, 3, "own"), (12, 3, "all"), (13, 3, "foreign")]
        );
    }

    #[test]
    fn send__what_an_interface_holds_back_is_not_dropped() {
        let mut switch = Switch::new(&LabConfig {
            interface_bits_per_s: Some(8_000_000),
            ..config()
        });
        for _ in 0..5 {
            switch.send(ms(0), 1, Destination::Port(0), 1000, "");
        }
        let left = drain(&mut switch);
        let times: Vec<u64> = left.iter().map(|(at, _, _)| *at).collect();
        assert_eq!(times, [12, 13, 14, 15, 16]);
        assert_eq!(switch.stats()[0].queue_dropped, 0);
    }

    #[test]
    fn pop_due__interfaces_feed_a_port_in_order_of_time() {
        let mut switch = Switch::new(&LabConfig {
            interface_bits_per_s: Some(8_000_000),
            ..config()
        });
        switch.send(ms(3), 1, Destination::Port(0), 1000, "later");
        switch.send(ms(0), 2, Destination::Port(0), 1000, "sooner");
        // Both had left their interfaces long before the switch looked.
        let first = switch.pop_due(ms(100)).expect("due");
        assert_eq!(first.arrival.packet, "sooner");
        assert_eq!(first.arrival.due, ms(12));
        let second = switch.pop_due(ms(100)).expect("due");
        assert_eq!(second.arrival.due, ms(15));
    }

    #[test]
    fn new__links_have_their_own_luck() {
        use netsim::link::Loss;
        let mut switch = Switch::new(&LabConfig {
            link: LinkConfig {
                loss: Loss::Random(0.5),
                ..LinkConfig::default()
            },
            ..config()
        });
        let mut arrived = vec![Vec::new(); 3];
        for number in 0..64 {
            switch.send(ms(0), 0, Destination::Others, 1, number);
            switch.send(ms(0), 1, Destination::Port(0), 1, number);
        }
        while let Some(left) = switch.pop_due(ms(0)) {
            arrived[left.port].push(left.arrival.packet);
        }
        assert_ne!(arrived[0], arrived[1]);
        assert_ne!(arrived[1], arrived[2]);
    }
}
