//! Makes a network interface whose packets travel over Zerolane connections: `zerolane up`.
//!
//! A [`Tunnel`](driver::Tunnel) owns a TUN interface and a worker with a connection for each peer. An
//! [`Engine`](engine::Engine) decides about packets without IO.
//!
//! # Design
//!
//! The unit is what the kernel hands over: a packet with its virtio header, up to 60 KiB of TCP, or of UDP in segments,
//! still uncut. It crosses in one datagram of the connection, under one seal where trains go, and is written
//! whole into the peer's interface, where TCP takes it as one. Packets that wait together share a datagram: each has its
//! length in front, 16 bits, little-endian. Datagrams are not sent again: TCP inside repairs its own losses. So a
//! [`path`] that loses packets, or takes long over them, gets shorter datagrams, for which long packets are cut here. So
//! are those of a peer that the host's kernel does not take whole.
//!
//! Inside, packets keep DSCP and ECN field. Outside, the DSCP is 0, or that of the packets in the datagram, which are then
//! of one class (RFC 2983, pipe model: the receiver ignores it). The ECN field outside is that of the connection, whose
//! congestion control reacts to marks; the queue in front of it marks the packets inside. So no mark is copied, as
//! tunnels without congestion control must do (RFC 6040).
//!
//! A packet goes to the peer with the longest prefix of its destination (AllowedIPs), and one of a peer is taken only
//! if the longest prefix of its *source* is that peer's. In front of each connection is a queue that stands for 2 ms at
//! most (CoDel, RFC 8289), with short packets first.
#![forbid(unsafe_code)]

pub mod config;
mod cut;
pub mod driver;
pub mod engine;
pub mod limits;
pub mod network;
pub mod packet;
pub mod path;
mod queue;
mod routes;
mod rules;
pub mod status;
