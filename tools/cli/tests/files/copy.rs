//! Tests `cp` over loopback, and its failures.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::lab::*;

#[test]
fn cp__there_and_back() {
    let lab = Lab::new(&[]);
    fs::create_dir_all(lab.local("tree/sub/empty")).unwrap();
    fs::write(lab.local("tree/large"), content(1, 20 * MIB + 12345)).unwrap();
    fs::write(lab.local("tree/sub/none"), b"").unwrap();
    fs::write(lab.local("tree/sub/new\nline"), b"n").unwrap();
    symlink("../large", lab.local("tree/sub/link")).unwrap();
    let sparse = File::create(lab.local("tree/sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    sparse.write_all_at(b"middle", 1 << 29).unwrap();
    succeed(lab.put(&["-r"], "tree", ""));
    succeed(lab.get(&["-r"], "tree", "back"));
    let compare = Command::new("diff")
        .arg("-r")
        .arg("--no-dereference")
        .arg(lab.local("tree"))
        .arg(lab.local("back"))
        .output()
        .unwrap();
    assert!(compare.status.success(), "{compare:?}");
    for name in ["tree/sparse", "back/sparse"] {
        assert_eq!(
            lab.local(name).metadata().unwrap().blocks() * 512,
            4096,
            "{name}"
        );
    }
}

#[test]
fn cp__json_events() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), content(1, 3 * MIB)).unwrap();
    let out = succeed(lab.put(&["--json"], "a", ""));
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "summary");
    assert_eq!(
        (&last["files"], &last["bytes"], &last["failed"]),
        (&1.into(), &(3 * MIB).into(), &0.into())
    );
}

#[test]
fn cp__exit_codes_and_words() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), b"a").unwrap();
    fs::create_dir(lab.local("d")).unwrap();
    fs::create_dir(lab.share("taken")).unwrap();
    fs::create_dir(lab.share("taken/a")).unwrap();
    symlink("/tmp", lab.share("out")).unwrap();

    fail(
        lab.put(&[], "missing", ""),
        1,
        "missing: no such file or directory",
    );
    fail(
        lab.put(&[], "d", ""),
        1,
        "d: is a directory: use -r to include it",
    );
    fail(lab.put(&[], "a", "../a"), 1, "outside the served directory");
    fail(
        lab.put(&[], "a", "/etc/a"),
        1,
        "outside the served directory",
    );
    fail(
        lab.put(&[], "a", "out/a"),
        1,
        "outside the served directory",
    );
    fail(
        lab.put(&[], "a", "none/a"),
        1,
        "none/a: no such file or directory, at the server",
    );
    fail(lab.put(&[], "a", "taken"), 1, "a: is a directory");
    fail(
        lab.get(&[], "missing", "x"),
        1,
        "missing: no such file or directory, at the server",
    );
    let mut partial = lab.put(&[], "missing", "");
    partial.args([lab.local("a").as_os_str(), lab.there("").as_ref()]);
    // SRC, HOST:, SRC, HOST: is not a valid list of locations.
    fail(partial, 2, "all sources must be local, or all at one host");
    let mut partial = zerolane();
    partial
        .arg("cp")
        .args([lab.local("missing"), lab.local("a")])
        .arg(lab.there(""));
    fail(partial, 5, "missing: no such file or directory");
    assert_eq!(fs::read(lab.share("a")).unwrap(), b"a");
}

#[test]
fn cp__into_a_directory_that_cannot_be_made_says_it_once() {
    let lab = Lab::new(&[]);
    fs::create_dir_all(lab.local("d/in")).unwrap();
    for file in 0..50 {
        fs::write(lab.local(&format!("d/{file}")), b"x").unwrap();
    }
    fs::write(lab.share("d"), b"a file").unwrap();
    let (code, _, err) = run(lab.put(&["-r"], "d", ""));
    assert_eq!(code, 1, "{err}");
    for words in [
        "d: is not a directory, at the server",
        ": its directory could not be created, at the server",
        "50 more files: its directory could not be created",
        "52 failed",
    ] {
        assert!(err.contains(words), "{words:?}: {err}");
    }
    assert_eq!(err.lines().count(), 5, "{err}");
    let (_, out, _) = run(lab.put(&["-r", "--json"], "d", ""));
    assert_eq!(out.matches("\"event\":\"failed\"").count(), 52, "{out}");
}

#[test]
fn cp__nothing_answers() {
    let silent = silent_port();
    let there = silent.local_addr().unwrap();
    let mut command = zerolane();
    command.arg("ls").arg(format!("{there}:"));
    let (code, _, err) = run(command);
    assert_eq!(code, 3);
    assert!(err.contains("cannot connect to 127.0.0.1"), "{err}");
    assert_eq!(err.matches("nothing listens there").count(), 1, "{err}");
    // Something answers, but it does not speak Zerolane.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(8)))
        .unwrap();
    let other = std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        for _ in 0..5 {
            let Ok((_, from)) = socket.recv_from(&mut buffer) else {
                return;
            };
            let _ = socket.send_to(b"HTTP/1.1 400 Bad Request\r\n\r\n", from);
        }
    });
    let mut command = zerolane();
    command.arg("ls").arg(format!("{address}:"));
    fail(command, 3, "cannot connect to 127.0.0.1");
    drop(other);
}

