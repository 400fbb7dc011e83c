//! Which files a sync leaves alone: the common part of rsync's filter rules.

use crate::escape::escape;
use crate::limits::PATTERN_BYTES;
use regex::bytes::{Regex, RegexBuilder};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rules in the order in which they were given; the first one whose pattern matches decides. What no
/// rule matches is included. A directory that is excluded is so with all that is in it.
///
/// | pattern | matches |
/// |---|---|
/// | `NAME` | whatever is called so, in any directory |
/// | `A/B` | whatever path ends so |
/// | `/NAME`, `/A/B` | the path from the top of the tree |
/// | `PATTERN/` | directories only |
/// | `*` | any characters but `/` |
/// | `**` | any characters; `DIR/***`: the directory DIR and all in it (`NAME***`: also what begins so) |
/// | `?` | one character but `/` |
/// | `[a-z]`, `[!a-z]`, `[[:digit:]]` | one character of a set, or none of it; never `/` |
/// | `\*` | the character itself, in a pattern that has one of `*?[` |
///
/// Names are bytes: `?` is one byte, and letters differ from capitals.
///
/// ```
/// use zerolane_files::Filter;
/// let mut filter = Filter::default();
/// filter.include(b"/keep/*.log")?;
/// filter.exclude(b"*.log")?;
/// filter.exclude(b"cache/")?;
/// assert!(filter.excludes(b"a/b.log", false));
/// assert!(!filter.excludes(b"keep/b.log", false));
/// assert!(filter.excludes(b"a/cache", true) && !filter.excludes(b"a/cache", false));
/// # Ok::<(), zerolane_files::FilterError>(())
/// ```
#[derive(Debug, Default)]
pub struct Filter {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    text: Vec<u8>,
    include: bool,
    directories_only: bool,
    /// Ends with `***`: matches a directory as `DIR/` besides.
    within: bool,
    pattern: Regex,
    /// Whether it matched anything.
    used: AtomicBool,
}

/// A text that is no filter rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Nothing is left of the pattern.
    #[error("an empty pattern")]
    Empty,
    /// `[` without `]`, a range that runs backwards, a class that there is not.
    #[error("not a pattern: {}", escape(.0))]
    Pattern(Vec<u8>),
    /// A line of a file that begins with neither `+ ` nor `- `.
    #[error("line {0}: a rule is '+ PATTERN' or '- PATTERN'")]
    Line(usize),
}

impl Filter {
    /// Adds a rule that includes what `pattern` matches.
    ///
    /// # Errors
    /// [`FilterError`]: it is no pattern.
    pub fn include(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.add(true, pattern)
    }

    /// Adds a rule that excludes what `pattern` matches.
    ///
    /// # Errors
    /// [`FilterError`]: it is no pattern.
    pub fn exclude(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.add(false, pattern)
    }

    /// Adds the rules of a file: `+ PATTERN` or `- PATTERN` in a line each. Empty lines and those that
    /// begin with `#` or `;` mean nothing.
    ///
    /// # Errors
    /// [`FilterError`]: a line is no rule. Those before it were added.
    pub fn add_lines(&mut self, text: &[u8]) -> Result<(), FilterError> {
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match line {
                [] | [b'#' | b';', ..] => {}
                [b'+', b' ', pattern @ ..] => self.include(pattern)?,
                [b'-', b' ', pattern @ ..] => self.exclude(pattern)?,
                _ => return Err(FilterError::Line(number + 1)),
            }
        }
        Ok(())
    }

    fn add(&mut self, include: bool, text: &[u8]) -> Result<(), FilterError> {
        let (pattern, directories_only) = match text {
            [rest @ .., b'/'] => (rest, true),
            _ => (text, false),
        };
        if pattern.is_empty() {
            return Err(FilterError::Empty);
        }
        let within = pattern.ends_with(b"***");
        let pattern = compile(pattern).ok_or_else(|| FilterError::Pattern(text.to_vec()))?;
        self.rules.push(Rule {
            text: text.to_vec(),
            include,
            directories_only,
            within,
            pattern,
            used: AtomicBool::new(false),
        });
        Ok(())
    }

    /// Whether what stands at `path`, below the top of the tree, is left alone.
    pub fn excludes(&self, path: &[u8], directory: bool) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let rooted = [b"/", path, b"/"].concat();
        let mut rules = self.rules.iter();
        let first = rules.find(|rule| {
            let end = usize::from(!(directory && rule.within));
            (directory || !rule.directories_only)
                && rule.pattern.is_match(&rooted[..rooted.len() - end])
        });
        first.is_some_and(|rule| {
            rule.used.store(true, Ordering::Relaxed);
            !rule.include
        })
    }

    /// The patterns that decided nothing so far, printable.
    pub fn unused(&self) -> Vec<String> {
        let unused = self.rules.iter();
        let unused = unused.filter(|rule| !rule.used.load(Ordering::Relaxed));
        unused.map(|rule| escape(&rule.text)).collect()
    }
}

/// What matches a path that begins with `/`; `None` if it is no pattern, or too large a one.
pub(crate) fn compile(pattern: &[u8]) -> Option<Regex> {
    let expression = translate(pattern)?;
    RegexBuilder::new(&expression)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(PATTERN_BYTES)
        .build()
        .ok()
}

/// The regular expression for a path that begins with `/`; `None` if a set is not closed.
fn translate(pattern: &[u8]) -> Option<String> {
    let mut out = String::from(match pattern {
        // From the top, and what begins with ** may begin anywhere.
        [b'/', ..] | [b'*', b'*', ..] => "^",
        _ => "/",
    });
    let wild = pattern.iter().any(|byte| b"*?[".contains(byte));
    let mut rest = pattern;
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'*' if rest.starts_with(b"*") => {
                rest = &rest[rest.iter().take_while(|&&byte| byte == b'*').count()..];
                out += ".*";
            }
            b'*' => out += "[^/]*",
            b'?' => out += "[^/]",
            b'[' => rest = translate_set(rest, &mut out)?,
            b'\\' if wild => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                literal(*escaped, &mut out);
            }
            byte => literal(*byte, &mut out),
        }
    }
    out += "$";
    Some(out)
}

/// The names of classes of characters.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// The set that began before `rest`; what is left after it.
fn translate_set<'p>(mut rest: &'p [u8], out: &mut String) -> Option<&'p [u8]> {
    // Never a slash, whatever the set says.
    *out += "[[^/]&&[";
    if let [b'!' | b'^', after @ ..] = rest {
        *out += "^";
        rest = after;
    }
    let mut first = true;
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b']' if !first => break,
            b'[' if rest.starts_with(b":") => {
                let end = rest[1..].windows(2).position(|it| it == b":]")? + 1;
                let class = std::str::from_utf8(&rest[1..end]).ok()?;
                if !CLASSES.contains(&class) {
                    return None;
                }
                *out += &format!("[:{class}:]");
                rest = &rest[end + 2..];
            }
            b'-' if !first && rest.first().is_some_and(|&it| it != b']') => *out += "-",
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                literal(*escaped, out);
            }
            byte => literal(byte, out),
        }
        first = false;
    }
    *out += "]]";
    Some(rest)
}

fn literal(byte: u8, out: &mut String) {
    *out += &format!("\\x{byte:02x}");
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
