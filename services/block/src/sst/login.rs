//! Encodes and parses the login, the first message of each end.

use super::{Malformed, exactly, reserved};
use crate::bytes::number;

/// Length of a [`Login`].
pub const LOGIN_BYTES: usize = 32;

/// Most status slots, and so commands at a time, of an initiator: 64 KiB of status region.
pub const MAX_SLOTS: u16 = 1024;

const MAGIC: &[u8; 4] = b"ZSST";
const VERSION: u8 = 1;

/// Largest alignment: a page.
const MAX_ALIGNMENT: u8 = 12;

/// The roles of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// It sends commands.
    pub initiator: bool,
    /// It has units.
    pub target: bool,
}

/// The login. Each end sends its own values, and the smaller of both applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login {
    /// The roles of the sender, at least one.
    pub roles: Roles,
    /// Binary logarithm of the alignment that data must have, 0 to 12.
    pub alignment: u8,
    /// Number of a target's units; zero from an end that is not a target.
    pub units: u16,
    /// Most simultaneous commands, 1 to [`MAX_SLOTS`]; from an initiator also the slots of its status region.
    pub slots: u16,
    /// Most payload of a command, bytes.
    pub transfer_bytes: u32,
    /// Most write data in the capsule of a command, bytes. Zero from an end without capsules, as in the first version.
    pub capsule_bytes: u32,
    /// From an initiator: identifies it over all its connections, so that the target finishes the work of an older
    /// connection before a newer one begins. From a target: changes when unflushed writes may be lost.
    pub session: u64,
}

impl Login {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; LOGIN_BYTES] {
        let mut bytes = [0; LOGIN_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = VERSION;
        bytes[5] = u8::from(self.roles.initiator) | u8::from(self.roles.target) << 1;
        bytes[6] = self.alignment;
        bytes[8..10].copy_from_slice(&self.units.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.slots.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.transfer_bytes.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.capsule_bytes.to_be_bytes());
        bytes[24..].copy_from_slice(&self.session.to_be_bytes());
        bytes
    }

    /// Parses the message.
    ///
    /// # Errors
    /// The bytes are not a login, are of another version, or come from an end without a usable role.
    pub fn parse(bytes: &[u8]) -> Result<Login, Malformed> {
        let bytes = exactly::<LOGIN_BYTES>(bytes)?;
        if bytes[..4] != *MAGIC {
            return Err(Malformed::field("magic", number(&bytes[..4])));
        }
        if bytes[4] != VERSION {
            return Err(Malformed::field("version", bytes[4]));
        }
        let roles = bytes[5];
        if !(1..=3).contains(&roles) {
            return Err(Malformed::field("roles", roles));
        }
        if bytes[6] > MAX_ALIGNMENT {
            return Err(Malformed::field("alignment", bytes[6]));
        }
        let slots = number(&bytes[10..12]) as u16;
        if !(1..=MAX_SLOTS).contains(&slots) {
            return Err(Malformed::field("slots", slots));
        }
        reserved(&bytes[7..8])?;
        reserved(&bytes[16..20])?;
        Ok(Login {
            roles: Roles {
                initiator: roles & 1 == 1,
                target: roles & 2 == 2,
            },
            alignment: bytes[6],
            units: number(&bytes[8..10]) as u16,
            slots,
            transfer_bytes: number(&bytes[12..16]) as u32,
            capsule_bytes: number(&bytes[20..24]) as u32,
            session: number(&bytes[24..]),
        })
    }
}
