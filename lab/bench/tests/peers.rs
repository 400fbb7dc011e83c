//! Tests that the scripts of `peers/` leave no process behind. Shell scripts stand in for what they start.

#![allow(non_snake_case)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Makes no namespace.
const PYROUTE2: &str = "from unittest.mock import MagicMock\nNetNS = netns = MagicMock()\n";
/// Enters none: `nsenter --net=FILE --` and `taskset -c CORE` are what follows them.
const NSENTER: &str = "shift 2\nexec \"$@\"";
const TASKSET: &str = "shift 2\nexec \"$@\"";
/// Makes the files that it should make.
const CERTTOOL: &str = "while [ $# -gt 0 ]; do [ \"$1\" != --outfile ] || : > \"$2\"; shift; done";

/// Whether there is a Python that runs the scripts; says if not.
fn python_is_there() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        println!("skipped: python3 is not installed");
    }
    found
}

/// A directory of programs that stand in for others.
fn stand_ins(programs: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, script) in programs {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

/// A script of `peers/` which finds these programs first.
fn script(name: &str, programs: &TempDir) -> Command {
    let mut command = Command::new("python3");
    command.arg(format!("{}/peers/{name}", env!("CARGO_MANIFEST_DIR")));
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", programs.path().display()));
    command.env("PIDS", programs.path().join("pids"));
    fs::write(programs.path().join("pyroute2.py"), PYROUTE2).unwrap();
    command.env("PYTHONPATH", programs.path());
    command
}

/// Those of the stand-ins that wrote down their numbers and are still there.
fn left(programs: &TempDir) -> Vec<Pid> {
    let pids = fs::read_to_string(programs.path().join("pids")).unwrap();
    let pids: Vec<Pid> = pids
        .lines()
        .map(|pid| Pid::from_raw(pid.parse().unwrap()))
        .collect();
    assert!(!pids.is_empty());
    let is_there = |it: &Pid| kill(*it, None).is_ok();
    pids.into_iter().filter(is_there).collect()
}

/// Of Zerolane's disk; what `attach` does is said.
fn disk(attach: &str) -> (TempDir, Command) {
    let zerolane = format!(
        "case $2 in\nserve) echo $$ >> $PIDS; echo listening; exec sleep 100;;\n*) {attach};;\nesac"
    );
    let programs = stand_ins(&[
        ("nsenter", NSENTER),
        ("taskset", TASKSET),
        ("certtool", CERTTOOL),
        ("nbdkit", ""),
        ("fio", ""),
        ("nbdcopy", ""),
        ("zerolane", &zerolane),
    ]);
    let images = programs.path().join("images");
    fs::create_dir(&images).unwrap();
    let mut command = script("disk", &programs);
    command.arg("--release").arg(programs.path());
    command.args(["--contenders", "zerolane", "--size", "1", "--directory"]);
    command.arg(images);
    (programs, command)
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn disk__a_server_whose_door_did_not_open_ends() {
    if !python_is_there() {
        return;
    }
    let (programs, mut disk) = disk("exit 1");
    let output = disk.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("its program ended"), "{said}");
    assert_eq!(left(&programs), []);
    assert!(is_empty(&programs.path().join("images")));
}

#[test]
fn disk__that_is_ended_ends_what_it_started() {
    if !python_is_there() {
        return;
    }
    let (programs, mut disk) = disk("echo $$ >> $PIDS; exec sleep 100");
    let mut running = disk.stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let pids = programs.path().join("pids");
    while fs::read_to_string(&pids).map_or(0, |it| it.lines().count()) < 2 {
        assert!(started.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(running.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(143));
    assert_eq!(left(&programs), []);
    assert!(is_empty(&programs.path().join("images")));
}

/// In a lab of two hosts, of which one receives.
fn cast(programs: &TempDir, words: &[&str]) -> Output {
    fs::write(programs.path().join("source"), "content").unwrap();
    let mut command = script("cast", programs);
    command.env("ZEROLANE_LAB_HOSTS", "2");
    for host in [1, 2] {
        for (name, value) in [("NETNS", "n"), ("ADDR", "10.0.0."), ("DEVICE", "d")] {
            command.env(
                format!("ZEROLANE_LAB_{name}{host}"),
                format!("{value}{host}"),
            );
        }
    }
    command.arg("--inside").arg(programs.path());
    command
        .arg("--program")
        .arg(programs.path().join("zerolane"));
    command.args(words).output().unwrap()
}

#[test]
fn cast__ends_clients_that_take_too_long() {
    if !python_is_there() {
        return;
    }
    let rsync = "echo $$ >> $PIDS; exec sleep 100";
    let programs = stand_ins(&[("nsenter", NSENTER), ("rsync", rsync)]);
    let words = ["--contenders", "rsync", "--limit", "3", "--rounds", "1"];
    let output = cast(&programs, &words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("not done after 3 s"), "{said}");
    assert_eq!(left(&programs), []);
}

#[test]
fn cast__every_other_round_is_in_the_reverse_order() {
    if !python_is_there() {
        return;
    }
    let programs = stand_ins(&[
        ("nsenter", NSENTER),
        ("zerolane", ""),
        ("uftp", ""),
        ("uftpd", ""),
    ]);
    let words = ["--contenders", "zerolane,uftp", "--rounds", "2"];
    let output = cast(&programs, &words);
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines = lines
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).unwrap() });
    let order: Vec<_> = lines.map(|it| it["contender"].clone()).collect();
    assert_eq!(order, ["zerolane", "uftp", "uftp", "zerolane"]);
}
