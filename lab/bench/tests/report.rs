//! Tests `zerolane report` as a user starts it.

#![allow(non_snake_case)]

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;

/// Runs that take no time and need no rights.
const TRACES: &str = "trace-interfered-0,trace-two-at-once,trace-two-in-turn";

const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane-bench");

fn report(out: &Path, words: &str) -> Command {
    report_of(PROGRAM.as_ref(), out, words)
}

fn report_of(program: &Path, out: &Path, words: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["report", "--quick", "--out"]).arg(out);
    command.args(words.split_whitespace());
    command
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn section<'a>(report: &'a Value, id: &str) -> &'a Value {
    let sections = report["sections"].as_array().unwrap().iter();
    sections.into_iter().find(|it| it["id"] == id).unwrap()
}

#[test]
fn report__of_captures_says_what_speculation_would_have_hit() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let output = report(&out, &format!("--only {TRACES}")).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let found = json(&out.join("report.json"));
    let speculation = section(&found, "speculation");
    let rows = speculation["tables"][0]["rows"].as_array().unwrap();
    // The paper's list is of no use to two senders at once, and of use to each by itself: its Table 2.
    let misses: Vec<_> = rows.iter().map(|it| it[1].as_str().unwrap()).collect();
    assert_eq!(misses, ["0 of 10000", "10000 of 10000", "0 of 10000"]);
    assert_eq!(rows[1][2], "0 of 10000");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("id=\"speculation-hits\""));
    assert!(page.contains("zerolane trace captures/two-at-once.pcap --json"));
    assert!(
        !page.contains(directory.path().to_str().unwrap()),
        "a path of this machine"
    );
    assert_eq!(found["runs"].as_array().unwrap().len(), 3);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("report.html"), "{said}");
}

#[test]
fn report__resumes_what_is_there_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let first = "--only trace-interfered-0,trace-two-at-once";
    assert!(report(&out, first).output().unwrap().status.success());
    let kept = out.join("runs/trace-interfered-0.json");
    let before = fs::metadata(&kept).unwrap().modified().unwrap();
    // One is cut: it is run again, and the other one is not.
    let cut = out.join("runs/trace-two-at-once.json");
    fs::write(&cut, "{\"words\": [").unwrap();
    let output = report(&out, &format!("--resume --only {TRACES}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert!(
        told(&output).contains("runs done already: 1"),
        "{}",
        told(&output)
    );
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), before);
    assert!(json(&cut)["run"]["outcome"]["result"]["sum"].is_object());

    let refused = |command: &mut Command, words: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        assert!(told(&output).contains(words), "{}", told(&output));
    };
    refused(&mut report(&out, first), "--resume continues it");
    let elsewhere = directory.path().join("elsewhere");
    refused(&mut report(&elsewhere, "--resume"), "nothing to resume");
    assert!(!elsewhere.exists());
    refused(
        &mut report(&elsewhere, "--only no-such-run"),
        "no run is called no-such-run",
    );
    assert!(!elsewhere.exists());
    // Runs of another machine, another version, another plan.
    let path = out.join("runs/report.stamp");
    let stamp = json(&path);
    for (at, value, words) in [
        (
            "/machine/cpu",
            "abacus".into(),
            "from another machine (abacus",
        ),
        ("/version", "0.0.1".into(), "from version 0.0.1"),
        ("/program", "another".into(), "another build"),
        ("/extent", "full".into(), "of a full report"),
    ] {
        let mut other = stamp.clone();
        *other.pointer_mut(at).unwrap() = value;
        fs::write(&path, other.to_string()).unwrap();
        refused(&mut report(&out, "--resume"), words);
    }
    fs::write(&path, "garbage").unwrap();
    refused(&mut report(&out, "--resume"), "is not readable");
}

#[test]
fn report__stopped_keeps_what_is_done_and_writes_no_page() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let words = "--only trace-interfered-0,put_lat-event,bulk-64KiB,bulk-1MiB";
    let mut command = report(&out, words);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let child = command.process_group(0).spawn().unwrap();
    let group = Pid::from_raw(child.id().cast_signed());
    // In the middle of a run, with others to follow.
    let deadline = Instant::now() + Duration::from_secs(120);
    while !out.join("captures/two-in-turn.pcap").exists() {
        assert!(Instant::now() < deadline, "it does not begin");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(700));
    kill(group, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    assert!(
        told(&output).contains("with the same command and --resume"),
        "{}",
        told(&output)
    );
    assert!(
        !out.join("report.html").exists(),
        "a page of half of the runs"
    );
    // No run's result is a part of one.
    for entry in fs::read_dir(out.join("runs")).unwrap() {
        let path = entry.unwrap().path();
        assert!(json(&path).is_object(), "{}", path.display());
    }
    let rest = report(&out, "--resume --only trace-interfered-0")
        .output()
        .unwrap();
    assert!(rest.status.success(), "{}", told(&rest));
    assert!(out.join("report.html").exists());
}

