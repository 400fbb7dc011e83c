//! Tests filters, also against rsync.

use super::*;

#[test]
fn sync__filters_that_match_nothing_are_told() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/x.o"), b"x");
    write(&lab.local("a/y"), b"y");
    fs::write(lab.local("rules"), "# rules\n- *.o\n- never*\n").unwrap();
    let rules = lab.local("rules");
    let from = ["--filter-from", rules.to_str().unwrap()];
    let (code, _, err) = run(push(&lab, &from, "a", "t"));
    assert_eq!(code, 0, "{err}");
    assert!(
        err.contains("filters that matched nothing: never*"),
        "{err}"
    );
    assert_eq!(paths(&lab.share("t")), ["y"]);
    fail(
        push(&lab, &["--exclude", "[a"], "a", "t"),
        2,
        "not a pattern: [a",
    );
    fs::write(lab.local("rules"), "*.o\n").unwrap();
    fail(push(&lab, &from, "a", "t"), 2, "line 1: a rule is");
}

#[test]
fn sync__patterns_from_files() {
    let lab = Lab::new(&[]);
    for name in ["a.o", "b.o", "c", "d/x.o", "gone"] {
        write(&lab.local("a").join(name), b"x");
    }
    let files = [
        ("excludes", "# words\n\n+ b.o\n*.o\n"),
        ("includes", "c\n- *.o\n- gone\n"),
    ];
    for (name, text) in files {
        fs::write(lab.local(name), text).unwrap();
    }
    let option = |name: &str, file: &str| format!("--{name}={}", lab.local(file).display());
    succeed(push(&lab, &[&option("exclude-from", "excludes")], "a", "t"));
    assert_eq!(paths(&lab.share("t")), ["b.o", "c", "d", "gone"]);
    let and = [&*option("include-from", "includes"), "--exclude=d"];
    succeed(push(&lab, &and, "a", "u"));
    assert_eq!(paths(&lab.share("u")), ["c"]);
    // Rules from standard input, and from a missing file.
    let mut from_input = push(&lab, &["--exclude-from=-"], "a", "v");
    from_input.stdin(fs::File::open(lab.local("excludes")).unwrap());
    succeed(from_input);
    assert_eq!(paths(&lab.share("v")), ["b.o", "c", "d", "gone"]);
    fail(
        push(&lab, &["--exclude-from=missing"], "a", "t"),
        2,
        "--exclude-from missing: No such file",
    );
}

#[test]
fn sync__what_is_protected_stays_and_what_is_excluded_goes_if_asked_for() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/new"), b"new");
    write(&lab.local("a/x.o"), b"x");
    for name in ["x.o", "old.o", "kept/file", "kept/more", "extra"] {
        write(&lab.share("t").join(name), b"x");
    }
    let rules = ["--filter=P kept/", "--exclude=*.o"];
    let done = numbers(push(&lab, &[&rules[..], &["--delete"]].concat(), "a", "t"));
    assert_eq!((&done["deleted"], &done["sent"]), (&1.into(), &1.into()));
    let kept = ["kept", "kept/file", "kept/more"];
    let with = |names: &[&'static str]| [&kept[..], names].concat();
    assert_eq!(paths(&lab.share("t")), with(&["new", "old.o", "x.o"]));
    let all = [&rules[..], &["--delete-excluded"]].concat();
    assert_eq!(numbers(push(&lab, &all, "a", "t"))["deleted"], 2);
    assert_eq!(paths(&lab.share("t")), with(&["new"]));
    fail(
        push(&lab, &["--filter=x kept"], "a", "t"),
        2,
        "a rule is '+ PATTERN'",
    );
}

#[test]
fn sync__empty_patterns_match_nothing_as_with_rsync() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/d/f"), b"x");
    for pattern in ["", "/"] {
        let options = ["--exclude", pattern, "--include", pattern];
        succeed(push(&lab, &options, "a", "t"));
        assert_eq!(paths(&lab.share("t")), ["d", "d/f"]);
        fs::remove_dir_all(lab.share("t")).unwrap();
    }
}

