//! Encodes and parses sense data (SPC-4, 4.5): why a command failed.

mod codes;
mod failure;

pub use codes::{Code, Key};
pub use failure::Failure;

use crate::bytes::number;

/// Longest sense data made here, bytes: the descriptor format with an information field and a field pointer.
pub const MAX_SENSE_BYTES: usize = 28;

/// Length of sense data in the fixed format, bytes.
pub const FIXED_BYTES: usize = 18;

/// Response codes of current errors.
const FIXED: u8 = 0x70;
const DESCRIPTOR: u8 = 0x72;

/// Types of sense data descriptors.
const INFORMATION: u8 = 0x00;
const KEY_SPECIFIC: u8 = 0x02;

/// The format of encoded sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 18 bytes. An information field above 32 bits is left out.
    Fixed,
    /// With descriptors, for information fields of 64 bits.
    Descriptor,
}

/// The wrong field of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Whether the field is in the CDB; otherwise it is in the parameter list.
    pub in_cdb: bool,
    /// The first byte of the field.
    pub byte: u16,
    /// Its most significant bit, 0 to 7, if it is not whole bytes.
    pub bit: Option<u8>,
}

/// Sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The kind of condition.
    pub key: Key,
    /// The condition.
    pub code: Code,
    /// A block address, or an offset in bytes, depending on the code.
    pub information: Option<u64>,
    /// The wrong field, with [`Key::IllegalRequest`].
    pub field: Option<Field>,
}

/// Why bytes are not valid sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SenseError {
    /// Shorter than required.
    #[error("sense data of {0} bytes")]
    Short(usize),
    /// Neither of the current formats.
    #[error("response code {0:02x}h of sense data")]
    Format(u8),
    /// A descriptor reaches beyond the end.
    #[error("a truncated sense descriptor at byte {0}")]
    Descriptor(usize),
}

impl Sense {
    /// `code` under `key`, and nothing else.
    pub const fn new(key: Key, code: Code) -> Sense {
        Sense {
            key,
            code,
            information: None,
            field: None,
        }
    }

    /// No condition.
    pub const NONE: Sense = Sense::new(Key::NoSense, Code::NONE);

    /// An illegal request for the reason `code`.
    pub const fn illegal(code: Code) -> Sense {
        Sense::new(Key::IllegalRequest, code)
    }

    /// INVALID FIELD IN CDB: the field that begins at `byte`.
    pub const fn cdb_byte(byte: u16) -> Sense {
        Sense::illegal(Code::INVALID_FIELD_IN_CDB).at(true, byte, None)
    }

    /// INVALID FIELD IN CDB: the field whose most significant bit is `bit` of `byte`.
    pub const fn cdb_bit(byte: u16, bit: u8) -> Sense {
        Sense::illegal(Code::INVALID_FIELD_IN_CDB).at(true, byte, Some(bit))
    }

    /// INVALID FIELD IN PARAMETER LIST: the field that begins at `byte`.
    pub const fn parameter_byte(byte: u16) -> Sense {
        Sense::illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST).at(false, byte, None)
    }

    /// INVALID FIELD IN PARAMETER LIST: `bit` of `byte`.
    pub const fn parameter_bit(byte: u16, bit: u8) -> Sense {
        Sense::illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST).at(false, byte, Some(bit))
    }

    /// The same with an information field.
    pub const fn with_information(mut self, information: u64) -> Sense {
        self.information = Some(information);
        self
    }

    /// The same with a field pointer.
    const fn at(mut self, in_cdb: bool, byte: u16, bit: Option<u8>) -> Sense {
        self.field = Some(Field { in_cdb, byte, bit });
        self
    }

    /// Encodes the sense data for an initiator.
    pub fn encode(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Fixed => self.fixed(),
            Format::Descriptor => self.descriptors(),
        }
    }

    fn fixed(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES];
        bytes[0] = FIXED;
        bytes[2] = self.key as u8;
        bytes[7] = (FIXED_BYTES - 8) as u8;
        if let Some(information) = self.information.and_then(|it| u32::try_from(it).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[12] = self.code.asc;
        bytes[13] = self.code.ascq;
        bytes[15..18].copy_from_slice(&self.key_specific());
        bytes
    }

    fn descriptors(&self) -> Vec<u8> {
        let mut bytes = vec![DESCRIPTOR, self.key as u8, self.code.asc, self.code.ascq];
        bytes.extend([0; 4]);
        if let Some(information) = self.information {
            bytes.extend([INFORMATION, 10, 0x80, 0]);
            bytes.extend(information.to_be_bytes());
        }
        if self.field.is_some() {
            bytes.extend([KEY_SPECIFIC, 6, 0, 0]);
            bytes.extend(self.key_specific());
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }

    /// The three bytes of the sense-key specific field.
    fn key_specific(&self) -> [u8; 3] {
        let Some(field) = self.field else {
            return [0; 3];
        };
        let place = if field.in_cdb { 0x40 } else { 0 };
        let bit = field.bit.map_or(0, |bit| 0x08 | (bit & 7));
        let [high, low] = field.byte.to_be_bytes();
        [0x80 | place | bit, high, low]
    }

    /// Parses sense data of either format. Skips unknown descriptors.
    ///
    /// # Errors
    /// The bytes are not sense data of a current error.
    pub fn parse(bytes: &[u8]) -> Result<Sense, SenseError> {
        match bytes.first().map(|it| it & 0x7f) {
            None => Err(SenseError::Short(0)),
            Some(FIXED) => Sense::parse_fixed(bytes),
            Some(DESCRIPTOR) => Sense::parse_descriptors(bytes),
            Some(other) => Err(SenseError::Format(other)),
        }
    }

    fn parse_fixed(bytes: &[u8]) -> Result<Sense, SenseError> {
        let Some(bytes) = bytes.get(..FIXED_BYTES) else {
            return Err(SenseError::Short(bytes.len()));
        };
        let key = Key::of(bytes[2]);
        Ok(Sense {
            key,
            code: Code::new(bytes[12], bytes[13]),
            information: (bytes[0] & 0x80 != 0).then(|| number(&bytes[3..7])),
            field: field_of(key, &bytes[15..18]),
        })
    }

    fn parse_descriptors(bytes: &[u8]) -> Result<Sense, SenseError> {
        let Some(head) = bytes.get(..8) else {
            return Err(SenseError::Short(bytes.len()));
        };
        let mut sense = Sense::new(Key::of(head[1]), Code::new(head[2], head[3]));
        let end = bytes.len().min(8 + usize::from(head[7]));
        let mut at = 8;
        while at + 2 <= end {
            let length = usize::from(bytes[at + 1]);
            let Some(body) = bytes[..end].get(at + 2..at + 2 + length) else {
                return Err(SenseError::Descriptor(at));
            };
            match (bytes[at], body.len()) {
                (INFORMATION, 10) if body[0] & 0x80 != 0 => {
                    sense.information = Some(number(&body[2..10]));
                }
                (KEY_SPECIFIC, 6) => sense.field = field_of(sense.key, &body[2..5]),
                _ => {}
            }
            at += 2 + length;
        }
        Ok(sense)
    }
}

/// The field pointer in the three bytes of a sense-key specific field.
fn field_of(key: Key, bytes: &[u8]) -> Option<Field> {
    let is_valid = bytes[0] & 0x80 != 0 && key == Key::IllegalRequest;
    is_valid.then(|| Field {
        in_cdb: bytes[0] & 0x40 != 0,
        byte: number(&bytes[1..3]) as u16,
        bit: (bytes[0] & 0x08 != 0).then_some(bytes[0] & 7),
    })
}
