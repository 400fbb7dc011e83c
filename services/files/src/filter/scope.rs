//! Tracks which filter rules apply at the current directory of a walk.

use super::matcher::Matcher;
use super::rule::{DirMerge, Line, Rule};
use super::{Entry, Filter, Side, lines};
use crate::error::FilterError;
use crate::limits::{
    FILTER_BYTES, FILTER_FILE_STATES_BYTES, FILTER_STATES_BYTES, FILTER_TEXT_BYTES,
};

/// A filter and the filter files of the directories that the walk is in.
#[derive(Debug)]
pub(crate) struct Scope<'f> {
    filter: &'f Filter,
    side: Side,
    /// Rules that name no side do not apply at the target.
    delete_excluded: bool,
    /// The directory of backups, which is excluded whatever the rules say.
    backups: Option<Vec<u8>>,
    /// Names with this suffix are excluded if no rule decides.
    backup_suffix: Option<Vec<u8>>,
    matcher: Matcher,
    /// The depth of the walk.
    depth: usize,
    /// For each name of filter files those that apply, the innermost last.
    merged: Vec<Vec<Merged>>,
}

/// The rules of one filter file.
#[derive(Debug)]
struct Merged {
    /// The depth of its directory, and the position of the separator after that directory's path.
    depth: usize,
    separator: usize,
    /// Length of its text, bytes.
    bytes: usize,
    rules: Vec<Rule>,
    matcher: Matcher,
    /// Rules of parent directories do not apply.
    clears: bool,
}

/// A filter file that cannot be used: its index in the filter, and the reason.
pub(crate) type Unusable = (usize, FilterError);

impl<'f> Scope<'f> {
    /// # Errors
    /// [`FilterError::TooLarge`].
    pub(crate) fn new(filter: &'f Filter, side: Side) -> Result<Scope<'f>, FilterError> {
        Ok(Scope {
            filter,
            side,
            delete_excluded: false,
            backups: None,
            backup_suffix: None,
            matcher: Matcher::new(filter.rules(), (FILTER_BYTES, FILTER_STATES_BYTES))?,
            depth: 0,
            merged: filter.merges().map(|_| Vec::new()).collect(),
        })
    }

    /// The filter.
    pub(crate) fn filter(&self) -> &'f Filter {
        self.filter
    }

