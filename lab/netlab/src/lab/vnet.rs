//! Encodes and parses the header before each frame of a packet socket with `PACKET_VNET_HDR` (`struct virtio_net_hdr`).

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 10;

/// The checksum is not in the frame yet.
const NEEDS_CHECKSUM: u8 = 1;
/// Beside the kind of segmentation: TCP that echoes congestion.
const GSO_ECN: u8 = 0x80;

const GSO_NONE: u8 = 0;
const GSO_TCP_IPV4: u8 = 1;
const GSO_TCP_IPV6: u8 = 4;
const GSO_UDP: u8 = 5;

/// A checksum of which the transport header holds only the pseudo header's part. The sender of the
/// frame on a wire sums up from `start` to the frame's end, and puts the sum at `start + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    /// Where the transport header begins, from the frame's beginning.
    pub(super) start: u16,
    pub(super) offset: u16,
}

/// How a frame that is too long for a wire is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segmentation {
    /// It is not.
    None,
    TcpIpv4,
    TcpIpv6,
    Udp,
}

/// What is said of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vnet {
    pub(super) checksum: Option<Checksum>,
    pub(super) segmentation: Segmentation,
    /// Bytes of headers before the payload, and of payload in each segment; 0 without segmentation.
    pub(super) header_bytes: u16,
    pub(super) segment_bytes: u16,
}

impl Vnet {
    /// Of a frame that is as long as it is on the wire.
    pub(super) fn whole(checksum: Option<Checksum>) -> Self {
        Self {
            checksum,
            segmentation: Segmentation::None,
            header_bytes: 0,
            segment_bytes: 0,
        }
    }

    /// Reads the header; `None` for a kind of segmentation that no host here does.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let checksum = (bytes[0] & NEEDS_CHECKSUM != 0).then(|| Checksum {
            start: word(6),
            offset: word(8),
        });
        let segmentation = match bytes[1] & !GSO_ECN {
            GSO_NONE => Segmentation::None,
            GSO_TCP_IPV4 => Segmentation::TcpIpv4,
            GSO_TCP_IPV6 => Segmentation::TcpIpv6,
            GSO_UDP => Segmentation::Udp,
            _ => return None,
        };
        Some(Self {
            checksum,
            segmentation,
            header_bytes: word(2),
            segment_bytes: word(4),
        })
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[1] = match self.segmentation {
            Segmentation::None => GSO_NONE,
            Segmentation::TcpIpv4 => GSO_TCP_IPV4,
            Segmentation::TcpIpv6 => GSO_TCP_IPV6,
            Segmentation::Udp => GSO_UDP,
        };
        bytes[2..4].copy_from_slice(&self.header_bytes.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.segment_bytes.to_ne_bytes());
        if let Some(Checksum { start, offset }) = self.checksum {
            bytes[0] = NEEDS_CHECKSUM;
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            bytes[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    #[test]
    fn parse__reads_what_to_bytes_wrote() {
        let checksum = Some(Checksum {
            start: 34,
            offset: 16,
        });
        for segmentation in [
            Segmentation::TcpIpv4,
            Segmentation::TcpIpv6,
            Segmentation::Udp,
        ] {
            let vnet = Vnet {
                checksum,
                segmentation,
                header_bytes: 66,
                segment_bytes: 1448,
            };
            let mut bytes = vnet.to_bytes();
            assert_eq!(Vnet::parse(&bytes), Some(vnet));
            bytes[1] |= GSO_ECN;
            assert_eq!(Vnet::parse(&bytes), Some(vnet));
        }
        for whole in [Vnet::whole(checksum), Vnet::whole(None)] {
            assert_eq!(Vnet::parse(&whole.to_bytes()), Some(whole));
        }
    }

    #[test]
    fn parse__fragments_of_udp_are_refused() {
        const GSO_UDP_FRAGMENTS: u8 = 3;
        let mut bytes = Vnet::whole(None).to_bytes();
        bytes[1] = GSO_UDP_FRAGMENTS;
        assert_eq!(Vnet::parse(&bytes), None);
    }
}
