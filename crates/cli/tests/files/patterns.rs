//! Patterns in remote paths.

use std::fs;
use std::os::unix::fs::symlink;
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
    // A way out, for patterns that would follow it.
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
    // A link that matches is named, as where a shell expands a pattern: this one leads outside.
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
    // It may match several: what is to take them is a directory.
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
    // Two of one name: the second is not put over the first.
    into("two");
    let (code, _, err) = run(lab.get(&[], "*/a.gz", "two"));
    assert_eq!(code, 5);
    assert!(err.contains("another source has the same name"), "{err}");
    assert_eq!(fs::read(lab.local("two/a.gz")).unwrap(), b"logs/a.gz");
    // One file by two patterns is copied once.
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
