//! Lists the sense keys and additional sense codes that this target returns.

use std::fmt;

/// Sense key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the standard's.
pub enum Key {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    BlankCheck = 0x8,
    VendorSpecific = 0x9,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    Reserved = 0xc,
    VolumeOverflow = 0xd,
    Miscompare = 0xe,
    Completed = 0xf,
}

impl Key {
    /// All, by number.
    const ALL: [Key; 16] = [
        Key::NoSense,
        Key::RecoveredError,
        Key::NotReady,
        Key::MediumError,
        Key::HardwareError,
        Key::IllegalRequest,
        Key::UnitAttention,
        Key::DataProtect,
        Key::BlankCheck,
        Key::VendorSpecific,
        Key::CopyAborted,
        Key::AbortedCommand,
        Key::Reserved,
        Key::VolumeOverflow,
        Key::Miscompare,
        Key::Completed,
    ];

    /// The key in the low half of a byte.
    pub fn of(byte: u8) -> Key {
        Key::ALL[usize::from(byte & 0xf)]
    }
}

/// Additional sense code and its qualifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    /// The code.
    pub asc: u8,
    /// Its qualifier.
    pub ascq: u8,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}h/{:02x}h", self.asc, self.ascq)
    }
}

/// Defines [`Code`]'s constants and their list.
macro_rules! codes {
    ($($name:ident $asc:literal $ascq:literal $words:literal,)*) => {
        impl Code {
            $(#[doc = $words] pub const $name: Code = Code::new($asc, $ascq);)*

            /// All codes that this target returns, with their names.
            pub const ALL: &'static [(Code, &'static str)] = &[$((Code::$name, $words)),*];
        }
    };
}

impl Code {
    /// The code with these numbers.
    pub const fn new(asc: u8, ascq: u8) -> Code {
        Code { asc, ascq }
    }
}

codes! {
    NONE 0x00 0x00 "NO ADDITIONAL SENSE INFORMATION",
    NOT_READY 0x04 0x00 "LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE",
    STOPPED 0x04 0x02 "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED",
    WRITE_ERROR 0x0c 0x00 "WRITE ERROR",
    INVALID_FIELD_IN_IU 0x0e 0x03 "INVALID FIELD IN COMMAND INFORMATION UNIT",
    READ_ERROR 0x11 0x00 "UNRECOVERED READ ERROR",
    PARAMETER_LIST_LENGTH 0x1a 0x00 "PARAMETER LIST LENGTH ERROR",
    MISCOMPARE 0x1d 0x00 "MISCOMPARE DURING VERIFY OPERATION",
    INVALID_OPCODE 0x20 0x00 "INVALID COMMAND OPERATION CODE",
    LBA_OUT_OF_RANGE 0x21 0x00 "LOGICAL BLOCK ADDRESS OUT OF RANGE",
    INVALID_FIELD_IN_CDB 0x24 0x00 "INVALID FIELD IN CDB",
    UNIT_NOT_SUPPORTED 0x25 0x00 "LOGICAL UNIT NOT SUPPORTED",
    INVALID_FIELD_IN_PARAMETER_LIST 0x26 0x00 "INVALID FIELD IN PARAMETER LIST",
    INVALID_RELEASE 0x26 0x04 "INVALID RELEASE OF PERSISTENT RESERVATION",
    WRITE_PROTECTED 0x27 0x00 "WRITE PROTECTED",
    SPACE_ALLOCATION_FAILED 0x27 0x07 "SPACE ALLOCATION FAILED WRITE PROTECT",
    POWER_ON 0x29 0x00 "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED",
    UNIT_RESET 0x29 0x03 "BUS DEVICE RESET FUNCTION OCCURRED",
    RESERVATIONS_PREEMPTED 0x2a 0x03 "RESERVATIONS PREEMPTED",
    RESERVATIONS_RELEASED 0x2a 0x04 "RESERVATIONS RELEASED",
    REGISTRATIONS_PREEMPTED 0x2a 0x05 "REGISTRATIONS PREEMPTED",
    COMMANDS_CLEARED 0x2f 0x00 "COMMANDS CLEARED BY ANOTHER INITIATOR",
    SAVING_NOT_SUPPORTED 0x39 0x00 "SAVING PARAMETERS NOT SUPPORTED",
    LUNS_CHANGED 0x3f 0x0e "REPORTED LUNS DATA HAS CHANGED",
    INTERNAL_FAILURE 0x44 0x00 "INTERNAL TARGET FAILURE",
    OVERLAPPED_COMMANDS 0x4e 0x00 "OVERLAPPED COMMANDS ATTEMPTED",
    NO_REGISTRATION_RESOURCES 0x55 0x04 "INSUFFICIENT REGISTRATION RESOURCES",
}
