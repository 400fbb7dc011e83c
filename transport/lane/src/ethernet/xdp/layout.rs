//! Mirrors the structures of `xdp/validate.c` that the program and the process share.

use crate::address::ethernet::Hardware;

/// No socket, or no area.
pub(super) const NONE: u32 = u32::MAX;
/// Grants of a connection that the program knows: as many as can live at a time.
pub(super) const GRANTS: usize = zerolane_core::limits::MAX_LIVE_BLOCKS;
/// 32-bit words before the grants of an area, and in each grant.
pub(super) const AREA_HEAD: usize = 8;
pub(super) const GRANT_WORDS: usize = 8;
/// Words of an area.
pub(super) const AREA_WORDS: usize = AREA_HEAD + GRANTS * GRANT_WORDS;

/// A connection, by its key.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) peer: Hardware,
    pub(super) local: Hardware,
    /// Bytes of the seal after each datagram.
    pub(super) seal: u32,
    pub(super) area: u32,
    /// The sockets for Data and for all other operations.
    pub(super) sockets: [u32; 2],
}

const _: () = assert!(size_of::<Known>() == 28);

// SAFETY: integers and arrays of them, without padding.
unsafe impl aya::Pod for Known {}

/// Frames of the Scheduled Transfer that a program passed or dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Passed: payload that a grant allows, or that cannot be checked by its header.
    pub passed_data: u64,
    /// Passed: all other frames of connections.
    pub passed_control: u64,
    /// Passed: requests of unauthenticated peers to listeners.
    pub passed_requests: u64,
    /// Passed, because the device is not exclusive: frames that belong to nothing it knows.
    pub passed_unknown: u64,
    /// Dropped: no connection has the key.
    pub unknown_key: u64,
    /// Dropped: no listener has the port.
    pub unknown_port: u64,
    /// Dropped: shorter than its header and its seal.
    pub truncated: u64,
    /// Dropped: longer than the MTU of the interface.
    pub too_long: u64,
    /// Dropped: not an operation, a port other than the connection's, or badly padded.
    pub malformed: u64,
    /// Dropped: in a VLAN, with the key of a connection of this segment.
    pub tagged: u64,
    /// Dropped: from a hardware address other than the peer's, or to one other than the interface's.
    pub foreign: u64,
    /// Dropped: payload of a Transfer or Block that was not granted.
    pub ungranted: u64,
    /// Dropped: payload outside of its grant.
    pub out_of_bounds: u64,
}

impl XdpCounters {
    /// Number of counters in the program.
    pub(super) const COUNT: u32 = 13;

    /// From the program's counters, in its order.
    pub(super) fn new(counted: [u64; XdpCounters::COUNT as usize]) -> XdpCounters {
        let mut counted = counted.into_iter();
        let mut next = || counted.next().unwrap_or_default();
        XdpCounters {
            passed_data: next(),
            passed_control: next(),
            passed_requests: next(),
            passed_unknown: next(),
            unknown_key: next(),
            unknown_port: next(),
            truncated: next(),
            too_long: next(),
            malformed: next(),
            tagged: next(),
            foreign: next(),
            ungranted: next(),
            out_of_bounds: next(),
        }
    }

    /// All dropped frames.
    pub fn dropped(&self) -> u64 {
        self.unknown_key
            + self.unknown_port
            + self.truncated
            + self.too_long
            + self.malformed
            + self.tagged
            + self.foreign
            + self.ungranted
            + self.out_of_bounds
    }
}
