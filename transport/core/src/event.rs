//! Defines the events that the engine reports to its user.

use crate::request::RemoteRegion;
use crate::transfer::{Delivery, TransferId};
use core::fmt;
use zerolane_wire::{Profile, Reason};

/// Why a Transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// Cancelled at this end.
    Cancelled,
    /// The Transfer has `length` bytes; the matching receive has room for `room`.
    MessageTooLarge {
        /// Length of the Transfer, bytes.
        length: u64,
        /// Room of the receive, bytes.
        room: u64,
    },
    /// The peer finished sending, and earlier receives took everything that it sent.
    Finished,
    /// The peer refused or aborted it.
    Refused(Reason),
    /// The connection ended first.
    Closed(CloseReason),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// This end closed it and the peer agreed.
    Local,
    /// The peer closed it, with this reason.
    Peer(Reason),
    /// The peer rejected the connection. It speaks these versions.
    Rejected {
        /// Why.
        reason: Reason,
        /// Oldest version of the peer.
        version_min: u8,
        /// Newest version of the peer.
        version_max: u8,
    },
    /// The peer refused the key exchange. Not authenticated: any machine on the path can forge this.
    ExchangeRefused(Reason),
    /// The peer proved that it owns this public key (X25519), which is not trusted.
    Untrusted([u8; 32]),
    /// No answer while connecting.
    ConnectTimeout,
    /// The peer left requests unanswered for the idle timeout.
    PeerDead,
    /// Short datagrams reach the peer; those of the least size that every path must carry do not.
    PathTooNarrow {
        /// MTU of that size, bytes: 576 over IPv4, 1280 otherwise.
        mtu: u32,
    },
    /// The network reported that the address is unreachable.
    Unreachable,
    /// The peer broke the protocol.
    Violation,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Local => f.write_str("closed by this end"),
            CloseReason::Peer(reason) => write!(f, "closed by the peer: {}", reason.text()),
            CloseReason::Rejected {
                reason: Reason::VersionMismatch,
                version_min,
                version_max,
            } => {
                write!(
                    f,
                    "rejected: the peer speaks protocol versions {version_min} to {version_max}, \
                     this end {} to {}",
                    zerolane_wire::VERSION_MIN,
                    zerolane_wire::VERSION
                )
            }
            CloseReason::Rejected { reason, .. } => write!(f, "rejected: {}", reason.text()),
            CloseReason::ExchangeRefused(reason) => write!(f, "refused: {}", reason.text()),
            CloseReason::Untrusted(_) => f.write_str("the peer's key is not trusted"),
            CloseReason::ConnectTimeout => f.write_str("no answer"),
            CloseReason::PeerDead => f.write_str("the peer stopped answering"),
            CloseReason::PathTooNarrow { mtu } => write!(
                f,
                "packets of {mtu} bytes do not reach the peer, but shorter ones do: raise the MTU of \
                 the tunnel or VPN on the path to {mtu} or more"
            ),
            CloseReason::Unreachable => f.write_str("nothing listens there"),
            CloseReason::Violation => f.write_str("the peer broke the protocol"),
        }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Cancelled => f.write_str("cancelled"),
            TransferError::MessageTooLarge { length, room } => {
                write!(
                    f,
                    "message too large: {length} bytes for a receive of {room} bytes"
                )
            }
            TransferError::Finished => f.write_str("the peer finished sending: nothing more comes"),
            TransferError::Refused(reason) => write!(f, "refused by the peer: {}", reason.text()),
            TransferError::Closed(reason) => write!(f, "connection ended: {reason}"),
        }
    }
}

impl core::error::Error for CloseReason {}

impl core::error::Error for TransferError {}

/// An event of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is established, in this profile.
    Connected(Profile),
    /// The connection ended. The last event.
    Closed(CloseReason),
    /// A Transfer of this length waits for a receive to be posted.
    Announced {
        /// Bytes.
        length: u64,
    },
    /// A posted send is complete at the receiver.
    Sent {
        /// Which.
        id: TransferId,
    },
    /// A posted receive is complete: its memory holds the payload once the lane has done the moves of
    /// [`crate::Placement::Move`].
    Received {
        /// Which.
        id: TransferId,
        /// Bytes received.
        length: u64,
        /// Delivery mode that the sender asked for.
        delivery: Delivery,
    },
    /// A FetchOp was executed exactly once.
    Fetched {
        /// Which.
        id: TransferId,
        /// The word's previous value.
        value: u64,
    },
    /// The peer granted access to the requested region.
    Region {
        /// Which request.
        id: TransferId,
        /// The region.
        region: RemoteRegion,
    },
    /// A message came.
    Message {
        /// The matching receive.
        id: TransferId,
        /// Bytes of control.
        control: u32,
        /// Bytes of payload.
        payload: u64,
    },
    /// The peer's put with this immediate, and all puts before it, are placed.
    Immediate {
        /// The number.
        value: u32,
        /// The region that the put wrote.
        region: RemoteRegion,
        /// Bytes of the put.
        length: u64,
    },
    /// A posted Transfer failed. The engine no longer touches its memory.
    Failed {
        /// Which.
        id: TransferId,
        /// Why.
        error: TransferError,
    },
}
