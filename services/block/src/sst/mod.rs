//! Encodes and parses the messages of SCSI over Scheduled Transfer (row P1.11), without IO.
//!
//! | unit | sent as |
//! |---|---|
//! | [`Login`] | a message, both ways, before all others |
//! | [`CommandUnit`] | a message, with the place of its data unless the capsule holds the data |
//! | [`ManagementUnit`] | a message |
//! | [`StatusUnit`] | a Put into the initiator's status region, at its slot |
//!
//! The thesis carries the first three as option payloads of Nop, Request_To_Send and Request_To_Receive. Messages are
//! repeated when lost, in order and bounded by the receiver, which Nops are not.
//!
//! Each message has a fixed length, which the parser checks first. Reserved bytes are sent as zero and otherwise refused: a
//! later version may give them a meaning that this version must not ignore.

mod login;
mod status;
mod unit;

pub use login::{LOGIN_BYTES, Login, MAX_SLOTS, Roles};
pub use status::{Outcome, STATUS_BYTES, StatusUnit};
pub use unit::{COMMAND_BYTES, CommandUnit, MANAGEMENT_BYTES, ManagementUnit};

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not the length that the message has.
    #[error("a message of {0} bytes")]
    Length(usize),
    /// The field of that name has a value that it cannot have.
    #[error("{field}: {value}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it is.
        value: u64,
    },
}

impl Malformed {
    fn field(field: &'static str, value: impl Into<u64>) -> Malformed {
        let value = value.into();
        Malformed::Field { field, value }
    }
}

/// All of `bytes`, if they are as many.
fn exactly<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed::Length(bytes.len()))
}

/// Refuses reserved bytes that are not zero.
fn reserved(bytes: &[u8]) -> Result<(), Malformed> {
    match bytes.iter().find(|&&it| it != 0) {
        Some(&value) => Err(Malformed::field("reserved", value)),
        None => Ok(()),
    }
}
