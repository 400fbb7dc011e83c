//! Encodes and parses logical unit numbers (SAM-5, 4.7).

use std::fmt;

/// The number of a logical unit: 0 to [`Lun::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(u16);

/// Addressing methods, in the two high bits.
const PERIPHERAL: u8 = 0;
const FLAT: u8 = 1;

/// The unit or other object that eight LUN bytes address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unit of the single-level structure.
    Unit(Lun),
    /// The well-known unit that answers REPORT LUNS.
    WellKnown,
    /// Something that this target has not.
    Other,
}

impl Lun {
    /// The largest: flat space addressing has 14 bits.
    pub const MAX: u16 = 0x3fff;

    /// `None` above [`Lun::MAX`].
    pub fn new(number: u16) -> Option<Lun> {
        (number <= Lun::MAX).then_some(Lun(number))
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// As eight bytes: peripheral device addressing up to 255, flat space above.
    pub fn encode(self) -> [u8; 8] {
        let [high, low] = self.0.to_be_bytes();
        let method = if self.0 > 0xff { FLAT } else { PERIPHERAL };
        [method << 6 | high, low, 0, 0, 0, 0, 0, 0]
    }
}

impl Address {
    /// Parses the address in `bytes`.
    pub fn parse(bytes: [u8; 8]) -> Address {
        const WELL_KNOWN: [u8; 2] = [0xc1, 0x01];
        let [high, low, rest @ ..] = bytes;
        if rest != [0; 6] {
            return Address::Other;
        }
        match high >> 6 {
            PERIPHERAL if high == 0 => Address::Unit(Lun(low.into())),
            FLAT => Address::Unit(Lun(u16::from_be_bytes([high & 0x3f, low]))),
            _ if [high, low] == WELL_KNOWN => Address::WellKnown,
            _ => Address::Other,
        }
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
