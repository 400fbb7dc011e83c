//! Opens a packet socket as one path of a connection with several paths.
//!
//! The frames of a path carry the connection's key, as its datagrams do, so a filter passes only these to the path's
//! socket. The peer's first question comes before that socket exists: an [`Ear`] receives it, at any interface.

use super::socket::ListenerFrame;
use super::{filter, socket};
use crate::address::ethernet::{Hardware, Station};
use crate::ethernet::{IncomingFrames, OutgoingFrames};
use crate::socket::{MAX_MESSAGES, prepare};
use crate::unavailable::NoEthernet;
use socket2::{SockFilter, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The socket of a path, and its framing.
pub(crate) struct EthernetPath {
    pub(crate) socket: Socket,
    pub(crate) outgoing: OutgoingFrames,
    pub(crate) incoming: IncomingFrames,
    /// Longest datagram of the interface, in bytes, if known.
    pub(crate) datagram: Option<usize>,
}

impl EthernetPath {
    /// Opens a path to `peer`, for frames with this end's key of the connection. `others`: the peers of its other
    /// paths.
    ///
    /// # Errors
    /// [`NoEthernet`], or the system has no resources for a socket.
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

/// Makes `socket`, of a path at `interface` of the connection with this end's key `key`, leave frames from `others`
/// there to their own sockets from now on.
///
/// # Errors
/// Those of the system.
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

/// A question and its sender; `None`: a frame that is dropped and counted.
pub(crate) type Heard = Option<(Vec<u8>, Station)>;

/// Receives the questions for paths that a peer adds, at each interface of the network namespace.
#[derive(Debug)]
pub(crate) struct Ear(Socket);

impl Ear {
    /// For the connection with this end's key `key`.
    ///
    /// # Errors
    /// [`NoEthernet::NotPermitted`], or the system has no resources for a socket.
    pub(crate) fn of(key: u32) -> io::Result<Ear> {
        socket::open_anywhere(&filter::of_questions(key)).map(Ear)
    }

    /// Checks that this process may have one.
    ///
    /// # Errors
    /// As [`Ear::of`].
    pub(crate) fn try_one() -> io::Result<()> {
        socket::open_anywhere(&filter::of_nobody()).map(drop)
    }

    /// The next question and its sender. `None` if there is none; `Some(None)`: a frame that was not for this host, was
    /// in a VLAN, or badly padded.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn next(&self) -> io::Result<Option<Heard>> {
        let received = socket::receive(&self.0)?;
        Ok(received.map(|it| match it {
            ListenerFrame::Datagram(bytes, from) => Some((bytes, from)),
            ListenerFrame::Discovery(..) | ListenerFrame::Foreign => None,
        }))
    }
}

/// Readable when there is a question.
impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
