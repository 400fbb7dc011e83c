//! Tests that the examples work, with their other processes.
#![allow(non_snake_case, missing_docs)]

use std::path::PathBuf;
use std::process::Command;

/// The path of an example, which `cargo test` builds next to this program.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let target = test.ancestors().nth(2).expect("target directory");
    let example = target.join("examples").join(name);
    assert!(example.exists(), "cargo build --examples builds {name}");
    example
}

fn run(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(example(name)).args(arguments).output();
    let output = output.expect("it starts");
    let (said, error) = (output.stdout, output.stderr);
    let said = String::from_utf8(said).expect("text");
    let error = String::from_utf8_lossy(&error);
    assert!(output.status.success(), "{name}: {said}{error}");
    said
}

#[test]
fn rpc_server__answers_all_clients() {
    let said = run("rpc_server", &["40", "25"]);
    let expected = "1000 calls of 40 clients answered in one thread";
    assert!(said.contains(expected), "{said}");
}

/// As many clients as open files permit: each has a socket at both ends, which are separate processes.
#[test]
fn rpc_server__answers_a_thousand_clients() {
    const OTHER_FILES: u64 = 64;
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let clients = most.map_or(1000, |most| most.saturating_sub(OTHER_FILES).min(1000));
    let said = run("rpc_server", &[&clients.to_string(), "2"]);
    let calls = 2 * clients;
    let expected = format!("{calls} calls of {clients} clients answered in one thread");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn kv_cache__brings_every_block() {
    let said = run("kv_cache", &["9", "16", "4096"]);
    let expected = "144 blocks of 4096 bytes went through the store, all right";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn tokio_echo__returns_every_message() {
    let said = run("tokio_echo", &["10", "20"]);
    assert!(said.contains("200 messages of 10 clients echoed"), "{said}");
}
