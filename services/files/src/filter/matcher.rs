//! All patterns of one place as one automaton: a path is looked at once, however many rules there are.

use super::FilterError;
use super::rule::Rule;
use regex::bytes::{RegexSet, RegexSetBuilder, SetMatches};

/// The patterns of several rules.
#[derive(Debug)]
pub(super) struct Matcher {
    patterns: RegexSet,
    /// Whether one of them matches a directory as what is in it.
    within: bool,
}

/// Which of them match.
pub(super) struct Matched {
    name: SetMatches,
    /// With a slash at the end.
    within: Option<SetMatches>,
}

impl Matcher {
    /// `states`: bytes that may be kept of what was found out while matching.
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

    /// `path` has a separator in front and a slash at its end.
    pub(super) fn look(&self, path: &[u8], directory: bool) -> Matched {
        let name = &path[..path.len() - 1];
        Matched {
            name: self.patterns.matches(name),
            within: (directory && self.within).then(|| self.patterns.matches(path)),
        }
    }
}

impl Matched {
    /// Whether the pattern of `rule`, the one with this index, matches.
    pub(super) fn has(&self, index: usize, rule: &Rule) -> bool {
        match &self.within {
            Some(within) if rule.within => within.matched(index),
            _ => self.name.matched(index),
        }
    }
}
