//! Which part of a walk goes over one of several connections of a copy.

use serde::{Deserialize, Serialize};

/// Which part of a walk goes over one connection.
///
/// Files and links are shared out by their paths, so both ends, and another connection after an outage, agree
/// about them whatever comes and goes in the tree meanwhile. Directories are in every share, for what is in them;
/// their permissions and times are set by a pass of its own, when nothing comes into them any more. What the sender cannot
/// open, and may be a directory, is told in every share that meets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Share {
    /// All of it.
    #[default]
    Whole,
    /// Files and links, of `of` parts the one with this `index`, which counts from 0.
    Files { index: u16, of: u16 },
    /// Directories, and what is kept of them.
    Directories,
}

impl Share {
    /// Whether what is no directory and is at `path` belongs to it.
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

    /// Whether it is the one that begins the copy.
    pub(crate) fn is_first(self) -> bool {
        matches!(self, Share::Whole | Share::Files { index: 0, .. })
    }

    /// Whether directories are counted and get what is kept of them.
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
        // Paths are fixed, so this holds or does not.
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
