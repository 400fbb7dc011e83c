//! Counts what the engine sends, receives and drops; the lane counts datagrams and their bytes.

use crate::links::PathLife;
use core::time::Duration;

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// Not a Scheduled Transfer operation, or one with a broken field.
    Malformed,
    /// Port or key differ from this connection's.
    WrongKey,
    /// No live grant has that Mx: the datagram is late, repeated after completion, or forged.
    NoGrant,
    /// Outside the granted Block, or across a buffer boundary.
    OutOfBounds,
    /// Received already.
    Duplicate,
    /// Checksum mismatch.
    Checksum,
    /// A limit was reached. The payload is asked for again later.
    Limit,
    /// The operation is invalid in the present state.
    Unexpected,
    /// An operation with a lower number must be executed first, and is missing.
    Early,
    /// Unsealed, on a protected connection.
    Unprotected,
    /// The seal is invalid: forged, or damaged on the way.
    Forged,
    /// A second copy of a datagram that the peer sealed, made by the network or by an attacker.
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
    /// Of those, retransmitted.
    pub bytes_resent: u64,
    /// Payload bytes received for the first time.
    pub bytes_received: u64,
    /// STUs received, whatever their outcome.
    pub stus_received: u64,
    /// Trains received, whatever their outcome.
    pub trains_received: u64,
    /// Trains with a missing or wrong part. Their payload is asked for again.
    pub trains_broken: u64,
    /// Control operations sent.
    pub control_sent: u64,
    /// Control operations received.
    pub control_received: u64,
    /// Blocks granted, repeats included.
    pub grants_sent: u64,
    /// Reports of missing ranges sent.
    pub reports_sent: u64,
    /// Payload that came unrequested after later payload: the path reordered it.
    pub reordered: u64,
    /// Payload that was asked for again and came too early to be the repair.
    pub spurious_requests: u64,
    /// Transfers of this end whose payload left with its announcement.
    pub eager_sent: u64,
    /// Transfers of the peer whose payload came with its announcement and was accepted.
    pub eager_received: u64,
    /// Of those, Transfers without a posted receive, whose payload was held.
    pub eager_held: u64,
    /// Blocks granted before their Transfers were announced.
    pub granted_in_advance: u64,
    /// Datagrams received that the path had marked "congestion experienced".
    pub ecn_marked: u64,
    /// Datagrams received that were ECN-capable, marked ones included.
    pub ecn_capable: u64,
    /// Datagrams of the program ([`WorkRequest::Datagram`](crate::WorkRequest::Datagram)) that left.
    pub unreliable_sent: u64,
    /// Of those posted, refused because too many waited to leave.
    pub unreliable_refused: u64,
    /// Of those posted, dropped because they expired before they left.
    pub unreliable_expired: u64,
    /// Datagrams of the peer's program that arrived whole.
    pub unreliable_received: u64,
    /// Datagrams of the peer's program of which only some parts arrived.
    pub unreliable_incomplete: u64,
    /// Address changes of the peer or of this end.
    pub migrations: u64,
    /// Paths that stopped answering, so that other paths took over their payload.
    pub paths_lost: u64,
    /// Waits for payload or for an answer that expired.
    pub timeouts: u64,
    /// Times that announced payload was not granted because of [`MAX_LIVE_BLOCKS`](crate::limits::MAX_LIVE_BLOCKS), or
    /// because other connections receive too.
    pub grants_deferred: u64,
    /// Records dropped for lack of room: of overtaken payload ([`MAX_OVERTAKEN`](crate::limits::MAX_OVERTAKEN)), of
    /// bursts in flight ([`MAX_FLIGHT`](crate::limits::MAX_FLIGHT)) and of Transfers ended
    /// ([`MAX_ENDINGS`](crate::limits::MAX_ENDINGS)). The outcome of those is found out later.
    pub records_dropped: u64,
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

/// The state of a path as the connection knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// State of the path, as one of several.
    pub life: PathLife,
    /// Payload bytes sent by it, repeats included.
    pub bytes_sent: u64,
    /// Payload bytes that it lost, as the receiver reported.
    pub bytes_lost: u64,
    /// Payload bytes that it brought for the first time. Counted where both ends accept several paths.
    pub bytes_received: u64,
    /// Smoothed round-trip time, if measured.
    pub rtt: Option<Duration>,
    /// Its mean deviation.
    pub rtt_deviation: Duration,
    /// The shortest round trip of the last 10 to 20 seconds.
    pub min_rtt: Option<Duration>,
    /// How late overtaken payload may be without counting as lost, according to late payload so far.
    pub reordering: Duration,
    /// Most bytes granted ahead, as a receiver.
    pub granted_ahead: u32,
    /// Name of the congestion controller.
    pub controller: &'static str,
    /// Most bytes in flight, as a sender.
    pub congestion_window: u64,
    /// Pace, bytes per second; `None`: unlimited.
    pub pace: Option<u64>,
    /// Bytes sent after the newest burst that the receiver is known to have seen.
    pub in_flight: u64,
    /// MTU from here, known or assumed, bytes. `None`: the path has none.
    pub mtu: Option<u32>,
    /// Whether [`PathState::mtu`] is measured, not assumed.
    pub mtu_probed: bool,
    /// Whether short datagrams pass, but not even those of [`PathState::mtu`]: probed on the first path only.
    pub too_narrow: bool,
}
