//! Chooses the lane by which an address is reached.

/// Which lane carries connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LaneChoice {
    /// UDP, even to processes of this host.
    Udp,
    /// Shared memory to processes of this host and user that listen with this choice or the next. Otherwise UDP,
    /// without an error: the [`Account`](crate::account::Account) says why. UDP also if the options name a cipher, because
    /// shared memory is not encrypted, or ask for several paths (`options.paths.most`, `options.paths.links`), because
    /// shared memory has only one.
    #[default]
    Best,
    /// Shared memory or an error. A listener accepts no other lane.
    SharedMemory,
    /// Raw Ethernet frames to a host of the same segment, whose address is an
    /// [`EthernetAddress`](crate::address::EthernetAddress), or an error. A listener accepts no other lane. Needs CAP_NET_RAW; a
    /// listener needs it as long as it accepts.
    Ethernet,
    /// Packets of IP protocol 118, without UDP, or an error. Ports are those of the protocol's header, and a listener
    /// accepts no other lane. Needs CAP_NET_RAW; a listener needs it as long as it accepts.
    Ip118,
}
