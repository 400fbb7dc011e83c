//! Reads socket errors that an ICMP message may have caused. Anyone can forge one, so none ends a connection by
//! itself.

use std::io;

/// The meaning of a socket error that an ICMP message may have caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpReport {
    /// The host has no such port, or no such protocol (IPv4, IPv6).
    Refused,
    /// The datagrams are longer than the path's MTU.
    TooLong,
    /// They did not arrive.
    Undelivered,
}

/// The meaning of `error`, if an ICMP message may have caused it. The list is complete: `icmp_err_convert`, with the
/// additions of `__udp4_lib_err` and `raw_err`, and `icmpv6_err_convert`. The kernel also derives some of these from a
/// route, with the same meaning.
pub(crate) fn report(error: &io::Error) -> Option<IcmpReport> {
    match error.raw_os_error()? {
        libc::ECONNREFUSED | libc::ENOPROTOOPT | libc::EPROTO => Some(IcmpReport::Refused),
        libc::EMSGSIZE => Some(IcmpReport::TooLong),
        // The last three: host unknown, host isolated, administratively prohibited (IPv6). EOPNOTSUPP is a failed
        // source route; sockets report it if they were passed to this process with IP_RECVERR set.
        libc::ENETUNREACH
        | libc::EHOSTUNREACH
        | libc::EOPNOTSUPP
        | libc::EHOSTDOWN
        | libc::ENONET
        | libc::EACCES => Some(IcmpReport::Undelivered),
        _ => None,
    }
}