#[test]
fn serve__read_only() {
    let lab = Lab::new(&["--read-only"]);
    fs::write(lab.local("a"), b"a").unwrap();
    fs::write(lab.share("b"), b"b").unwrap();
    fail(lab.put(&[], "a", ""), 1, "the server is read-only");
    succeed(lab.get(&[], "b", ""));
    assert_eq!(names(&lab.share("")), ["b"]);
}

#[test]
fn serve__ends_cleanly_on_signals() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut lab = Lab::new(&[]);
        let mut server = lab.server.take().unwrap();
        kill(Pid::from_raw(server.0.id() as i32), signal).unwrap();
        assert_eq!(server.0.wait().unwrap().code(), Some(130), "{signal}");
    }
}

/// Asserts that the directory contains a temporary file for `big`, and nothing else.
fn assert_left_over(directory: &Path) {
    let names = names(directory);
    assert!(
        names.len() == 1 && part(directory, "big").is_some(),
        "{names:?}"
    );
}

#[test]
fn cp__client_killed_at_several_moments_then_resumed() {
    let lab = Lab::new(&[]);
    let bytes = content(1, 192 * MIB);
    fs::write(lab.local("big"), &bytes).unwrap();
    for moment in [1, 70] {
        let enough = || part_bytes(&lab.share(""), "big") >= moment << 20;
        // The server notices the client's death, and releases the file.
        eventually("a copy that can be killed", || {
            // An earlier copy was complete; with its file there, no temporary file is made.
            let _ = fs::remove_file(lab.share("big"));
            kill_when(lab.put(&["--resume"], "big", ""), enough).then_some(())
        });
        assert_left_over(&lab.share(""));
    }
    let out = eventually("a copy", || {
        when_free(lab.put(&["--resume", "--json"], "big", ""))
    });
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(
        last["bytes_kept"].as_u64().unwrap() >= (60 * MIB) as u64,
        "{out}"
    );
    assert!(fs::read(lab.share("big")).unwrap() == bytes);
    assert_eq!(names(&lab.share("")), ["big"]);
}

#[test]
fn cp__server_killed_then_resumed() {
    let mut lab = Lab::new(&[]);
    let bytes = content(2, 192 * MIB);
    fs::write(lab.local("big"), &bytes).unwrap();
    let mut copy = Running(
        lab.put(&["--timeout", "0"], "big", "")
            .args(UNHURRIED)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    while part_bytes(&lab.share(""), "big") < 40 << 20 && copy.0.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let address = lab.address.clone();
    lab.server = None;
    let status = copy.0.wait().unwrap();
    assert!(
        !lab.share("big").exists(),
        "complete before the server was killed"
    );
    assert_eq!(status.code(), Some(1));

    lab.start(zerolane(), &[], &address);
    succeed(lab.put(&["--resume"], "big", ""));
    assert!(fs::read(lab.share("big")).unwrap() == bytes);
    assert_eq!(names(&lab.share("")), ["big"]);
}

#[test]
fn cp__interrupted_gives_the_target_free() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("big"), content(4, 192 * MIB)).unwrap();
    let mut copy = Running(
        lab.put(&UNHURRIED, "big", "")
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    while part_bytes(&lab.share(""), "big") < 20 << 20 && copy.0.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(copy.0.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(
        copy.0.wait().unwrap().code(),
        Some(130),
        "complete before it was interrupted"
    );
    assert_left_over(&lab.share(""));
    eventually("a copy", || when_free(lab.put(&["--resume"], "big", "")));
    assert!(fs::read(lab.share("big")).unwrap() == content(4, 192 * MIB));
}

#[test]
fn cp__getting_killed_then_resumed() {
    let lab = Lab::new(&["--read-only"]);
    let bytes = content(3, 192 * MIB);
    fs::write(lab.share("big"), &bytes).unwrap();
    let enough = || part_bytes(&lab.local(""), "big") >= 50 << 20;
    assert!(
        kill_when(lab.get(&[], "big", ""), enough),
        "complete before it was killed"
    );
    assert_left_over(&lab.local(""));
    let out = succeed(lab.get(&["--resume", "--json"], "big", ""));
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(
        last["bytes_kept"].as_u64().unwrap() >= (40 * MIB) as u64,
        "{out}"
    );
    assert!(fs::read(lab.local("big")).unwrap() == bytes);
}

#[test]
fn cp__target_without_write_permission() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), b"new").unwrap();
    fs::write(lab.share("a"), b"old").unwrap();
    fs::set_permissions(lab.share("a"), fs::Permissions::from_mode(0o444)).unwrap();
    fail(lab.put(&[], "a", ""), 1, "a: the target is read-only");
    assert_eq!(fs::read(lab.share("a")).unwrap(), b"old");
    succeed(lab.put(&["--force"], "a", ""));
    assert_eq!(fs::read(lab.share("a")).unwrap(), b"new");
}

