//! Tests `cp --connections`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::lab::*;
use super::login::Login;

const DIRECTORIES: [&str; 4] = ["", "a", "a/b", "c"];

/// Plants files of all sizes in directories of two modes.
fn tree(at: &Path, seed: u64) {
    for directory in DIRECTORIES {
        let directory = at.join(directory);
        fs::create_dir_all(&directory).unwrap();
        for file in 0..20 {
            let len = 1000 * file as usize + if file % 9 == 0 { 3 * MIB } else { 1 };
            fs::write(
                directory.join(format!("f{file}")),
                content(seed + file, len),
            )
            .unwrap();
        }
        symlink("f1", directory.join("link")).unwrap();
    }
    fs::set_permissions(at.join("c"), Permissions::from_mode(0o750)).unwrap();
}

/// Asserts that `find` and `diff` see the same modes, times and contents.
fn same(a: &Path, b: &Path) {
    let compare = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([a, b])
        .output()
        .unwrap();
    assert!(compare.status.success(), "{compare:?}");
    let seen = |at: &Path| {
        let found = Command::new("find")
            .args([".", "-printf", "%P %m %T@\n"])
            .current_dir(at)
            .output()
            .unwrap();
        let mut lines: Vec<_> = String::from_utf8(found.stdout)
            .unwrap()
            .lines()
            // Skips the target directory itself, which may have existed before.
            .filter(|line| !line.starts_with(' '))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(seen(a), seen(b));
}

#[test]
fn cp__connections_share_a_tree_out_both_ways() {
    let lab = Lab::new(&[]);
    tree(&lab.local("tree"), 1);
    let four = ["-r", "--connections", "4"];
    succeed(lab.put(&four, "tree", "new"));
    same(&lab.local("tree"), &lab.share("new"));
    let out = succeed(lab.get(&["-r", "--connections=4", "--json"], "new", "back"));
    same(&lab.local("tree"), &lab.local("back"));
    let events = out.lines().map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<serde_json::Value> = events.collect();
    let summary = events.last().unwrap();
    let totals = ["files", "directories", "links", "failed"].map(|it| summary[it].clone());
    assert_eq!(totals, [80, 4, 4, 0].map(serde_json::Value::from));
    let counted = events.iter().filter(|event| event["event"] == "counted");
    let counted: Vec<_> = counted.map(|event| event["files"].clone()).collect();
    assert_eq!(counted, [80]);
}

#[test]
fn cp__connections_that_cannot_be() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), b"a").unwrap();
    for (options, words) in [
        (&["--connections", "0"][..], "0 is not in 1..=16"),
        (&["--connections", "17"], "17 is not in 1..=16"),
        (
            &["--connections", "2", "--code", "1234-5678"],
            "cannot be used with",
        ),
        (&["-H", "--connections", "2"], "cannot be used with"),
    ] {
        fail(lab.put(options, "a", ""), 2, words);
    }
    let mut stream = zerolane();
    stream
        .args(["cp", "--connections", "2", "-", &lab.there("s")])
        .stdin(Stdio::null());
    fail(stream, 2, "goes over one connection");
    assert!(names(&lab.share("")).is_empty());
}

#[test]
fn cp__connections_over_a_login() {
    let login = Login::new();
    tree(&login.path("local"), 2);
    let there = login.there("copy");
    let put = ["cp", "-r", "--connections", "3", "local", &there];
    succeed(login.zerolane(&put));
    same(&login.path("local"), &login.path("home/copy"));
    login.all_ended();
}

#[test]
fn cp__connections_killed_at_random_moments() {
    let seed = std::env::var("ZEROLANE_SEED");
    let seed = seed.map_or(1, |it| it.parse().expect("a number"));
    eprintln!("ZEROLANE_SEED={seed}");
    let mut lab = Lab::new(&[]);
    let (from, to) = (lab.local("tree"), lab.share("tree"));
    tree(&from, seed);
    for (round, dice) in content(seed + 1, 6).into_iter().enumerate() {
        let options = ["-r", "-f", "--resume", "--connections", "3"];
        let mut copy = lab.put(&options, "tree", "");
        let quiet = copy.stdout(Stdio::null()).stderr(Stdio::null());
        let mut copy = Running(quiet.spawn().unwrap());
        std::thread::sleep(Duration::from_millis(u64::from(dice)));
        copy.0.kill().unwrap();
        copy.0.wait().unwrap();
        for directory in DIRECTORIES {
            for file in 0..20 {
                let name = Path::new(directory).join(format!("f{file}"));
                // The target has the whole file or nothing under its name.
                if let Ok(there) = fs::read(to.join(&name)) {
                    assert!(
                        there == fs::read(from.join(&name)).unwrap(),
                        "{round} {name:?}"
                    );
                }
            }
        }
    }
    // A server that continues after its client's death would change the directory.
    lab.start(zerolane(), &[], "127.0.0.1:0");
    let options = ["-r", "-f", "--resume", "--connections", "3"];
    eventually("a copy", || when_free(lab.put(&options, "tree", "")));
    let left = |name: &str| name.contains("zlpart");
    for directory in DIRECTORIES {
        for name in names(&to.join(directory)).iter().filter(|it| left(it)) {
            fs::remove_file(to.join(directory).join(name)).unwrap();
        }
    }
    same(&from, &to);
}
