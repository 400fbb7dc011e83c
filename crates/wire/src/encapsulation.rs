//! What carries the header: UDP today; raw Ethernet and IP are registered and sized here
//! so that no type in this crate assumes a datagram socket.

use crate::HEADER_LEN;

/// EtherType of the Scheduled Transfer Protocol.
pub const ETHERTYPE: u16 = 0x8181;
/// IP protocol number of the Scheduled Transfer Protocol.
pub const IP_PROTOCOL: u8 = 118;
/// Largest UDP payload over IPv4 (65535 - 20 - 8).
pub const MAX_UDP_PAYLOAD_V4: usize = 65_507;
/// Largest UDP payload over IPv6 without jumbograms (65535 - 8).
pub const MAX_UDP_PAYLOAD_V6: usize = 65_527;

/// Largest payload of an STU in shared memory, bytes: whole pages, so that where its place begins at a page, each does.
pub const MAX_MEMORY_STU: usize = 64 << 10;

/// How a header and its payload travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// UDP over IPv4 without IP options.
    UdpV4,
    /// UDP over IPv6 without extension headers.
    UdpV6,
    /// Directly in IPv4, protocol 118.
    IpV4,
    /// Directly in IPv6, next header 118.
    IpV6,
    /// Directly in an Ethernet frame, EtherType 0x8181. The MTU excludes the MAC header.
    Ethernet,
    /// In memory that two processes of one host share: there is no path that could be too narrow.
    Memory,
}

impl Encapsulation {
    /// Bytes in front of the Scheduled Transfer header that count against the MTU.
    pub const fn overhead(self) -> usize {
        match self {
            Encapsulation::UdpV4 => 20 + 8,
            Encapsulation::UdpV6 => 40 + 8,
            Encapsulation::IpV4 => 20,
            Encapsulation::IpV6 => 40,
            Encapsulation::Ethernet | Encapsulation::Memory => 0,
        }
    }

    /// Largest payload of a Data operation on a path of `mtu` bytes, 0 if not even the headers fit.
    pub const fn max_stu(self, mtu: usize) -> usize {
        let whole = mtu.saturating_sub(self.overhead());
        let limit = match self {
            Encapsulation::UdpV4 => MAX_UDP_PAYLOAD_V4,
            Encapsulation::UdpV6 => MAX_UDP_PAYLOAD_V6,
            Encapsulation::IpV4 => 65_535 - 20,
            Encapsulation::IpV6 | Encapsulation::Ethernet => 65_535,
            Encapsulation::Memory => MAX_MEMORY_STU + HEADER_LEN,
        };
        let whole = if whole > limit { limit } else { whole };
        whole.saturating_sub(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn max_stu__known_paths() {
        assert_eq!(Encapsulation::UdpV4.max_stu(1500), 1432);
        assert_eq!(Encapsulation::UdpV6.max_stu(1500), 1412);
        assert_eq!(Encapsulation::UdpV4.max_stu(9000), 8932);
        assert_eq!(Encapsulation::UdpV4.max_stu(65536), 65_467);
        assert_eq!(Encapsulation::Ethernet.max_stu(1500), 1460);
        assert_eq!(Encapsulation::UdpV4.max_stu(60), 0);
    }
    #[test]
    fn max_stu__largest_the_length_fields_can_say() {
        let largest = |carrier: Encapsulation| carrier.max_stu(usize::MAX) + HEADER_LEN;
        assert_eq!(largest(Encapsulation::UdpV4), MAX_UDP_PAYLOAD_V4);
        assert_eq!(largest(Encapsulation::UdpV6), MAX_UDP_PAYLOAD_V6);
        assert_eq!(largest(Encapsulation::IpV4), 65_535 - 20);
        assert_eq!(largest(Encapsulation::IpV6), 65_535);
        assert_eq!(largest(Encapsulation::Ethernet), 65_535);
        assert_eq!(largest(Encapsulation::Memory), 65_536 + HEADER_LEN);
    }
}
