//! Tests copies between two remote hosts, `USER@HOST:PATH` on both sides.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use super::super::lab::*;
use super::script::Login;

/// The home directories of the hosts `localhost` and `127.0.0.1`.
const HOMES: &str = "cd \"$base/$host\"\nexec sh -c \"exec $command\"";

fn hosts(script: &str) -> Login {
    let login = Login::with(script);
    for host in ["localhost", "127.0.0.1"] {
        fs::create_dir(login.path(host)).unwrap();
    }
    login
}

/// `zerolane WORD... SOURCE TARGET`, from one host to the other.
fn across(login: &Login, words: &[&str], source: &str, target: &str) -> Command {
    let sides = [
        format!("me@localhost:{source}"),
        format!("me@127.0.0.1:{target}"),
    ];
    login.zerolane(&[words, &[&sides[0], &sides[1]]].concat())
}

fn tree(login: &Login, at: &str) {
    let directory = login.path(at);
    fs::create_dir_all(directory.join("deep/er")).unwrap();
    for file in 0..20 {
        let name = format!("deep/f{file}");
        fs::write(directory.join(name), content(file, 3000 * file as usize)).unwrap();
    }
    fs::write(directory.join("large"), content(99, 5 * MIB)).unwrap();
    symlink("large", directory.join("link")).unwrap();
}

fn same(login: &Login, a: &str, b: &str) {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"])
        .args([login.path(a), login.path(b)]);
    let (code, out, err) = run(diff);
    assert_eq!(code, 0, "{out}{err}");
}

fn ran(login: &Login) -> String {
    fs::read_to_string(login.path("ran")).unwrap()
}

