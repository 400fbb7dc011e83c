//! Holds all flows and hosts, up to a limit on memory.

use crate::flow::{Counts, Flow, Host};
use crate::fragments::{Datagram, DatagramKey, Fragmented};
use crate::packet::{FlowKey, Packet, Piece};
use std::collections::HashMap;
use std::net::IpAddr;

/// Share of the flows that are folded at once when there are too many: one in so many.
const FOLDED_AT_ONCE: usize = 8;

/// The flows that are followed, and what became of others.
#[derive(Debug)]
pub(crate) struct Table {
    max_flows: usize,
    pause: u64,
    packets: u64,
    flows: HashMap<FlowKey, Flow>,
    hosts: HashMap<IpAddr, Host>,
    fragmented: Fragmented,
    /// Fragments whose datagram's first fragment was not seen before them.
    pub(crate) lone_fragments: u64,
    /// Flows folded, and what they had.
    pub(crate) folded: (u64, Counts),
    /// Hosts that were forgotten with the last of their flows.
    pub(crate) hosts_folded: u64,
}

impl Table {
    /// Follows `max_flows` flows at a time; `pause`: silence that ends a poll, nanoseconds.
    pub(crate) fn new(max_flows: usize, pause: u64) -> Table {
        Table {
            max_flows: max_flows.max(1),
            pause,
            packets: 0,
            flows: HashMap::new(),
            hosts: HashMap::new(),
            fragmented: Fragmented::default(),
            lone_fragments: 0,
            folded: (0, Counts::default()),
            hosts_folded: 0,
        }
    }

    /// Takes the next packet.
    pub(crate) fn take(&mut self, mut packet: Packet) {
        self.packets += 1;
        let Some(fragment) = packet.fragment else {
            self.take_at(&packet, None);
            return;
        };
        let key = DatagramKey::of(&packet.key, fragment.id);
        if fragment.piece == Piece::First {
            let position = self.take_at(&packet, None);
            let datagram = Datagram {
                flow: packet.key,
                position,
                transport: packet.transport,
            };
            self.fragmented.begin(key, datagram);
            return;
        }
        let Some(datagram) = self.fragmented.get(&key) else {
            self.lone_fragments += 1;
            self.take_at(&packet, None);
            return;
        };
        packet.key = datagram.flow;
        let ahead = fragment.offset.saturating_sub(datagram.transport);
        self.take_at(&packet, Some(datagram.position + u64::from(ahead)));
    }

    /// Where the packet belongs in its stream.
    fn take_at(&mut self, packet: &Packet, at: Option<u64>) -> u64 {
        if self.flows.len() >= self.max_flows && !self.flows.contains_key(&packet.key) {
            self.fold();
        }
        let host = self.hosts.entry(packet.key.destination).or_default();
        let pause = self.pause;
        let flow = self.flows.entry(packet.key);
        let flow = flow.or_insert_with(|| Flow::new(pause));
        flow.last = self.packets;
        flow.take(packet, host, at)
    }

    /// Folds the flows that were silent longest, and forgets the hosts that have no other.
    fn fold(&mut self) {
        let mut lasts: Vec<u64> = self.flows.values().map(|flow| flow.last).collect();
        let many = (self.max_flows / FOLDED_AT_ONCE).max(1);
        let (_, &mut limit, _) = lasts.select_nth_unstable(many - 1);
        let old = self.flows.extract_if(|_, flow| flow.last <= limit);
        for (key, flow) in old {
            let counts = flow.finish();
            self.folded.0 += 1;
            self.folded.1.add(&counts);
            if let Some(host) = self.hosts.get_mut(&key.destination) {
                host.rules.add(&counts.rules);
            }
        }
        let receiving: std::collections::HashSet<IpAddr> =
            self.flows.keys().map(|key| key.destination).collect();
        let before = self.hosts.len();
        self.hosts.retain(|address, _| receiving.contains(address));
        self.hosts_folded += (before - self.hosts.len()) as u64;
    }

    /// All flows, in no order.
    pub(crate) fn finish_flows(&mut self) -> Vec<(FlowKey, Counts)> {
        let flows = self.flows.drain();
        let flows: Vec<_> = flows.map(|(key, flow)| (key, flow.finish())).collect();
        for (key, counts) in &flows {
            if let Some(host) = self.hosts.get_mut(&key.destination) {
                host.rules.add(&counts.rules);
            }
        }
        flows
    }

    /// All hosts, in no order, once their flows are finished.
    pub(crate) fn take_hosts(&mut self) -> impl Iterator<Item = (IpAddr, Host)> + '_ {
        self.hosts.drain()
    }
}
