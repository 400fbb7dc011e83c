//! Encodes and parses the contents of messages: a unit of SST, and where its data is.
//!
//! | message | bytes |
//! |---|---|
//! | login of an initiator | [`Login`], then the key of its status region, 24 |
//! | login of a target | [`Login`]; if both ends know capsules, then the key of its region of them, 24 |
//! | command without data, or with its data in the capsule of its slot | [`CommandUnit`] |
//! | command with data | [`CommandUnit`], then the key of the region with its data, 24, where in it they begin, 8 |
//! | task management | [`ManagementUnit`] |

use zerolane::{RegionKey, Rights};
use zerolane_block::sst::{
    COMMAND_BYTES, CommandUnit, LOGIN_BYTES, Login, Malformed, ManagementUnit,
};

/// Length of the name of a region.
const KEY: usize = RegionKey::BYTES;
/// Length of the login of an initiator, or of a target with capsules.
const LOGIN_WITH_KEY: usize = LOGIN_BYTES + KEY;
/// Length of a command with data in the initiator's memory.
const WITH_PLACE: usize = COMMAND_BYTES + KEY + 8;

/// The place of a command's data: part of a region that the initiator exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region.
    pub region: RegionKey,
    /// Where in it the data begins, bytes.
    pub offset: u64,
}

/// How the data of a command travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// It has none.
    None,
    /// In the target's memory: the initiator put it into the capsule of the command's slot before it sent the command.
    InCapsule,
    /// In memory of the initiator's.
    At(Place),
}

/// A message of an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first of all, and where statuses are put.
    Login(Login, RegionKey),
    /// A command, and where its data is.
    Command(CommandUnit, Data),
    /// A task management function.
    Management(ManagementUnit),
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// The unit is none.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The bytes are not a valid region key.
    #[error("an invalid region key")]
    Key,
    /// The named region is too small for the announced data, or does not grant the access.
    #[error("a region too small for its data, or without the right of access")]
    Region,
}

/// Encodes an initiator's login.
pub fn login(login: &Login, status: &RegionKey) -> Vec<u8> {
    [&login.encode()[..], &status.to_bytes()].concat()
}

/// Encodes a target's login.
pub fn target_login(login: &Login, capsules: Option<&RegionKey>) -> Vec<u8> {
    let mut bytes = login.encode().to_vec();
    bytes.extend(capsules.into_iter().flat_map(RegionKey::to_bytes));
    bytes
}

/// Parses a target's login, and the place of its capsules.
///
/// # Errors
/// The bytes are not a valid login.
pub fn parse_target_login(bytes: &[u8]) -> Result<(Login, Option<RegionKey>), BadMessage> {
    if bytes.len() != LOGIN_WITH_KEY {
        return Ok((Login::parse(bytes)?, None));
    }
    let (unit, rest) = bytes.split_at(LOGIN_BYTES);
    Ok((Login::parse(unit)?, Some(key(rest)?)))
}

/// Encodes a command.
pub fn command(unit: &CommandUnit, data: &Data) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(WITH_PLACE);
    bytes.extend(unit.encode());
    if let Data::At(place) = data {
        bytes.extend(place.region.to_bytes());
        bytes.extend(place.offset.to_be_bytes());
    }
    bytes
}

/// Parses a message of an initiator. Checks that data in its memory lies within its region, which must grant the
/// access. The target must check whether data in a capsule fits.
///
/// # Errors
/// The bytes are not a valid message.
pub fn parse(bytes: &[u8]) -> Result<Message, BadMessage> {
    match (bytes.first(), bytes.len()) {
        (Some(b'Z'), LOGIN_WITH_KEY) => {
            let (unit, rest) = bytes.split_at(LOGIN_BYTES);
            Ok(Message::Login(Login::parse(unit)?, key(rest)?))
        }
        (Some(1), WITH_PLACE) => {
            let (unit, rest) = bytes.split_at(COMMAND_BYTES);
            let unit = CommandUnit::parse(unit)?;
            let place = place(rest)?;
            check(&unit, &place)?;
            Ok(Message::Command(unit, Data::At(place)))
        }
        (Some(1), _) => {
            let unit = CommandUnit::parse(bytes)?;
            match (unit.data_in, unit.data_out) {
                (0, 0) => Ok(Message::Command(unit, Data::None)),
                (0, _) => Ok(Message::Command(unit, Data::InCapsule)),
                _ => Err(BadMessage::Region),
            }
        }
        // This also refuses unknown kinds.
        _ => Ok(Message::Management(ManagementUnit::parse(bytes)?)),
    }
}

fn key(bytes: &[u8]) -> Result<RegionKey, BadMessage> {
    let bytes = bytes.first_chunk().ok_or(BadMessage::Key)?;
    RegionKey::from_bytes(*bytes).ok_or(BadMessage::Key)
}

fn place(bytes: &[u8]) -> Result<Place, BadMessage> {
    let (region, offset) = bytes.split_at(KEY);
    let offset = offset.first_chunk().ok_or(BadMessage::Key)?;
    Ok(Place {
        region: key(region)?,
        offset: u64::from_be_bytes(*offset),
    })
}

/// Data of the unit lies in its place, and may be moved as the unit says.
fn check(unit: &CommandUnit, place: &Place) -> Result<(), BadMessage> {
    let granted = place.region.rights();
    let moves = [(unit.data_in, granted.write), (unit.data_out, granted.read)];
    let fits = |bytes: u64| {
        let end = place.offset.checked_add(bytes);
        end.is_some_and(|end| end <= place.region.len())
    };
    let is_right = moves
        .iter()
        .all(|&(bytes, may)| bytes == 0 || may && fits(bytes));
    is_right.then_some(()).ok_or(BadMessage::Region)
}

/// The rights of a region for data of a command.
pub(crate) fn rights(is_in: bool) -> Rights {
    if is_in { Rights::WRITE } else { Rights::READ }
}
