//! Decides which packets go to which peer, and which of a peer's packets the host gets. Does no IO.

use crate::limits::{MAX_PEERS, MAX_PREFIXES};
use crate::packet::{self, Packet};
use crate::queue::{Queue, QueueDrops};
use crate::routes::{Prefix, Routes};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Packets of one peer, and bytes of them, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerCounters {
    /// Bytes of packets handed to the connection.
    pub sent_bytes: u64,
    /// Packets handed to the connection.
    pub sent: u64,
    /// Bytes of packets handed to the host.
    pub received_bytes: u64,
    /// Packets handed to the host.
    pub received: u64,
    /// Packets for the peer dropped because its queue was full, or because it was not connected.
    pub dropped_full: u64,
    /// Packets for the peer dropped because its queue stood (CoDel).
    pub dropped_codel: u64,
    /// Packets of the peer whose source is not among its AllowedIPs.
    pub dropped_source: u64,
    /// Packets of the peer with a broken header, of either kind.
    pub dropped_malformed: u64,
}

/// Packets of the host that went to no peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounters {
    /// No peer has their destination among its AllowedIPs.
    pub dropped_no_peer: u64,
    /// Their headers were broken.
    pub dropped_malformed: u64,
}

#[derive(Debug, Default)]
struct Peer {
    queue: Queue,
    counters: PeerCounters,
}

/// The peers, their networks and their queues. Peers are named by their index. Packets have a virtio header in front.
#[derive(Debug)]
pub struct Engine {
    peers: Vec<Peer>,
    routes: Routes,
    host: HostCounters,
    mtu: u32,
}

impl Engine {
    /// An engine for peers with these networks; a network that several have is the last one's. TCP connections are
    /// told to send segments that fit `mtu`.
    ///
    /// # Panics
    /// There are more than [`MAX_PEERS`], or more than [`MAX_PREFIXES`].
    pub fn new(networks: &[Vec<Prefix>], mtu: u32) -> Engine {
        let all: usize = networks.iter().map(Vec::len).sum();
        assert!(networks.len() <= MAX_PEERS && all <= MAX_PREFIXES);
        let mut routes = Routes::default();
        for (peer, networks) in networks.iter().enumerate() {
            for &network in networks {
                routes.add(network, peer);
            }
        }
        Engine {
            peers: networks.iter().map(|_| Peer::default()).collect(),
            routes,
            host: HostCounters::default(),
            mtu,
        }
    }

    /// Queues a packet of the host for its peer. Returns the peer.
    pub fn from_host(&mut self, now: Duration, mut frame: Vec<u8>) -> Option<usize> {
        let Ok(packet) = Packet::parse(&frame) else {
            self.host.dropped_malformed += 1;
            return None;
        };
        let Some(index) = self.routes.find(packet.destination) else {
            self.host.dropped_no_peer += 1;
            return None;
        };
        packet::clamp_segments(&mut frame, &packet, self.mtu);
        let peer = self.peers.get_mut(index)?;
        peer.queue.push(now, frame);
        Some(index)
    }

    /// The next packet for `peer`.
    pub fn next(&mut self, now: Duration, peer: usize) -> Option<Vec<u8>> {
        let it = self.peers.get_mut(peer)?;
        let frame = it.queue.pop(now)?;
        it.counters.sent += 1;
        it.counters.sent_bytes += (frame.len() - packet::VNET_HEADER_LEN) as u64;
        Some(frame)
    }

