//! Tests `zerolane rm`, `mkdir` and `mv`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use nix::unistd::geteuid;

use super::lab::*;

fn command(lab: &Lab, words: &[&str], paths: &[&str]) -> Command {
    let mut command = zerolane();
    command.args(words);
    command.args(paths.iter().map(|path| lab.there(path)));
    command
}

fn mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// share/{d/{e/f, link -> ../../outside}, f, out -> ../outside}, outside/precious
fn tree(options: &[&str]) -> Lab {
    let lab = Lab::new(options);
    fs::create_dir_all(lab.share("d/e")).unwrap();
    fs::create_dir(lab.base.path().join("outside")).unwrap();
    fs::write(lab.base.path().join("outside/precious"), b"precious").unwrap();
    for name in ["d/e/f", "f"] {
        fs::write(lab.share(name), name).unwrap();
    }
    symlink("../../outside", lab.share("d/link")).unwrap();
    symlink("../outside", lab.share("out")).unwrap();
    lab
}

fn precious(lab: &Lab) {
    let path = lab.base.path().join("outside/precious");
    assert_eq!(fs::read(path).unwrap(), b"precious");
}

#[test]
fn rm__files_links_and_trees() {
    let lab = tree(&[]);
    fail(
        command(&lab, &["rm"], &["d"]),
        1,
        "d: is a directory: use -r to include it",
    );
    fail(
        command(&lab, &["rm"], &["none"]),
        1,
        "none: no such file or directory, at the server",
    );
    succeed(command(&lab, &["rm", "-f"], &["none"]));
    // A partial failure, by message and by exit code.
    let (code, _, err) = run(command(&lab, &["rm"], &["none", "f"]));
    assert_eq!(code, 5);
    assert!(
        err.contains("none: no such file") && err.contains("1 failed, 1 removed"),
        "{err}"
    );
    // A link is removed, not its target; paths through links are refused.
    fail(
        command(&lab, &["rm", "-rf"], &["out/"]),
        1,
        "out/: is not a directory",
    );
    for path in ["out/precious", "d/link/precious"] {
        fail(
            command(&lab, &["rm", "-rf"], &[path]),
            1,
            "outside the served directory",
        );
    }
    succeed(command(&lab, &["rm", "-r"], &["out", "d/"]));
    assert!(names(&lab.share("")).is_empty());
    precious(&lab);
}

#[test]
fn rm__never_the_served_directory_or_what_is_outside() {
    let lab = tree(&[]);
    let before = names(&lab.share(""));
    for path in ["", ".", "./"] {
        fail(
            command(&lab, &["rm", "-rf"], &[path]),
            1,
            "is the served directory itself",
        );
    }
    for path in ["..", "../outside", "/etc", "d/../../outside"] {
        fail(
            command(&lab, &["rm", "-rf"], &[path]),
            1,
            "outside the served directory",
        );
    }
    fail(
        command(&lab, &["rm", "-rf"], &["d/."]),
        1,
        "not a valid name",
    );
    assert_eq!(names(&lab.share("")), before);
    precious(&lab);
}

#[test]
fn rm__says_what_stays() {
    let lab = tree(&[]);
    fs::create_dir(lab.share("d/locked")).unwrap();
    for name in ["d/a", "d/e/read-only", "d/locked/x"] {
        fs::write(lab.share(name), b"x").unwrap();
    }
    mode(&lab.share("d/e/read-only"), 0o444);
    let (code, _, err) = run(command(&lab, &["rm", "-r"], &["d"]));
    assert_eq!(code, 5, "{err}");
    assert!(
        err.contains("d/e/read-only: the target is read-only, at the server"),
        "{err}"
    );
    assert!(!err.contains("not empty"), "{err}");
    assert_eq!(names(&lab.share("d")), ["e"]);
    assert_eq!(names(&lab.share("d/e")), ["read-only"]);
    succeed(command(&lab, &["rm", "-rf"], &["d"]));
    assert!(!lab.share("d").exists());
    if geteuid().is_root() {
        println!("skipped: this process has the rights");
        return;
    }
    fs::create_dir(lab.share("closed")).unwrap();
    fs::write(lab.share("closed/x"), b"x").unwrap();
    mode(&lab.share("closed"), 0o555);
    fail(
        command(&lab, &["rm", "-rf"], &["closed"]),
        1,
        "closed/x: permission denied",
    );
    mode(&lab.share("closed"), 0o755);
    assert!(lab.share("closed/x").exists());
}

#[test]
fn mkdir__with_and_without_parents() {
    let lab = tree(&[]);
    succeed(command(&lab, &["mkdir"], &["new", "new/below"]));
    assert!(lab.share("new/below").is_dir());
    fail(
        command(&lab, &["mkdir"], &["new"]),
        1,
        "new: already exists, at the server",
    );
    fail(
        command(&lab, &["mkdir"], &["no/way"]),
        1,
        "no/way: no such file or directory",
    );
    succeed(command(&lab, &["mkdir", "-p"], &["no/way", "new", ""]));
    succeed(command(&lab, &["mkdir", "-p"], &["no/way"]));
    assert!(lab.share("no/way").is_dir());
    fail(
        command(&lab, &["mkdir", "-p"], &["f/x"]),
        1,
        "f/x: is not a directory",
    );
    for path in ["out/x", "../x", "/tmp/x", "d/link/x"] {
        for options in [&["mkdir"][..], &["mkdir", "-p"]] {
            let (code, _, err) = run(command(&lab, options, &[path]));
            let told = err.contains("outside the served") || err.contains("not a directory");
            assert!(code == 1 && told, "{path} {code} {err}");
        }
    }
    // Here, pattern characters are part of names.
    succeed(command(&lab, &["mkdir"], &["*"]));
    assert!(lab.share("*").is_dir());
    assert_eq!(names(&lab.base.path().join("outside")), ["precious"]);
}

