//! Defines every limit of the iSCSI door: name, unit, reason.

use std::time::Duration;

/// Longest data segment that the portal accepts, bytes: its MaxRecvDataSegmentLength.
pub const MAX_SEGMENT_BYTES: usize = 256 << 10;

/// Most data of one burst, bytes: the portal's MaxBurstLength.
pub const MAX_BURST_BYTES: u32 = 1 << 20;

/// Most unsolicited data of one command, bytes: the portal's FirstBurstLength.
pub const FIRST_BURST_BYTES: u32 = 64 << 10;

/// Most outstanding R2Ts of one command.
pub const MAX_R2TS: u32 = 4;

/// Size of a session's command window.
pub const WINDOW: u32 = 64;

/// Most commands of a session in progress, including immediate ones. A further one is rejected.
pub const MAX_COMMANDS: usize = 128;

/// Most unanswered task management functions of a session. A further one is answered with "rejected".
pub const MAX_FUNCTIONS: usize = 16;

/// Memory for the payload of one session, bytes. Commands that need more wait for earlier ones; a command alone may use
/// more.
pub const SESSION_BYTES: usize = 64 << 20;

/// Most unsent bytes for an initiator. While there are more, nothing is read from it.
pub const MAX_UNSENT_BYTES: usize = SESSION_BYTES + (8 << 20);

/// Most text of one negotiation over all its PDUs, bytes.
pub const MAX_TEXT_BYTES: usize = 16 << 10;

/// Most PDUs of one login.
pub const MAX_LOGIN_PDUS: u32 = 64;

/// Length of an iSCSI name, bytes (RFC 7143, 4.2.7.1).
pub const MAX_NAME_BYTES: usize = 223;

/// Most simultaneous connections of a portal. A further one is closed at once.
pub const MAX_CONNECTIONS: usize = 64;

/// How long an initiator may take to log in before it is disconnected.
pub const LOGIN_PATIENCE: Duration = Duration::from_secs(10);

/// How long an initiator may withhold requested data, or not read its answers, before it is disconnected: commands of
/// others may wait.
pub const DATA_PATIENCE: Duration = Duration::from_secs(30);
