//! Defines every limit of the SCSI target: name, unit, reason.

use std::time::Duration;

/// Most commands of one connection at all logical units together, including waiting ones. A further command gets TASK
/// SET FULL.
pub const MAX_TASKS: usize = 256;

/// Most simultaneous connections of initiators at a target.
pub const MAX_NEXUSES: usize = 1024;

/// Most logical units of a target: REPORT LUNS then fits a page.
pub const MAX_UNITS: usize = 256;

/// Most registrations for persistent reservations at one logical unit. A further one gets INSUFFICIENT REGISTRATION
/// RESOURCES.
pub const MAX_REGISTRATIONS: usize = 1024;

/// Longest name of an initiator, bytes: that of an iSCSI port, 223 for its name and 17 for its number.
pub const MAX_NAME_BYTES: usize = 240;

/// Most payload of one READ, WRITE or VERIFY, bytes. VPD page B0h reports it in blocks.
pub const MAX_TRANSFER_BYTES: u64 = 32 << 20;

/// Optimal payload of one command, bytes: long enough that its announcement costs little.
pub const OPTIMAL_TRANSFER_BYTES: u64 = 1 << 20;

/// Most bytes of one COMPARE AND WRITE, which must fit in memory.
pub const MAX_COMPARE_BYTES: u64 = 64 << 10;

/// Most bytes of one WRITE SAME, so that one command does not occupy the disk for seconds.
pub const MAX_WRITE_SAME_BYTES: u64 = 256 << 20;

/// Most bytes of one UNMAP: a million of the shortest blocks, so that one command does not block a file system for
/// long.
pub const MAX_UNMAP_BYTES: u64 = 512 << 20;

/// Most ranges of one UNMAP.
pub const MAX_UNMAP_RANGES: usize = 256;

/// Most parameters of one command, bytes: the list of UNMAP, or one block of WRITE SAME.
pub const MAX_PARAMETER_BYTES: usize = 8 + 16 * MAX_UNMAP_RANGES;

/// Most ranges that one GET LBA STATUS reports: each takes a query to the file system.
pub const MAX_STATUS_RANGES: usize = 256;

/// How long after its start a failed command may search for the first bad block. A disk may retry each bad sector for
/// seconds, and initiators wait for a command for 30 or 60 s.
pub const FAILING_PATIENCE: Duration = Duration::from_secs(2);

/// Length of the pieces in which blocks are filled, compared or read, bytes.
pub const PIECE_BYTES: usize = 256 << 10;

/// Shortest logical block, bytes.
pub const MIN_LOGICAL_BLOCK_BYTES: u32 = 512;

/// Longest logical block, bytes: the page of most machines.
pub const MAX_LOGICAL_BLOCK_BYTES: u32 = 4096;
