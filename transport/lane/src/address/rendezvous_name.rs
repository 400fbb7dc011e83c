//! Names the place where both ends of shared memory find each other.

use std::fmt;
use std::str::FromStr;
use zerolane_wire::discovery::is_neighbour_name;

/// A name by which processes of one user and one kernel meet whatever their network namespaces and addresses, for
/// example those of containers that mount one rendezvous directory. One listener at a time has it.
///
/// 1 to 63 letters, digits, `-`, `_` and `.`; the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RendezvousName(String);

/// The error for text that is not a [`RendezvousName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRendezvousName;

impl fmt::Display for BadRendezvousName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("1 to 63 letters, digits, '-', '_' and '.', the first a letter or digit")
    }
}

impl std::error::Error for BadRendezvousName {}

impl FromStr for RendezvousName {
    type Err = BadRendezvousName;

    fn from_str(text: &str) -> Result<RendezvousName, BadRendezvousName> {
        match is_neighbour_name(text) {
            true => Ok(RendezvousName(text.to_owned())),
            false => Err(BadRendezvousName),
        }
    }
}

impl RendezvousName {
    /// The name of its socket. Names for addresses begin with a digit and do not contain this sign.
    pub(crate) fn socket(&self) -> String {
        format!("+{}", self.0)
    }
}
