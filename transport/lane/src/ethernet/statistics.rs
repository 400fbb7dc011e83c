//! Reads the driver statistics of an interface, by ioctl, because netlink has only the standard ones.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Most counters of an interface. Statistics of one with more are not read.
const COUNTERS_LIMIT: usize = 1 << 14;
/// Factor of spare memory over the number of counters a moment ago: the kernel writes all that there are.
const ROOM: usize = 4;

/// `ETHTOOL_GSTRINGS`, `ETHTOOL_GSTATS` and `ETHTOOL_GSSET_INFO` of linux/ethtool.h.
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
/// The set of counter names, `ETH_SS_STATS`.
const STATISTICS: u32 = 1;
/// `ETH_GSTRING_LEN`.
const NAME_LEN: usize = 32;
/// Bytes before the names: `struct ethtool_gstrings`.
const STRINGS_HEADER_LEN: usize = 12;

/// All driver counters of an interface in this thread's namespace: none if the driver has none or the interface is
/// gone.
///
/// # Errors
/// The kernel's; or the driver has more than 16,384 counters.
pub fn driver_statistics(interface: &str) -> io::Result<Vec<(String, u64)>> {
    // Any socket can be used to ask about interfaces.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    match read(&socket, interface) {
        Err(why) if is_nothing(&why) => Ok(Vec::new()),
        read => read,
    }
}

fn is_nothing(why: &io::Error) -> bool {
    matches!(
        why.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL)
    )
}

fn read(socket: &UdpSocket, interface: &str) -> io::Result<Vec<(String, u64)>> {
    let count = count(socket, interface)?;
    if count > COUNTERS_LIMIT {
        return Err(io::Error::other(format!(
            "the driver of {interface} has {count} counters, more than {COUNTERS_LIMIT}"
        )));
    }
    let words = (STRINGS_HEADER_LEN + count * ROOM * NAME_LEN).div_ceil(size_of::<u64>());
    let mut strings = vec![0; words];
    strings[0] = pair(GET_STRINGS, STATISTICS);
    ask(socket, interface, &mut strings)?;
    let mut values = vec![0; 1 + count * ROOM];
    values[0] = pair(GET_STATISTICS, 0);
    ask(socket, interface, &mut values)?;
    let strings: Vec<u8> = strings.iter().flat_map(|it| it.to_ne_bytes()).collect();
    let names = strings[STRINGS_HEADER_LEN..].chunks_exact(NAME_LEN);
    Ok(names
        .map(name)
        .zip(values[1..].iter().copied())
        .take(count)
        .collect())
}

/// Number of counters.
fn count(socket: &UdpSocket, interface: &str) -> io::Result<usize> {
    // The command, the sets requested, and the length of each existing one of these.
    let mut info = [pair(GET_SET_INFO, 0), 1 << STATISTICS, 0];
    ask(socket, interface, &mut info)?;
    let [length, _] = halves(info[2]);
    Ok(if info[1] == 0 { 0 } else { length as usize })
}

/// Two 32-bit words in memory order.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b] = [first, second].map(u32::to_ne_bytes);
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
}

fn halves(pair: u64) -> [u32; 2] {
    let [a, b, c, d, rest @ ..] = pair.to_ne_bytes();
    [[a, b, c, d], rest].map(u32::from_ne_bytes)
}

/// A name up to its first zero.
fn name(bytes: &[u8]) -> String {
    let text = bytes.split(|&it| it == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Makes the kernel answer a request in place. The request begins with a command of linux/ethtool.h and is as long as
/// its answer, with [`ROOM`] to spare if the length depends on the driver.
fn ask(socket: &UdpSocket, interface: &str, request: &mut [u64]) -> io::Result<()> {
    // The name needs a zero at its end.
    if interface.len() >= libc::IF_NAMESIZE {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let mut ifr_name = [0; libc::IF_NAMESIZE];
    for (to, from) in ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    let ifr_ifru = libc::__c_anonymous_ifr_ifru {
        ifru_data: request.as_mut_ptr().cast(),
    };
    let mut ask = libc::ifreq { ifr_name, ifr_ifru };
    // SAFETY: `ask` and the request that it points to outlive the call, and the request is borrowed exclusively. The
    // kernel's answer fits, unless the driver now has more than four times the counters of a moment ago.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut ask) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn driver_statistics__of_what_has_none_are_none() {
        for interface in ["lo", "no-such-device", "a-name-longer-than-names-are"] {
            assert_eq!(driver_statistics(interface).unwrap(), [], "{interface}");
        }
    }

    #[test]
    fn name__ends_with_its_field_at_the_latest() {
        assert_eq!(name(b"rx_drops\0\0\0"), "rx_drops");
        assert_eq!(name(&[b'a'; NAME_LEN]), "a".repeat(NAME_LEN));
    }

    #[test]
    fn halves__are_what_the_pair_was_made_of() {
        assert_eq!(halves(pair(7, 9)), [7, 9]);
    }
}