#[test]
fn sync__a_filtered_file_gives_way_to_a_directory_and_a_directory_stays() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/x/f"), b"new");
    write(&lab.share("t/x"), b"a file");
    write(&lab.share("t/extra"), b"x");
    let rules = ["--include", "x/", "--exclude", "x", "--delete"];
    succeed(push(&lab, &rules, "a", "t"));
    assert_eq!(paths(&lab.share("t")), ["x", "x/f"]);

    write(&lab.local("b/x"), b"a file");
    write(&lab.share("u/x/f"), b"stays");
    write(&lab.share("u/y/in"), b"stays");
    let rules = ["--exclude", "x/", "--exclude", "y/", "--delete"];
    fail(
        push(&lab, &rules, "b", "u"),
        1,
        "x: a directory stands in the way",
    );
    assert_eq!(paths(&lab.share("u")), ["x", "x/f", "y", "y/in"]);
}

#[test]
fn sync__filter_files_of_the_tree_either_way() {
    let lab = Lab::new(&[]);
    for tree in [lab.local("a"), lab.share("b")] {
        write(&tree.join(".rsync-filter"), b"- *.o\nP kept\n");
        write(&tree.join("d/.rsync-filter"), b"+ x.o\n- /y\n");
        for name in ["a.o", "c", "d/x.o", "d/y", "d/e/y"] {
            write(&tree.join(name), b"x");
        }
    }
    for target in [lab.share("t"), lab.local("u")] {
        for name in ["b.o", "kept", "gone"] {
            write(&target.join(name), b"x");
        }
    }
    let mut copied = vec!["b.o", "c", "d", "d/e", "d/e/y", "d/x.o", "kept"];
    succeed(push(&lab, &["-FF", "--delete"], "a", "t"));
    succeed(pull(&lab, &["-FF", "--delete"], "b", "u"));
    // Without the rules nothing is excluded.
    for target in [lab.share("t"), lab.local("u")] {
        assert_eq!(paths(&target), ["c", "d", "d/e", "d/e/y", "d/x.o"]);
        for name in ["b.o", "kept"] {
            write(&target.join(name), b"x");
        }
    }
    copied.extend([".rsync-filter", "d/.rsync-filter"]);
    copied.sort_unstable();
    succeed(push(&lab, &["-F", "--delete"], "a", "t"));
    succeed(pull(&lab, &["-F", "--delete"], "b", "u"));
    for target in [lab.share("t"), lab.local("u")] {
        assert_eq!(paths(&target), copied);
    }
    // An unusable rule deletes nothing.
    for bad in [
        lab.local("a/d/.rsync-filter"),
        lab.share("b/d/.rsync-filter"),
    ] {
        fs::write(&bad, "- a\nwhat\n").unwrap();
    }
    write(&lab.local("a/new"), b"x");
    let words = "d/.rsync-filter: line 2 is not a filter rule";
    write(&lab.share("t/gone"), b"x");
    fail(push(&lab, &["-F", "--delete"], "a", "t"), 5, words);
    assert!(lab.share("t/gone").exists() && lab.share("t/new").exists());
    fail(pull(&lab, &["-F", "--delete"], "b", "u"), 5, words);
}

/// Random numbers from a seed.
pub(super) struct Random(Vec<u8>);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(content(seed, 8192))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.0.pop().expect("enough of them")) % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn rule(&mut self) -> String {
        let kinds = [
            "- ", "- ", "+ ", "P ", "R ", "H ", "S ", "-! ", "-p ", "!", "# ",
        ];
        match self.pick(&kinds) {
            "!" => "!".into(),
            kind => format!("{kind}{}", self.pattern()),
        }
    }

    /// Plants filter files in an existing tree.
    fn filter_files(&mut self, base: &Path) {
        let directories = tree(base, false).into_iter();
        let directories = directories.filter(|(_, words)| words.starts_with("directory"));
        let places: Vec<_> = [String::new()]
            .into_iter()
            .chain(directories.map(|(path, _)| path))
            .collect();
        for place in places {
            if self.below(2) == 0 {
                let rules: Vec<_> = (0..1 + self.below(3)).map(|_| self.rule()).collect();
                fs::write(base.join(place).join(".f"), rules.join("\n")).unwrap();
            }
        }
    }

    /// Plants a tree with few different names, so that patterns match.
    fn tree(&mut self, base: &Path) {
        for _ in 0..24 {
            let mut path = base.to_owned();
            for _ in 0..self.below(3) {
                path.push(self.pick(&["a", "b", "ab", "c"]));
            }
            path.push(self.pick(&["a", "b", "ab", "c", "x.o", "*"]));
            // A file or directory may be in the way.
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.exists() {
                fs::write(&path, &[0; 5][..self.below(5)]).unwrap();
            }
        }
    }

    fn pattern(&mut self) -> String {
        let mut pattern = String::new();
        for _ in 0..1 + self.below(4) {
            pattern += self.pick(&["a", "b", "*", "?", "**", "[ab]", "[!a]", "/", "c", ".o"]);
        }
        pattern += self.pick(&["", "", "", "/", "/**", "/***"]);
        if pattern.trim_matches('/').is_empty() || pattern.contains("//") {
            return "a/*".into();
        }
        pattern
    }
}

