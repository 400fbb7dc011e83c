//! Tests patterns in remote paths.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::lab::*;

fn tree() -> Lab {
    let lab = Lab::new(&[]);
    for name in ["logs", "old", "local"] {
        fs::create_dir(lab.share(name)).unwrap();
    }
    for name in [
        "logs/a.gz",
        "logs/b.gz",
        "logs/.c.gz",
        "logs/d.txt",
        "old/a.gz",
        "[x]",
        "x",
    ] {
        fs::write(lab.share(name), name).unwrap();
    }
    // An escape for patterns that would follow it.
    fs::create_dir(lab.base.path().join("outside")).unwrap();
    fs::write(lab.base.path().join("outside/secret.gz"), b"s").unwrap();
    symlink("../outside", lab.share("out")).unwrap();
    lab
}

fn ls(lab: &Lab, paths: &[&str]) -> Command {
    let mut command = zerolane();
    command
        .arg("ls")
        .args(paths.iter().map(|path| lab.there(path)));
    command
}

#[test]
fn cp__takes_what_a_pattern_matches() {
    let lab = tree();
    let into = |name: &str| fs::create_dir(lab.local(name)).unwrap();
    into("one");
    succeed(lab.get(&[], "logs/*.gz", "one"));
    assert_eq!(names(&lab.local("one")), ["a.gz", "b.gz"]);
    assert_eq!(fs::read(lab.local("one/b.gz")).unwrap(), b"logs/b.gz");
    into("all");
    // A matching link is used like a name that a shell expanded; this one points outside.
    fail(
        lab.get(&["-r"], "[!x]*", "all"),
        5,
        "out: the path leads outside the served directory",
    );
    assert_eq!(names(&lab.local("all")), ["[x]", "local", "logs", "old"]);
    succeed(lab.get(&["-rP"], "out*", "all"));
    assert!(lab.local("all/out").is_symlink());
    assert_eq!(
        names(&lab.local("all/logs")),
        [".c.gz", "a.gz", "b.gz", "d.txt"]
    );
    into("hidden");
    succeed(lab.get(&[], "logs/.*", "hidden"));
    assert_eq!(names(&lab.local("hidden")), [".c.gz"]);
    // The pattern may match several files, so the target must be a directory.
    fail(
        lab.get(&[], "logs/*.gz", "new"),
        1,
        "new: no such file or directory",
    );
    fail(
        lab.get(&[], "logs/*.zip", "one"),
        1,
        "nothing matches this pattern, at the server",
    );
    fail(
        lab.get(&[], "out/*.gz", "one"),
        1,
        "outside the served directory",
    );
    // Two matches have the same name; the second does not replace the first.
    into("two");
    let (code, _, err) = run(lab.get(&[], "*/a.gz", "two"));
    assert_eq!(code, 5);
    assert!(err.contains("another source has the same name"), "{err}");
    assert_eq!(fs::read(lab.local("two/a.gz")).unwrap(), b"logs/a.gz");
    // A file that matches two patterns is copied once.
    let mut twice = zerolane();
    twice.args(["cp", &lab.there("logs/a*"), &lab.there("logs/*a.gz")]);
    twice.arg(lab.local("hidden"));
    succeed(twice);
}

#[test]
fn cp__a_name_with_such_characters_stays_within_reach() {
    let lab = tree();
    fs::create_dir(lab.local("to")).unwrap();
    succeed(lab.get(&[], "[x]", "to"));
    assert_eq!(names(&lab.local("to")), ["[x]"]);
    succeed(lab.get(&[], "\\[x\\]", "renamed"));
    assert_eq!(fs::read(lab.local("renamed")).unwrap(), b"[x]");
    fs::remove_file(lab.share("[x]")).unwrap();
    succeed(lab.get(&[], "[x]", "to"));
    assert_eq!(names(&lab.local("to")), ["[x]", "x"]);
    fail(
        lab.get(&[], "\\[x\\]", "to"),
        1,
        "no such file or directory",
    );
}

#[test]
fn cp__more_matches_than_a_process_may_have_open() {
    let lab = Lab::new(&[]);
    for file in 0..3000 {
        fs::write(
            lab.share(&format!("a-file-with-a-longer-name-{file:04}")),
            b"x",
        )
        .unwrap();
    }
    fs::create_dir(lab.local("to")).unwrap();
    succeed(lab.get(&[], "*", "to"));
    assert_eq!(names(&lab.local("to")).len(), 3000);
}

#[test]
fn ls__shows_what_a_pattern_matches() {
    let lab = tree();
    assert_eq!(succeed(ls(&lab, &["logs/*.gz"])), "logs/a.gz\nlogs/b.gz\n");
    assert_eq!(
        succeed(ls(&lab, &["*"])),
        "[x]\nout\nx\n\nlocal:\n\nlogs:\na.gz\nb.gz\nd.txt\n\nold:\na.gz\n"
    );
    fail(
        ls(&lab, &["*.zip"]),
        1,
        "*.zip: nothing matches this pattern, at the server",
    );
    fail(ls(&lab, &["out/*"]), 1, "outside the served directory");
}

