//! What an initiator is cut off for.

use std::collections::BTreeMap;

use zerolane::Error;
use zerolane::failure::PostError;

use crate::limits::TARGET_TRANSFER_BYTES;

/// Why an initiator was cut off: it did what no initiator of this protocol does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Offence {
    /// Bytes that are no message.
    #[error("a message that is none")]
    Message,
    /// Not a login at first, or a second one.
    #[error("a login where none belongs, or none where one does")]
    Login,
    /// A status region that is too small, or not granted.
    #[error("a status region too small for its slots")]
    StatusRegion,
    /// A slot that it has not, or that is in use.
    #[error("a slot that it has not, or that is in use")]
    Slot,
    /// More payload than a command may have.
    #[error("more than {TARGET_TRANSFER_BYTES} bytes in one command")]
    Length,
    /// More data in the capsule of a command than that has, or no capsules were agreed on.
    #[error("more data in a capsule than there is room for")]
    Capsule,
    /// The memory it named is not there.
    #[error("memory that it does not export")]
    Memory,
    /// No login, or no data, for too long, or data too slowly.
    #[error("what it owes did not come for too long")]
    Silence,
    /// It takes no statuses.
    #[error("it does not take what it is told")]
    Full,
    /// It sends what no initiator does: Transfers.
    #[error("a Transfer, for which there is no use")]
    Transfer,
}

/// How often it was for what.
pub type Offences = BTreeMap<Offence, u64>;

/// What it says of an initiator that nothing was posted to. One that is gone has done nothing wrong: that the connection is
/// over is told by an event.
pub(super) fn not_posted(why: &Error) -> Result<(), Offence> {
    match why {
        Error::Closed(_) | Error::Post(PostError::Closed | PostError::Finished) => Ok(()),
        Error::Post(PostError::Full) => Err(Offence::Full),
        _ => Err(Offence::Memory),
    }
}
