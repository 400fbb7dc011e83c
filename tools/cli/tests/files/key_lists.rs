//! Tests the lists of keys, and `zerolane keys`, which changes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::lab::*;

const ALICE: &str = "zl:ld5fP9nHU1eyRP-8BWqwC0VrSQ2X2Nz2xh9VqEZ8Oyc";
const BOB: &str = "zl:0Bm6Ck0EaXNvmD2m8pTCFSyCmU0pFJ6wsyWSV4pAnAo";

fn keys(home: &Path, words: &[&str]) -> Command {
    let mut command = zerolane();
    command.env("ZEROLANE_HOME", home).arg("keys").args(words);
    command
}

#[test]
fn keys__added_listed_changed_and_revoked() {
    let home = tempfile::tempdir().unwrap();
    let run_keys = |words: &[&str]| run(keys(home.path(), words));
    let (code, out, _) = run_keys(&["list"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("allowed_keys: 0\n") && out.contains("known_hosts: 0\n"),
        "{out}"
    );

    let (code, out, err) = run_keys(&["add", ALICE, "read", "--name", "Alice, of the lab"]);
    assert_eq!(
        (code, out),
        (0, format!("{ALICE} read  # Alice, of the lab\n")),
        "{err}"
    );
    assert!(err.starts_with("Added to "), "{err}");
    let add = [
        "add",
        BOB,
        "read",
        "--fetch",
        "--below",
        "in/box",
        "--regions",
        "a,b",
    ];
    let (code, _, err) = run_keys(&add);
    assert_eq!(code, 0, "{err}");
    let list = home.path().join("allowed_keys");
    let expected =
        format!("{ALICE} read # Alice, of the lab\n{BOB} read fetch below=in/box regions=a,b\n");
    assert_eq!(fs::read_to_string(&list).unwrap(), expected);

    let (_, _, err) = run_keys(&add);
    assert!(err.starts_with("In ") && err.contains(" already:"), "{err}");
    let (_, _, err) = run_keys(&["add", BOB, "read-write"]);
    assert!(
        err.contains("Before: ") && err.contains("below=in/box"),
        "{err}"
    );
    let (_, out, _) = run_keys(&["list", "--json"]);
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert_eq!(lines[0]["name"], "Alice, of the lab");
    assert_eq!(
        (&lines[1]["key"], &lines[1]["rights"]),
        (&BOB.into(), &"read-write".into())
    );

    let (code, out, _) = run_keys(&["revoke", "Alice, of the lab"]);
    assert!(code == 0 && out.starts_with(ALICE), "{out}");
    assert_eq!(run_keys(&["revoke", BOB]).0, 0);
    assert_eq!(fs::read_to_string(&list).unwrap(), "");
    fail(keys(home.path(), &["revoke", BOB]), 1, "no key or name");
    fail(
        keys(home.path(), &["revoke", "Alice"]),
        1,
        "no key or name \"Alice\"",
    );
}

#[test]
fn keys__what_cannot_be_done_says_why() {
    let home = tempfile::tempdir().unwrap();
    fail(
        keys(home.path(), &["add", "zl:short", "read"]),
        2,
        "zl:short",
    );
    fail(
        keys(home.path(), &["add", ALICE, "write"]),
        2,
        "[possible values: read, read-write]",
    );
    fail(
        keys(home.path(), &["add", ALICE, "read", "--below", "a b"]),
        1,
        "cannot be written as a line of the list",
    );
    assert_eq!(names(home.path()), [] as [&str; 0], "nothing was made");

    let list = home.path().join("allowed_keys");
    fs::write(&list, format!("{ALICE} read # two\n{BOB} read # two\n")).unwrap();
    fail(
        keys(home.path(), &["revoke", "two"]),
        1,
        "2 keys are called \"two\"; say which",
    );
    fs::write(&list, format!("{ALICE} read\n{BOB} everything\n")).unwrap();
    for words in [&["list"][..], &["add", BOB, "read"], &["revoke", ALICE]] {
        let broken = format!("{}: line 2: expected read", list.display());
        fail(keys(home.path(), words), 1, &broken);
    }
}

/// A name may contain anything that fits a line, but its control characters must not reach a terminal.
#[test]
fn keys__a_name_reaches_no_terminal_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let list = home.path().join("allowed_keys");
    fs::write(&list, format!("{ALICE} read # \x1b]0;gotcha\x07\n")).unwrap();
    let out = succeed(keys(home.path(), &["list"]));
    assert!(out.contains("gotcha") && !out.contains('\x1b'), "{out:?}");
}

#[test]
fn keys__a_server_that_has_a_new_key_is_forgotten_by_the_command_that_is_named() {
    let client = tempfile::tempdir().unwrap();
    let (mut lab, _home) = server_of_another_user(&["--anyone"]);
    let address = lab.address.clone();
    let ls = |lab: &Lab| {
        let mut command = zerolane();
        command
            .env("ZEROLANE_HOME", client.path())
            .arg("ls")
            .arg(lab.there(""));
        command
    };
    assert_eq!(run(ls(&lab)).0, 0);
    lab.server = None;
    let other = tempfile::tempdir().unwrap();
    let mut program = zerolane();
    program.env("ZEROLANE_HOME", other.path());
    lab.start(program, &["--anyone"], &address);
    fail(ls(&lab), 7, &format!("`zerolane keys forget {address}`"));
    let out = succeed(keys(client.path(), &["forget", &address]));
    assert!(
        out.starts_with(&format!("Forgotten: {address} zl:")),
        "{out}"
    );
    let (code, _, err) = run(ls(&lab));
    assert!(code == 0 && err.contains("First contact with"), "{err}");
    fail(
        keys(client.path(), &["forget", "nowhere"]),
        1,
        "no server \"nowhere\"",
    );
}

#[test]
fn keys__added_by_command_a_client_is_let_in() {
    let (lab, home) = server_of_another_user(&[]);
    fs::write(lab.share("a"), b"theirs").unwrap();
    let own = own_key();
    fail(
        lab.get(&[], "a", ""),
        6,
        &format!("`zerolane keys add {own} read`"),
    );
    assert_eq!(run(keys(home.path(), &["add", &own, "read"])).0, 0);
    succeed(lab.get(&[], "a", ""));
    assert_eq!(fs::read(lab.local("a")).unwrap(), b"theirs");
    assert_eq!(run(keys(home.path(), &["revoke", &own])).0, 0);
    fail(lab.get(&[], "a", ""), 6, "does not let you in");
}
