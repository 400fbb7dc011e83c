#![allow(non_snake_case)]

use super::matcher::Matcher;
use super::*;

/// Whether `filter` leaves `path` alone at `side`; a final slash means a directory.
fn leaves(filter: &Filter, side: Side, path: &str) -> bool {
    let name = path.strip_suffix('/');
    let scope = Scope::new(filter, side).unwrap();
    scope.excludes(name.unwrap_or(path).as_bytes(), name.is_some(), false)
}

/// Whether `pattern` alone excludes `path`.
fn excludes(pattern: &str, path: &str) -> bool {
    let mut filter = Filter::default();
    filter.exclude(pattern.as_bytes()).unwrap();
    let excluded = leaves(&filter, Side::Source, path);
    assert_eq!(leaves(&filter, Side::Target, path), excluded);
    excluded
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
        // It names nothing.
        ("/", &[], &["a", "a/", "a/b"]),
        ("//", &[], &["a", "a/"]),
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
        assert_eq!(leaves(&filter, Side::Source, path), excluded, "{path}");
    }
    assert!(filter.unused().is_empty());
}

#[test]
fn unused__what_decided_nothing() {
    let mut filter = Filter::default();
    filter.exclude(b"a").unwrap();
    filter.exclude(b"never\n").unwrap();
    assert!(leaves(&filter, Side::Source, "x/a"));
    assert_eq!(filter.unused(), ["never\\n"]);
}

#[test]
fn add__no_patterns() {
    let mut filter = Filter::default();
    for bad in ["[a", "[z-a]", "[[:none:]]", "a\\b*\\", "a\0b"] {
        let pattern = bad.as_bytes();
        let wrong = FilterError::Pattern(bad.into());
        assert_eq!(filter.exclude(pattern), Err(wrong.clone()), "{bad}");
        let rule = [b"P ", pattern].concat();
        assert_eq!(filter.add(&rule), Err(wrong), "{bad}");
    }
    // As rsync has them.
    filter.exclude(b"").unwrap();
    filter.exclude(b"- ").unwrap();
    assert_eq!(filter.add(b"- "), Err(FilterError::Empty));
    for bad in [
        "b",
        "x b",
        "-b",
        "-x b",
        "!b",
        "clear b",
        "excluded b",
        "exclude,q b",
        "-/ b",
        "PP b",
        "Ps b",
        "",
    ] {
        let wrong = FilterError::Rule(bad.into());
        assert_eq!(filter.add(bad.as_bytes()), Err(wrong), "{bad}");
    }
    assert_eq!(filter.add(b"merge file"), Err(FilterError::Merge));
    let why = Box::new(FilterError::Rule(b"b".to_vec()));
    assert_eq!(
        filter.add_lines(b"- a\nb\n"),
        Err(FilterError::Line { line: 2, why })
    );
}

#[test]
fn add__rules_as_words_and_letters() {
    // What is left alone at the source, and at the target.
    for (rules, source, target) in [
        (&["- a"][..], true, true),
        (&["exclude a"], true, true),
        (&["-_a"], true, true),
        (&["-,s a"], true, false),
        (&["-s a"], true, false),
        (&["-r a"], false, true),
        (&["-sr a"], true, true),
        (&["exclude,r a"], false, true),
        (&["H a"], true, false),
        (&["hide a"], true, false),
        (&["P a"], false, true),
        (&["protect_a"], false, true),
        (&["R a", "- a"], true, false),
        (&["risk a", "- a"], true, false),
        (&["S a", "- a"], false, true),
        (&["show a", "- a"], false, true),
        (&["+ a", "- *"], false, false),
        (&["-! b"], true, true),
        (&["-! a"], false, false),
        (&["-! */"], true, true),
        (&["- a", "!"], false, false),
        (&["P a", "clear", "H a"], true, false),
    ] {
        let mut filter = Filter::default();
        rules
            .iter()
            .for_each(|rule| filter.add(rule.as_bytes()).unwrap());
        let found = [Side::Source, Side::Target].map(|side| leaves(&filter, side, "x/a"));
        assert_eq!(found, [source, target], "{rules:?}");
    }
}

#[test]
fn excludes__what_is_excluded_may_be_deleted_and_what_is_protected_not() {
    for (rule, deleted) in [
        ("- a", true),
        ("-r a", false),
        ("P a", false),
        ("-sr a", false),
    ] {
        let mut filter = Filter::default();
        filter.add(rule.as_bytes()).unwrap();
        let scope = Scope::new(&filter, Side::Target).unwrap();
        let scope = scope.deleting_excluded(true);
        assert_eq!(scope.excludes(b"a", false, false), !deleted, "{rule}");
    }
    let mut filter = Filter::default();
    filter.add(b"-p a").unwrap();
    let scope = Scope::new(&filter, Side::Target).unwrap();
    assert!(scope.excludes(b"d/a", false, false) && !scope.excludes(b"d/a", false, true));
}

#[test]
fn lines__of_patterns() {
    let mut filter = Filter::default();
    filter
        .exclude_lines(b"gone\n!\n# no\n\n; no\n+ a1\r\na*\n- + b\n")
        .unwrap();
    filter.include_lines(b"c1\n- c*\n").unwrap();
    for (path, excluded) in [
        ("gone", false),
        ("a1", false),
        ("a2", true),
        ("+ b", true),
        ("c1", false),
        ("c2", true),
    ] {
        assert_eq!(leaves(&filter, Side::Source, path), excluded, "{path}");
    }
}

#[test]
fn Scope__many_rules_are_looked_at_once_and_too_many_refused() {
    let mut filter = Filter::default();
    for number in 0..2000 {
        filter.exclude(format!("*.{number}").as_bytes()).unwrap();
    }
    let scope = Scope::new(&filter, Side::Source).unwrap();
    assert!(scope.excludes(b"d/x.1999", false, false));
    assert!(!scope.excludes(b"d/x.2000", false, false));
    let small = Matcher::new(filter.rules(), 1 << 10);
    assert_eq!(small.err(), Some(FilterError::TooLarge));
}
