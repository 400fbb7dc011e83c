//! What the two halves of a datagram lane do more where frames carry the datagrams: a name for each, and a length for those that
//! are too short for a frame.

use super::address::Hardware;
use super::socket::{self, LinkName};
use super::xdp::Grants;
use super::{AROUND, NoEthernet};
use socket2::Socket;
use zerolane_core::{Connection, Transmit};
use zerolane_wire::HEADER_LEN;
use zerolane_wire::encapsulation::{ETHERTYPE, MIN_FRAME, PADDED_FRAME, padding};

/// The sending half.
#[derive(Debug)]
pub(crate) struct OutgoingFrames {
    peer: LinkName,
    /// The start of a short datagram, what is behind it, and the pieces of its frame.
    head: [u8; MIN_FRAME],
    behind: [u8; PADDED_FRAME - HEADER_LEN],
    pieces: Vec<libc::iovec>,
    /// The connection in the program of the device, if there is one.
    grants: Option<Grants>,
}

// SAFETY: the raw pointers in `pieces` are made anew for every system call and mean nothing between two.
unsafe impl Send for OutgoingFrames {}

impl OutgoingFrames {
    pub(super) fn new(interface: u32, peer: Hardware, grants: Option<Grants>) -> OutgoingFrames {
        OutgoingFrames {
            peer: socket::link_name(interface, peer),
            head: [0; MIN_FRAME],
            behind: [0; PADDED_FRAME - HEADER_LEN],
            pieces: Vec::new(),
            grants,
        }
    }

    /// `transmit` is about to leave: the program in the driver has to know what that grants.
    pub(crate) fn note(&mut self, transmit: &Transmit, core: &Connection) {
        if let Some(grants) = &mut self.grants {
            grants.note(transmit, core);
        }
    }

    /// Has `message` go to the peer. The name is read by the call that sends it.
    pub(crate) fn address(&mut self, message: &mut libc::msghdr) {
        message.msg_name = (&raw mut self.peer).cast();
        message.msg_namelen = size_of::<LinkName>() as libc::socklen_t;
    }

    /// The pieces of the frame for the datagram of `pieces`, if it is too short for one as it is. Until the next call.
    ///
    /// # Safety
    /// The first of `pieces`, in which the header is, is memory of the lane's own that can be read.
    pub(crate) unsafe fn pad(&mut self, pieces: &[libc::iovec]) -> Option<&mut [libc::iovec]> {
        let len: usize = pieces.iter().map(|it| it.iov_len).sum();
        if len >= MIN_FRAME {
            return None;
        }
        let (first, rest) = pieces
            .split_first()
            .filter(|it| it.0.iov_len >= HEADER_LEN)?;
        let head = &mut self.head[..first.iov_len];
        // SAFETY: the caller's promise; as long as that, which is no longer than all of them.
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

    /// The longest datagram that the interface carries.
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
    /// Who sent each message of a batch.
    names: Box<[LinkName]>,
}

impl IncomingFrames {
    /// For batches of as many `messages`.
    pub(super) fn new(
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

    /// Has the kernel say who sent message `index`.
    pub(crate) fn ask_name(&mut self, index: usize, message: &mut libc::msghdr) {
        message.msg_name = (&raw mut self.names[index]).cast();
        message.msg_namelen = size_of::<LinkName>() as libc::socklen_t;
    }

    /// Whether message `index` is of the peer, to this host, and of no VLAN.
    pub(crate) fn is_peers(&self, index: usize) -> bool {
        let name = &self.names[index];
        socket::is_ours(name) && socket::hardware_of(name) == self.peer
    }

    /// Whether a frame with this in front of its payload is of the peer, to this host, and of no VLAN.
    pub(crate) fn is_of_peer(&self, head: &[u8; AROUND]) -> bool {
        let (to, rest) = head.split_at(6);
        let (from, kind) = rest.split_at(6);
        (to, from, kind) == (&self.own, &self.peer, &ETHERTYPE.to_be_bytes())
    }

    /// Why nothing will come any more, if that is so.
    pub(crate) fn gone(&self, socket: &Socket) -> Option<NoEthernet> {
        socket::is_gone(socket, self.interface).then_some(NoEthernet::Gone)
    }
}
