//! Decides which packets go to which peer, and which of a peer's packets the host gets. Does no IO.

use crate::cut::cut;
use crate::limits::{LENGTH, MAX_PEERS, MAX_PREFIXES, PACKET_HEADERS, SEGMENT_MARGIN};
use crate::packet::{self, Packet};
use crate::path::{Path, PathSeen};
use crate::queue::{Queue, QueueDrops, Together};
use crate::routes::{Prefix, Routes};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use zerolane::tun::TunOffload;

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
    /// Packets for the peer marked for the same reason: they are ECN-capable (RFC 3168).
    pub marked_codel: u64,
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
    path: Path,
    counters: PeerCounters,
}

/// The peers, their networks and their queues. Peers are named by their index. Packets have a virtio header in front.
#[derive(Debug)]
pub struct Engine {
    peers: Vec<Peer>,
    routes: Routes,
    host: HostCounters,
    /// Longest packet with a segment of TCP.
    longest_segment: u32,
    /// What the host takes uncut.
    offload: TunOffload,
}

impl Engine {
    /// An engine for peers with these networks; a network that several have is the last one's. TCP connections are
    /// told to send segments of which one fits a packet outside, if `mtu` leaves as much room for headers as WireGuard does.
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
            longest_segment: mtu.saturating_sub(SEGMENT_MARGIN),
            offload: TunOffload::TcpAndUdp,
        }
    }

    /// Cuts packets of the peers that the host does not take whole. It takes all unless told.
    pub fn set_offload(&mut self, offload: TunOffload) {
        self.offload = offload;
    }

    /// Has datagrams leave with the DSCP of the packets in them, which are then of one DSCP.
    pub fn copy_dscp(&mut self) {
        for it in &mut self.peers {
            it.queue.copies_dscp = true;
        }
    }

    /// Queues a packet of the host for its peer. Returns the peer.
    pub fn from_host(&mut self, now: Duration, frame: &mut [u8]) -> Option<usize> {
        let Ok(packet) = Packet::parse(frame) else {
            self.host.dropped_malformed += 1;
            return None;
        };
        let Some(index) = self.routes.find(packet.destination) else {
            self.host.dropped_no_peer += 1;
            return None;
        };
        packet::clamp_segments(frame, &packet, self.longest_segment);
        let peer = self.peers.get_mut(index)?;
        peer.queue.push(now, frame);
        Some(index)
    }

    /// The next datagram for `peer`, and its DSCP: packets that wait, as many as its path takes at once.
    pub fn next(&mut self, now: Duration, peer: usize) -> Option<(Vec<u8>, u8)> {
        let it = self.peers.get_mut(peer)?;
        let Together {
            bytes,
            packets,
            dscp,
        } = it.queue.next(now, it.path.longest())?;
        it.path.on_datagram();
        it.counters.sent += packets;
        let headers = packets as usize * PACKET_HEADERS;
        it.counters.sent_bytes += (bytes.len() - headers) as u64;
        Some((bytes, dscp))
    }

    /// Bytes handed to the connection of `peer` that may wait in it.
    pub fn unsent(&self, peer: usize) -> u64 {
        self.peers.get(peer).map_or(0, |it| it.path.unsent())
    }

    /// Takes what the connection of `peer` tells of its path.
    pub fn note_path(&mut self, now: Duration, peer: usize, seen: PathSeen) {
        if let Some(it) = self.peers.get_mut(peer) {
            it.path.note(now, seen);
        }
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

    /// Hands the packets in a datagram of `peer` that the host may have to `write`.
    pub fn from_peer(&mut self, peer: usize, datagram: &mut [u8], mut write: impl FnMut(&[u8])) {
        let Some(it) = self.peers.get_mut(peer) else {
            return;
        };
        let mut at = 0;
        while at < datagram.len() {
            let length = datagram[at..].first_chunk::<LENGTH>();
            let length = length.map_or(usize::MAX, |it| u16::from_le_bytes(*it).into());
            let begin = at + LENGTH;
            at = begin.saturating_add(length);
            let Some(frame) = datagram.get_mut(begin..at) else {
                it.counters.dropped_malformed += 1;
                return;
            };
            let Ok(packet) = Packet::parse(frame) else {
                it.counters.dropped_malformed += 1;
                continue;
            };
            if self.routes.find(packet.source) != Some(peer) {
                it.counters.dropped_source += 1;
                continue;
            }
            packet::clamp_segments(frame, &packet, self.longest_segment);
            it.counters.received += 1;
            it.counters.received_bytes += (frame.len() - packet::VNET_HEADER_LEN) as u64;
            let pieces = match packet::is_taken(frame, self.offload) {
                true => None,
                false => cut(frame, 0),
            };
            match pieces {
                Some(pieces) => pieces.iter().for_each(|it| write(it)),
                None => write(frame),
            }
        }
    }

    /// The counters of `peer`.
    pub fn counters(&self, peer: usize) -> PeerCounters {
        let Some(it) = self.peers.get(peer) else {
            return PeerCounters::default();
        };
        let QueueDrops {
            full,
            codel,
            marked,
        } = it.queue.drops;
        PeerCounters {
            dropped_full: full,
            dropped_codel: codel,
            marked_codel: marked,
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

    fn datagram(frames: &[&[u8]]) -> Vec<u8> {
        let of = |it: &&[u8]| [&(it.len() as u16).to_le_bytes()[..], it].concat();
        frames.iter().flat_map(of).collect()
    }

    const NOW: Duration = Duration::ZERO;
    const ME: [u8; 4] = [10, 0, 0, 1];

    #[test]
    fn from_host__goes_to_the_peer_with_the_longest_prefix() {
        let mut engine = engine();
        for (destination, peer) in [([10, 0, 0, 2], 0), ([192, 168, 5, 5], 0), ([8, 8, 8, 8], 1)] {
            let mut it = frame(ME, destination, 30);
            assert_eq!(engine.from_host(NOW, &mut it), Some(peer));
            assert_eq!(engine.next(NOW, peer), Some((datagram(&[&it]), 0)));
        }
        assert!(!engine.has_next(0) && !engine.has_next(1));
    }

    /// What `engine` hands to the host of a datagram of `peer`.
    fn taken(engine: &mut Engine, peer: usize, mut datagram: Vec<u8>) -> Vec<Vec<u8>> {
        let mut taken = vec![];
        engine.from_peer(peer, &mut datagram, |it| taken.push(it.to_vec()));
        taken
    }

    #[test]
    fn from_peer__a_source_of_another_is_refused() {
        let mut engine = engine();
        let [own, other, second] =
            [[10, 0, 0, 2], [10, 0, 0, 3], [9, 9, 9, 9]].map(|it| frame(it, ME, 10));
        let all = datagram(&[&own, &other, &[0; 40], &second, &own]);
        assert_eq!(taken(&mut engine, 0, all.clone()), [own.clone(), own]);
        assert_eq!(taken(&mut engine, 1, all), [other, second]);
        for (peer, refused) in [(0, 2), (1, 2)] {
            let counters = engine.counters(peer);
            assert_eq!(
                (counters.dropped_source, counters.dropped_malformed),
                (refused, 1)
            );
        }
        assert_eq!(
            taken(&mut engine, 7, datagram(&[&frame(ME, ME, 1)])).len(),
            0
        );
    }

    #[test]
    fn from_peer__lengths_that_are_not_true() {
        let mut engine = engine();
        let own = frame([10, 0, 0, 2], ME, 10);
        for cut in 1..own.len() + LENGTH {
            let mut short = datagram(&[&own, &own]);
            short.truncate(short.len() - cut);
            assert_eq!(taken(&mut engine, 0, short), std::slice::from_ref(&own));
            assert_eq!(engine.counters(0).dropped_malformed, cut as u64);
        }
    }

    /// UDP in three datagrams of 1,000 bytes, uncut.
    fn uncut(source: [u8; 4]) -> Vec<u8> {
        let mut it = frame(source, ME, 8 + 3000);
        it[..packet::VNET_HEADER_LEN].copy_from_slice(&[1, 5, 28, 0, 0xe8, 3, 20, 0, 6, 0]);
        it[packet::VNET_HEADER_LEN + 9] = 17;
        it
    }

    #[test]
    fn from_peer__cut_where_the_host_does_not_take_it_whole() {
        let whole = uncut([10, 0, 0, 2]);
        for (offload, count) in [
            (TunOffload::TcpAndUdp, 1),
            (TunOffload::Tcp, 3),
            (TunOffload::None, 3),
        ] {
            let mut engine = engine();
            engine.set_offload(offload);
            let got = taken(&mut engine, 0, datagram(&[&whole]));
            assert_eq!(got.len(), count, "{offload:?}");
            assert!(got.iter().all(|it| packet::is_taken(it, offload)));
            assert_eq!(engine.counters(0).received, 1);
        }
    }

    #[test]
    fn from_host__what_no_peer_has() {
        let mut engine = Engine::new(&[vec![]], 1420);
        assert_eq!(engine.from_host(NOW, &mut frame(ME, ME, 9)), None);
        assert_eq!(engine.from_host(NOW, &mut [1; 30]), None);
        let host = engine.host_counters();
        assert_eq!((host.dropped_no_peer, host.dropped_malformed), (1, 1));
    }
}
