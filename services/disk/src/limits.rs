//! Defines every limit of disks over connections: name, unit, reason.

use std::time::Duration;

/// Most simultaneous commands of an initiator: the size of the engine's task set.
pub const TARGET_SLOTS: u16 = 256;

/// Most payload of one command, bytes. The login says so, and an initiator that sends more commits an offence.
pub const TARGET_TRANSFER_BYTES: u32 = 4 << 20;

/// Most payload of one command in its capsule, bytes. A put of this length leaves unannounced, and copying more takes
/// longer than fetching it.
pub const CAPSULE_BYTES: u32 = 16 << 10;

/// Memory of a target for the payload of one initiator over all its connections, bytes. Commands that need more wait
/// for earlier ones.
pub const INITIATOR_BYTES: usize = 64 << 20;

/// Most connections of one initiator. A host has one for each open disk, and each takes 4 MiB of capsules.
pub const INITIATOR_CONNECTIONS: usize = 64;

/// Memory that a target keeps for future commands of all initiators, bytes.
pub const SPARE_BYTES: usize = 64 << 20;

/// Longest read, bytes, that the network thread executes itself if the data is cached. Copying more takes longer than
/// waking another thread.
pub const AT_ONCE_BYTES: usize = 16 << 10;

/// Reads that the network thread executes before it sends their data. The initiator processes these while the target
/// reads more; with larger batches, target and initiator would wait for each other in turn. Eight answers of 4 KiB
/// still leave in one system call.
pub const AT_ONCE_COMMANDS: usize = 8;

/// Message receives that a target posts for each initiator. Further commands wait at their sender.
pub const TARGET_RECEIVES: usize = 64;

/// How long an initiator may take to log in before it is disconnected.
pub const LOGIN_PATIENCE: Duration = Duration::from_secs(10);

/// How long an initiator with pending data may make no progress before it is disconnected: commands of others may wait
/// for it.
pub const DATA_PATIENCE: Duration = Duration::from_secs(30);

/// Lowest rate of an initiator's data, bytes/s. A slower initiator is disconnected if others may wait for its data. At
/// most [`INITIATOR_BYTES`] are pending at a time, so others wait for one command at most about 17 minutes.
pub const LEAST_RATE: u64 = 64 << 10;

/// How often a target checks for slow initiators.
pub const LOOK: Duration = Duration::from_millis(200);

/// Most repeats of a command, after broken connections and for transient conditions, before the initiator fails it.
pub const MAX_REPEATS: u32 = 64;

/// Most unit attentions that an initiator clears when it opens a unit: there are fewer kinds.
pub const MAX_ATTENTIONS: usize = 16;

/// Pause between two attempts to connect.
pub const PAUSE: Duration = Duration::from_millis(100);
