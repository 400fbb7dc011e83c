//! Every limit: name, unit, reason.

use std::time::Duration;

/// Commands that one connection of an initiator may have at all logical units together, those that wait included. One more is
/// answered with TASK SET FULL.
pub const MAX_TASKS: usize = 256;

/// Connections of initiators at a target at a time.
pub const MAX_NEXUSES: usize = 1024;

/// Logical units of a target: what one REPORT LUNS of a page holds.
pub const MAX_UNITS: usize = 256;

/// Registrations for persistent reservations at one logical unit. One more is answered with INSUFFICIENT REGISTRATION
/// RESOURCES.
pub const MAX_REGISTRATIONS: usize = 1024;

/// Length of an initiator's name, bytes: what a port of iSCSI has, 223 of its name and 17 of its number.
pub const MAX_NAME_BYTES: usize = 240;

/// Payload of one READ, WRITE or VERIFY, bytes. VPD page B0h says it in blocks.
pub const MAX_TRANSFER_BYTES: u64 = 32 << 20;

/// Payload that is best for one command, bytes: long enough that its announcement costs little.
pub const OPTIMAL_TRANSFER_BYTES: u64 = 1 << 20;

/// What one COMPARE AND WRITE compares, bytes: it has to be whole in memory.
pub const MAX_COMPARE_BYTES: u64 = 64 << 10;

/// What one WRITE SAME fills, bytes: so that one command does not hold the disk for seconds.
pub const MAX_WRITE_SAME_BYTES: u64 = 256 << 20;

/// What one UNMAP names, bytes: a million of the shortest blocks, so that one command does not hold a file system for
/// long.
pub const MAX_UNMAP_BYTES: u64 = 512 << 20;

/// Ranges of one UNMAP.
pub const MAX_UNMAP_RANGES: usize = 256;

/// Parameters that an initiator sends with one command, bytes: the list of UNMAP, or one block of WRITE SAME.
pub const MAX_PARAMETER_BYTES: usize = 8 + 16 * MAX_UNMAP_RANGES;

/// Ranges that one GET LBA STATUS looks for: each is a question to the file system.
pub const MAX_STATUS_RANGES: usize = 256;

/// Since a command began that failed, the first block that did is looked for, for so long: a disk may try each bad sector for
/// seconds, and initiators wait for a command for 30 or 60.
pub const FAILING_PATIENCE: Duration = Duration::from_secs(2);

/// Piece in which blocks are filled, compared with the medium or only read, bytes.
pub const PIECE_BYTES: usize = 256 << 10;

/// Shortest logical block, bytes.
pub const MIN_LOGICAL_BLOCK_BYTES: u32 = 512;

/// Longest logical block, bytes: the page of most machines.
pub const MAX_LOGICAL_BLOCK_BYTES: u32 = 4096;
