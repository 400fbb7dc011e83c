//! Defines the encapsulations of the header: UDP, raw IP, Ethernet frames and shared memory, with their sizes.

use crate::handshake::HANDSHAKE_CODE;
use crate::header::{Field, HEADER_LEN, Op, ParseError, Problem};

/// EtherType of the Scheduled Transfer Protocol.
pub const ETHERTYPE: u16 = 0x8181;
/// IP protocol number of the Scheduled Transfer Protocol.
pub const IP_PROTOCOL: u8 = 118;
/// Largest UDP payload over IPv4 (65535 - 20 - 8).
pub const MAX_UDP_PAYLOAD_V4: usize = 65_507;
/// Largest UDP payload over IPv6 without jumbograms (65535 - 8).
pub const MAX_UDP_PAYLOAD_V6: usize = 65_527;

/// Largest STU payload in shared memory, bytes: whole pages, so that consecutive STUs stay page-aligned.
pub const MAX_MEMORY_STU: usize = 64 << 10;

/// Payload of the shortest Ethernet frame, bytes. Shorter payloads are lengthened on the way, and not shortened again.
pub const MIN_FRAME: usize = 46;
/// Length of the payload of a frame that holds a datagram shorter than [`MIN_FRAME`], bytes.
pub const PADDED_FRAME: usize = 48;
/// Code point in the place of Op's that marks a padded frame, distinct from the operations and the handshake.
pub const PADDED_CODE: u8 = 30;

/// Encapsulation of a header and its payload.
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
    /// In memory shared by two processes of one host: no path limits the size.
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

/// The bytes that pad a datagram shorter than [`MIN_FRAME`] in a frame. `first` is the datagram's first byte, `len` its
/// length. The first result replaces that byte: [`PADDED_CODE`] in the place of its code. The second follows the
/// datagram: zeros, its first byte, its length; only the last `PADDED_FRAME - len` bytes are used. `None` if the
/// datagram is long enough, or shorter than a header.
pub fn padding(first: u8, len: usize) -> Option<(u8, [u8; PADDED_FRAME - HEADER_LEN])> {
    if !(HEADER_LEN..MIN_FRAME).contains(&len) {
        return None;
    }
    Some((PADDED_CODE << 3, [0, 0, 0, 0, 0, 0, first, len as u8]))
}

/// The frame payload of a `datagram` that needs [`padding`].
pub fn pad_frame(datagram: &[u8]) -> Option<[u8; PADDED_FRAME]> {
    let len = datagram.len();
    let (code, behind) = padding(*datagram.first()?, len)?;
    let mut padded = [0; PADDED_FRAME];
    padded[..len].copy_from_slice(datagram);
    padded[len..].copy_from_slice(&behind[len - HEADER_LEN..]);
    padded[0] = code;
    Some(padded)
}

/// The first byte and the length of the datagram in a frame's payload that [`pad_frame`] made; `None` if `frame` holds
/// a datagram unchanged.
///
/// # Errors
/// [`Field::Encapsulation`]: it has the code, but an invalid length of the payload or of the datagram.
pub fn padded(frame: &[u8]) -> Result<Option<(u8, usize)>, ParseError> {
    if frame.first().is_none_or(|first| first >> 3 != PADDED_CODE) {
        return Ok(None);
    }
    let error = |problem| Err(ParseError::new(Field::Encapsulation, problem));
    match frame {
        [.., first, len] if frame.len() == PADDED_FRAME => match usize::from(*len) {
            len if (HEADER_LEN..MIN_FRAME).contains(&len) => Ok(Some((*first, len))),
            len => error(Problem::OutOfRange(len as u64)),
        },
        _ if frame.len() < PADDED_FRAME => error(Problem::Truncated(frame.len())),
        _ => error(Problem::TooLong(frame.len())),
    }
}

const _: () = assert!(Op::ALL.len() < PADDED_CODE as usize && PADDED_CODE < HANDSHAKE_CODE);

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
    fn pad_frame__is_taken_apart_again() {
        for len in HEADER_LEN..MIN_FRAME {
            let mut whole: [u8; MIN_FRAME] = core::array::from_fn(|at| at as u8);
            let datagram = &mut whole[..len];
            datagram[0] = (Op::Data as u8) << 3 | 0b101;
            let mut frame = pad_frame(datagram).expect("short");
            let (first, length) = padded(&frame).expect("well formed").expect("padded");
            assert_eq!((first, length), (datagram[0], len));
            frame[0] = first;
            assert_eq!(&frame[..length], &*datagram);
            assert_eq!(padded(datagram), Ok(None));
        }
        assert_eq!(pad_frame(&[0; MIN_FRAME]), None);
        assert_eq!(pad_frame(&[0; HEADER_LEN - 1]), None);
        assert_eq!(padded(&[]), Ok(None));
    }

    #[test]
    fn padded__refuses_lengths_that_it_never_has() {
        let good = pad_frame(&[0; HEADER_LEN + 3]).expect("short");
        let field = |frame: &[u8]| padded(frame).map_err(|error| error.field);
        for len in (0..HEADER_LEN).chain(MIN_FRAME..=255) {
            let mut frame = good;
            frame[PADDED_FRAME - 1] = len as u8;
            assert_eq!(field(&frame), Err(Field::Encapsulation), "{len}");
        }
        let mut long = [0; PADDED_FRAME + 1];
        long[..PADDED_FRAME].copy_from_slice(&good);
        assert_eq!(field(&good[..1]), Err(Field::Encapsulation));
        assert_eq!(field(&good[..PADDED_FRAME - 1]), Err(Field::Encapsulation));
        assert_eq!(field(&long), Err(Field::Encapsulation));
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
