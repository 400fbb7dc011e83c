//! Tests copies from standard input and to standard output.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::lab::*;

fn to(lab: &Lab, options: &[&str], path: &str) -> Command {
    let mut command = zerolane();
    command
        .arg("cp")
        .args(options)
        .args(["-", &lab.there(path)]);
    command
}

fn from(lab: &Lab, options: &[&str], path: &str) -> Command {
    let mut command = zerolane();
    command
        .arg("cp")
        .args(options)
        .args([&lab.there(path), "-"]);
    command
}

/// Runs `command` with `input` from a pipe.
fn fed(mut command: Command, input: Vec<u8>) -> (i32, Vec<u8>, String) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        // A failing command does not read everything.
        let _ = pipe.write_all(&input);
    });
    let done = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code().unwrap_or(-1), done.stdout, errors)
}

fn feed(child: &mut Child, bytes: &[u8]) {
    child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
}

fn until(what: &str, ready: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stream__there_and_back_of_any_length() {
    let lab = Lab::new(&[]);
    for (seed, len) in [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB, 9 * MIB + 77]
        .into_iter()
        .enumerate()
    {
        let bytes = content(seed as u64, len);
        let (code, out, err) = fed(to(&lab, &[], "s"), bytes.clone());
        assert_eq!((code, out.len()), (0, 0), "{len}: {err}");
        assert!(
            err.contains("1 file, ") && err.contains("verified"),
            "{err}"
        );
        assert!(fs::read(lab.share("s")).unwrap() == bytes, "{len}");
        let back = from(&lab, &["-q"], "s").output().unwrap();
        assert!(back.status.success() && back.stderr.is_empty(), "{back:?}");
        assert!(back.stdout == bytes, "{len}");
    }
    assert_eq!(names(&lab.share("")), ["s"]);
}

#[test]
fn stream__a_tree_through_tar() {
    let lab = Lab::new(&[]);
    fs::create_dir_all(lab.local("tree/deep")).unwrap();
    fs::write(lab.local("tree/deep/a"), content(1, 3 * MIB)).unwrap();
    fs::write(lab.local("tree/b"), b"b").unwrap();
    let pipe = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(lab.local(""));
        shell
            .env("ZEROLANE_HOME", HOME)
            .env("ZEROLANE", env!("CARGO_BIN_EXE_zerolane"));
        shell.env("THERE", lab.there("tree.tar"));
        let (code, out, err) = run(shell);
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
    };
    pipe("tar c tree | $ZEROLANE cp - $THERE");
    fs::create_dir(lab.local("back")).unwrap();
    pipe("$ZEROLANE cp $THERE - | tar x -C back");
    let mut differ = Command::new("diff");
    differ
        .arg("-r")
        .args([lab.local("tree"), lab.local("back/tree")]);
    assert_eq!(run(differ).0, 0);
}

#[test]
fn stream__the_target_is_the_old_one_until_the_end() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("s"), b"old").unwrap();
    let start = || {
        let mut command = to(&lab, &[], "s");
        let command = command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = Running(command.spawn().unwrap());
        feed(&mut child.0, &content(1, 4 * MIB));
        until("parts written", || {
            part_bytes(&lab.share(""), "s") >= 2 * MIB as u64
        });
        assert_eq!(fs::read(lab.share("s")).unwrap(), b"old");
        child
    };
    let mut child = start();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    until("temporary removed", || names(&lab.share("")) == ["s"]);
    assert_eq!(fs::read(lab.share("s")).unwrap(), b"old");
    let mut child = start();
    drop(child.0.stdin.take());
    assert!(child.0.wait().unwrap().success());
    assert!(fs::read(lab.share("s")).unwrap() == content(1, 4 * MIB));
}

