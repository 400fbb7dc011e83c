//! Describes a running tunnel, for `zerolane show`.

use crate::engine::{HostCounters, PeerCounters};
use serde::{Deserialize, Serialize};

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the interface.
    pub interface: String,
    /// The public key of this end.
    pub public_key: String,
    /// The port at which it is called.
    pub port: Option<u16>,
    /// What the kernel leaves to the peers: `none`, `tcp` or `tcp_and_udp`.
    pub offload: String,
    /// Who called; `None`: this end only calls.
    pub callers: Option<CallerCounters>,
    /// Packets that the kernel did not take.
    pub dropped_by_host: u64,
    /// Packets that went to no peer.
    pub host: HostCounters,
    /// The peers, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
}

/// Handshakes, and other datagrams, of callers: of peers before they are connected, and of anybody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerCounters {
    /// Handshakes begun, repetitions included.
    pub begun: u64,
    /// Of those, told to return a cookie first, because many had begun.
    pub cookies: u64,
    /// Handshakes completed, those of unknown keys included.
    pub completed: u64,
    /// Datagrams refused: of unknown keys, beyond a limit, forged, or no part of a handshake.
    pub refused: u64,
    /// Datagrams dropped because too many waited.
    pub unread: u64,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its key.
    pub public_key: String,
    /// Its networks.
    pub allowed: Vec<String>,
    /// Where it is, if it is connected; else where it is called.
    pub endpoint: Option<String>,
    /// Seconds since it connected; `None`: it is not.
    pub connected_s: Option<u64>,
    /// Round trip, microseconds.
    pub rtt_us: Option<u64>,
    /// Parts of a million of the bytes sent that were lost.
    pub lost_ppm: u64,
    /// The cipher.
    pub cipher: Option<String>,
    /// Its packets.
    pub counters: PeerCounters,
}