#[test]
fn cp__from_one_host_to_another() {
    let login = hosts(HOMES);
    tree(&login, "localhost/tree");
    succeed(across(&login, &["cp", "-r"], "tree", "new"));
    same(&login, "localhost/tree", "127.0.0.1/new");
    // Command lines contain no key and no path, and no key is stored.
    assert_eq!(
        ran(&login),
        "-l|me|localhost|zerolane|between|\n-l|me|127.0.0.1|zerolane|serve|--stdio|\n"
    );
    assert_eq!(names(&login.path("keys")), [""; 0]);
    // The source's output is printed here.
    let (code, out, err) = run(across(&login, &["cp", "-r", "--json"], "tree", "again"));
    assert_eq!((code, &*err), (0, ""));
    let lines: Vec<_> = out.lines().collect();
    assert!(lines.iter().all(|it| it.starts_with('{')), "{out}");
    assert!(lines.last().unwrap().contains(r#""files":21,"#), "{out}");
    login.all_ended();
}

#[test]
fn cp__between_hosts_takes_patterns_and_any_name() {
    let login = hosts(HOMES);
    let odd = "a b';$(touch x)\n\u{fc}";
    for name in ["1.gz", "2.gz", "3", odd] {
        fs::write(login.path("localhost").join(name), name).unwrap();
    }
    fs::create_dir(login.path("127.0.0.1/into")).unwrap();
    succeed(across(&login, &["cp"], "*.gz", "into"));
    succeed(across(&login, &["cp"], odd, odd));
    succeed(across(
        &login,
        &["cp", "-r", "--exclude", "*.gz"],
        "",
        "all",
    ));
    assert_eq!(names(&login.path("127.0.0.1/into")), ["1.gz", "2.gz"]);
    assert_eq!(names(&login.path("127.0.0.1/all")), ["3", odd]);
    assert_eq!(
        fs::read(login.path("127.0.0.1").join(odd)).unwrap(),
        odd.as_bytes()
    );
    assert!(names(&login.path("localhost")).len() == 4);
    fail(
        across(&login, &["cp"], "*.none", "into"),
        1,
        "*.none: nothing matches",
    );
}

#[test]
fn cp__between_two_paths_of_one_host_is_made_there() {
    let login = hosts(HOMES);
    tree(&login, "localhost/tree");
    let within = |words: &[&str], from: &str, to: &str| {
        let sides = [from, to].map(|path| format!("me@localhost:{path}"));
        login.zerolane(&[words, &[&sides[0], &sides[1]]].concat())
    };
    succeed(within(&["cp", "-r"], "tree", "copy"));
    succeed(within(&["sync", "--delete"], "tree", "synced"));
    for copy in ["localhost/copy", "localhost/synced"] {
        same(&login, "localhost/tree", copy);
    }
    assert_eq!(ran(&login), "-l|me|localhost|zerolane|between|\n".repeat(2));
    fail(
        within(&["cp"], "tree/large", "tree"),
        1,
        "source and target are the same file",
    );
    fail(
        within(&["cp", "-r"], "tree", "tree/new"),
        1,
        "copied into itself",
    );
    fail(
        within(&["sync", "--delete"], "tree/deep", "tree"),
        2,
        "would remove it",
    );
    same(&login, "localhost/tree", "localhost/copy");
    login.all_ended();
}

#[test]
fn sync__from_one_host_to_another_with_rules_of_this_one() {
    let login = hosts(HOMES);
    tree(&login, "localhost/tree");
    fs::create_dir(login.path("127.0.0.1/copy")).unwrap();
    fs::write(login.path("127.0.0.1/copy/extra"), b"x").unwrap();
    fs::write(login.path("rules"), "/large\n").unwrap();
    let words = ["sync", "-n", "--delete", "--exclude-from", "rules"];
    let (code, out, err) = run(across(&login, &words, "tree", "copy"));
    assert!(code == 0 && out.contains("extra"), "{code} {out}{err}");
    let words = [
        "sync",
        "--delete",
        "--exclude-from=rules",
        "--chmod",
        "F600",
    ];
    succeed(across(&login, &words, "tree/", "copy/"));
    assert_eq!(names(&login.path("127.0.0.1/copy")), ["deep", "link"]);
    succeed(across(&login, &["sync"], "tree", "copy"));
    same(&login, "localhost/tree", "127.0.0.1/copy");
    let (code, _, err) = run(across(&login, &["sync"], "tree", "copy"));
    assert!(code == 0 && err.contains(" 0 sent"), "{err}");
    login.all_ended();
}

#[test]
fn cp__between_hosts_says_what_fails_and_where() {
    let login = hosts(HOMES);
    fs::write(login.path("localhost/a"), b"a").unwrap();
    for (source, target, code, says) in [
        ("none", "b", 1, "none: no such file or directory\n"),
        (
            "a",
            "none/b",
            1,
            "none/b: no such file or directory, at me@127.0.0.1",
        ),
        ("a", "/dev/null", 1, "neither a file nor a directory"),
    ] {
        fail(across(&login, &["cp"], source, target), code, says);
    }
    let both = login.zerolane(&["cp", "me@localhost:a", "me@localhost:none", "me@127.0.0.1:"]);
    fail(both, 5, "1 failed, 1 copied");
    login.all_ended();
    // A login at either host that fails, or finds no program.
    for (status, host, says) in [
        (255, "127.0.0.1", "no login at 127.0.0.1"),
        (255, "localhost", "no login at localhost"),
        (127, "127.0.0.1", "there is no zerolane at 127.0.0.1"),
        (126, "127.0.0.1", "zerolane at 127.0.0.1 cannot be executed"),
        (127, "localhost", "there is no zerolane at localhost"),
        (2, "localhost", "install the same version"),
    ] {
        let script = format!("[ \"$host\" = {host} ] && exit {status}\n{HOMES}");
        let login = hosts(&script);
        fs::write(login.path("localhost/a"), b"a").unwrap();
        fail(across(&login, &["cp"], "a", "b"), 3, says);
        login.all_ended();
    }
    // A program of another version.
    let script = format!(
        "[ \"$host\" = localhost ] && {{ echo 'zerolane-answer 1 0.0.1'; exit 1; }}\n{HOMES}"
    );
    let login = hosts(&script);
    fail(
        across(&login, &["cp"], "a", "b"),
        3,
        "localhost: zerolane 0.0.1 there speaks version 1",
    );
    login.all_ended();
}

#[test]
fn cp__between_hosts_without_a_login_at_both_says_what_to_do() {
    let login = hosts(HOMES);
    for (words, says) in [
        (
            ["me@localhost:a", "127.0.0.1:b"],
            "127.0.0.1 is reached without",
        ),
        (
            ["localhost:a", "me@127.0.0.1:b"],
            "localhost is reached without",
        ),
    ] {
        let command = login.without_rsh(&[&["cp"], &words[..]].concat());
        fail(command, 2, says);
    }
    for option in [["--lane", "udp"], ["--code", "7-guitarist-revenge"]] {
        let mut command = across(&login, &["cp"], "a", "b");
        command.args(option);
        assert_eq!(run(command).0, 2, "{option:?}");
    }
    fail(
        login.zerolane(&["cp", "a", "me@localhost:b", "me@127.0.0.1:c"]),
        2,
        "all sources",
    );
    assert!(!login.path("ran").exists());
}

#[test]
fn cp__between_hosts_that_do_not_reach_each_other_names_both() {
    if !geteuid().is_root() {
        println!("skipped: only root may make a network namespace");
        return;
    }
    // The source has no network.
    let script = format!(
        "[ \"$host\" = localhost ] && {{ cd \"$base/$host\"; exec unshare -n sh -c \"exec $command\"; }}\n{HOMES}"
    );
    let login = hosts(&script);
    fs::write(login.path("localhost/a"), b"a").unwrap();
    let (code, _, err) = run(across(&login, &["cp"], "a", "b"));
    assert_eq!(code, 3, "{err}");
    for says in [
        "UDP from me@localhost does not reach me@127.0.0.1 at 127.0.0.1:",
        "--remote-listen",
        "in two steps",
    ] {
        assert!(err.contains(says), "{err}");
    }
    login.all_ended();
}

/// A copy in progress.
fn running(login: &Login) -> Running {
    fs::write(login.path("localhost/large"), content(1, 48 * MIB)).unwrap();
    if let Some(left) = part(&login.path("127.0.0.1"), "large") {
        fs::remove_file(left).unwrap();
    }
    let mut command = across(login, &["cp", "--timeout", "1"], "large", "large");
    command.args(["--limit", "8MiB/s"]);
    let said = fs::File::create(login.path("said")).unwrap();
    let mut copy = Running(command.stderr(said).stdout(Stdio::null()).spawn().unwrap());
    eventually("some arrives", || {
        (part_bytes(&login.path("127.0.0.1"), "large") > 2 * MIB as u64).then_some(())
    });
    assert!(copy.0.try_wait().unwrap().is_none());
    copy
}

#[test]
fn cp__between_hosts_ends_with_any_of_the_three_and_goes_on() {
    let login = hosts(HOMES);
    for end in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut copy = running(&login);
        kill(Pid::from_raw(copy.0.id() as i32), end).unwrap();
        let code = copy.0.wait().unwrap().code();
        assert_eq!(code, (end == Signal::SIGTERM).then_some(130));
        login.all_ended();
        assert!(!login.path("127.0.0.1/large").exists());
    }
    // The login at the source. The login at the target began last.
    let mut copy = running(&login);
    let pids = login.pids();
    kill(Pid::from_raw(pids[pids.len() - 2]), Signal::SIGKILL).unwrap();
    assert_eq!(copy.0.wait().unwrap().code(), Some(1));
    let said = fs::read_to_string(login.path("said")).unwrap();
    assert!(
        said.contains("login at me@localhost ended before"),
        "{said}"
    );
    login.all_ended();
    // The login at the target.
    let mut copy = running(&login);
    kill(
        Pid::from_raw(*login.pids().last().unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    assert_eq!(copy.0.wait().unwrap().code(), Some(1));
    login.all_ended();
    let out = succeed(across(
        &login,
        &["cp", "--resume", "--json"],
        "large",
        "large",
    ));
    let kept = out.rsplit_once(r#""bytes_kept":"#).unwrap().1;
    assert!(!kept.starts_with("0,"), "{kept}");
    same(&login, "localhost/large", "127.0.0.1/large");
    login.all_ended();
}