#[test]
fn cp__killed_at_random_moments_then_resumed() {
    let seed = std::env::var("ZEROLANE_SEED");
    let seed = seed.map_or(1, |it| it.parse().expect("a number"));
    eprintln!("ZEROLANE_SEED={seed}");
    let mut lab = Lab::new(&[]);
    let bytes = content(seed, 96 * MIB);
    fs::write(lab.local("big"), &bytes).unwrap();
    for (round, dice) in content(seed + 1, 8).into_iter().enumerate() {
        let mut copy = lab.put(&["--resume"], "big", "");
        let quiet = copy.stdout(Stdio::null()).stderr(Stdio::null());
        let mut copy = Running(quiet.spawn().unwrap());
        std::thread::sleep(Duration::from_millis(u64::from(dice)));
        if round % 4 != 3 {
            copy.0.kill().unwrap();
        } else {
            let address = lab.address.clone();
            lab.server = None;
            lab.start(zerolane(), &[], &address);
        }
        copy.0.wait().unwrap();
        // The target has the whole file or nothing under its name.
        if let Ok(there) = fs::read(lab.share("big")) {
            assert!(there == bytes, "round {round}");
            fs::remove_file(lab.share("big")).unwrap();
        }
    }
    eventually("a copy", || when_free(lab.put(&["--resume"], "big", "")));
    assert!(fs::read(lab.share("big")).unwrap() == bytes);
    assert_eq!(names(&lab.share("")), ["big"]);
}

