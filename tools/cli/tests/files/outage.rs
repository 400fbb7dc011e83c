//! Tests that a copy continues by itself after its connection breaks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::lab::*;

/// Large enough to be killed in the middle.
const LARGE: usize = 192 * MIB;

/// A running copy, and the file with its output.
struct Copy {
    child: Running,
    out: std::path::PathBuf,
}

impl Copy {
    fn start(lab: &Lab, mut command: Command) -> Copy {
        let out = lab.base.path().join("out");
        let file = fs::File::create(&out).unwrap();
        // Slow enough to be examined in progress, on a busy machine.
        command.args(["--limit", "64MiB/s"]);
        let child: Child = command.stdout(file).stderr(Stdio::null()).spawn().unwrap();
        Copy {
            child: Running(child),
            out,
        }
    }

    /// Waits until `ready` or the end. Returns whether the copy still runs.
    fn until(&mut self, ready: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ready() && self.child.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child.0.try_wait().unwrap().is_none()
    }

    fn says(&self, what: &str) -> bool {
        fs::read_to_string(&self.out).unwrap().contains(what)
    }

    /// Waits for the end: exit code and last event.
    fn end(mut self) -> (Option<i32>, serde_json::Value) {
        let status = self.child.0.wait().unwrap();
        let out = fs::read_to_string(&self.out).unwrap();
        let last = out.lines().last().unwrap_or("null");
        (status.code(), serde_json::from_str(last).unwrap())
    }
}

/// Kills the server, and restarts it at the same address.
fn restart(lab: &mut Lab) {
    drop(lab.server.take());
    let address = lab.address.clone();
    lab.start(zerolane(), &[], &address);
}

fn no_temporaries(directory: &Path) {
    for name in names(directory) {
        let path = directory.join(&name);
        assert!(!name.contains("zlpart"), "{path:?}: {:?}", path.metadata());
        if path.is_dir() {
            no_temporaries(&path);
        }
    }
}

fn same(a: &Path, b: &Path) {
    let differ = Command::new("diff").arg("-r").args([a, b]).output();
    let differ = differ.unwrap();
    assert!(differ.status.success(), "{differ:?}");
}

/// Both directions at a time, because the client takes seconds to learn that the server is another one. It learns that
/// from a new connection, long before the transport gives up the old one, and says so.
#[test]
fn cp__goes_on_when_the_server_was_killed_in_a_large_file() {
    for_both_directions(|lab, from, to, put| {
        fs::write(from.join("large"), content(1, LARGE)).unwrap();
        // By default, a client that is let in slowly falls back to UDP.
        let options = ["--json", "--lane", "shm"];
        let command = match put {
            true => lab.put(&options, "large", ""),
            false => lab.get(&options, "large", ""),
        };
        let mut copy = Copy::start(lab, command);
        let middle = || part_bytes(to, "large") > 24 * MIB as u64;
        assert!(copy.until(middle), "too fast to be interrupted");
        restart(lab);
        let out = copy.out.clone();
        let (code, summary) = copy.end();
        let said = fs::read_to_string(out).unwrap();
        // Without the idle timeout: in shared memory, the end of the peer's process is noticed.
        assert!(said.contains("the peer stopped answering"), "{said}");
        assert_eq!(code, Some(0), "{summary}");
        assert_eq!(summary["files"], 1, "{summary}");
        assert_eq!(summary["bytes"], LARGE as u64, "{summary}");
        assert_eq!(summary["reconnected"], 1, "{summary}");
        assert!(
            summary["bytes_kept"].as_u64().unwrap() > 16 * MIB as u64,
            "{summary}"
        );
        assert!(fs::read(to.join("large")).unwrap() == content(1, LARGE));
        no_temporaries(to);
    });
}

/// The large file of each of twenty directories, and another name of it, which sorts before or after it.
fn two_names(base: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let large = |at| base.join(format!("d{}/deep/large", 19 - at));
    let other = |at| base.join(format!("d{at}/other"));
    (0..20).map(move |at| (large(at), other(at)))
}

#[test]
fn cp__goes_on_when_the_server_was_killed_in_a_tree() {
    goes_on_in_a_tree(&["-H"], 20, 1..=1);
}

#[test]
fn cp__goes_on_over_each_of_several_connections() {
    goes_on_in_a_tree(&["--connections", "3"], 0, 1..=4);
}

