//! Every limit: name, unit, reason.

use std::time::Duration;

/// Data segment of one PDU that the portal takes, bytes: what its MaxRecvDataSegmentLength says.
pub const MAX_SEGMENT_BYTES: usize = 256 << 10;

/// Longest data of one burst, bytes: what the portal says for MaxBurstLength.
pub const MAX_BURST_BYTES: u32 = 1 << 20;

/// Data that an initiator may send unasked with one command, bytes: what the portal says for FirstBurstLength.
pub const FIRST_BURST_BYTES: u32 = 64 << 10;

/// Requests for data that one command may have outstanding.
pub const MAX_R2TS: u32 = 4;

/// Commands that the window of a session is open for.
pub const WINDOW: u32 = 64;

/// Commands of a session that are not over, immediate ones counted: one more is rejected.
pub const MAX_COMMANDS: usize = 128;

/// Task management functions of a session that are not answered: one more is answered with "rejected".
pub const MAX_FUNCTIONS: usize = 16;

/// Memory for the payload of one session, bytes. Commands that need more wait for those before them; one command alone
/// may have more.
pub const SESSION_BYTES: usize = 64 << 20;

/// Bytes that wait to be sent to an initiator beside payload. While there are more, nothing is read from it.
pub const MAX_UNSENT_BYTES: usize = SESSION_BYTES + (8 << 20);

/// Text of one negotiation, bytes, over all its PDUs.
pub const MAX_TEXT_BYTES: usize = 16 << 10;

/// PDUs of one login.
pub const MAX_LOGIN_PDUS: u32 = 64;

/// Length of an iSCSI name, bytes (RFC 7143, 4.2.7.1).
pub const MAX_NAME_BYTES: usize = 223;

/// Connections of a portal at a time. One more is closed at once.
pub const MAX_CONNECTIONS: usize = 64;

/// An initiator that does not log in for so long is cut off.
pub const LOGIN_PATIENCE: Duration = Duration::from_secs(10);

/// An initiator that owes data, or does not take what it is sent, for so long is cut off: commands of others may wait.
pub const DATA_PATIENCE: Duration = Duration::from_secs(30);
