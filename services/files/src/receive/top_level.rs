//! Decides which names may arrive at the top of a copy.

use super::offered::Offered;
use crate::glob::{Part, Pattern, is_special};
use crate::name::RelativePath;
use std::collections::HashSet;
use std::sync::Arc;

/// The names that may arrive at the top of a copy, and the names that they get.
#[derive(Clone, Debug)]
pub(crate) enum TopLevel {
    /// Anything, under its own name.
    Any,
    /// The names that a client requested. A server cannot add others.
    Only(Wanted),
    /// The names that a sender offered, over all connections of the copy.
    Offered(Arc<Offered>),
    /// One entry, under this name.
    One(Vec<u8>),
}

/// The names that a client requested.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    names: HashSet<Vec<u8>>,
    patterns: Vec<Pattern>,
}

impl TopLevel {
    /// The names that may arrive for these sources.
    pub(crate) fn of(sources: &[Vec<u8>]) -> TopLevel {
        let mut wanted = Wanted::default();
        for source in sources {
            // The server refuses this path and sends nothing for it.
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
    /// Adds a name as written, which may be a pattern.
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
