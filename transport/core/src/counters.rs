//! What the engine counts. Bytes and datagrams are the lane's to count.

use crate::PathLife;
use core::time::Duration;

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// Not a Scheduled Transfer operation, or one with a broken field.
    Malformed,
    /// Port or key are not this connection's.
    WrongKey,
    /// No grant of that Mx lives: late, repeated after completion, or made up.
    NoGrant,
    /// Outside the Block granted, or across a buffer boundary.
    OutOfBounds,
    /// Received already.
    Duplicate,
    /// Checksum mismatch.
    Checksum,
    /// A limit was reached: asked for again later.
    Limit,
    /// The operation makes no sense in the present state.
    Unexpected,
    /// One with a lower number has to be executed first, and is missing.
    Early,
    /// Not sealed, where everything is.
    Unprotected,
    /// The seal does not hold: forged, or damaged on the way.
    Forged,
    /// Sealed by the peer, and here already: a copy made on the way, or by an attacker.
    Replayed,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [DropReason; 12] = [
        DropReason::Malformed,
        DropReason::WrongKey,
        DropReason::NoGrant,
        DropReason::OutOfBounds,
        DropReason::Duplicate,
        DropReason::Checksum,
        DropReason::Limit,
        DropReason::Unexpected,
        DropReason::Early,
        DropReason::Unprotected,
        DropReason::Forged,
        DropReason::Replayed,
    ];
}

/// Totals since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Payload bytes handed to the lane for sending, repairs included.
    pub bytes_sent: u64,
    /// Of those, sent again.
    pub bytes_resent: u64,
    /// Payload bytes received for the first time.
    pub bytes_received: u64,
    /// STUs received, whatever became of them.
    pub stus_received: u64,
    /// Trains received, whatever became of them.
    pub trains_received: u64,
    /// Trains of which something was missing or wrong: their payload is asked for again.
    pub trains_spoiled: u64,
    /// Control operations sent.
    pub control_sent: u64,
    /// Control operations received.
    pub control_received: u64,
    /// Blocks granted, repeats included.
    pub grants_sent: u64,
    /// Reports of missing ranges sent.
    pub reports_sent: u64,
    /// Payload that came after later payload without having been asked for: the path reordered it.
    pub reordered: u64,
    /// Payload that was asked for again and came before a repair can have come.
    pub asked_in_vain: u64,
    /// Transfers of this end whose payload left with its announcement.
    pub eager_sent: u64,
    /// Transfers of the peer whose payload came with its announcement and was taken.
    pub eager_received: u64,
    /// Of those, the ones that no receive was posted for: their payload was held.
    pub eager_held: u64,
    /// Blocks granted before their Transfers were announced.
    pub granted_in_advance: u64,
    /// Datagrams received that the path had marked "congestion experienced".
    pub marked: u64,
    /// Datagrams received that the path could have marked (ECN-capable), those marked included.
    pub capable: u64,
    /// Times that an address changed, the peer's or ours.
    pub moves: u64,
    /// Paths that did not answer, so that what they carried went by others.
    pub paths_lost: u64,
    /// Times a wait for payload or for an answer ran out.
    pub timeouts: u64,
    /// Times that no more was granted of what a peer announced, because of
    /// [`MAX_LIVE_BLOCKS`](crate::limits::MAX_LIVE_BLOCKS), or because other connections receive too.
    pub grants_held: u64,
    /// Notes that were given up for want of room: of overtaken payload
    /// ([`MAX_OVERTAKEN`](crate::limits::MAX_OVERTAKEN)), of bursts in flight
    /// ([`MAX_FLIGHT`](crate::limits::MAX_FLIGHT)) and of Transfers ended
    /// ([`MAX_ENDINGS`](crate::limits::MAX_ENDINGS)). What became of those is found out later.
    pub forgotten: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Data operations or control datagrams dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// All drops.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason, n: u64) {
        self.drops[reason as usize] += n;
    }
}

/// What a connection knows of its path, and what follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Where it stands, as one of several.
    pub life: PathLife,
    /// Payload bytes that left by it, repeats included.
    pub bytes_sent: u64,
    /// Payload bytes that it lost, as far as the receiver said so.
    pub bytes_lost: u64,
    /// Payload bytes that came by it for the first time. Counted where both ends take several paths.
    pub bytes_received: u64,
    /// Smoothed round-trip time, if one was measured.
    pub rtt: Option<Duration>,
    /// Its mean deviation.
    pub rtt_deviation: Duration,
    /// The shortest of the last 10 to 20 seconds.
    pub min_rtt: Option<Duration>,
    /// How late overtaken payload may be without counting as lost, as far as late payload was seen.
    pub reordering: Duration,
    /// Bytes granted ahead at most, as a receiver.
    pub granted_ahead: u32,
    /// What the congestion controller is called.
    pub controller: &'static str,
    /// Bytes that may be in flight, as a sender.
    pub congestion_window: u64,
    /// Bytes per second at which they leave; `None`: as fast as they can.
    pub pace: Option<u64>,
    /// Bytes sent after the newest that the receiver is known to have seen.
    pub in_flight: u64,
    /// MTU of what it is known, or thought, to carry from here, bytes. `None`: it has none.
    pub mtu: Option<u32>,
    /// Whether [`PathState::mtu`] is no guess any more.
    pub mtu_probed: bool,
}