#[test]
fn report__to_a_full_disk_leaves_no_half_of_a_file() {
    if !Uid::effective().is_root() {
        println!("skipped: this process may not mount");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = r#"
        mount -t tmpfs -o size=3m zerolane-test "$1" || { echo "skipped: this kernel mounts none"; exit 0; }
        "$0" report --quick --only trace-interfered-0 --out "$1/out"; code=$?
        find "$1/out" -name '.tmp*' -print
        ls "$1/out"
        exit $code
    "#;
    let output = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_zerolane-bench"),
        ])
        .arg(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.contains("skipped: ") {
        print!("{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}{}", told(&output));
    assert!(told(&output).contains("No space left"), "{}", told(&output));
    assert!(
        !said.contains(".tmp") && !said.contains("report.html"),
        "{said}"
    );
}

/// Room for the captures, but not for what is kept of the runs, or for the page.
#[test]
fn report__to_a_disk_that_fills_up_later_goes_on_where_there_is_room() {
    if !Uid::effective().is_root() {
        println!("skipped: this process may not mount");
        return;
    }
    let script = r#"
        mount -t tmpfs -o size=$2 zerolane-test "$1" || { echo "skipped: this kernel mounts none"; exit 0; }
        mkdir -p "$1/out/captures"
        mount -t tmpfs zerolane-test "$1/out/captures"
        "$0" report --quick --only trace-interfered-0 --out "$1/out"; echo "code $?"
        (cd "$1/out" && find . -type f)
        echo "now there is room"
        mount -o remount,size=3m "$1"
        "$0" report --quick --resume --only trace-interfered-0 --out "$1/out" || exit
        test -s "$1/out/report.html"
    "#;
    for (size, failed) in [
        ("8k", "cannot keep the result of trace-interfered-0"),
        ("48k", "cannot write"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(env!("CARGO_BIN_EXE_zerolane-bench"))
            .arg(directory.path())
            .arg(size)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if said.contains("skipped: ") {
            print!("{said}");
            return;
        }
        let told = told(&output);
        assert!(output.status.success(), "{size}: {said}{told}");
        assert!(said.contains("code 1\n"), "{size}: {said}{told}");
        assert!(told.contains(failed), "{size}: {told}");
        assert!(told.contains("No space left"), "{size}: {told}");
        let (before, _) = said.split_once("now there is room").unwrap();
        assert!(before.contains("report.stamp"), "{size}: {said}");
        for part in [".tmp", "report.html", "report.json"] {
            assert!(!before.contains(part), "{size}: {said}");
        }
    }
}

#[test]
fn report__as_nobody_says_what_it_could_not_do() {
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    // Where that user may start it. By a process of its own: while this one has it open for writing, so has what other tests
    // start, and it cannot be run.
    let program = directory.path().join("zerolane");
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = report_of(&program, &out, "--only loss,trace-interfered-0");
    if Uid::effective().is_root() {
        chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let found = json(&out.join("report.json"));
    assert_eq!(found["machine"]["root"], false);
    let gaps = found["gaps"].as_array().unwrap();
    let gap = gaps.iter().find(|it| it["what"] == "loss").unwrap();
    let why = gap["why"].as_str().unwrap();
    assert!(why.contains("root"), "{why}");
    assert_eq!(found["runs"].as_array().unwrap().len(), 2);
    // What needs no rights is there.
    assert_eq!(
        section(&found, "speculation")["charts"][0]["id"],
        "speculation-hits"
    );
    assert!(
        fs::read_to_string(out.join("report.html"))
            .unwrap()
            .contains("<strong>loss</strong>")
    );
}

#[test]
fn report__tries_again_what_failed() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let words = "--only trace-interfered-0,trace-two-at-once";
    assert!(report(&out, words).output().unwrap().status.success());
    let kept = out.join("runs/trace-two-at-once.json");
    let mut run = json(&kept);
    run["run"]["outcome"] = serde_json::json!({"error": "there was no memory left"});
    fs::write(&kept, run.to_string()).unwrap();
    let output = report(&out, &format!("--resume {words}")).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert!(
        told(&output).contains("runs done already: 1"),
        "{}",
        told(&output)
    );
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(!page.contains("there was no memory left"));
}
