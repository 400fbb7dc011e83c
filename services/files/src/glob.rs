//! Matches shell patterns in remote paths, name by name.

use crate::filter::compile;
use regex::bytes::Regex;

/// One name of a path.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// This name, with each `\` removed.
    Name(Vec<u8>),
    /// All matching names.
    Pattern(Pattern),
}

/// `*`, `?` and `[...]`, with the same meaning as in filters. Only a pattern that begins with a dot matches names that
/// do.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    expression: Regex,
    hidden: bool,
}

impl Part {
    /// Parses one name of a path. Text that is not a valid pattern, such as `[a`, is a name.
    pub(crate) fn new(text: &[u8]) -> Part {
        let name = unescaped(text);
        if is_wild(text)
            && let Some(expression) = compile(text)
        {
            let hidden = name.starts_with(b".");
            return Part::Pattern(Pattern { expression, hidden });
        }
        Part::Name(name)
    }
}

impl Pattern {
    /// Whether it matches `name`, which has no `/`.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        (self.hidden || !name.starts_with(b".")) && self.expression.is_match(&[b"/", name].concat())
    }
}

/// Whether `path` may stand for other paths.
pub(crate) fn is_special(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[\\".contains(byte))
}

/// Whether it has an unescaped pattern character.
pub(crate) fn is_wild(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    false
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'\\', Some(&escaped)) => {
                bytes.next();
                name.push(escaped);
            }
            _ => name.push(byte),
        }
    }
    name
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Part__matches_as_a_shell_does() {
        for (text, yes, no) in [
            ("*", "a,a.b,*,[", ".a,."),
            ("*.gz", "a.gz,x*.gz", "gz,.a.gz,a.gz2"),
            ("a?c", "abc,a*c,a\nc", "ac,abbc"),
            ("[a-c]x", "ax,cx", "dx,x"),
            ("[!a-c]x", "dx", "ax,.x"),
            (".*", ".a,.ab", "a"),
            ("\\.*", ".a", "a"),
            ("[.]a", "", ".a"),
            ("**", "a", ".a"),
            ("\\**", "*,*a", "a"),
        ] {
            let Part::Pattern(pattern) = Part::new(text.as_bytes()) else {
                panic!("{text} is a pattern");
            };
            let names = |names: &'static str| names.split(',').filter(|name| !name.is_empty());
            for name in names(yes) {
                assert!(pattern.matches(name.as_bytes()), "{text} {name}");
            }
            for name in names(no) {
                assert!(!pattern.matches(name.as_bytes()), "{text} {name}");
            }
        }
    }

    #[test]
    fn Part__what_is_no_pattern_is_a_name() {
        for (text, name) in [
            ("a", "a"),
            ("a\\*b", "a*b"),
            ("\\[x\\]", "[x]"),
            ("a\\\\b", "a\\b"),
            ("a\\", "a\\"),
            ("[a", "[a"),
            ("[z-a]", "[z-a]"),
        ] {
            let Part::Name(found) = Part::new(text.as_bytes()) else {
                panic!("{text} is a name");
            };
            assert_eq!(found, name.as_bytes(), "{text}");
        }
    }
}