/// The message of a copy whose server stops in the middle; `None` if the copy was complete before.
fn copy_to_one_that_stops(lab: &Lab, server: Pid) -> Option<String> {
    let mut copy = Running(
        lab.put(&["-f", "--timeout", "0"], "big", "")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    while part_bytes(&lab.share(""), "big") < 20 << 20 && copy.0.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(server, Signal::SIGSTOP).unwrap();
    let status = copy.0.wait().unwrap();
    kill(server, Signal::SIGCONT).unwrap();
    let mut words = String::new();
    let err = copy.0.stderr.as_mut().unwrap();
    std::io::Read::read_to_string(err, &mut words).unwrap();
    assert!(matches!(status.code(), Some(0 | 1)), "{status} {words}");
    (status.code() == Some(1)).then_some(words)
}

#[test]
fn cp__server_that_stops_in_the_middle_is_given_up() {
    let lab = Lab::new(&[]);
    let bytes = content(7, 192 * MIB);
    fs::write(lab.local("big"), &bytes).unwrap();
    let server = Pid::from_raw(lab.server.as_ref().unwrap().0.id() as i32);
    // On a busy machine the copy may complete before it is examined, so try again.
    let words = (0..20)
        .find_map(|_| copy_to_one_that_stops(&lab, server))
        .expect("complete before the server stopped, each time");
    assert!(words.contains("stopped answering"), "{words}");
    assert!(words.contains("again with --resume"), "{words}");
    eventually("a copy", || when_free(lab.put(&["--resume"], "big", "")));
    assert!(fs::read(lab.share("big")).unwrap() == bytes);
}

#[test]
fn cp__source_that_may_not_be_read() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to become another user");
        return;
    }
    let lab = Lab::new(&["--anyone"]);
    // In a place where another user may execute it. Written by another process: a file that this process has open for
    // writing is inherited by children of other tests, and cannot be executed.
    let program = lab.base.path().join("zerolane");
    let copied = Command::new("cp")
        .args([env!("CARGO_BIN_EXE_zerolane").as_ref(), program.as_os_str()])
        .status();
    assert!(copied.unwrap().success());
    fs::set_permissions(lab.base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, mode) in [("open", 0o644), ("secret", 0o600)] {
        fs::write(lab.local(name), name).unwrap();
        fs::set_permissions(lab.local(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut copy = Command::new(program);
    let (uid, gid) = (65534, 65534);
    std::os::unix::process::CommandExt::uid(&mut copy, uid);
    std::os::unix::process::CommandExt::gid(&mut copy, gid);
    let home = lab.base.path().join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(uid), Some(gid)).unwrap();
    copy.stdin(Stdio::null())
        .env("ZEROLANE_HOME", home)
        .arg("cp")
        .args([lab.local("secret"), lab.local("open")])
        .arg(lab.there(""));
    fail(copy, 5, "secret: permission denied, here");
    assert_eq!(names(&lab.share("")), ["open"], "the other one is there");
}

#[test]
fn cp__directory_without_r_is_refused_with_the_end_that_has_it() {
    let lab = Lab::new(&[]);
    for directory in [lab.share("d"), lab.local("d")] {
        fs::create_dir(directory).unwrap();
    }
    let words = "d: is a directory: use -r to include it and all that it contains";
    let there = format!("{words}, at the server");
    fail(lab.get(&[], "d", "copy"), 1, &there);
    let (code, _, err) = run(lab.put(&[], "d", "copy"));
    assert!(code == 1 && err.contains(words), "{err}");
    assert!(!err.contains("at the server"), "{err}");
}

#[test]
fn cp__slashes_and_dots_after_sources_as_cp_has_them() {
    let lab = Lab::new(&[]);
    for base in [lab.local(""), lab.share("")] {
        fs::create_dir_all(base.join("d/sub")).unwrap();
        fs::write(base.join("d/sub/f"), b"f").unwrap();
        fs::write(base.join("d/.hidden"), b"h").unwrap();
    }
    for (number, (source, into, made)) in [
        // To an existing directory.
        ("d", true, "d/sub/f"),
        ("d/", true, "d/sub/f"),
        ("d/.", true, "sub/f"),
        // To a new name.
        ("d", false, "sub/f"),
        ("d/", false, "sub/f"),
        ("d/.", false, "sub/f"),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("t{number}");
        for base in [lab.local(&target), lab.share(&target)] {
            if into {
                fs::create_dir(base).unwrap();
            }
        }
        // Paths as written: `join` would hide the difference.
        let mut put = zerolane();
        put.args(["cp", "-r"])
            .arg(format!("{}/{source}", lab.local("").display()))
            .arg(lab.there(&target));
        succeed(put);
        succeed(lab.get(&["-r"], source, &target));
        for base in [lab.local(&target), lab.share(&target)] {
            assert_eq!(fs::read(base.join(made)).unwrap(), b"f", "{source} {into}");
            assert_eq!(
                names(&base).len(),
                if made.starts_with('d') { 1 } else { 2 }
            );
        }
    }
    // These are invalid as names of files.
    for source in ["d/sub/f/", "d/sub/f/."] {
        let mut put = zerolane();
        put.args(["cp", "-r"])
            .arg(format!("{}/{source}", lab.local("").display()))
            .arg(lab.there(""));
        fail(put, 1, "is not a directory");
        fail(lab.get(&["-r"], source, "x"), 1, "is not a directory");
    }
    fail(lab.get(&[], "d/.", "x"), 1, "is a directory");
}

#[test]
fn cp__events_that_cannot_be_written_are_a_failure() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), b"a").unwrap();
    let mut put = lab.put(&["--json"], "a", "");
    put.stdout(File::options().write(true).open("/dev/full").unwrap());
    let done = put.output().unwrap();
    let words = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{words}");
    assert!(
        words.contains("could be written to standard output"),
        "{words}"
    );
    // The other sources are copied nevertheless.
    assert_eq!(fs::read(lab.share("a")).unwrap(), b"a");
}

/// Runs `command` while the first byte of `file` changes all the time.
fn run_while_it_changes(file: &Path, command: Command) -> (i32, String, String) {
    let file = File::options().write(true).open(file).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in (0..=u8::MAX).cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                file.write_all_at(&[byte], 0).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let done = run(command);
        over.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn allow_changing__copies_and_syncs_a_file_that_changes_meanwhile() {
    let lab = Lab::new(&[]);
    fs::create_dir(lab.local("tree")).unwrap();
    let file = lab.local("tree/file");
    let bytes = content(4, 8 * MIB);
    fs::write(&file, &bytes).unwrap();
    let sync = |options: &[&str]| {
        let mut command = zerolane();
        let command = command.arg("sync").args(options).arg(lab.local("tree"));
        command.arg(lab.there("tree"));
        std::mem::replace(command, zerolane())
    };
    let slow = ["--limit", "20MB/s"];
    let allowed = [&slow[..], &["--allow-changing"]].concat();
    for command in [lab.put(&slow, "tree/file", "copy"), sync(&slow)] {
        let (code, _, err) = run_while_it_changes(&file, command);
        assert!(code != 0 && err.contains("changed while"), "{code}: {err}");
    }
    for (command, at) in [
        (lab.put(&allowed, "tree/file", "copy"), "copy"),
        (sync(&allowed), "tree/file"),
    ] {
        let (code, out, err) = run_while_it_changes(&file, command);
        assert_eq!(code, 0, "{out}{err}");
        assert!(
            fs::read(lab.share(at)).unwrap()[1..] == bytes[1..],
            "{at}: all but the byte that changes"
        );
    }
}