#[test]
fn mv__renames_and_moves() {
    let lab = tree(&[]);
    fs::create_dir(lab.share("into")).unwrap();
    let mv = |options: &[&str], from: &str, to: &str| {
        let mut words = vec!["mv"];
        words.extend(options);
        command(&lab, &words, &[from, to])
    };
    succeed(mv(&[], "f", "g"));
    assert_eq!(fs::read(lab.share("g")).unwrap(), b"f");
    succeed(mv(&[], "g", "into"));
    succeed(mv(&[], "d", "into/renamed/"));
    assert_eq!(names(&lab.share("into")), ["g", "renamed"]);
    assert_eq!(fs::read(lab.share("into/renamed/e/f")).unwrap(), b"d/e/f");
    // A link is renamed, not followed.
    succeed(mv(&[], "out", "way"));
    assert!(lab.share("way").is_symlink());
    fail(mv(&[], "none", "x"), 1, "none: no such file or directory");
    fail(
        mv(&[], "into", "into/renamed"),
        1,
        "into: cannot be moved or copied into itself",
    );
    fail(mv(&[], "into/g", "x/"), 1, "x/: is not a directory");
    for (from, to) in [("", "x"), (".", "x")] {
        fail(mv(&[], from, to), 1, "is the served directory itself");
    }
    for (from, to) in [
        ("into/g", "../g"),
        ("../outside", "x"),
        ("way/precious", "x"),
        ("into/g", "way"),
    ] {
        fail(mv(&["-f"], from, to), 1, "outside the served directory");
    }
    let mut other = mv(&[], "into/g", "x");
    other.arg("elsewhere:x");
    let (code, ..) = run(other);
    assert_eq!(code, 2);
    precious(&lab);
}

#[test]
fn mv__replaces_files_as_told_and_no_directory() {
    let lab = Lab::new(&[]);
    let mv = |options: &[&str], from: &str, to: &str| {
        let mut words = vec!["mv"];
        words.extend(options);
        command(&lab, &words, &[from, to])
    };
    for name in ["d", "into/d", "into/f"] {
        fs::create_dir_all(lab.share(name)).unwrap();
    }
    for name in ["f", "old", "locked"] {
        fs::write(lab.share(name), name).unwrap();
    }
    fail(mv(&["-n"], "f", "old"), 1, "old: already exists");
    assert_eq!(fs::read(lab.share("old")).unwrap(), b"old");
    mode(&lab.share("locked"), 0o444);
    fail(mv(&[], "f", "locked"), 1, "locked: the target is read-only");
    fail(
        mv(&[], "f", "f"),
        1,
        "f: source and target are the same file",
    );
    // A directory is never replaced, even if empty, or by another directory.
    for (from, to) in [("f", "into"), ("d", "into")] {
        fail(mv(&["-f"], from, to), 1, "into: is a directory");
    }
    fail(mv(&["-f"], "d", "f"), 1, "f: is not a directory");
    succeed(mv(&[], "f", "old"));
    assert_eq!(fs::read(lab.share("old")).unwrap(), b"f");
    succeed(mv(&["-f"], "old", "locked"));
    assert_eq!(fs::read(lab.share("locked")).unwrap(), b"f");
    succeed(mv(&["-n"], "locked", "new"));
    assert_eq!(names(&lab.share("")), ["d", "into", "new"]);
}

#[test]
fn changes__want_the_right_to_write() {
    let changes = [
        (&["rm", "-rf"][..], &["d"][..]),
        (&["mkdir", "-p"], &["new"]),
        (&["mv"], &["d", "e"]),
    ];
    let lab = tree(&["--read-only"]);
    for (words, paths) in changes {
        fail(command(&lab, words, paths), 1, "the server is read-only");
    }
    assert_eq!(names(&lab.share("")), ["d", "f", "out"]);

    let (lab, home) = server_of_another_user(&[]);
    fs::create_dir_all(lab.share("in/d")).unwrap();
    let list = home.path().join("allowed_keys");
    fs::write(&list, format!("{} read\n", own_key())).unwrap();
    for (words, paths) in changes {
        fail(
            command(&lab, words, paths),
            1,
            "this key may only read there",
        );
    }
    // The key sees only the files below its directory.
    fs::write(&list, format!("{} read-write below=in\n", own_key())).unwrap();
    fail(
        command(&lab, &["rm", "-r"], &[""]),
        1,
        "is the served directory itself",
    );
    succeed(command(&lab, &["mv"], &["d", "e"]));
    assert_eq!(
        (names(&lab.share("")), names(&lab.share("in"))),
        (vec!["in".into()], vec!["e".into()])
    );
}