    /// Whether a packet for `peer` waits.
    pub fn has_next(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|it| !it.queue.is_empty())
    }

    /// Drops the packets that wait for `peer`, which is not connected.
    pub fn clear(&mut self, peer: usize) {
        if let Some(it) = self.peers.get_mut(peer) {
            it.queue.clear();
        }
    }

    /// Checks a packet of `peer`. True if the host may have it.
    pub fn from_peer(&mut self, peer: usize, frame: &mut [u8]) -> bool {
        let Some(it) = self.peers.get_mut(peer) else {
            return false;
        };
        let Ok(packet) = Packet::parse(frame) else {
            it.counters.dropped_malformed += 1;
            return false;
        };
        if self.routes.find(packet.source) != Some(peer) {
            it.counters.dropped_source += 1;
            return false;
        }
        packet::clamp_segments(frame, &packet, self.mtu);
        it.counters.received += 1;
        it.counters.received_bytes += (frame.len() - packet::VNET_HEADER_LEN) as u64;
        true
    }

    /// The counters of `peer`.
    pub fn counters(&self, peer: usize) -> PeerCounters {
        let Some(it) = self.peers.get(peer) else {
            return PeerCounters::default();
        };
        let QueueDrops { full, codel } = it.queue.drops;
        PeerCounters {
            dropped_full: full,
            dropped_codel: codel,
            ..it.counters
        }
    }

    /// The counters of what went to no peer.
    pub fn host_counters(&self) -> HostCounters {
        self.host
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn frame(source: [u8; 4], destination: [u8; 4], len: usize) -> Vec<u8> {
        let mut it = vec![0; packet::VNET_HEADER_LEN + 20 + len];
        let at = packet::VNET_HEADER_LEN;
        it[at] = 0x45;
        it[at + 2..at + 4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
        it[at + 9] = 1;
        it[at + 12..at + 16].copy_from_slice(&source);
        it[at + 16..at + 20].copy_from_slice(&destination);
        it
    }

    fn engine() -> Engine {
        let network = |address: [u8; 4], len| Prefix {
            address: address.into(),
            len,
        };
        Engine::new(
            &[
                vec![network([10, 0, 0, 2], 32), network([192, 168, 0, 0], 16)],
                vec![network([10, 0, 0, 3], 32), network([0, 0, 0, 0], 0)],
            ],
            1420,
        )
    }

    const NOW: Duration = Duration::ZERO;
    const ME: [u8; 4] = [10, 0, 0, 1];

    #[test]
    fn from_host__goes_to_the_peer_with_the_longest_prefix() {
        let mut engine = engine();
        for (destination, peer) in [([10, 0, 0, 2], 0), ([192, 168, 5, 5], 0), ([8, 8, 8, 8], 1)] {
            let it = frame(ME, destination, 30);
            assert_eq!(engine.from_host(NOW, it.clone()), Some(peer));
            assert_eq!(engine.next(NOW, peer), Some(it));
        }
        assert!(!engine.has_next(0) && !engine.has_next(1));
    }

    #[test]
    fn from_peer__a_source_of_another_is_refused() {
        let mut engine = engine();
        assert!(engine.from_peer(0, &mut frame([10, 0, 0, 2], ME, 10)));
        assert!(!engine.from_peer(0, &mut frame([10, 0, 0, 3], ME, 10)));
        assert!(!engine.from_peer(1, &mut frame([192, 168, 1, 1], ME, 10)));
        assert!(engine.from_peer(1, &mut frame([9, 9, 9, 9], ME, 10)));
        assert_eq!(engine.counters(0).dropped_source, 1);
        assert_eq!(engine.counters(1).dropped_source, 1);
        assert!(!engine.from_peer(0, &mut [0; 40]));
        assert_eq!(engine.counters(0).dropped_malformed, 1);
        assert!(!engine.from_peer(7, &mut frame(ME, ME, 1)));
    }

    #[test]
    fn from_host__what_no_peer_has() {
        let mut engine = Engine::new(&[vec![]], 1420);
        assert_eq!(engine.from_host(NOW, frame(ME, ME, 9)), None);
        assert_eq!(engine.from_host(NOW, vec![1; 30]), None);
        let host = engine.host_counters();
        assert_eq!((host.dropped_no_peer, host.dropped_malformed), (1, 1));
    }
}
