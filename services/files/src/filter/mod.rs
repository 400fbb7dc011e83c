//! Decides which files a copy excludes, by rsync's filter rules.

mod matcher;
mod pattern;
mod rule;
mod scope;

pub(crate) use pattern::compile;
pub(crate) use rule::Side;
pub(crate) use scope::Scope;

use crate::error::FilterError;
use crate::escape::escape;
use crate::limits::FILTER_FILES;
use rule::{DirMerge, Given, Line, Rule, Style};

/// Rules in the order in which they were given; the first one whose pattern matches decides. A file that no rule
/// matches is included. Excluding a directory excludes all its contents.
///
/// | pattern | matches |
/// |---|---|
/// | `NAME` | any entry with this name, in any directory |
/// | `A/B` | any path that ends with this |
/// | `/NAME`, `/A/B` | the path from the top of the tree |
/// | `PATTERN/` | directories only |
/// | `*` | any characters except `/` |
/// | `**` | any characters; `DIR/***`: the directory DIR and its contents (`NAME***`: also names that start so) |
/// | `?` | one character except `/` |
/// | `[a-z]`, `[!a-z]`, `[[:digit:]]` | one character in the set, or not in it; never `/` |
/// | `\*` | the character itself, in a pattern that has one of `*?[` |
///
/// Names are bytes: `?` matches one byte, and case matters.
///
/// | rule | a match |
/// |---|---|
/// | `- PATTERN` (`exclude`) | is neither copied nor deleted |
/// | `+ PATTERN` (`include`) | is copied, or deleted if the source does not have it |
/// | `H PATTERN` (`hide`), `S PATTERN` (`show`) | the same, for copying only |
/// | `P PATTERN` (`protect`), `R PATTERN` (`risk`) | the same, for deletion only |
/// | `!` (`clear`) | removes the rules before it |
/// | `: NAME` (`dir-merge`) | inserts the rules of the file NAME in each directory, for that directory and below: those of the innermost first |
///
/// Modifiers follow the letter, as in `-! */`: `!` inverts the match; `s` and `r` limit a rule to the source or the
/// receiver; `p` marks a rule that does not protect files in a directory that is deleted. `:` also has `-` and `+`, for
/// a file of patterns to exclude or to include, `n` for rules that do not apply in subdirectories, and `e`, which
/// excludes the filter file itself.
///
/// ```
/// use zerolane_files::Filter;
/// let mut filter = Filter::default();
/// filter.include(b"/keep/*.log")?;
/// filter.exclude(b"*.log")?;
/// filter.add(b"protect cache/")?;
/// assert_eq!(filter.unused(), ["/keep/*.log", "*.log", "cache/"]);
/// # Ok::<(), zerolane_files::FilterError>(())
/// ```
#[derive(Debug, Default)]
pub struct Filter {
    entries: Vec<Entry>,
}

/// An entry of a filter.
#[derive(Debug)]
enum Entry {
    Rule(Rule),
    /// The place of the rules from filter files of this name.
    Merge(DirMerge),
}

impl Filter {
    /// Adds a rule that includes what `pattern` matches, unless it begins with `- `; `!` alone removes all rules before
    /// it.
    ///
    /// # Errors
    /// [`FilterError`]: it is not a valid pattern.
    pub fn include(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.add_line(pattern, INCLUDES)
    }

    /// Adds a rule that excludes what `pattern` matches, unless it begins with `+ `; `!` alone removes all rules before
    /// it.
    ///
    /// # Errors
    /// [`FilterError`]: it is not a valid pattern.
    pub fn exclude(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.add_line(pattern, EXCLUDES)
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// [`FilterError`]: it is not a valid rule.
    pub fn add(&mut self, rule: &[u8]) -> Result<(), FilterError> {
        self.add_line(rule, Style::Rules)
    }

    /// Adds the rules of a file, one a line. Empty lines and those that begin with `#` or `;` are ignored.
    ///
    /// # Errors
    /// [`FilterError`]: a line is not a valid rule. The lines before it were added.
    pub fn add_lines(&mut self, text: &[u8]) -> Result<(), FilterError> {
        self.add_text(text, Style::Rules)
    }

    /// Like [`Filter::add_lines`], for a file of patterns as in [`Filter::include`].
    ///
    /// # Errors
    /// As for [`Filter::add_lines`].
    pub fn include_lines(&mut self, text: &[u8]) -> Result<(), FilterError> {
        self.add_text(text, INCLUDES)
    }

    /// Like [`Filter::add_lines`], for a file of patterns as in [`Filter::exclude`].
    ///
    /// # Errors
    /// As for [`Filter::add_lines`].
    pub fn exclude_lines(&mut self, text: &[u8]) -> Result<(), FilterError> {
        self.add_text(text, EXCLUDES)
    }

    fn add_text(&mut self, text: &[u8], style: Style) -> Result<(), FilterError> {
        for (number, line) in lines(text) {
            self.add_line(line, style)
                .map_err(|why| why.in_line(number))?;
        }
        Ok(())
    }

    fn add_line(&mut self, line: &[u8], style: Style) -> Result<(), FilterError> {
        match Line::parse(line, style, Given::default())? {
            None => {}
            Some(Line::Clear) => self.entries.clear(),
            Some(Line::Rule(rule)) => self.entries.push(Entry::Rule(rule)),
            Some(Line::Merge(merge)) => {
                if self.merges().count() >= FILTER_FILES {
                    return Err(FilterError::TooLarge);
                }
                self.entries.extend(merge.of_itself()?.map(Entry::Rule));
                self.entries.push(Entry::Merge(merge));
            }
        }
        Ok(())
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Rule(rule) => Some(rule),
            Entry::Merge(_) => None,
        })
    }

    fn merges(&self) -> impl Iterator<Item = &DirMerge> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Rule(_) => None,
            Entry::Merge(merge) => Some(merge),
        })
    }

    /// The rules as lines, for the other end: [`Filter::add`] parses each.
    pub fn texts(&self) -> Vec<Vec<u8>> {
        let texts = self.entries.iter().map(|entry| match entry {
            Entry::Rule(rule) => rule.text(),
            Entry::Merge(merge) => merge.text(),
        });
        texts.collect()
    }

    /// The rules in these lines.
    pub(crate) fn of_texts(texts: &[Vec<u8>]) -> Result<Filter, FilterError> {
        let mut filter = Filter::default();
        texts.iter().try_for_each(|text| filter.add(text))?;
        Ok(filter)
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names of the filter files that are looked up in each directory.
    pub(crate) fn files(&self) -> Vec<Vec<u8>> {
        self.merges().map(|merge| merge.name.clone()).collect()
    }

    /// The patterns that have decided nothing so far, and the filter files that were not found, printable.
    pub fn unused(&self) -> Vec<String> {
        let unused = self.entries.iter().filter_map(|entry| match entry {
            Entry::Rule(rule) => (!rule.is_used()).then(|| rule.pattern()),
            Entry::Merge(merge) => (!merge.is_used()).then_some(&merge.name[..]),
        });
        unused.map(escape).collect()
    }
}

const INCLUDES: Style = Style::Patterns {
    include: true,
    prefixes: true,
};
const EXCLUDES: Style = Style::Patterns {
    include: false,
    prefixes: true,
};

/// The lines of a file of rules that are not comments or empty, with their numbers.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    (1..)
        .zip(lines)
        .filter(|(_, line)| !matches!(line, [] | [b'#' | b';', ..]))
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
