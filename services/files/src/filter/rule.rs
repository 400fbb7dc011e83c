//! Parses one rule of a filter in rsync's syntax.

use super::pattern::{compile, translate};
use crate::error::FilterError;
use crate::name::check_name;
use std::sync::atomic::{AtomicBool, Ordering};

/// A line of rules.
#[derive(Debug)]
pub(super) enum Line {
    Rule(Rule),
    Merge(DirMerge),
    /// Discards the rules before it.
    Clear,
}

/// A pattern and its decision.
#[derive(Debug)]
pub(super) struct Rule {
    pattern: Vec<u8>,
    pub(super) include: bool,
    sides: Sides,
    /// It applies to files that the pattern does not match.
    negated: bool,
    /// It does not protect files in a directory that is removed.
    perishable: bool,
    directories_only: bool,
    /// The pattern ends with `***`: it also matches a directory as `DIR/`.
    pub(super) within: bool,
    /// Whether it decided anything.
    used: AtomicBool,
}

/// The ends at which a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sides {
    /// At both, unless excluded files must be deleted.
    #[default]
    Unsaid,
    One(Side),
    Both,
}

/// One of the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The reading end: which files are copied.
    Source,
    /// The writing end: which files are not deleted.
    Target,
}

/// Rules from a file in each directory, for that directory.
#[derive(Debug)]
pub(super) struct DirMerge {
    pub(super) name: Vec<u8>,
    /// The syntax of its lines.
    pub(super) style: Style,
    /// Modifiers that apply to all of its rules.
    pub(super) given: Given,
    /// Whether they also apply in subdirectories.
    pub(super) inherited: bool,
    /// Whether the file itself is excluded.
    excludes_itself: bool,
    /// Whether such a file was found.
    used: AtomicBool,
}

/// The syntax of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Full rules.
    Rules,
    /// Patterns. A leading `+ ` or `- ` overrides `include`, if `prefixes` is set.
    Patterns { include: bool, prefixes: bool },
}

/// Modifiers given to all rules of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given {
    sides: Sides,
    perishable: bool,
}

/// The kinds of rules: as a word and as a letter.
const KINDS: [(&str, u8); 9] = [
    ("exclude", b'-'),
    ("include", b'+'),
    ("hide", b'H'),
    ("show", b'S'),
    ("protect", b'P'),
    ("risk", b'R'),
    ("dir-merge", b':'),
    ("merge", b'.'),
    ("clear", b'!'),
];

impl Line {
    /// Parses a line that is not empty; `None` if it has no effect.
    pub(super) fn parse(
        line: &[u8],
        style: Style,
        given: Given,
    ) -> Result<Option<Line>, FilterError> {
        let (include, prefixes) = match style {
            Style::Rules => return Line::parse_rule(line, given).map(Some),
            Style::Patterns { include, prefixes } => (include, prefixes),
        };
        let (include, pattern) = match line {
            [b'+', b' ', pattern @ ..] if prefixes => (true, pattern),
            [b'-', b' ', pattern @ ..] if prefixes => (false, pattern),
            b"!" if prefixes => return Ok(Some(Line::Clear)),
            pattern => (include, pattern),
        };
        match pattern {
            [] => Ok(None),
            pattern => {
                let rule = Rule::new(pattern, include, given)?;
                Ok(Some(Line::Rule(rule)))
            }
        }
    }

    /// Parses `KIND[,][MODIFIERS] [ARGUMENT]`.
    fn parse_rule(line: &[u8], given: Given) -> Result<Line, FilterError> {
        let no_rule = || FilterError::Rule(line.to_vec());
        let (kind, rest) = kind_of(line).ok_or_else(no_rule)?;
        let rest = rest.strip_prefix(b",").unwrap_or(rest);
        let end = rest.iter().position(|byte| b" _".contains(byte));
        let (modifiers, argument) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &b""[..]),
        };
        match kind {
            b'!' if rest.is_empty() => Ok(Line::Clear),
            b'.' => Err(FilterError::Merge),
            b'!' => Err(no_rule()),
            b':' => DirMerge::parse(argument, modifiers, given)
                .map(Line::Merge)
                .ok_or_else(no_rule),
            _ => {
                let mut said = Given {
                    sides: match kind {
                        b'H' | b'S' => Sides::One(Side::Source),
                        b'P' | b'R' => Sides::One(Side::Target),
                        _ => Sides::Unsaid,
                    },
                    ..Given::default()
                };
                // Only the kinds without a side of their own allow a modifier for it.
                let sided = said.sides != Sides::Unsaid;
                let mut negated = false;
                for &modifier in modifiers {
                    match modifier {
                        b'!' => negated = true,
                        b's' | b'r' if sided => return Err(no_rule()),
                        _ => said.add(modifier).ok_or_else(no_rule)?,
                    }
                }
                let given = given.and(said).ok_or_else(no_rule)?;
                if argument.is_empty() {
                    return Err(FilterError::Empty);
                }
                let mut rule = Rule::new(argument, b"+SR".contains(&kind), given)?;
                rule.negated = negated;
                Ok(Line::Rule(rule))
            }
        }
    }
}

impl Sides {
    fn modifiers(self) -> &'static [u8] {
        match self {
            Sides::Unsaid => b"",
            Sides::One(Side::Source) => b"s",
            Sides::One(Side::Target) => b"r",
            Sides::Both => b"sr",
        }
    }
}

