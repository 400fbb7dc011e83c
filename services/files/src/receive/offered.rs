//! Admits only the names that a sender offered and this end accepted.

use crate::error::{Cause, Error};
use crate::limits::NEW_NAMES;
use crate::root::stat_at;
use rustix::fd::AsFd;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The names that a sender offered.
#[derive(Debug)]
pub(crate) struct Offered {
    names: HashSet<Vec<u8>>,
    /// How many more there are.
    more: u64,
    /// Whether existing entries are replaced.
    overwrite: bool,
    came: Mutex<Came>,
}

/// The names that have come.
#[derive(Debug, Default)]
struct Came {
    /// The names that this copy has made, if it does not overwrite, and those that the offer did not list.
    names: HashSet<Vec<u8>>,
    not_named: u64,
}

impl Offered {
    /// An offer of these `names`, and of `more` others.
    pub(crate) fn new(names: HashSet<Vec<u8>>, more: u64, overwrite: bool) -> Offered {
        Offered {
            names,
            more,
            overwrite,
            came: Mutex::default(),
        }
    }

    /// Whether `name` may be put into `directory`.
    ///
    /// # Errors
    /// Outer: more names than offered. Inner: it was not offered, or exists already.
    pub(super) fn admit(
        &self,
        directory: impl AsFd,
        name: &[u8],
    ) -> Result<Result<(), Cause>, Error> {
        let named = self.names.contains(name);
        if named && self.overwrite {
            return Ok(Ok(()));
        }
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        if came.names.contains(name) {
            return Ok(Ok(()));
        }
        if !named && came.not_named >= self.more {
            return Ok(Err(Cause::NotOffered));
        }
        let is_free = || stat_at(directory, name).is_err_and(|cause| cause == Cause::NotFound);
        if !self.overwrite && !is_free() {
            return Ok(Err(Cause::Exists));
        }
        if came.names.len() >= NEW_NAMES {
            return Err(Error::Protocol("more than was offered"));
        }
        came.names.insert(name.to_vec());
        came.not_named += u64::from(!named);
        Ok(Ok(()))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn admit__what_was_offered_and_no_more_of_the_rest_than_was_said() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("there"), b"").unwrap();
        let directory = File::open(base.path()).unwrap();
        for overwrite in [false, true] {
            let names = [&b"there"[..], b"a"].map(<[u8]>::to_vec);
            let offered = Offered::new(names.into(), 2, overwrite);
            let admit = |name: &[u8]| offered.admit(&directory, name).unwrap();
            assert_eq!(admit(b"a"), Ok(()));
            let there = match overwrite {
                true => Ok(()),
                false => Err(Cause::Exists),
            };
            assert_eq!(admit(b"there"), there);
            for name in [b"x", b"y", b"x"] {
                assert_eq!(admit(name), Ok(()));
            }
            assert_eq!(admit(b"z"), Err(Cause::NotOffered));
            // The copy may overwrite its own files.
            for name in ["a", "x"] {
                std::fs::write(base.path().join(name), b"").unwrap();
                assert_eq!(admit(name.as_bytes()), Ok(()));
                std::fs::remove_file(base.path().join(name)).unwrap();
            }
        }
    }
}