    /// Allows the deletion of files excluded by rules that name no side.
    pub(crate) fn deleting_excluded(mut self, delete_excluded: bool) -> Scope<'f> {
        self.delete_excluded = delete_excluded;
        self
    }

    /// Excludes the directory of backups at this path, with its contents.
    pub(crate) fn leaving_backups(mut self, directory: Option<Vec<u8>>) -> Scope<'f> {
        self.backups = directory;
        self
    }

    /// Whether the directory of backups is, or will be, in the directory at `path`, at any depth.
    pub(crate) fn has_backups_in(&self, path: &[u8]) -> bool {
        let backups = self.backups.as_ref();
        let below = backups.and_then(|backups| backups.strip_prefix(path));
        below.is_some_and(|below| below.first() == Some(&b'/'))
    }

    /// Excludes names with this suffix that are not included, as a last rule `- *SUFFIX` would.
    pub(crate) fn leaving_suffix(mut self, suffix: Option<Vec<u8>>) -> Scope<'f> {
        self.backup_suffix = suffix;
        self
    }

    /// The names of the filter files that are looked up in each directory.
    pub(crate) fn files(&self) -> impl Iterator<Item = &'f [u8]> + use<'f> {
        self.filter.merges().map(|merge| &merge.name[..])
    }

    /// Enters the directory at `path`, which has these filter files.
    ///
    /// # Errors
    /// The first that cannot be used: none of its rules apply. The walk is in the directory all the same.
    pub(crate) fn enter<'t>(
        &mut self,
        path: &[u8],
        texts: impl Iterator<Item = Option<&'t [u8]>>,
    ) -> Result<(), Unusable> {
        self.depth += 1;
        let separator = match path.len() {
            0 => 0,
            len => len + 1,
        };
        let mut outcome = Ok(());
        for (index, (merge, text)) in self.filter.merges().zip(texts).enumerate() {
            let Some(text) = text.filter(|text| !text.is_empty()) else {
                continue;
            };
            merge.note_used();
            let held: usize = self.merged.iter().flatten().map(|it| it.bytes).sum();
            let merged = match held + text.len() > FILTER_TEXT_BYTES {
                true => Err(FilterError::TooLarge),
                false => Merged::read(text, merge, (self.depth, separator)),
            };
            match merged {
                Ok(merged) => self.merged[index].push(merged),
                Err(why) => outcome = outcome.and(Err((index, why))),
            }
        }
        outcome
    }

    /// Leaves the directory.
    pub(crate) fn leave(&mut self) {
        for merged in &mut self.merged {
            merged.pop_if(|it| it.depth == self.depth);
        }
        self.depth -= 1;
    }

    /// Whether `path` is excluded, a path below the top of the tree and in the directory that was entered last.
    /// `removing`: the directory is removed.
    pub(crate) fn excludes(&self, path: &[u8], directory: bool, removing: bool) -> bool {
        let backups = self
            .backups
            .as_ref()
            .and_then(|it| path.strip_prefix(&it[..]));
        if backups.is_some_and(|below| matches!(below, [] | [b'/', ..])) {
            return true;
        }
        let suffix = self.backup_suffix.as_ref();
        let last_rule = suffix.is_some_and(|suffix| path.ends_with(suffix));
        if self.filter.entries.is_empty() {
            return last_rule;
        }
        let mut rooted = [b"\0", path, b"/"].concat();
        let matched = self.matcher.look(&rooted, directory);
        rooted[0] = b'/';
        let (mut rule_index, mut merge_index) = (0, 0);
        for entry in &self.filter.entries {
            let decided = match entry {
                Entry::Rule(rule) => {
                    rule_index += 1;
                    let matched = matched.has(rule_index - 1, rule);
                    self.decides(rule, matched, directory, removing)
                }
                Entry::Merge(merge) => {
                    merge_index += 1;
                    let merged = &self.merged[merge_index - 1];
                    self.merged_decide((merge, merged), &mut rooted, directory, removing)
                }
            };
            if let Some(include) = decided {
                return !include;
            }
        }
        last_rule
    }

    /// The decision of a rule: to include or not; `None` if it does not apply.
    fn decides(&self, rule: &Rule, matched: bool, directory: bool, removing: bool) -> Option<bool> {
        let counts = rule.counts(self.side, self.delete_excluded, removing);
        (counts && rule.decides(matched, directory)).then_some(rule.include)
    }

    fn merged_decide(
        &self,
        (merge, merged): (&DirMerge, &[Merged]),
        rooted: &mut [u8],
        directory: bool,
        removing: bool,
    ) -> Option<bool> {
        for it in merged.iter().rev() {
            if !merge.inherited && it.depth != self.depth {
                return None;
            }
            rooted[it.separator] = 0;
            let matched = it.matcher.look(rooted, directory);
            rooted[it.separator] = b'/';
            let mut rules = it.rules.iter().enumerate();
            let decided = rules.find_map(|(index, rule)| {
                self.decides(rule, matched.has(index, rule), directory, removing)
            });
            if decided.is_some() || it.clears {
                return decided;
            }
        }
        None
    }
}

impl Merged {
    fn read(
        text: &[u8],
        merge: &DirMerge,
        (depth, separator): (usize, usize),
    ) -> Result<Merged, FilterError> {
        let (mut rules, mut clears) = (Vec::new(), false);
        for (number, line) in lines(text) {
            let line = Line::parse(line, merge.style, merge.given);
            match line.map_err(|why| why.in_line(number))? {
                None => {}
                Some(Line::Rule(rule)) => rules.push(rule),
                Some(Line::Clear) => {
                    rules.clear();
                    clears = true;
                }
                // A tree that is copied cannot name further files to read.
                Some(Line::Merge(_)) => return Err(FilterError::Merge.in_line(number)),
            }
        }
        let matcher = Matcher::new(rules.iter(), (FILTER_BYTES, FILTER_FILE_STATES_BYTES))?;
        Ok(Merged {
            depth,
            separator,
            bytes: text.len(),
            rules,
            matcher,
            clears,
        })
    }
}
