//! Adds the parts of a datagram lane that frames need: a link-layer name for each datagram, and padding for those too
//! short for a frame.

use super::socket::{self, LinkName};
use super::xdp::Grants;
use crate::address::ethernet::Hardware;
use crate::ethernet::AROUND;
use crate::unavailable::NoEthernet;
use socket2::Socket;
use zerolane_core::{Connection, Transmit};
use zerolane_wire::HEADER_LEN;
use zerolane_wire::encapsulation::{ETHERTYPE, MIN_FRAME, PADDED_FRAME, padding};

/// The sending half.
#[derive(Debug)]
pub(crate) struct OutgoingFrames {
    peer: LinkName,
    /// The start of a short datagram, its padding, and the pieces of its frame.
    head: [u8; MIN_FRAME],
    behind: [u8; PADDED_FRAME - HEADER_LEN],
    pieces: Vec<libc::iovec>,
    /// The connection's part of the device's program, if there is one.
    grants: Option<Grants>,
}

// SAFETY: the raw pointers in `pieces` are made anew for each system call, and are not used between two calls.
unsafe impl Send for OutgoingFrames {}

impl OutgoingFrames {
    pub(crate) fn new(interface: u32, peer: Hardware, grants: Option<Grants>) -> OutgoingFrames {
        OutgoingFrames {
            peer: socket::link_name(interface, peer),
            head: [0; MIN_FRAME],
            behind: [0; PADDED_FRAME - HEADER_LEN],
            pieces: Vec::new(),
            grants,
        }
    }

    /// Tells the program in the driver what `transmit`, which is about to leave, grants.
    pub(crate) fn note(&mut self, transmit: &Transmit, core: &Connection) {
        if let Some(grants) = &mut self.grants {
            grants.note(transmit, core);
        }
    }

    /// Addresses `message` to the peer. The call that sends it reads the name.
    pub(crate) fn address(&mut self, message: &mut libc::msghdr) {
        message.msg_name = (&raw mut self.peer).cast();
        message.msg_namelen = size_of::<LinkName>() as libc::socklen_t;
    }

    /// The pieces of a padded frame for the datagram of `pieces`, if it is too short for a frame. Valid until the next
    /// call.
    ///
    /// # Safety
    /// The first of `pieces`, which holds the header, is readable memory of the lane's own.
    pub(crate) unsafe fn pad(&mut self, pieces: &[libc::iovec]) -> Option<&mut [libc::iovec]> {
        let len: usize = pieces.iter().map(|it| it.iov_len).sum();
        if len >= MIN_FRAME {
            return None;
        }
        let (first, rest) = pieces
            .split_first()
            .filter(|it| it.0.iov_len >= HEADER_LEN)?;
        let head = &mut self.head[..first.iov_len];
        // SAFETY: the caller's promise; the length is at most that of all pieces.
        head.copy_from_slice(unsafe {
            std::slice::from_raw_parts(first.iov_base.cast::<u8>(), first.iov_len)
        });
        let (code, behind) = padding(head[0], len)?;
        head[0] = code;
        self.behind = behind;
        let behind = &mut self.behind[len - HEADER_LEN..];
        self.pieces.clear();
        self.pieces.push(piece(head));
        self.pieces.extend_from_slice(rest);
        self.pieces.push(piece(behind));
        Some(&mut self.pieces)
    }

    /// Longest datagram of the interface.
    pub(crate) fn path_datagram(&self, socket: &Socket) -> Option<usize> {
        socket::path_datagram(socket, self.peer.sll_ifindex.cast_unsigned()).ok()
    }

    /// Why nothing can be sent any more, if that is so.
    pub(crate) fn gone(&self, socket: &Socket) -> Option<NoEthernet> {
        socket::is_gone(socket, self.peer.sll_ifindex.cast_unsigned()).then_some(NoEthernet::Gone)
    }
}

fn piece(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct IncomingFrames {
    interface: u32,
    own: Hardware,
    peer: Hardware,
    /// The sender of each message of a batch.
    names: Box<[LinkName]>,
}

impl IncomingFrames {
    /// For batches of this many `messages`.
    pub(crate) fn new(
        interface: u32,
        (own, peer): (Hardware, Hardware),
        messages: usize,
    ) -> IncomingFrames {
        IncomingFrames {
            interface,
            own,
            peer,
            names: vec![socket::link_name(interface, peer); messages].into(),
        }
    }

    /// Makes the kernel report the sender of message `index`.
    pub(crate) fn ask_name(&mut self, index: usize, message: &mut libc::msghdr) {
        message.msg_name = (&raw mut self.names[index]).cast();
        message.msg_namelen = size_of::<LinkName>() as libc::socklen_t;
    }

    /// Whether message `index` came from the peer to this host, outside of any VLAN.
    pub(crate) fn is_peers(&self, index: usize) -> bool {
        let name = &self.names[index];
        socket::is_ours(name) && socket::hardware_of(name) == self.peer
    }

    /// Whether a frame with this header came from the peer to this host, outside of any VLAN.
    pub(crate) fn is_of_peer(&self, head: &[u8; AROUND]) -> bool {
        let (to, rest) = head.split_at(6);
        let (from, kind) = rest.split_at(6);
        (to, from, kind) == (&self.own, &self.peer, &ETHERTYPE.to_be_bytes())
    }

    /// Why nothing can be received any more, if that is so.
    pub(crate) fn gone(&self, socket: &Socket) -> Option<NoEthernet> {
        socket::is_gone(socket, self.interface).then_some(NoEthernet::Gone)
    }
}
