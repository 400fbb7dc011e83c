#![allow(non_snake_case)]

use super::*;

/// Whether `pattern` alone excludes `path`; a final slash means a directory.
fn excludes(pattern: &str, path: &str) -> bool {
    let mut filter = Filter::default();
    filter.exclude(pattern.as_bytes()).unwrap();
    let name = path.strip_suffix('/');
    filter.excludes(name.unwrap_or(path).as_bytes(), name.is_some())
}

#[test]
fn excludes__by_pattern() {
    for (pattern, matches, others) in [
        (
            "a",
            &["a", "a/", "b/a", "b/c/a/"][..],
            &["ab", "ba", "b/ab"][..],
        ),
        ("/a", &["a", "a/"], &["b/a", "ab"]),
        ("a/", &["a/", "b/a/"], &["a", "b/a"]),
        ("/a/", &["a/"], &["a", "b/a/"]),
        ("a/b", &["a/b", "x/a/b"], &["b", "xa/b", "a/b/c"]),
        ("/a/b", &["a/b"], &["x/a/b"]),
        ("*.o", &["x.o", ".o", "a/x.o"], &["x.oo", "x.o/y"]),
        ("/*.o", &["x.o"], &["a/x.o"]),
        ("a*b", &["ab", "axb"], &["a/b", "axbx"]),
        ("a/*/b", &["a/x/b", "y/a/x/b"], &["a/b", "a/x/y/b"]),
        ("a/**/b", &["a/x/b", "a/x/y/b", "z/a/x/b"], &["a/b"]),
        ("a**b", &["ab", "a/b", "a/x/yb", "z/a/b"], &["a/bx", "xa/b"]),
        ("**/b", &["b", "x/b", "x/y/b"], &["xb"]),
        ("**b", &["b", "xb", "x/yb"], &["bx"]),
        ("a/**", &["a/b", "a/b/c", "x/a/b"], &["a", "a/"]),
        ("a/***", &["a/", "a/b", "x/a/b/c"], &["a", "xa", "ab"]),
        ("/a/***", &["a/", "a/b/c"], &["x/a/b"]),
        ("*/****", &["a/", "a/b"], &["a"]),
        ("a***", &["a", "a/", "ab/", "a/b", "x/ab"], &["b", "xa"]),
        ("a?", &["ab", "x/ab"], &["a", "abc", "a/"]),
        ("[ab]x", &["ax", "bx"], &["cx", "x"]),
        ("[!ab]x", &["cx", "d/cx"], &["ax", "x", "/x"]),
        ("[^ab]x", &["cx"], &["bx"]),
        ("[a-c-]", &["b", "-"], &["d"]),
        ("[]x]", &["]", "x"], &["y"]),
        ("a[!x]b", &["ayb"], &["a/b", "axb"]),
        ("[[:digit:]]*", &["1", "2x"], &["x1"]),
        ("\\*", &["*"], &["x", "\\*"]),
        ("a\\b", &["a\\b"], &["ab"]),
        ("\\**", &["*", "*a"], &["a"]),
        ("a.b", &["a.b"], &["axb"]),
        ("{a,b}", &["{a,b}"], &["a", "b"]),
        ("\u{e9}?", &["\u{e9}x"], &["e"]),
    ] {
        for path in matches {
            assert!(excludes(pattern, path), "{pattern} leaves {path}");
        }
        for path in others {
            assert!(!excludes(pattern, path), "{pattern} takes {path}");
        }
    }
}

#[test]
fn excludes__the_first_rule_decides() {
    let mut filter = Filter::default();
    filter
        .add_lines(b"# words\n; words\n\n+ /keep/*.log\r\n- *.log\n+ *.txt\n- *\n")
        .unwrap();
    for (path, excluded) in [
        ("keep/a.log", false),
        ("a.log", true),
        ("x/keep/a.log", true),
        ("a.txt", false),
        ("other", true),
    ] {
        assert_eq!(filter.excludes(path.as_bytes(), false), excluded, "{path}");
    }
    assert!(filter.unused().is_empty());
}

#[test]
fn unused__what_decided_nothing() {
    let mut filter = Filter::default();
    filter.exclude(b"a").unwrap();
    filter.exclude(b"never\n").unwrap();
    assert!(filter.excludes(b"x/a", false));
    assert_eq!(filter.unused(), ["never\\n"]);
}

#[test]
fn add__no_patterns() {
    let mut filter = Filter::default();
    assert_eq!(filter.exclude(b""), Err(FilterError::Empty));
    assert_eq!(filter.exclude(b"/"), Err(FilterError::Empty));
    for bad in ["[a", "[z-a]", "[[:none:]]", "a\\b*\\"] {
        assert_eq!(
            filter.exclude(bad.as_bytes()),
            Err(FilterError::Pattern(bad.into())),
            "{bad}"
        );
    }
    assert_eq!(filter.add_lines(b"- a\nb\n"), Err(FilterError::Line(2)));
}