#[test]
fn rm__removes_what_a_pattern_matches() {
    let lab = tree();
    let rm = |options: &[&str], path: &str| {
        let mut command = zerolane();
        command.arg("rm").args(options).arg(lab.there(path));
        command
    };
    succeed(rm(&[], "*/*.gz"));
    assert_eq!(names(&lab.share("logs")), [".c.gz", "d.txt"]);
    assert!(names(&lab.share("old")).is_empty());
    fail(rm(&[], "*.zip"), 1, "nothing matches this pattern");
    succeed(rm(&["-f"], "*.zip"));
    succeed(rm(&[], "[x]"));
    assert!(!lab.share("[x]").exists() && lab.share("x").exists());
    succeed(rm(&["-r"], "*"));
    assert!(names(&lab.share("")).is_empty());
    assert_eq!(names(&lab.base.path().join("outside")), ["secret.gz"]);
}

/// Filtered files are not copied, whichever end has them, as with rsync.
#[test]
fn cp__filters_either_way() {
    let lab = Lab::new(&[]);
    for tree in [lab.local("a"), lab.share("a")] {
        for name in ["x.o", "y.c", "sub/x.o", "sub/keep.o", "sub/z", "cache/z"] {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"x").unwrap();
        }
        fs::write(tree.join(".rsync-filter"), b"- /y.c\n").unwrap();
    }
    for (options, expected) in [
        (
            &["--exclude=*.o"][..],
            ".rsync-filter cache cache/z sub sub/z y.c",
        ),
        (
            &["--include=keep.o", "--exclude=*.o", "--exclude=cache/"],
            ".rsync-filter sub sub/keep.o sub/z y.c",
        ),
        (
            &["--exclude=/a/sub", "--filter=H x.o", "-FF"],
            "cache cache/z",
        ),
        (
            &["--filter=P *", "--exclude=/a/[!s]*"],
            "sub sub/keep.o sub/x.o sub/z",
        ),
        (&["--exclude=/a"], ""),
    ] {
        let with = |more: &[&'static str]| [options, more].concat();
        for target in [
            lab.share("t"),
            lab.local("u"),
            lab.local("r"),
            lab.share("v"),
        ] {
            let _ = fs::remove_dir_all(&target);
            fs::create_dir(&target).unwrap();
        }
        succeed(lab.put(&with(&["-r"]), "a", "t"));
        succeed(lab.get(&with(&["-r"]), "a", "u"));
        succeed(lab.get(&with(&["-r", "--connections=3"]), "a", "u"));
        succeed(lab.put(&with(&["-r", "--connections=3"]), "a", "v"));
        for target in [lab.share("t"), lab.local("u"), lab.share("v")] {
            assert_eq!(below(&target), expected, "{options:?}");
        }
        let mut rsync = Command::new("rsync");
        rsync
            .arg("-r")
            .args(options)
            .arg(lab.local("a"))
            .arg(lab.local("r"));
        match rsync.output() {
            Ok(_) => assert_eq!(below(&lab.local("r")), expected, "{options:?}"),
            Err(_) => println!("skipped: there is no rsync"),
        }
    }
    // The total counts only files to be sent.
    let out = succeed(lab.get(&["-r", "--json", "--exclude=*.o"], "a", "w"));
    assert!(out.contains("\"counted\",\"files\":4,"), "{out}");
    fs::write(lab.share("a/sub/.rsync-filter"), b"nonsense\n").unwrap();
    fail(
        lab.get(&["-r", "-F"], "a", "x"),
        5,
        "sub/.rsync-filter: line 1 is not a filter rule",
    );
    assert!(lab.local("x/sub").exists() && !lab.local("x/sub/z").exists());
    let long = format!("--exclude={}", "x".repeat(2000));
    let many = [&["-r"], &[&long[..]; 40][..]].concat();
    fail(
        lab.get(&many, "a", "y"),
        1,
        "too many or too long paths or rules",
    );
    let mut stream = zerolane();
    stream.args(["cp", "--exclude=x", "-", &lab.there("s")]);
    fail(stream, 2, "there is nothing to filter");
}

/// Everything below `base`, without its own name.
fn below(base: &Path) -> String {
    fn walk(base: &Path, below: &str, found: &mut Vec<String>) {
        for name in names(&base.join(below)) {
            let path = format!("{below}/{name}").trim_start_matches('/').to_owned();
            if base.join(&path).is_dir() {
                walk(base, &path, found);
            }
            found.push(path);
        }
    }
    let mut found = Vec::new();
    if base.join("a").exists() {
        walk(&base.join("a"), "", &mut found);
    }
    found.sort();
    found.join(" ")
}
