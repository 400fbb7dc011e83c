//! What may arrive at the top of a copy.

use super::offered::Offered;
use crate::glob::{Part, Pattern, is_special};
use crate::name::RelativePath;
use std::collections::HashSet;
use std::sync::Arc;

/// What may arrive at the top of a copy, and under which name it is put there.
#[derive(Clone, Debug)]
pub(crate) enum TopLevel {
    /// Anything, under its own name.
    Any,
    /// What a client asked for. A server cannot slip in another.
    Only(Wanted),
    /// What a sender offered, over all connections of the copy.
    Offered(Arc<Offered>),
    /// One entry, under this name.
    One(Vec<u8>),
}

/// The names that a client asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    names: HashSet<Vec<u8>>,
    patterns: Vec<Pattern>,
}

impl TopLevel {
    /// What may arrive when these are asked for.
    pub(crate) fn of(sources: &[Vec<u8>]) -> TopLevel {
        let mut wanted = Wanted::default();
        for source in sources {
            // The server will refuse this path and send nothing for it.
            let Ok(path) = RelativePath::parse(source) else {
                continue;
            };
            match path.split_last() {
                Some((_, name)) if !path.is_contents() => wanted.add(name),
                _ => return TopLevel::Any,
            };
        }
        TopLevel::Only(wanted)
    }
}

impl Wanted {
    /// A name as it is written, which may be a pattern.
    fn add(&mut self, name: &[u8]) {
        self.names.insert(name.to_vec());
        if is_special(name) {
            match Part::new(name) {
                Part::Name(name) => drop(self.names.insert(name)),
                Part::Pattern(pattern) => self.patterns.push(pattern),
            }
        }
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        self.names.contains(name) || self.patterns.iter().any(|it| it.matches(name))
    }
}