impl Given {
    /// Adds a modifier; `None` if it is unknown or repeated.
    fn add(&mut self, modifier: u8) -> Option<()> {
        self.sides = match (modifier, self.sides) {
            (b'p', sides) => {
                self.perishable = true;
                sides
            }
            (b's', Sides::Unsaid) => Sides::One(Side::Source),
            (b'r', Sides::Unsaid) => Sides::One(Side::Target),
            (b's', Sides::One(Side::Target)) | (b'r', Sides::One(Side::Source)) => Sides::Both,
            _ => return None,
        };
        Some(())
    }

    /// Combines these with a rule's own modifiers. `None`: both name a side.
    fn and(self, said: Given) -> Option<Given> {
        let sides = match (self.sides, said.sides) {
            (Sides::Unsaid, sides) | (sides, Sides::Unsaid) => sides,
            _ => return None,
        };
        Some(Given {
            sides,
            perishable: self.perishable || said.perishable,
        })
    }
}

/// The letter of a rule's kind, and the text after it.
fn kind_of(line: &[u8]) -> Option<(u8, &[u8])> {
    let word = |&(word, letter): &(&str, u8)| {
        let rest = line.strip_prefix(word.as_bytes())?;
        let ends = rest.first().is_none_or(|byte| b", _".contains(byte));
        ends.then_some((letter, rest))
    };
    let letter = || {
        let (&first, rest) = line.split_first()?;
        let known = KINDS.iter().any(|&(_, letter)| letter == first);
        known.then_some((first, rest))
    };
    KINDS.iter().find_map(word).or_else(letter)
}

impl DirMerge {
    /// `None`: an invalid modifier, or no name.
    fn parse(name: &[u8], modifiers: &[u8], mut given: Given) -> Option<DirMerge> {
        let (mut style, mut inherited, mut excludes_itself) = (Style::Rules, true, false);
        for &modifier in modifiers {
            match modifier {
                b'-' | b'+' => {
                    style = Style::Patterns {
                        include: modifier == b'+',
                        prefixes: false,
                    }
                }
                b'n' => inherited = false,
                b'e' => excludes_itself = true,
                _ => given.add(modifier)?,
            }
        }
        Some(DirMerge {
            name: check_name(name).ok()?.to_vec(),
            style,
            given,
            inherited,
            excludes_itself,
            used: AtomicBool::new(false),
        })
    }

    /// The rule as a line. The exclusion of the file itself is a separate rule.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = vec![b':'];
        text.extend(match self.style {
            Style::Rules => None,
            Style::Patterns { include, .. } => Some(if include { b'+' } else { b'-' }),
        });
        text.extend((!self.inherited).then_some(b'n'));
        text.extend(self.given.perishable.then_some(b'p'));
        text.extend(self.given.sides.modifiers());
        text.push(b' ');
        text.extend(&self.name);
        text
    }

    /// The rule that excludes the file itself, if it does.
    pub(super) fn of_itself(&self) -> Result<Option<Rule>, FilterError> {
        match self.excludes_itself {
            true => Rule::new(&self.name, false, Given::default()).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn note_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

impl Rule {
    pub(super) fn new(pattern: &[u8], include: bool, given: Given) -> Result<Rule, FilterError> {
        // Compiled one by one, so that the invalid pattern can be named.
        let (bare, directories_only) = split_slash(pattern);
        compile(bare).ok_or_else(|| FilterError::Pattern(pattern.to_vec()))?;
        Ok(Rule {
            pattern: pattern.to_vec(),
            include,
            sides: given.sides,
            negated: false,
            perishable: given.perishable,
            directories_only,
            within: bare.ends_with(b"***"),
            used: AtomicBool::new(false),
        })
    }

    /// The rule as a line.
    pub(super) fn text(&self) -> Vec<u8> {
        let kind = if self.include { b'+' } else { b'-' };
        let mut text = vec![kind];
        text.extend(self.negated.then_some(b'!'));
        text.extend(self.perishable.then_some(b'p'));
        text.extend(self.sides.modifiers());
        text.push(b' ');
        text.extend(&self.pattern);
        text
    }

    /// The pattern, as it was written.
    pub(super) fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The regular expression of the pattern.
    pub(super) fn expression(&self) -> String {
        // It was compiled before.
        translate(split_slash(&self.pattern).0).unwrap_or_default()
    }

    /// Whether it applies at `side`. `removing`: in a directory that is removed.
    pub(super) fn counts(&self, side: Side, delete_excluded: bool, removing: bool) -> bool {
        let there = match self.sides {
            Sides::One(its) => its == side,
            Sides::Both => true,
            Sides::Unsaid => side == Side::Source || !delete_excluded,
        };
        there && !(removing && self.perishable)
    }

    /// Whether it applies to a file of this kind, given whether the pattern matched the path.
    pub(super) fn decides(&self, matched: bool, directory: bool) -> bool {
        let matched = matched && (directory || !self.directories_only);
        let decides = matched != self.negated;
        if decides {
            self.used.store(true, Ordering::Relaxed);
        }
        decides
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

/// A pattern without its final slash, and whether there was one.
fn split_slash(pattern: &[u8]) -> (&[u8], bool) {
    match pattern {
        [rest @ .., b'/'] if !rest.is_empty() => (rest, true),
        _ => (pattern, false),
    }
}
