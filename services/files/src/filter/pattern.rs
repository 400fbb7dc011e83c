//! Translates patterns of rsync's filters into regular expressions.
//!
//! They match a path that starts with a separator. Separators are `/`, and NUL where patterns that begin with `/` are
//! anchored: at the start, or after the directory whose filter file has the pattern.

use crate::limits::PATTERN_BYTES;
use regex::bytes::{Regex, RegexBuilder};

/// Compiles a pattern; `None` if it is invalid or too large.
pub(crate) fn compile(pattern: &[u8]) -> Option<Regex> {
    let expression = translate(pattern)?;
    RegexBuilder::new(&expression)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(PATTERN_BYTES)
        .build()
        .ok()
}

/// The regular expression of a pattern; `None` if a set is not closed, or has an unknown class.
pub(super) fn translate(pattern: &[u8]) -> Option<String> {
    if pattern.contains(&0) {
        return None;
    }
    let (begin, mut rest) = match pattern {
        [b'/', rest @ ..] => ("\\x00", rest),
        // It may match anywhere.
        [b'*', b'*', ..] => ("^", pattern),
        _ => (SEPARATOR, pattern),
    };
    let mut out = String::from(begin);
    let wild = pattern.iter().any(|byte| b"*?[".contains(byte));
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'*' if rest.starts_with(b"*") => {
                rest = &rest[rest.iter().take_while(|&&byte| byte == b'*').count()..];
                out += ".*";
            }
            b'*' => out += &format!("{IN_NAME}*"),
            b'?' => out += IN_NAME,
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

const SEPARATOR: &str = "[/\\x00]";
const IN_NAME: &str = "[^/\\x00]";

/// The names of character classes.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// Translates the set that began before `rest`; returns the text after it.
fn translate_set<'p>(mut rest: &'p [u8], out: &mut String) -> Option<&'p [u8]> {
    // A set never matches a separator.
    *out += &format!("[{IN_NAME}&&[");
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
    match byte {
        b'/' => *out += SEPARATOR,
        _ => *out += &format!("\\x{byte:02x}"),
    }
}