/// A copy with `options` and this many hard links that must be continued this often.
fn goes_on_in_a_tree(
    options: &[&str],
    hard_links: usize,
    reconnected: std::ops::RangeInclusive<u64>,
) {
    for_both_directions(|lab, from, to, put| {
        for directory in 0..20 {
            let directory = from.join(format!("tree/d{directory}/deep"));
            fs::create_dir_all(&directory).unwrap();
            for file in 0..100 {
                let content = content(file, 1000 * file as usize);
                fs::write(directory.join(format!("f{file}")), content).unwrap();
            }
            fs::write(directory.join("large"), content(7, 8 * MIB)).unwrap();
        }
        for (large, other) in two_names(&from.join("tree")).take(hard_links) {
            fs::hard_link(large, other).unwrap();
        }
        let options = [&["-r", "--json"], options].concat();
        let command = match put {
            true => lab.put(&options, "tree", "new"),
            false => lab.get(&options, "tree", "new"),
        };
        let mut copy = Copy::start(lab, command);
        let middle = || fs::read_dir(to.join("new")).is_ok_and(|entries| entries.count() > 5);
        assert!(copy.until(middle), "too fast to be interrupted");
        restart(lab);
        let (code, summary) = copy.end();
        assert_eq!(code, Some(0), "{summary}");
        let counts = ["files", "hard_links", "directories", "failed"];
        assert_eq!(
            counts.map(|name| summary[name].clone()),
            [2020 + hard_links, hard_links, 41, 0].map(serde_json::Value::from),
            "{summary}"
        );
        let times = summary["reconnected"].as_u64().unwrap();
        assert!(reconnected.contains(&times), "{summary}");
        no_temporaries(to);
        same(&from.join("tree"), &to.join("new"));
        for (large, other) in two_names(&to.join("new")).take(hard_links) {
            let inode = |path: &Path| path.metadata().unwrap().ino();
            assert_eq!(inode(&large), inode(&other), "{}", other.display());
        }
    });
}

/// Runs `test` for an upload and a download at the same time.
fn for_both_directions(test: impl Fn(&mut Lab, &Path, &Path, bool) + Sync) {
    std::thread::scope(|scope| {
        for put in [true, false] {
            let test = &test;
            scope.spawn(move || {
                let mut lab = Lab::new(&[]);
                let (local, share) = (lab.local(""), lab.share(""));
                match put {
                    true => test(&mut lab, &local, &share, put),
                    false => test(&mut lab, &share, &local, put),
                }
            });
        }
    });
}

/// Kills the server in the middle of a large file. Returns how `command`, which writes into `there`, ends, and its
/// output.
fn until_the_server_is_killed(
    mut command: Command,
    lab: &mut Lab,
    there: &Path,
) -> (Option<i32>, String) {
    command.args(UNHURRIED);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Running(child.spawn().unwrap());
    while !there.is_dir() || part_bytes(there, "large") <= 8 * MIB as u64 {
        assert!(child.0.try_wait().unwrap().is_none());
    }
    drop(lab.server.take());
    let mut words = String::new();
    let mut err = child.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut err, &mut words).unwrap();
    (child.0.wait().unwrap().code(), words)
}

#[test]
fn sync__that_gives_up_says_how_to_go_on() {
    let mut lab = Lab::new(&[]);
    fs::create_dir(lab.local("d")).unwrap();
    fs::write(lab.local("d/large"), content(1, LARGE)).unwrap();
    let mut sync = zerolane();
    sync.args(["sync", "--timeout", "1"]);
    sync.arg(lab.local("d")).arg(lab.there("d"));
    let there = lab.share("d");
    let (code, words) = until_the_server_is_killed(sync, &mut lab, &there);
    assert_eq!(code, Some(1), "{words}");
    for said in [
        "the sync is not complete",
        "run it again, with --resume",
        "nothing could be copied for 1 s",
    ] {
        assert!(words.contains(said), "{words}");
    }
}