#[test]
fn stream__memory_is_bounded_and_a_slow_reader_or_writer_no_matter() {
    let lab = Lab::new(&[]);
    let mut command = to(&lab, &["-q"], "s");
    let mut child = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    let piece = content(3, 8 * MIB);
    for _ in 0..24 {
        feed(&mut child.0, &piece);
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 96 << 10, "{peak} KiB");
    drop(child.0.stdin.take());
    assert!(child.0.wait().unwrap().success());
    assert_eq!(lab.share("s").metadata().unwrap().len(), 192 * MIB as u64);
    let mut command = from(&lab, &["-q"], "s");
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    let mut buffer = vec![0; 8 * MIB];
    for round in 0..24 {
        out.read_exact(&mut buffer).unwrap();
        assert!(buffer == piece, "{round}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(out.read(&mut buffer).unwrap(), 0);
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn stream__a_reader_that_has_enough_ends_it_without_a_word() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("s"), content(1, 64 * MIB)).unwrap();
    let mut command = from(&lab, &[], "s");
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = vec![0; 100];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    assert!(first == content(1, 100));
    drop(out);
    let done = child.wait_with_output().unwrap();
    assert_eq!(
        done.status.signal(),
        Some(Signal::SIGPIPE as i32),
        "{done:?}"
    );
    assert!(done.stderr.is_empty(), "{done:?}");
}

#[test]
fn stream__errors_in_words() {
    let lab = Lab::new(&[]);
    fs::create_dir(lab.share("dir")).unwrap();
    for (command, code, words) in [
        (to(&lab, &[], "dir"), 1, "is a directory"),
        (to(&lab, &[], ""), 1, "is a directory"),
        (to(&lab, &[], "none/s"), 1, "no such file or directory"),
        (to(&lab, &[], "../s"), 1, "leads outside"),
        (to(&lab, &["--resume"], "s"), 2, "nothing to resume"),
        (from(&lab, &[], "dir"), 1, "is a directory"),
        (from(&lab, &[], "none"), 1, "no such file or directory"),
        (from(&lab, &["--json"], "s"), 2, "is the target"),
        (from(&lab, &["--resume"], "s"), 2, "nothing to resume"),
    ] {
        let (actual, out, err) = fed(command, content(1, 3 * MIB));
        assert_eq!((actual, out.len()), (code, 0), "{err}");
        assert!(err.contains(words), "{err:?} does not say {words:?}");
    }
    assert_eq!(names(&lab.share("")), ["dir"]);
    let mut full = from(&lab, &[], "s");
    fs::write(lab.share("s"), content(1, 3 * MIB)).unwrap();
    full.stdout(
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap(),
    );
    let done = full
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot write to standard output"), "{err}");
}

#[test]
fn stream__goes_on_to_standard_output_and_says_why_not_from_input() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lab = Lab::new(&[]);
            let bytes = content(1, 96 * MIB);
            fs::write(lab.share("s"), &bytes).unwrap();
            let mut command = from(&lab, &[], "s");
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut came = vec![0; 16 * MIB];
            let mut out = child.stdout.take().unwrap();
            out.read_exact(&mut came).unwrap();
            // The pipe is full, and little else was read.
            drop(lab.server.take());
            let address = lab.address.clone();
            lab.start(zerolane(), &[], &address);
            out.read_to_end(&mut came).unwrap();
            let done = child.wait_with_output().unwrap();
            let err = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{err}");
            assert!(err.contains("reconnected once"), "{err}");
            assert!(came == bytes);
        });
        scope.spawn(|| {
            let mut lab = Lab::new(&[]);
            let mut command = to(&lab, &[], "s");
            let command = command.stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            feed(&mut child, &content(1, 4 * MIB));
            let share = lab.share("");
            until("parts written", || {
                part_bytes(&share, "s") >= 2 * MIB as u64
            });
            drop(lab.server.take());
            // Kept open, so that the end of the input does not end the copy.
            let input = child.stdin.take();
            let done = child.wait_with_output().unwrap();
            drop(input);
            let err = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(1), "{err}");
            assert!(err.contains("cannot be read again"), "{err}");
            assert!(!err.contains("--resume"), "{err}");
            assert!(!lab.share("s").exists());
        });
    });
}

#[test]
fn limit__a_copy_is_no_faster_either_way() {
    let lab = Lab::new(&[]);
    // Two seconds at 4 MiB/s, apart from the burst at the start.
    fs::write(lab.local("a"), content(1, 8 * MIB)).unwrap();
    let least = Duration::from_millis(1800);
    let slow = ["--limit", "4MiB/s"];
    for command in [
        lab.put(&slow, "a", "a"),
        lab.get(&slow, "a", "b"),
        from(&lab, &["-q", "--limit", "33.5mbit"], "a"),
    ] {
        let started = Instant::now();
        succeed_quietly(command);
        assert!(started.elapsed() >= least, "{:?}", started.elapsed());
    }
    assert!(fs::read(lab.local("b")).unwrap() == content(1, 8 * MIB));
    // A server's own limit also applies to uploads.
    let limited = Lab::new(&slow);
    fs::write(limited.local("a"), content(1, 8 * MIB)).unwrap();
    for command in [limited.put(&[], "a", "a"), limited.get(&[], "a", "b")] {
        let started = Instant::now();
        succeed_quietly(command);
        assert!(started.elapsed() >= least, "{:?}", started.elapsed());
    }
    fail(
        lab.get(&["--limit", "fast"], "a", "b"),
        2,
        "10MiB/s or 100mbit",
    );
}

fn succeed_quietly(mut command: Command) {
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