/// `ZEROLANE_SEED` repeats a failed run.
#[test]
fn sync__filters_as_rsync_has_them() {
    if Command::new("rsync").arg("--version").output().is_err() {
        println!("skipped: there is no rsync");
        return;
    }
    let given = std::env::var("ZEROLANE_SEED").ok();
    let first: u64 = given.map_or(271, |seed| seed.parse().unwrap());
    for seed in first..first + 80 {
        println!("ZEROLANE_SEED={seed}");
        let lab = Lab::new(&[]);
        let mut random = Random::new(seed);
        fs::create_dir(lab.local("a")).unwrap();
        random.tree(&lab.local("a"));
        random.tree(&lab.share("t"));
        // Every second run has filter files in the trees.
        let files = seed % 2 == 1;
        if files {
            random.filter_files(&lab.local("a"));
            random.filter_files(&lab.share("t"));
        }
        let mut copy = Command::new("cp");
        succeed({
            copy.arg("-a").arg(lab.share("t")).arg(lab.local("r"));
            copy
        });
        let rules: Vec<_> = (0..1 + random.below(3))
            .map(|_| {
                let kinds = [
                    "exclude=",
                    "exclude=",
                    "exclude=",
                    "include=",
                    "include=",
                    "filter=P ",
                    "filter=R ",
                    "filter=H ",
                    "filter=S ",
                    "filter=-r ",
                    "filter=+s ",
                    "filter=-! ",
                    "filter=-p ",
                ];
                format!("--{}{}", random.pick(&kinds), random.pattern())
            })
            .collect();
        let mut options: Vec<_> = rules.iter().map(String::as_str).collect();
        options.extend(["--delete", "--checksum"]);
        if files {
            let kinds = [
                "--filter=: .f",
                "--filter=:n .f",
                "--filter=:e .f",
                "--filter=:s .f",
            ];
            options.insert(random.below(options.len()), random.pick(&kinds));
        }
        if random.below(4) == 0 {
            options.push("--delete-excluded");
        }
        let mut rsync = Command::new("rsync");
        // The rules of the source's filter files apply after they are copied.
        rsync.args(["-a", "--delete-after"]).args(&options);
        rsync.arg(lab.local("a/")).arg(lab.local("r"));
        let (code, _, err) = run(rsync);
        options.push("--allow-empty-source");
        let (own_code, out, own_err) = run(push(&lab, &options, "a", "t"));
        // Both programs refuse a rule that names an end in a file whose rules are all for one end.
        if own_err.contains("is not a filter rule") {
            assert!(code == 1 && own_code != 0, "{err}{own_err}");
            continue;
        }
        // An excluded directory stands where a file belongs, or the reverse. rsync then removes it, or other files.
        let in_the_way = [
            ": a directory stands in the way",
            ": is a directory",
            ": is not a directory",
        ];
        if in_the_way.iter().any(|words| own_err.contains(words)) {
            assert!(own_code == 5 || own_code == 1, "{err}{own_err}");
            continue;
        }
        assert_eq!(own_code, 0, "{out}{own_err}");
        assert_eq!(
            paths(&lab.share("t")),
            paths(&lab.local("r")),
            "{options:?} of {:?}: {err}{out}",
            paths(&lab.local("a"))
        );
    }
}
