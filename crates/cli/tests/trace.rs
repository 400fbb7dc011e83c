//! `zerolane trace` as a user starts it, on the captures of its library.

#![allow(non_snake_case)]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn capture(name: &str) -> PathBuf {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    crates.join("trace/tests/captures").join(name)
}

fn trace(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.arg("trace").args(words);
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&said(&command.output().unwrap())).unwrap()
}

#[test]
fn trace__says_what_hit_and_why_not() {
    let file = capture("nano-be.pcap");
    let output = trace(&[file.to_str().unwrap()]).output().unwrap();
    let text = said(&output);
    let words = |begin: &str| -> Vec<String> {
        let line = text.lines().find(|it| it.trim_start().starts_with(begin));
        let line = line.unwrap_or_else(|| panic!("{begin} in {text}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(words("pages, apart")[2..6], ["2", "1", "50.0", "%"]);
    assert_eq!(words("pairs")[1..5], ["8", "3", "37.5", "%"]);
    assert_eq!(words("10.0.0.9")[..4], ["10.0.0.9", "11", "8", "3"]);
    // By bytes: the larger one first.
    let (tcp, udp) = (
        text.find("tcp 10.0.0.1:4001 > 10.0.0.9:80"),
        text.find("udp 10.0.0.2"),
    );
    assert!(tcp.is_some() && tcp < udp, "{text}");
    assert_eq!(told(&output), "");
}

#[test]
fn trace__json_has_sum_hosts_and_flows() {
    let files = [capture("micro-le.pcap"), capture("nano.pcapng")];
    let files = files.each_ref().map(|it| it.to_str().unwrap());
    let all = json(&mut trace(&["--json", files[0], files[1]]));
    assert_eq!(all["inputs"][1]["format"], "pcapng");
    assert_eq!(all["sum"]["packets"], 22);
    assert_eq!(all["flows"].as_array().unwrap().len(), 2);
    assert_eq!(all["flows"][0]["flow"], "tcp 10.0.0.1:4001 > 10.0.0.9:80");
    for rule in ["pages", "pages_apart", "pairs", "trains"] {
        let tally = &all["sum"][rule];
        let misses: u64 = tally["misses"]
            .as_object()
            .unwrap()
            .values()
            .map(|it| it.as_u64().unwrap())
            .sum();
        let hits = tally["hits"].as_u64().unwrap();
        assert_eq!(
            tally["potential"].as_u64().unwrap(),
            hits + misses,
            "{rule}"
        );
    }
    let one = json(&mut trace(&["--json", "--flows", "1", files[0]]));
    assert_eq!(one["flows"].as_array().unwrap().len(), 1);
    assert_eq!(one["folded"], Value::Null);
    let folded = json(&mut trace(&["--json", "--follow", "1", files[0]]));
    assert_eq!(folded["folded"]["flows"], 1);
}

#[test]
fn trace__of_standard_input_is_that_of_the_file() {
    let file = capture("micro.pcapng");
    let mut expected = json(&mut trace(&["--json", file.to_str().unwrap()]));
    let mut child = trace(&["--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = fs::read(&file).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let piped: Value = serde_json::from_str(&said(&child.wait_with_output().unwrap())).unwrap();
    expected["inputs"][0]["name"] = "-".into();
    assert_eq!(piped, expected);
}

#[test]
fn trace__flows_that_are_not_shown_are_counted() {
    let file = capture("micro-le.pcap");
    let text = said(
        &trace(&["--flows", "1", file.to_str().unwrap()])
            .output()
            .unwrap(),
    );
    assert!(text.contains("and 1 more flows"), "{text}");
    assert!(!text.contains("udp 10.0.0.2"), "{text}");
    let none = said(
        &trace(&["--flows", "0", file.to_str().unwrap()])
            .output()
            .unwrap(),
    );
    assert!(none.contains("2 flows, which --flows shows"), "{none}");
}

#[test]
fn trace__cut_off_is_said_and_the_rest_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cut.pcap");
    let bytes = fs::read(capture("micro-le.pcap")).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let output = trace(&[file.to_str().unwrap()]).output().unwrap();
    assert!(said(&output).starts_with("10 packets"), "{output:?}");
    let words = told(&output);
    assert!(
        words.contains("cut.pcap: cut off in the packet that begins at byte"),
        "{words}"
    );
    assert!(
        words.contains("the 10 packets before it are counted"),
        "{words}"
    );
}

#[test]
fn trace__what_is_no_capture_is_named() {
    let refused = |words: &[&str], code: i32| {
        let output = trace(words).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(output.stdout, b"");
        told(&output)
    };
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(refused(&[text], 1).contains("Cargo.toml: not a capture: it is text"));
    assert!(refused(&["-"], 1).contains("-: not a capture: it is empty"));
    assert!(refused(&["/no/such/file"], 1).contains("/no/such/file: No such file"));
    let directory = refused(&[env!("CARGO_MANIFEST_DIR")], 1);
    assert!(directory.contains("Is a directory"), "{directory}");
    refused(&[], 2);
    refused(&["--follow", "0", text], 2);
}
