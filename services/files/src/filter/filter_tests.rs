//! Tests that filters decide as rsync's do.

#![allow(non_snake_case)]

use super::matcher::Matcher;
use super::*;
use crate::limits::FILTER_TEXT_BYTES;

/// Whether `filter` excludes `path` at `side`; a final slash means a directory.
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
        // It matches nothing.
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
    // As in rsync.
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
    // Exclusion at the source, and at the target.
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
    let small = Matcher::new(filter.rules(), (1 << 10, 1 << 10));
    assert_eq!(small.err(), Some(FilterError::TooLarge));
}

/// A filter that reads `.f` files, after these rules.
fn with_files(rules: &[&str]) -> Filter {
    let mut filter = Filter::default();
    let rules = rules.iter().chain(&[": .f"]);
    rules.for_each(|rule| filter.add(rule.as_bytes()).unwrap());
    filter
}

#[test]
fn Scope__rules_of_the_tree_hold_where_they_stand_and_below() {
    let filter = with_files(&["+ *.keep", "- *.always"]);
    let mut scope = Scope::new(&filter, Side::Source).unwrap();
    let enter = |scope: &mut Scope<'_>, path: &str, text: &str| {
        let text = Some(text.as_bytes()).filter(|text| !text.is_empty());
        scope.enter(path.as_bytes(), [text].into_iter()).unwrap();
    };
    let check = |scope: &Scope<'_>, expected: &[(&str, bool)]| {
        for &(path, excluded) in expected {
            let name = path.trim_end_matches('/');
            let directory = name != path;
            assert_eq!(
                scope.excludes(name.as_bytes(), directory, false),
                excluded,
                "{path}"
            );
        }
    };
    enter(&mut scope, "", "- *.o\n- /top\n- d/inner\n");
    check(
        &scope,
        &[
            ("a.o", true),
            ("a.keep", false),
            ("a.always", true),
            ("top", true),
            ("d/", false),
        ],
    );
    // Anchored patterns begin at the file's directory; others match the whole path.
    enter(
        &mut scope,
        "d",
        "+ x.o\n- /here\n- d/below\n- **/deep\n- dir/***\n",
    );
    check(
        &scope,
        &[
            ("d/a.o", true),
            ("d/x.o", false),
            ("d/here", true),
            ("d/top", false),
            ("d/inner", true),
            ("d/below", true),
            ("d/deep", true),
            ("d/dir/", true),
            ("d/dir", false),
        ],
    );
    enter(&mut scope, "d/e", "");
    check(
        &scope,
        &[
            ("d/e/x.o", false),
            ("d/e/a.o", true),
            ("d/e/here", false),
            ("d/e/deep", true),
        ],
    );
    scope.leave();
    enter(&mut scope, "d/f", "- y\n!\n- z\n");
    check(
        &scope,
        &[
            ("d/f/a.o", false),
            ("d/f/y", false),
            ("d/f/z", true),
            ("d/f/b.always", true),
        ],
    );
    scope.leave();
    check(&scope, &[("d/z", false), ("d/a.o", true)]);
    scope.leave();
    check(&scope, &[("x.o", true), ("here", false)]);
    assert_eq!(filter.unused(), [""; 0]);
}

#[test]
fn Scope__kinds_of_filter_files() {
    for (rule, text, excluded, below, itself) in [
        (": .f", "- a", true, true, false),
        ("dir-merge .f", "- a", true, true, false),
        (":n .f", "- a", true, false, false),
        (":e .f", "- a", true, true, true),
        (":- .f", "a\n# b\n", true, true, false),
        (":-n .f", "a", true, false, false),
        (":- .f", "- a", false, false, false),
        (":+ .f", "a", false, false, false),
        (":r .f", "- a", false, false, false),
        (":s .f", "- a", true, true, false),
    ] {
        let mut filter = Filter::default();
        filter.add(rule.as_bytes()).unwrap();
        let mut scope = Scope::new(&filter, Side::Source).unwrap();
        scope
            .enter(b"", [Some(text.as_bytes())].into_iter())
            .unwrap();
        assert_eq!(scope.excludes(b"a", false, false), excluded, "{rule}");
        assert_eq!(scope.excludes(b".f", false, false), itself, "{rule}");
        scope.enter(b"d", [None].into_iter()).unwrap();
        assert_eq!(scope.excludes(b"d/a", false, false), below, "{rule}");
    }
    let mut filter = Filter::default();
    for bad in [":", ": ", ": a/b", ": /a", ": ..", ":C", ":w .f", ":/ .f"] {
        assert!(
            matches!(filter.add(bad.as_bytes()), Err(FilterError::Rule(_))),
            "{bad}"
        );
    }
    for _ in 0..FILTER_FILES {
        filter.add(b": .f").unwrap();
    }
    assert_eq!(filter.add(b": .f"), Err(FilterError::TooLarge));
}

#[test]
fn Scope__filter_files_that_cannot_be_used() {
    let filter = with_files(&[]);
    let enter = |scope: &mut Scope<'_>, text: &[u8]| {
        let entered = scope.enter(b"d", [Some(text)].into_iter());
        entered.map_err(|(index, why)| (index, why.to_string()))
    };
    for (text, words) in [
        (&b"- a\nb\n"[..], "line 2: a rule is"),
        (b"- [a\n", "line 1: not a pattern"),
        (b"\n- a\0b\n", "line 2: not a pattern"),
        // It could name any file.
        (b". /etc/passwd\n", "line 1: rules come from a file"),
        (b": other\n", "line 1: rules come from a file"),
    ] {
        let mut scope = Scope::new(&filter, Side::Source).unwrap();
        let (index, why) = enter(&mut scope, text).unwrap_err();
        assert!(index == 0 && why.starts_with(words), "{why}");
        // None of its rules apply.
        assert!(!scope.excludes(b"d/a", false, false));
    }
    let mut one_sided = Filter::default();
    one_sided.add(b":s .f").unwrap();
    let mut scope = Scope::new(&one_sided, Side::Source).unwrap();
    assert!(enter(&mut scope, b"P a\n").is_err());
    // All rules in force together are bounded.
    let mut scope = Scope::new(&filter, Side::Source).unwrap();
    let text = [&b"#"[..], &[b'x'; FILTER_TEXT_BYTES / 2 - 1]].concat();
    for _ in 0..2 {
        enter(&mut scope, &text).unwrap();
    }
    assert!(enter(&mut scope, b"- a").is_err());
    scope.leave();
    scope.leave();
    enter(&mut scope, b"- a").unwrap();
    assert!(scope.excludes(b"d/a", false, false));
}

#[test]
fn texts__mean_the_same_again() {
    let rules = [
        "- a", "+ b_ c", "-! *.o", "-p d/", "H e", "S e", "P f", "R f", "-sr g", "-!ps h", ": .f",
        ":n .g", ":-psn .h", ":+ .i", ":e .j",
    ];
    let mut filter = Filter::default();
    rules
        .iter()
        .for_each(|rule| filter.add(rule.as_bytes()).unwrap());
    let again = Filter::of_texts(&filter.texts()).unwrap();
    assert_eq!(
        format!("{again:?}").replace("excludes_itself: true", "excludes_itself: false"),
        format!("{filter:?}").replace("excludes_itself: true", "excludes_itself: false")
    );
    assert_eq!(again.texts(), filter.texts());
    assert!(Filter::of_texts(&[b"no rule".to_vec()]).is_err());
    assert!(Filter::of_texts(&vec![b": .f".to_vec(); FILTER_FILES + 1]).is_err());
}
