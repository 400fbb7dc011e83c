//! Tests single calls by a program that passes with the kernel's TCP, and must pass with Zerolane.

use std::process::Command;

use crate::lab::{Lab, has_library, run, text};
use crate::{programs, trap};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/calls.py");

/// Cases of connections that Zerolane does not carry: a server that accepts too late, one that takes its UDP port
/// itself, and one without descriptors.
const BY_TCP: [&str; 3] = ["accepts_late", "udp_port", "few_descriptors"];

fn python() -> bool {
    has_library() && programs::are_there(&["python3"])
}

#[test]
fn calls__do_with_tcp_what_the_cases_expect() {
    if !python() {
        return;
    }
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300", "python3", CASES]);
    let output = Lab::new().output(command);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn calls__do_the_same_by_zerolane() {
    if !python() {
        return;
    }
    let output = Lab::new().output(run(&[], &["python3", CASES]));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn calls__do_the_same_by_a_trap() {
    if !programs::are_there(&["python3"]) || !trap::is_permitted() {
        return;
    }
    let output = Lab::new().output(run(&["--trap"], &["python3", CASES]));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(": Zerolane over "), "{said}");
}

/// In strict mode a connection that TCP carries fails, so these are all carried.
#[test]
fn calls__are_carried() {
    if !python() {
        return;
    }
    let listed = std::fs::read_to_string(CASES).unwrap();
    let helpers = ["listener", "pair", "read_all", "content", "main"];
    let cases = listed
        .lines()
        .filter_map(|it| it.strip_prefix("def ")?.split('(').next());
    let cases: Vec<&str> = cases
        .filter(|it| !helpers.contains(it) && !BY_TCP.contains(it))
        .collect();
    assert!(cases.len() > 20, "{cases:?}");
    let output = Lab::new().output(run(
        &["--strict"],
        &[&["python3", CASES], &cases[..]].concat(),
    ));
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    assert!(said.matches(": Zerolane over ").count() > 100, "{said}");
}
