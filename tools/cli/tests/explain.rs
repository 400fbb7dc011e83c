//! Tests `zerolane explain`.

#![allow(non_snake_case)]

mod first_line;

use std::fs;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use first_line::started;

/// Roughly a second of work for a shell.
const BUSY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

fn explain<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.arg("explain").args(words);
    command
}

fn output<'a>(words: impl IntoIterator<Item = &'a str>) -> Output {
    explain(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn explain__keeps_the_output_and_exit_code_of_its_command() {
    let output = output(["--", "sh", "-c", "echo said; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "said\n");
    assert!(text(&output.stderr).contains("carried"), "{output:?}");
    let killed = self::output(["--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(128 + 9));
}

#[test]
fn explain__a_command_that_cannot_be_run() {
    let missing = output(["--", "no-such-program-here"]);
    assert_eq!(missing.status.code(), Some(127));
    let words = text(&missing.stderr);
    assert!(
        words.starts_with("zerolane: cannot run no-such-program-here"),
        "{words}"
    );
    let no_program = output(["--", env!("CARGO_MANIFEST_PATH")]);
    assert_eq!(no_program.status.code(), Some(126), "{no_program:?}");
    let no_process = output(["--pid", "4294967295"]);
    assert_eq!(no_process.status.code(), Some(1));
    assert!(text(&no_process.stderr).contains("no process 4294967295"));
}

#[test]
fn explain__one_thing_at_a_time() {
    for wrong in [
        &[][..],
        &["--json"],
        &["--pid", "1", "--", "true"],
        &["--duration", "1s", "--", "true"],
    ] {
        assert_eq!(
            output(wrong.iter().copied()).status.code(),
            Some(2),
            "{wrong:?}"
        );
    }
}

#[test]
fn explain__json_has_what_programs_read() {
    let output = output([
        "--json",
        "--",
        "sh",
        "-c",
        &format!("echo said; {BUSY}; exit 3"),
    ]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("said"), "{output:?}");
    let explanation = json(&output);
    for key in [
        "seconds",
        "sampling",
        "cpu",
        "causes",
        "explained_fraction",
        "unexplained",
        "bytes",
        "copies_per_byte",
        "copies",
        "by_cpu",
        "interfaces",
        "drops",
        "lossy_sockets",
        "driver_statistics",
        "hardware",
        "activity",
        "per_mib",
        "missing",
    ] {
        assert!(explanation.get(key).is_some(), "{key}: {explanation}");
    }
    if explanation["sampling"].is_null() {
        println!("skipped: this process may not sample");
        return;
    }
    let causes = explanation["causes"].as_array().unwrap();
    let names: Vec<_> = causes
        .iter()
        .map(|it| it["cause"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"program"), "{names:?}");
    assert!(explanation["cpu"]["program"].as_f64().unwrap() > 0.0);
    let share = |of: &Value| of["share"].as_f64().unwrap();
    let shares: f64 = causes.iter().map(share).sum();
    let fraction = explanation["explained_fraction"].as_f64().unwrap();
    assert!(
        (shares - fraction).abs() < 1e-6 && fraction <= 1.0,
        "{explanation}"
    );
}

#[test]
fn explain__without_the_right_to_sample_says_which_is_missing() {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let explanation = json(&output(["--json", "--", "true"]));
    if !explanation["sampling"].is_null() {
        println!("skipped: this process has the rights");
        return;
    }
    let missing = explanation["missing"][0].as_str().unwrap();
    let named = [
        "kernel.perf_event_paranoid",
        "filter of system calls",
        "without perf events",
    ];
    assert!(
        named.iter().any(|it| missing.contains(it)),
        "{missing}, {paranoid}"
    );
    assert!(
        explanation["activity"]["context_switches"]
            .as_u64()
            .unwrap()
            > 0
    );
    let explained = output(["--", "sh", "-c", "exit 5"]);
    assert_eq!(explained.status.code(), Some(5));
    assert!(text(&explained.stderr).contains("not found out"));
}

#[test]
fn explain__signals_end_the_command_and_the_table_is_printed() {
    // A terminal's Ctrl-C also reaches the command, which has a second before the signal is passed on.
    for (signal, number) in [(Signal::SIGTERM, 15), (Signal::SIGINT, 2)] {
        let mut command = explain(["--", "sh", "-c", "echo ready; exec sleep 60"]);
        let (child, line) = started(command.stderr(Stdio::piped()));
        assert_eq!(line, "ready");
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + number));
        assert!(text(&output.stderr).contains("carried"), "{output:?}");
    }
}

#[test]
fn explain__a_running_process_until_it_ends() {
    let mut busy = Command::new("sh").args(["-c", BUSY]).spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folded = folder.path().join("stacks");
    let (pid, path) = (busy.id().to_string(), folded.to_str().unwrap());
    let output = output(["--pid", &pid, "--json", "--folded", path]);
    busy.wait().unwrap();
    // The process may have ended before it was examined.
    if output.status.code() == Some(1) {
        assert!(text(&output.stderr).contains("no process"), "{output:?}");
        return;
    }
    let explanation = json(&output);
    let stacks = fs::read_to_string(&folded).unwrap();
    let samples = stacks.lines().map(|line| {
        let (stack, samples) = line.rsplit_once(' ').unwrap();
        assert!(stack.contains(';') || stack == "sh", "{line}");
        samples.parse::<u64>().unwrap()
    });
    let of_all = explanation["sampling"]["samples"].as_u64().unwrap_or(0);
    assert!(samples.sum::<u64>() <= of_all);
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "nothing beside the file");
}

#[test]
fn explain__a_page_that_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let output = output([
        "--html",
        path.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "exit 0 # <b>",
    ]);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(path).unwrap();
    assert!(
        page.contains("carried") && page.contains("exit 0 # &lt;b&gt;"),
        "{page}"
    );
    for resource in ["src=", "http:", "https:", "url(", "<script"] {
        assert!(!page.contains(resource), "{resource}");
    }
}

#[test]
fn explain__the_whole_machine_for_a_time() {
    let output = output(["--duration", "200ms", "--frequency", "0"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("carried"), "{output:?}");
    let unwritable = self::output(["--duration", "1ms", "--folded", "/no/such/directory/file"]);
    assert_eq!(unwritable.status.code(), Some(1));
    assert!(text(&unwritable.stderr).contains("cannot write /no/such/directory/file"));
}

/// Others may write to the directory too, and know the process's number.
#[test]
fn html__does_not_follow_a_link_beside_it() {
    let base = tempfile::tempdir().unwrap();
    let victim = base.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let script = r#"for n in page page.html; do ln -s victim "$n.$$.part"; done
        exec "$0" explain --html page.html -- true"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_zerolane")]);
    let output = command.current_dir(base.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    let page = base.path().join("page.html");
    assert!(fs::symlink_metadata(&page).unwrap().is_file());
    assert!(fs::read_to_string(&page).unwrap().contains("<html"));
}
