//! Splits a walk over the connections of a copy.

use serde::{Deserialize, Serialize};

/// The part of a walk that goes over one connection.
///
/// Files and links are assigned by their paths, so that both ends, and a later connection after an outage, agree
/// whatever changes in the tree. Directories are in every share, because of their contents; a separate pass sets their
/// permissions and times, when nothing more is written into them. An entry that the sender cannot open, and that may be
/// a directory, is reported in every share that meets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Share {
    /// All of it.
    #[default]
    Whole,
    /// Files and links, in `of` parts; this is part `index`, from 0.
    Files { index: u16, of: u16 },
    /// Directories and their metadata.
    Directories,
}

impl Share {
    /// Whether an entry at `path` other than a directory belongs to it.
    pub(crate) fn has(self, path: &[u8]) -> bool {
        match self {
            Share::Whole => true,
            Share::Directories => false,
            Share::Files { of: 0, .. } => false,
            Share::Files { index, of } => {
                let digest = blake3::hash(path);
                let (words, _) = digest.as_bytes().as_chunks();
                u64::from_le_bytes(words[0]) % u64::from(of) == u64::from(index)
            }
        }
    }

    /// Whether it starts the copy.
    pub(crate) fn is_first(self) -> bool {
        matches!(self, Share::Whole | Share::Files { index: 0, .. })
    }

    /// Whether it counts directories and sets their metadata.
    pub(crate) fn settles_directories(self) -> bool {
        !matches!(self, Share::Files { .. })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn has__each_path_belongs_to_exactly_one_share_of_files() {
        const OF: u16 = 5;
        let mut counts = [0; OF as usize];
        for number in 0..2000 {
            let path = format!("tree/{}/{number}", number % 7);
            let shares = 0..OF;
            let its: Vec<_> = shares
                .filter(|&index| Share::Files { index, of: OF }.has(path.as_bytes()))
                .collect();
            assert_eq!(its.len(), 1, "{path}: {its:?}");
            counts[usize::from(its[0])] += 1;
            assert!(Share::Whole.has(path.as_bytes()));
            assert!(!Share::Directories.has(path.as_bytes()));
        }
        // The paths are constant, so the result is too.
        assert!(
            counts.iter().all(|count| (300..500).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn has__a_share_that_cannot_be_has_nothing() {
        assert!(!Share::Files { index: 0, of: 0 }.has(b"a"));
        assert!(!Share::Files { index: 2, of: 2 }.has(b"a"));
    }
}
