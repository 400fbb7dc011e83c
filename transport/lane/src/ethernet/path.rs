//! A packet socket as one path of a connection that has others.
//!
//! The frames of a path have the connection's key, as its datagrams have, so a filter shows the path's socket nothing else. The
//! peer's first question comes before there is such a socket: an [`Ear`] is shown it, at whichever interface it comes.

use super::address::{Hardware, Station};
use super::socket::Strange;
use super::{IncomingFrames, NoEthernet, OutgoingFrames, filter, socket};
use crate::udp::{MAX_MESSAGES, prepare};
use socket2::{SockFilter, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The socket of a path, and what is around its datagrams.
pub(crate) struct EthernetPath {
    pub(crate) socket: Socket,
    pub(crate) outgoing: OutgoingFrames,
    pub(crate) incoming: IncomingFrames,
    /// The longest datagram that the interface carries, bytes, if that is known.
    pub(crate) datagram: Option<usize>,
}

impl EthernetPath {
    /// To `peer`, for what has the connection's `key` to us. `others`: where its other paths go.
    ///
    /// # Errors
    /// [`NoEthernet`], or the system has no more of what a socket needs.
    pub(crate) fn open(
        peer: Station,
        key: u32,
        others: &[Station],
        receive_buffer: usize,
    ) -> io::Result<EthernetPath> {
        let hardware = peer.hardware.ok_or(NoEthernet::NoAddress)?;
        let interface = peer.interface;
        let (socket, own) = socket::open(interface, &path_filter(interface, key, others))?;
        prepare(&socket, receive_buffer);
        Ok(EthernetPath {
            outgoing: OutgoingFrames::new(interface, hardware, None),
            incoming: IncomingFrames::new(interface, (own, hardware), MAX_MESSAGES),
            datagram: socket::path_datagram(&socket, interface).ok(),
            socket,
        })
    }
}

/// Shows `socket`, of a path at `interface` of the connection with that `key` to us, nothing that comes from `others` there from
/// here on.
///
/// # Errors
/// The system's.
pub(crate) fn leave_to(
    others: &[Station],
    (socket, interface): (&Socket, u32),
    key: u32,
) -> io::Result<()> {
    socket.attach_filter(&path_filter(interface, key, others))
}

fn path_filter(interface: u32, key: u32, others: &[Station]) -> Vec<SockFilter> {
    let at_interface = others.iter().filter(|it| it.interface == interface);
    let others: Vec<Hardware> = at_interface.filter_map(|it| it.hardware).collect();
    filter::of_path(key, &others)
}

/// A question, and where it came from; `None`: a frame that is dropped, and counted.
pub(crate) type Heard = Option<(Vec<u8>, Station)>;

/// What is shown the questions for paths that a peer adds, at every interface of the network namespace.
#[derive(Debug)]
pub(crate) struct Ear(Socket);

impl Ear {
    /// For the connection with that key to us.
    ///
    /// # Errors
    /// [`NoEthernet::NotPermitted`], or the system has no more of what a socket needs.
    pub(crate) fn of(key: u32) -> io::Result<Ear> {
        socket::open_anywhere(&filter::of_questions(key)).map(Ear)
    }

    /// Whether there may be such.
    ///
    /// # Errors
    /// As [`Ear::of`].
    pub(crate) fn try_one() -> io::Result<()> {
        socket::open_anywhere(&filter::of_nobody()).map(drop)
    }

    /// The next question, and where it came from. `None` if none is there; `Some(None)`: a frame that was not for this host, was
    /// of a VLAN, or badly padded.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn next(&self) -> io::Result<Option<Heard>> {
        let received = socket::receive(&self.0)?;
        Ok(received.map(|it| match it {
            Strange::Datagram(bytes, from) => Some((bytes, from)),
            Strange::Discovery(..) | Strange::Foreign => None,
        }))
    }
}

/// Readable when there is a question.
impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
