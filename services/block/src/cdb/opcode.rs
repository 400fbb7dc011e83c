//! Lists operation codes, service actions and the usage map of each CDB.
//!
//! The parser and REPORT SUPPORTED OPERATION CODES use the same table.

#![allow(missing_docs)] // The names are the standard's.

pub const TEST_UNIT_READY: u8 = 0x00;
pub const REQUEST_SENSE: u8 = 0x03;
pub const READ_6: u8 = 0x08;
pub const WRITE_6: u8 = 0x0a;
pub const INQUIRY: u8 = 0x12;
pub const MODE_SENSE_6: u8 = 0x1a;
pub const START_STOP_UNIT: u8 = 0x1b;
pub const READ_CAPACITY_10: u8 = 0x25;
pub const READ_10: u8 = 0x28;
pub const WRITE_10: u8 = 0x2a;
pub const VERIFY_10: u8 = 0x2f;
pub const PREFETCH_10: u8 = 0x34;
pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
pub const WRITE_SAME_10: u8 = 0x41;
pub const UNMAP: u8 = 0x42;
pub const MODE_SENSE_10: u8 = 0x5a;
pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
pub const READ_16: u8 = 0x88;
pub const COMPARE_AND_WRITE: u8 = 0x89;
pub const WRITE_16: u8 = 0x8a;
pub const VERIFY_16: u8 = 0x8f;
pub const PREFETCH_16: u8 = 0x90;
pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
pub const WRITE_SAME_16: u8 = 0x93;
pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
pub const REPORT_LUNS: u8 = 0xa0;
pub const MAINTENANCE_IN: u8 = 0xa3;
pub const READ_12: u8 = 0xa8;
pub const WRITE_12: u8 = 0xaa;
pub const VERIFY_12: u8 = 0xaf;

/// Service actions of [`SERVICE_ACTION_IN_16`].
pub const READ_CAPACITY_16: u8 = 0x10;
pub const GET_LBA_STATUS: u8 = 0x12;
/// Service action of [`MAINTENANCE_IN`].
pub const REPORT_OPCODES: u8 = 0x0c;

/// A supported command.
#[derive(Debug)]
pub struct Row {
    pub opcode: u8,
    /// The service action, for operation codes that have one.
    pub action: Option<u8>,
    pub name: &'static str,
    /// The usage map: one bit for each bit of the CDB that the target evaluates. The first byte is the operation code.
    /// As the standard requires, a service action stands as its value.
    pub usage: &'static [u8],
}

/// A row of [`TABLE`].
macro_rules! row {
    ($opcode:expr, $name:literal, [$($usage:literal),*]) => {
        Row { opcode: $opcode, action: None, name: $name, usage: &[$opcode $(, $usage)*] }
    };
    ($opcode:expr, $action:expr, $name:literal, [$($usage:literal),*]) => {
        Row { opcode: $opcode, action: Some($action), name: $name, usage: &[$opcode, $action $(, $usage)*] }
    };
}

/// All supported commands, in order of their codes. The last byte is CONTROL, of which the target evaluates NACA.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    row!(TEST_UNIT_READY, "TEST UNIT READY", [0, 0, 0, 0, 0x04]),
    row!(REQUEST_SENSE, "REQUEST SENSE", [0x01, 0, 0, 0xff, 0x04]),
    row!(READ_6, "READ(6)", [0x1f, 0xff, 0xff, 0xff, 0x04]),
    row!(WRITE_6, "WRITE(6)", [0x1f, 0xff, 0xff, 0xff, 0x04]),
    row!(INQUIRY, "INQUIRY", [0x01, 0xff, 0xff, 0xff, 0x04]),
    row!(MODE_SENSE_6, "MODE SENSE(6)", [0x08, 0xff, 0xff, 0xff, 0x04]),
    row!(START_STOP_UNIT, "START STOP UNIT", [0x01, 0, 0x0f, 0xf7, 0x04]),
    row!(READ_CAPACITY_10, "READ CAPACITY(10)", [0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0x04]),
    row!(READ_10, "READ(10)", [0xf8, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row!(WRITE_10, "WRITE(10)", [0xf8, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row!(VERIFY_10, "VERIFY(10)", [0xf6, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row!(PREFETCH_10, "PRE-FETCH(10)", [0x02, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row!(SYNCHRONIZE_CACHE_10, "SYNCHRONIZE CACHE(10)", [0x02, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row!(WRITE_SAME_10, "WRITE SAME(10)", [0xfe, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row!(UNMAP, "UNMAP", [0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04]),
    row!(MODE_SENSE_10, "MODE SENSE(10)", [0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_IN, 0x00, "PERSISTENT RESERVE IN, READ KEYS", [0, 0, 0, 0, 0, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_IN, 0x01, "PERSISTENT RESERVE IN, READ RESERVATION", [0, 0, 0, 0, 0, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_IN, 0x02, "PERSISTENT RESERVE IN, REPORT CAPABILITIES", [0, 0, 0, 0, 0, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_IN, 0x03, "PERSISTENT RESERVE IN, READ FULL STATUS", [0, 0, 0, 0, 0, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_OUT, 0x00, "PERSISTENT RESERVE OUT, REGISTER", [0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_OUT, 0x01, "PERSISTENT RESERVE OUT, RESERVE", [0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_OUT, 0x02, "PERSISTENT RESERVE OUT, RELEASE", [0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_OUT, 0x03, "PERSISTENT RESERVE OUT, CLEAR", [0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_OUT, 0x04, "PERSISTENT RESERVE OUT, PREEMPT", [0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_OUT, 0x05, "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
        [0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]),
    row!(PERSISTENT_RESERVE_OUT, 0x06, "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
        [0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x04]),
    row!(READ_16, "READ(16)",
        [0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(COMPARE_AND_WRITE, "COMPARE AND WRITE",
        [0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, 0x04]),
    row!(WRITE_16, "WRITE(16)",
        [0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(VERIFY_16, "VERIFY(16)",
        [0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(PREFETCH_16, "PRE-FETCH(16)",
        [0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(SYNCHRONIZE_CACHE_16, "SYNCHRONIZE CACHE(16)",
        [0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(WRITE_SAME_16, "WRITE SAME(16)",
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(SERVICE_ACTION_IN_16, READ_CAPACITY_16, "READ CAPACITY(16)",
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x04]),
    row!(SERVICE_ACTION_IN_16, GET_LBA_STATUS, "GET LBA STATUS",
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(REPORT_LUNS, "REPORT LUNS", [0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(MAINTENANCE_IN, REPORT_OPCODES, "REPORT SUPPORTED OPERATION CODES",
        [0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(READ_12, "READ(12)", [0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(WRITE_12, "WRITE(12)", [0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row!(VERIFY_12, "VERIFY(12)", [0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
];

/// Length of a CDB with this operation code, bytes; `None` for reserved and vendor-specific groups.
pub fn cdb_bytes(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}
