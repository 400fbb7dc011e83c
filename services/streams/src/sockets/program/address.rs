//! Reads and writes the addresses of C, `sockaddr_in` and `sockaddr_in6`, as bytes.

use rustix::net::AddressFamily;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of a `sockaddr_in`.
const V4_BYTES: usize = 16;
/// Bytes of a `sockaddr_in6`, the longer one.
pub const ADDRESS_BYTES: usize = 28;

/// Reads an address. `None`: it is shorter than its family's, or of another family.
pub fn read(bytes: &[u8]) -> Option<SocketAddr> {
    let family = AddressFamily::from_raw(u16::from_ne_bytes(part(bytes, 0)?));
    let port = u16::from_be_bytes(part(bytes, 2)?);
    match family {
        AddressFamily::INET if bytes.len() >= V4_BYTES => Some(SocketAddr::new(
            Ipv4Addr::from(part(bytes, 4)?).into(),
            port,
        )),
        AddressFamily::INET6 => {
            let scope = u32::from_ne_bytes(part(bytes, 24)?);
            let ip: [u8; 16] = part(bytes, 8)?;
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The bytes of an address, in the form that a socket of a family has, and how many they are. A socket of IPv6 has IPv4
/// addresses mapped.
pub fn write(address: SocketAddr, is_v6: bool) -> ([u8; ADDRESS_BYTES], usize) {
    let mut bytes = [0; ADDRESS_BYTES];
    let ip = match (address.ip(), is_v6) {
        (IpAddr::V4(ip), true) => IpAddr::V6(ip.to_ipv6_mapped()),
        (ip, true) => ip,
        (ip, false) => ip.to_canonical(),
    };
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let (family, len) = match ip {
        IpAddr::V4(ip) => {
            bytes[4..8].copy_from_slice(&ip.octets());
            (AddressFamily::INET, V4_BYTES)
        }
        IpAddr::V6(ip) => {
            bytes[8..24].copy_from_slice(&ip.octets());
            if let SocketAddr::V6(it) = address {
                bytes[24..].copy_from_slice(&it.scope_id().to_ne_bytes());
            }
            (AddressFamily::INET6, ADDRESS_BYTES)
        }
    };
    bytes[..2].copy_from_slice(&family.as_raw().to_ne_bytes());
    (bytes, len)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn read__what_was_written() {
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 443, 0, 7);
        for (address, is_v6, len) in [
            ("10.0.0.1:80".parse().unwrap(), false, 16),
            (SocketAddr::from(scoped), true, 28),
        ] {
            let (bytes, written) = write(address, is_v6);
            assert_eq!((read(&bytes[..written]), written), (Some(address), len));
            for short in 0..len {
                assert_eq!(read(&bytes[..short]), None, "{short}");
            }
        }
        let (bytes, len) = write("10.0.0.1:80".parse().unwrap(), true);
        let mapped = "[::ffff:10.0.0.1]:80".parse().unwrap();
        assert_eq!(read(&bytes[..len]), Some(mapped));
        assert_eq!(write(mapped, false).1, 16);
        assert_eq!(read(&[1; 28]), None);
    }
}
