//! Counts what a connection did: each byte placed or moved and why, each datagram dropped and where, each system call
//! and wake-up.

mod json;

use crate::unavailable::{NoBypass, NoPath, NoSharedMemory, RingFault};
use zerolane_core::{Counters, PathState};
use zerolane_handshake::Cipher;

/// Why payload was copied once more in user space, into its place. Copies among the lane's own buffers before that are
/// not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum MoveCause {
    /// It landed by forecast, but in the place of another STU, after a loss, a reordering or a repair.
    Mispredicted,
    /// It came in a pattern that the forecast did not have: another STU size, or another number of segments.
    Pattern,
    /// There was no forecast: it came before the lane could know its place.
    Unexpected,
    /// It came without announcement: a small put, the answer to a small get, or the control of a message (one copy, by
    /// design; strict mode permits it).
    Unannounced,
    /// It was sealed, and opened in the lane's own memory (one copy, by design). This happens to payload for a mapped
    /// file. It also happens to payload for exported memory if the cipher cannot work on memory that others may access
    /// meanwhile, or if a datagram failed to open recently.
    OpenedOutOfPlace,
    /// It came with its announcement, so no forecast could name its place (one copy, by design). In strict mode an end
    /// asks its peer to send no such payload.
    Eager,
    /// It came with its announcement before a receive was posted, and was kept until then. This counts the second copy.
    Held,
    /// It came through the shared-memory ring, which costs one copy more than a reference. The reason is that it is
    /// short, that the kernel does not let this end read the sender's memory, or that the sender's memory may change or
    /// be freed.
    Ring,
}

impl MoveCause {
    /// All causes.
    pub const ALL: [MoveCause; 8] = [
        MoveCause::Mispredicted,
        MoveCause::Pattern,
        MoveCause::Unexpected,
        MoveCause::Unannounced,
        MoveCause::OpenedOutOfPlace,
        MoveCause::Eager,
        MoveCause::Held,
        MoveCause::Ring,
    ];
}

/// Whether sends avoid the kernel's copy (MSG_ZEROCOPY), and if not, why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Zerocopy {
    /// Not requested.
    #[default]
    Off,
    /// No send so far could show it.
    Untried,
    /// A probe was sent, and the kernel still holds its memory.
    Probing,
    /// The kernel copies anyway, as it always does on loopback and veth.
    Copied,
    /// The kernel or its sandbox does not permit it.
    Refused,
    /// Used where datagrams are large enough for it to pay.
    Used,
}

/// The kind of lane that carries a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LaneKind {
    /// UDP datagrams.
    #[default]
    Udp,
    /// Memory that two processes of one host and user share. It is not encrypted: the kernel keeps other users out.
    SharedMemory,
    /// Frames of raw Ethernet.
    Ethernet,
    /// Packets of IP protocol 118.
    Ip118,
}

/// Totals of one connection since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Payload bytes that reached their place without a copy in user space: the kernel placed them, this end
    /// decrypted them in their place or into it, or AF_XDP's one copy, which replaces the kernel's, did.
    pub bytes_placed: u64,
    moved: [u64; MoveCause::ALL.len()],
    /// Payload bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Of [`Account::bytes_sent`], the bytes that the kernel sent from where they lay, without its own copy.
    pub bytes_sent_zerocopy: u64,
    /// Datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// Datagrams taken from the kernel.
    pub datagrams_received: u64,
    /// sendmsg and sendmmsg calls that carried Data.
    pub tx_data_syscalls: u64,
    /// Of [`Account::tx_data_syscalls`], sendmsg calls that lent payload to the kernel instead of having it copied.
    pub tx_zerocopy_syscalls: u64,
    /// sendmsg calls that carried control operations.
    pub tx_control_syscalls: u64,
    /// recvmsg and recvmmsg calls that brought Data.
    pub rx_data_syscalls: u64,
    /// recvmsg and recvmmsg calls that brought only control operations.
    pub rx_control_syscalls: u64,
    /// recvmsg and recvmmsg calls that found nothing.
    pub rx_empty_polls: u64,
    /// Times the thread slept and was woken by a datagram.
    pub wakeups: u64,
    /// Short naps of a receiver while much payload was in flight.
    pub naps: u64,
    /// Times the thread slept until a timer expired.
    pub sleeps: u64,
    /// Datagrams the kernel dropped because the receive buffer was full (SO_RXQ_OVFL).
    pub dropped_socket_buffer: u64,
    /// Datagrams longer than the lane takes.
    pub dropped_truncated: u64,
    /// Raw Ethernet frames with this connection's key that its peer did not send: from another hardware address, to
    /// another host, or in a VLAN.
    pub dropped_foreign: u64,
    /// Datagrams the interface refused to send (down, unreachable, too large).
    pub dropped_on_send: u64,
    /// Datagrams of the peer's program dropped because this program did not take those before.
    pub unreliable_unread: u64,
    /// Paths that could not be added: the address does not exist, no route leads there, or the peer accepts no more.
    pub paths_refused: u64,
    /// Why the last of [`Account::paths_refused`] failed. At an end that accepts paths over raw Ethernet
    /// ([`PathOptions::ethernet`](crate::options::PathOptions::ethernet)) also why it cannot receive requests for them.
    pub no_path: Option<NoPath>,
    /// Receive buffer the kernel granted, bytes.
    pub receive_buffer: usize,
    /// The lane that carries the connection.
    pub lane: LaneKind,
    /// Whether raw Ethernet frames come and leave by AF_XDP, past the kernel's network stack.
    pub bypass: bool,
    /// Why they do not, if [`LaneOptions::device`](crate::options::LaneOptions::device) requested it.
    pub no_bypass: Option<NoBypass>,
    /// Why shared memory does not carry the connection, if it was requested.
    pub no_shared_memory: Option<NoSharedMemory>,
    /// How the peer violated the shared-memory protocol, which ended the connection.
    pub ring_fault: Option<RingFault>,
    /// Records of shared memory that the peer had revoked by the time their payload was copied. The payload was
    /// discarded.
    pub dropped_revoked: u64,
    /// Puts, gets and atomic operations that this end carried out in its mapping of the peer's memory, without the
    /// peer's CPU.
    pub direct_operations: u64,
    /// Bytes that [`Account::direct_operations`] moved. No other count includes them.
    pub bytes_direct: u64,
    /// Regions that the peer passed but this end could not map, because the memory was not as announced or the system
    /// has no room. The peer carries out operations on them.
    pub regions_not_mapped: u64,
    /// Whether segmentation offload is in use at present.
    pub gso: bool,
    /// Whether receive offload is in use at present.
    pub gro: bool,
    /// The cipher that seals the datagrams; `None` in plain mode, and before the key exchange completes.
    pub cipher: Option<Cipher>,
    /// Whether sends avoid the kernel's copy.
    pub zerocopy: Zerocopy,
    /// Payload bytes of an STU at present.
    pub stu: u32,
    /// The present state of the path.
    pub path: PathState,
    /// Counters of the protocol engine.
    pub protocol: Counters,
}

impl Account {
    /// Payload bytes copied once more in user space for `cause`.
    pub fn moved(&self, cause: MoveCause) -> u64 {
        self.moved[cause as usize]
    }

    /// Payload bytes copied once more in user space.
    pub fn bytes_moved(&self) -> u64 {
        self.moved.iter().sum()
    }

    pub(crate) fn count_moved(&mut self, cause: MoveCause, bytes: u64) {
        self.moved[cause as usize] += bytes;
    }
}
