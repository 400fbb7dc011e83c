//! Tracks how far a copy has come, so that another connection can continue there.
//!
//! The sender walks its sources in the order in which the system lists them. Both ends number the steps of that walk in
//! the same way and keep a digest of the names. When the walk is repeated, the digest shows that it is the same up to
//! that point, without a list of files.

use crate::digest::Digest;
use serde::{Deserialize, Serialize};

/// A step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A file or link, or an entry that could not be read.
    Entry,
    /// Entering a directory.
    Enter,
    /// Leaving it.
    Leave,
}

/// A place between two steps of the walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Steps before it.
    pub(crate) steps: u64,
    /// Digest of these steps.
    walked: Digest,
}

impl Position {
    /// Digest of the steps before it.
    pub(crate) fn digest(&self) -> Digest {
        self.walked
    }

    /// Passes a step; `name` is the entry's name in its directory, as at the sender.
    pub(crate) fn pass(&mut self, step: Step, name: &[u8]) {
        let kind = match step {
            Step::Entry => 0,
            Step::Enter => 1,
            Step::Leave => 2,
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.walked).update(&[kind]).update(name);
        self.walked = *hasher.finalize().as_bytes();
        self.steps += 1;
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn after(steps: &[(Step, &[u8])]) -> Position {
        let mut position = Position::default();
        steps
            .iter()
            .for_each(|(step, name)| position.pass(*step, name));
        position
    }

    #[test]
    fn pass__every_step_and_name_counts() {
        use Step::{Enter, Entry, Leave};
        let one = after(&[(Enter, b"d"), (Entry, b"a"), (Leave, b"")]);
        assert_eq!(one.steps, 3);
        for other in [
            [(Enter, &b"d"[..]), (Entry, b"b"), (Leave, b"")],
            [(Entry, b"d"), (Entry, b"a"), (Leave, b"")],
            [(Entry, b"a"), (Enter, b"d"), (Leave, b"")],
        ] {
            let other = after(&other);
            assert_eq!(other.steps, 3);
            assert_ne!(other, one);
        }
    }
}
