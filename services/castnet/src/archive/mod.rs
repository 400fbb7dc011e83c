//! Packs a directory tree into one stream, and unpacks it: a POSIX (pax) tar archive, which other programs can read.
//!
//! | record in front of an entry | says |
//! |---|---|
//! | `path`, `linkpath` | a name that has no room in the header |
//! | `mtime` | a time that is no whole second, or before 1970 |
//! | `GNU.sparse.*` | that the file has holes: where its data lies stands in front of it (format 1.0 of GNU tar) |
//!
//! Entries come in the order of a walk: a directory, then all that is in it, by name. A file with several names is a file at the first
//! of them, and a hard link at the others. The archive has owners and all bits of modes, for other programs; hosts take neither
//! ([`Meta`](crate::meta::Meta)).

mod pack;
mod records;
mod unpack;

pub use pack::Skipped;
pub(crate) use pack::pack;
pub(crate) use unpack::unpack;

/// Most stretches of data between holes of one file. Everything after them counts as data.
const MAX_STRETCHES: usize = 1 << 18;

/// The longest records in front of an entry, bytes: two names as long as a path may be, and some.
const MAX_RECORDS: u64 = 64 << 10;

/// Bytes of a block of an archive.
const BLOCK: usize = 512;
