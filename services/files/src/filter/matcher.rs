//! Matches a path against all patterns of a filter at once.

use super::rule::Rule;
use crate::error::FilterError;
use regex::bytes::{RegexSet, RegexSetBuilder, SetMatches};

/// The patterns of several rules.
#[derive(Debug)]
pub(super) struct Matcher {
    patterns: RegexSet,
    /// Whether one of them ends with `***`, which matches a directory's contents too.
    within: bool,
}

/// The patterns that matched.
pub(super) struct Matched {
    name: SetMatches,
    /// Matches of the path with a slash at the end.
    within: Option<SetMatches>,
}

impl Matcher {
    /// `states`: memory in bytes for cached states of the automaton.
    ///
    /// # Errors
    /// [`FilterError::TooLarge`]: the patterns need more than `bytes`.
    pub(super) fn new<'r>(
        rules: impl Iterator<Item = &'r Rule> + Clone,
        (bytes, states): (usize, usize),
    ) -> Result<Matcher, FilterError> {
        let patterns = RegexSetBuilder::new(rules.clone().map(Rule::expression))
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(bytes)
            .dfa_size_limit(states)
            .build()
            .map_err(|_| FilterError::TooLarge)?;
        Ok(Matcher {
            patterns,
            within: rules.into_iter().any(|rule| rule.within),
        })
    }

    /// `path` starts with a separator and ends with a slash.
    pub(super) fn look(&self, path: &[u8], directory: bool) -> Matched {
        let name = &path[..path.len() - 1];
        Matched {
            name: self.patterns.matches(name),
            within: (directory && self.within).then(|| self.patterns.matches(path)),
        }
    }
}

impl Matched {
    /// Whether the pattern of `rule`, which has this index, matched.
    pub(super) fn has(&self, index: usize, rule: &Rule) -> bool {
        match &self.within {
            Some(within) if rule.within => within.matched(index),
            _ => self.name.matched(index),
        }
    }
}