#[test]
fn cp__gives_up_or_is_interrupted_when_the_server_stays_away() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lab = Lab::new(&[]);
            fs::write(lab.local("large"), content(1, LARGE)).unwrap();
            let share = lab.share("");
            let copy = lab.put(&["--timeout", "1"], "large", "");
            let (code, words) = until_the_server_is_killed(copy, &mut lab, &share);
            assert_eq!(code, Some(1), "{words}");
            for said in [
                "within 1 s (--timeout)",
                "again with --resume",
                "nothing could be copied for 1 s",
                "cannot connect to",
            ] {
                assert!(words.contains(said), "{words}");
            }
        });
        scope.spawn(|| {
            let mut lab = Lab::new(&[]);
            fs::write(lab.local("large"), content(1, LARGE)).unwrap();
            let share = lab.share("");
            let mut copy = Copy::start(&lab, lab.put(&["--json"], "large", ""));
            assert!(copy.until(|| part_bytes(&share, "large") > 8 * MIB as u64));
            drop(lab.server.take());
            let out = copy.out.clone();
            let waits = || fs::read_to_string(&out).unwrap().contains("interrupted");
            assert!(copy.until(waits));
            assert!(copy.says("seconds_left"));
            let pid = Pid::from_raw(copy.child.0.id() as i32);
            kill(pid, Signal::SIGINT).unwrap();
            let asked = Instant::now();
            assert_eq!(copy.child.0.wait().unwrap().code(), Some(130));
            // The copy had minutes left; a single attempt takes seconds.
            assert!(asked.elapsed() < Duration::from_secs(60));
        });
    });
}

#[test]
fn cp__does_not_go_on_with_another_server_or_as_one_refused() {
    let (mut lab, home) = server_of_another_user(&["--anyone"]);
    fs::write(lab.local("large"), content(1, LARGE)).unwrap();
    let share = lab.share("");
    let known = tempfile::tempdir().unwrap();
    let mut command = lab.put(&UNHURRIED, "large", "");
    command.env("ZEROLANE_HOME", known.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Running(child.spawn().unwrap());
    while part_bytes(&share, "large") <= 8 * MIB as u64 {
        assert!(child.0.try_wait().unwrap().is_none());
    }
    drop(lab.server.take());
    // A server with another key at the same address.
    fs::remove_file(home.path().join("identity")).unwrap();
    let mut another = zerolane();
    another.env("ZEROLANE_HOME", home.path());
    let address = lab.address.clone();
    lab.start(another, &["--anyone"], &address);
    let mut words = String::new();
    let mut err = child.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut err, &mut words).unwrap();
    assert!(words.contains("IS NOT WHO IT WAS"), "{words}");
    assert_ne!(child.0.wait().unwrap().code(), Some(0));
}

/// The ends differ in every way: new, changed, another type, extra.
#[test]
fn sync__goes_on_when_the_server_was_killed() {
    for_both_directions(|lab, from, to, put| {
        for directory in 0..10 {
            for file in 0..100 {
                let bytes = content(file, 1000 * file as usize);
                let place = from.join(format!("tree/d{directory}"));
                fs::create_dir_all(&place).unwrap();
                fs::write(place.join(format!("f{file}")), bytes).unwrap();
            }
        }
        fs::write(from.join("tree/d5/large"), content(7, LARGE)).unwrap();
        fs::create_dir_all(to.join("new/d0/f1/was a directory")).unwrap();
        fs::create_dir_all(to.join("new/d6/f1/was a directory")).unwrap();
        fs::create_dir_all(to.join("new/extra/deep")).unwrap();
        fs::write(to.join("new/extra/deep/file"), b"x").unwrap();
        fs::write(to.join("new/d3"), b"was a file").unwrap();
        let mut command = zerolane();
        command.args(["sync", "--delete", "--json", "-v"]);
        match put {
            true => command.arg(lab.local("tree")).arg(lab.there("new")),
            false => command.arg(lab.there("tree")).arg(lab.local("new")),
        };
        let mut sync = Copy::start(lab, command);
        let place = to.join("new/d5");
        let middle = || place.is_dir() && part_bytes(&place, "large") > 24 * MIB as u64;
        assert!(sync.until(middle), "too fast to be interrupted");
        restart(lab);
        let out = sync.out.clone();
        let (code, summary) = sync.end();
        assert_eq!(code, Some(0), "{summary}");
        let counts = ["listed", "sent", "failed", "reconnected", "deleted"];
        let counts = counts.map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counts, [1001, 1001, 0, 1, 7], "{summary}");
        assert!(
            summary["bytes_kept"].as_u64().unwrap() > 16 * MIB as u64,
            "{summary}"
        );
        // Each difference is reported once.
        let said = fs::read_to_string(out).unwrap();
        let changes = said.lines().filter(|it| it.contains("\"change\"")).count();
        assert_eq!(changes, 1001 + 10 + 7, "{said}");
        same(&from.join("tree"), &to.join("new"));
        no_temporaries(to);
    });
}
