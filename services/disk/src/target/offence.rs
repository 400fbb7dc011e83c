//! Defines the protocol violations for which a target disconnects an initiator.

use std::collections::BTreeMap;

use zerolane::Error;
use zerolane::failure::PostError;

use crate::limits::TARGET_TRANSFER_BYTES;

/// The protocol violation for which an initiator was disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Offence {
    /// Bytes that are not a valid message.
    #[error("an invalid message")]
    Message,
    /// A first message that is not a login, or a second login.
    #[error("a login missing or not allowed here")]
    Login,
    /// A status region that is too small, or not granted.
    #[error("a status region too small for its slots")]
    StatusRegion,
    /// A slot that does not exist, or is in use.
    #[error("a slot that does not exist, or is in use")]
    Slot,
    /// More payload than a command may have.
    #[error("more than {TARGET_TRANSFER_BYTES} bytes in one command")]
    Length,
    /// More data in the capsule of a command than that has, or no capsules were agreed on.
    #[error("more data in a capsule than fits")]
    Capsule,
    /// The memory it named is not there.
    #[error("memory that the initiator does not export")]
    Memory,
    /// No login, or no data, for too long, or data too slowly.
    #[error("a login or data did not arrive in time")]
    Silence,
    /// It does not receive its statuses.
    #[error("it does not receive its statuses")]
    Full,
    /// It sends Transfers, which this protocol does not use.
    #[error("a Transfer, which this protocol does not use")]
    Transfer,
}

/// The number of initiators disconnected for each offence.
pub type Offences = BTreeMap<Offence, u64>;

/// The offence of an initiator to which nothing could be posted. A departed initiator has committed none: an event
/// reports the end of its connection.
pub(super) fn not_posted(why: &Error) -> Result<(), Offence> {
    match why {
        Error::Closed(_) | Error::Post(PostError::Closed | PostError::Finished) => Ok(()),
        Error::Post(PostError::Full) => Err(Offence::Full),
        _ => Err(Offence::Memory),
    }
}
