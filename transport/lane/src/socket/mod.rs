//! Opens, binds and reads sockets: options, errors, filters, ports shared by connections.

mod adopted;
mod claim;
pub(crate) mod filter;
pub(crate) mod icmp;
mod option;
mod packet_info;
mod passed;
mod port;
pub(crate) mod system;
mod udp;

pub(crate) use claim::Claim;
pub use option::{set_socket_option, socket_option};
pub(crate) use packet_info::{PacketAddresses, answer, receive as receive_packet, show_called};
pub use passed::passed_sockets;
pub use port::Ports;
pub(crate) use port::{MAX_KEPT, PortSlot, Received, SHOWN, SharedPort};
#[cfg(test)]
pub(crate) use udp::tells_arrival_times;
pub(crate) use udp::{
    Share, TrafficClass, any_address, bind, enable_gro, enable_zerocopy, encapsulation,
    forbid_fragmentation, has_gso, has_unsent, path_datagram, path_datagram_now,
    permit_fragmentation, prepare, receive_buffer, renew_source, send_class, set_segment,
    show_arrival_times, show_ecn, window,
};

/// Messages of one recvmmsg when each datagram comes singly. A control operation among them shifts all that follow by
/// one place, so more messages would cost copies, and fewer would cost system calls.
pub(crate) const MAX_MESSAGES: usize = 40;
