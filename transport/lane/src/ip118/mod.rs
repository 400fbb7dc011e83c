//! Opens raw sockets for IP protocol 118.

pub(crate) mod filter;
pub(crate) mod socket;

/// Bytes of an IPv4 header without options. Raw sockets show it before the payload.
pub(crate) const IPV4_HEADER: usize = 20;
