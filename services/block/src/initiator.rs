//! Names the initiators that send commands.

use std::fmt;

use crate::limits::MAX_NAME_BYTES;

/// The name of an initiator, the same after it reconnects. Registrations are kept under this name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Initiator(Vec<u8>);

impl Initiator {
    /// `None` unless `name` has 1 to [`MAX_NAME_BYTES`] bytes.
    pub fn named(name: &[u8]) -> Option<Initiator> {
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len());
        fits.then(|| Initiator(name.to_vec()))
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.0
    }

    /// TransportID (SPC-4, 7.6.4) of no specific protocol: the name, padded with zeros to a multiple of four.
    pub(crate) fn transport_id(&self) -> Vec<u8> {
        const NO_PROTOCOL: u8 = 0x0f;
        let padded = (self.0.len() + 1).next_multiple_of(4);
        let mut id = vec![NO_PROTOCOL, 0];
        id.extend((padded as u16).to_be_bytes());
        id.extend(&self.0);
        id.resize(4 + padded, 0);
        id
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Initiator({})", self.0.escape_ascii())
    }
}
