//! Honest counting: every byte placed or moved and why, every datagram dropped and where, every
//! syscall and wake-up.

use crate::{NoBypass, NoPath, NoSharedMemory, RingFault};
use zerolane_core::{Counters, PathState};
use zerolane_handshake::Cipher;

/// Why payload was copied again in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum MoveCause {
    /// It landed by forecast, but in another STU's place: loss, reordering, a repair.
    Mispredicted,
    /// It came in a pattern the forecast did not have: another STU size, another number of segments.
    Pattern,
    /// Nothing was forecast: it came before the lane could know its place.
    Unexpected,
    /// A small put, the answer to a small get or the control of a message, which come without announcement
    /// (one copy, by design; strict mode permits it).
    Unannounced,
    /// Sealed, and opened in the lane's own memory (one copy, by design): bound for a mapped file, or for
    /// exported memory where the cipher cannot work on what others may touch at the same time, or where
    /// something failed to open lately.
    OpenedApart,
    /// It came with its announcement, so that no forecast could name its place (one copy, by design; an end
    /// in strict mode asks its peer for none of that).
    Eager,
    /// It came so before a receive was posted, and was kept until then: the second copy.
    Held,
    /// It came through the ring of shared memory: it is short, or the kernel does not let this end read the sender's memory,
    /// or the sender's memory may change or go (one copy more than by reference).
    Ring,
}

impl MoveCause {
    /// All causes.
    pub const ALL: [MoveCause; 8] = [
        MoveCause::Mispredicted,
        MoveCause::Pattern,
        MoveCause::Unexpected,
        MoveCause::Unannounced,
        MoveCause::OpenedApart,
        MoveCause::Eager,
        MoveCause::Held,
        MoveCause::Ring,
    ];
}

/// Whether sends do without the kernel's copy (MSG_ZEROCOPY), and if not, why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Zerocopy {
    /// Not wanted.
    #[default]
    Off,
    /// Nothing was sent yet that could show it.
    Untried,
    /// A probe is out whose memory the kernel still has.
    Probing,
    /// The kernel copies all the same, as it always does on loopback and veth.
    Copied,
    /// The kernel, or what it runs in, does not permit it.
    Refused,
    /// Done where datagrams are large enough for it to pay.
    Used,
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LaneKind {
    /// UDP datagrams.
    #[default]
    Udp,
    /// Memory that two processes of one host and user share. Nothing is encrypted there: the kernel keeps others out.
    SharedMemory,
    /// Frames of raw Ethernet.
    Ethernet,
    /// Packets of IP protocol 118.
    Ip118,
}

/// Totals of one connection since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Payload bytes that came to where they belong without a copy in user space: the kernel placed them, or they were
    /// opened there, as those of a train.
    pub bytes_placed: u64,
    moved: [u64; MoveCause::ALL.len()],
    /// Payload bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Of these, the bytes that the kernel sent from where they lay, without a copy of its own.
    pub bytes_given: u64,
    /// Datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// Datagrams taken from the kernel.
    pub datagrams_received: u64,
    /// sendmsg and sendmmsg calls that carried Data.
    pub tx_data_syscalls: u64,
    /// Of these, sendmsg calls whose payload the kernel was lent instead of copying it.
    pub tx_zerocopy_syscalls: u64,
    /// sendmsg calls that carried control operations.
    pub tx_control_syscalls: u64,
    /// recvmmsg calls that brought Data.
    pub rx_data_syscalls: u64,
    /// recvmmsg calls that brought only control operations.
    pub rx_control_syscalls: u64,
    /// recvmmsg calls that found nothing.
    pub rx_empty_polls: u64,
    /// Times the thread slept and was woken by a datagram.
    pub wakeups: u64,
    /// Short naps of a receiver while much payload was in flight.
    pub naps: u64,
    /// Times the thread slept until a timer.
    pub sleeps: u64,
    /// Datagrams the kernel dropped because the receive buffer was full (SO_RXQ_OVFL).
    pub dropped_socket_buffer: u64,
    /// Datagrams longer than the lane takes.
    pub dropped_truncated: u64,
    /// Frames of raw Ethernet with this connection's key that its peer did not send it: from another hardware address, to
    /// another host, or of a VLAN.
    pub dropped_foreign: u64,
    /// Datagrams the interface refused to send (down, unreachable, too large).
    pub dropped_on_send: u64,
    /// Paths that were to be added and could not be: no such address, no way there, or the peer takes no more.
    pub paths_refused: u64,
    /// Why the last of these could not be. At an end that takes paths over raw Ethernet
    /// ([`Options::ethernet_paths`](crate::Options::ethernet_paths)) also why it cannot hear of any.
    pub no_path: Option<NoPath>,
    /// Receive buffer the kernel granted, bytes.
    pub receive_buffer: usize,
    /// What carries the connection.
    pub lane: LaneKind,
    /// Frames of raw Ethernet come and leave by AF_XDP, past the kernel's network stack.
    pub bypass: bool,
    /// Why they do not, where [`Options::device`](crate::Options::device) was to have them do so.
    pub no_bypass: Option<NoBypass>,
    /// Why no shared memory carries it, where that was asked for.
    pub no_shared_memory: Option<NoSharedMemory>,
    /// How the peer broke the memory that was shared with it, which ended the connection.
    pub ring_fault: Option<RingFault>,
    /// Records of shared memory whose payload was not the peer's any more when it had been copied: it was not used.
    pub dropped_void: u64,
    /// Puts, gets and atomic operations of this end that were done in the peer's memory as mapped here, without the
    /// peer's CPU.
    pub direct_operations: u64,
    /// Bytes that they moved. They are in no other count.
    pub bytes_direct: u64,
    /// Regions that the peer passed to be mapped and that could not be: other memory than what was said, or the system
    /// has no room. Operations on them go by the peer.
    pub regions_not_mapped: u64,
    /// Segmentation offload in use at present.
    pub gso: bool,
    /// Receive offload in use at present.
    pub gro: bool,
    /// What seals the datagrams; `None` in plain mode, and before the key exchange is done.
    pub cipher: Option<Cipher>,
    /// Sends without the kernel's copy.
    pub zerocopy: Zerocopy,
    /// Payload bytes of an STU at present.
    pub stu: u32,
    /// What is known of the path at present, and what follows from it.
    pub path: PathState,
    /// What the protocol engine counted.
    pub protocol: Counters,
}

impl Account {
    /// Payload bytes copied again in user space for `cause`.
    pub fn moved(&self, cause: MoveCause) -> u64 {
        self.moved[cause as usize]
    }

    /// Payload bytes copied again in user space.
    pub fn bytes_moved(&self) -> u64 {
        self.moved.iter().sum()
    }

    pub(crate) fn count_moved(&mut self, cause: MoveCause, bytes: u64) {
        self.moved[cause as usize] += bytes;
    }
}
