//! Defines the reasons for refusals and endings.

use crate::header::{Field, ParseError, Problem};

/// Why a request was refused, or a Transfer or connection ended. Code points in `docs/reference/protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Reason {
    /// The user asked for it; nothing went wrong.
    Normal = 0,
    /// No protocol version in common.
    VersionMismatch = 1,
    /// No profile in common.
    NoCommonProfile = 2,
    /// Nothing listens on that port.
    NoListener = 3,
    /// A limit of the refusing end is reached.
    Busy = 4,
    /// No receive is posted yet: the request is granted once there is one.
    NotReady = 5,
    /// The Transfer is larger than the matching receive ("message too large").
    MessageTooLarge = 6,
    /// Cancelled by the user of the reporting end.
    Cancelled = 7,
    /// The named Transfer, region or connection does not exist.
    Unknown = 8,
    /// Not permitted.
    Denied = 9,
    /// The other end broke the protocol.
    ProtocolViolation = 10,
    /// The reporting end gave up waiting.
    TimedOut = 11,
    /// The process of the reporting end is exiting.
    GoingAway = 12,
    /// The named memory is inaccessible.
    MemoryFault = 13,
    /// Part of the named place lies outside the region.
    OutOfBounds = 14,
    /// The region is no longer exported.
    Revoked = 15,
    /// The other end asked for a connection without protection, and this end requires it.
    ProtectionRequired = 16,
    /// The other end asked for a protected connection, and this end offers none.
    PlainOnly = 17,
    /// The ends ask for different protection: one for encryption, the other for authentication alone.
    OtherProtection = 18,
    /// The reporting end sends nothing more that matches a receive: no Transfer and no message.
    Finished = 19,
    /// The program at the other end refused the connection.
    Refused = 20,
}

impl Reason {
    /// All reasons, in order of their code points.
    pub const ALL: [Reason; 21] = [
        Reason::Normal,
        Reason::VersionMismatch,
        Reason::NoCommonProfile,
        Reason::NoListener,
        Reason::Busy,
        Reason::NotReady,
        Reason::MessageTooLarge,
        Reason::Cancelled,
        Reason::Unknown,
        Reason::Denied,
        Reason::ProtocolViolation,
        Reason::TimedOut,
        Reason::GoingAway,
        Reason::MemoryFault,
        Reason::OutOfBounds,
        Reason::Revoked,
        Reason::ProtectionRequired,
        Reason::PlainOnly,
        Reason::OtherProtection,
        Reason::Finished,
        Reason::Refused,
    ];

    pub(crate) fn parse(param: u16) -> Result<Reason, ParseError> {
        Self::ALL
            .get(usize::from(param))
            .copied()
            .ok_or(ParseError::new(
                Field::Param,
                Problem::Unassigned(u32::from(param)),
            ))
    }

    /// The reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::Normal => "closed normally",
            Reason::VersionMismatch => "no protocol version in common",
            Reason::NoCommonProfile => "no profile in common (both ends must ask for classic)",
            Reason::NoListener => "nothing listens on that port",
            Reason::Busy => "the peer is at its limit",
            Reason::NotReady => "the receiver is not ready",
            Reason::MessageTooLarge => "message too large",
            Reason::Cancelled => "cancelled",
            Reason::Unknown => "no such transfer, region or connection",
            Reason::Denied => "not allowed",
            Reason::ProtocolViolation => "the protocol was violated",
            Reason::TimedOut => "timed out",
            Reason::GoingAway => "the peer is going away",
            Reason::MemoryFault => "the memory could not be accessed",
            Reason::OutOfBounds => "outside the region",
            Reason::Revoked => "the region was revoked",
            Reason::ProtectionRequired => "the peer refuses connections without protection",
            Reason::PlainOnly => "the peer gives no protection: both ends must ask for plain",
            Reason::OtherProtection => {
                "one end asks to encrypt, the other only to authenticate: both must ask for the same"
            }
            Reason::Finished => "the peer finished sending",
            Reason::Refused => "the program there refused the connection",
        }
    }
}
