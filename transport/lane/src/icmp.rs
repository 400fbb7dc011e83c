//! What an ICMP message may have left in a socket. Anybody can forge one, so none ends a connection by itself.

use std::io;

/// What a socket's error says, if it may be an ICMP message's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpReport {
    /// Nothing there takes the datagrams, says the host: no such port, or no such protocol (IPv4, IPv6).
    Refused,
    /// They are longer than the path carries.
    TooLong,
    /// They did not arrive.
    Undelivered,
}

/// What `error` says, if an ICMP message may be behind it. These are all that the kernel makes of one: `icmp_err_convert`
/// and what `__udp4_lib_err` and `raw_err` add to it; `icmpv6_err_convert`. It makes some of them of a route, too, which
/// says the same.
pub(crate) fn report(error: &io::Error) -> Option<IcmpReport> {
    match error.raw_os_error()? {
        libc::ECONNREFUSED | libc::ENOPROTOOPT | libc::EPROTO => Some(IcmpReport::Refused),
        libc::EMSGSIZE => Some(IcmpReport::TooLong),
        // The last three: host unknown, host isolated, forbidden (IPv6). EOPNOTSUPP is a source route that failed, which
        // sockets hear that were passed to us with IP_RECVERR set.
        libc::ENETUNREACH
        | libc::EHOSTUNREACH
        | libc::EOPNOTSUPP
        | libc::EHOSTDOWN
        | libc::ENONET
        | libc::EACCES => Some(IcmpReport::Undelivered),
        _ => None,
    }
}
