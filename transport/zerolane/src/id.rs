//! Identifies requests, by the connection or handle that posted them, and the paths of a connection.

use std::sync::atomic::{AtomicU32, Ordering};
use zerolane_wire::MAX_PATHS;

/// Identifies a request of one connection or handle. The identifier of another's request names none here. A connection
/// uses an identifier again after four billion requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// The number of the next connection or handle of this process; 0 is none's.
static POSTERS: AtomicU32 = AtomicU32::new(1);

/// Identifies the connection or handle that a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poster(u32);

impl Poster {
    pub(crate) fn next() -> Poster {
        Poster(POSTERS.fetch_add(1, Ordering::Relaxed))
    }

    /// The identifier of its request `number`.
    pub(crate) fn request(self, number: u32) -> RequestId {
        RequestId(u64::from(self.0) << 32 | u64::from(number))
    }

    /// The number of the request among its own; `None` if another poster has it.
    pub(crate) fn number_of(self, id: RequestId) -> Option<u32> {
        (id.0 >> 32 == u64::from(self.0)).then_some(id.0 as u32)
    }
}

impl RequestId {
    /// Identifies no request.
    pub(crate) const NONE: RequestId = RequestId(0);

    /// Converts to a number, for places that cannot hold the type: a map of another language.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Converts from a number. A number that was not obtained from `to_u64` identifies no request.
    pub fn from_u64(number: u64) -> RequestId {
        RequestId(number)
    }
}

/// Identifies a path of a connection, by a number that both ends know. A path that is added may get that of one that was
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u8);

impl PathId {
    /// The path that the connection began with.
    pub const FIRST: PathId = PathId(0);

    /// `None` unless `number` is below [`MAX_PATHS`](crate::options::MAX_PATHS).
    pub const fn new(number: u8) -> Option<PathId> {
        match number < MAX_PATHS {
            true => Some(PathId(number)),
            false => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The path at `index` of the core's table, which has at most [`MAX_PATHS`].
    pub(crate) fn of_index(index: usize) -> Option<PathId> {
        PathId::new(u8::try_from(index).ok()?)
    }
}
