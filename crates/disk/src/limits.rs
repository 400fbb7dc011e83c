//! Every limit: name, unit, reason.

use std::time::Duration;

/// Commands of an initiator at a time that a target takes: what a task set of the engine holds.
pub const TARGET_SLOTS: u16 = 256;

/// Payload of one command that a target takes, bytes. More is no command of an initiator that read the login.
pub const TARGET_TRANSFER_BYTES: u32 = 4 << 20;

/// Payload of one command that a target takes in its capsule, bytes: a put of as many leaves unannounced. To copy more
/// takes longer than to have it fetched.
pub const CAPSULE_BYTES: u32 = 16 << 10;

/// Memory of a target for the payload of one initiator over all its connections, bytes. Commands that need more wait for
/// those before them.
pub const INITIATOR_BYTES: usize = 64 << 20;

/// Connections of one initiator that a target takes: a host has one for each disk that it has open, and capsules of
/// 4 MiB for each.
pub const INITIATOR_CONNECTIONS: usize = 64;

/// Memory that a target keeps for commands to come, bytes, of all initiators.
pub const SPARE_BYTES: usize = 64 << 20;

/// Reads up to this length are done by the thread of the network if the medium has them at once, bytes: to copy more
/// takes longer than to wake another thread.
pub const AT_ONCE_BYTES: usize = 16 << 10;

/// Reads that the thread of the network does before what they read is sent. Their initiator works on these while more are
/// done: with all that came at once, target and initiator would wait for each other by turns. Eight answers of 4 KiB are
/// still one call that sends.
pub const AT_ONCE_COMMANDS: usize = 8;

/// Receives of messages that a target has posted for each initiator. More commands wait at their sender.
pub const TARGET_RECEIVES: usize = 64;

/// An initiator that does not log in for so long is cut off.
pub const LOGIN_PATIENCE: Duration = Duration::from_secs(10);

/// An initiator that has data to move, and of whose connection nothing moves for so long, is cut off: commands of others may
/// wait for it.
pub const DATA_PATIENCE: Duration = Duration::from_secs(30);

/// Data of an initiator moves at this rate at least, bytes/s: one that is slower, in what others may wait for, is cut off. What
/// is to move at a time is [`INITIATOR_BYTES`] at most, so others wait for one command for some 17 minutes at most.
pub const LEAST_RATE: u64 = 64 << 10;

/// How often a target looks for those.
pub const LOOK: Duration = Duration::from_millis(200);

/// Times that an initiator repeats a command, over broken connections and for conditions that pass, before it fails.
pub const MAX_REPEATS: u32 = 64;

/// Attentions of a unit that are taken when it is opened: there are fewer kinds.
pub const MAX_ATTENTIONS: usize = 16;

/// Pause between two attempts to connect.
pub const PAUSE: Duration = Duration::from_millis(100);
