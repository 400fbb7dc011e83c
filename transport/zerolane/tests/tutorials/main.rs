//! Runs the tutorials of docs/guide/library.md.
#![allow(non_snake_case)]

use std::thread;
use std::time::{Duration, Instant};
use zerolane::Result;

const DOCUMENT: &str = include_str!("../../../../docs/guide/library.md");
/// Bounds how long a failure takes to show; otherwise never reached.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program of the tutorials, as a module.
macro_rules! program {
    ($name:ident) => {
        mod $name {
            include!(concat!(stringify!($name), ".rs"));

            pub(super) fn run() -> zerolane::Result<()> {
                let text = include_str!(concat!(stringify!($name), ".rs"));
                let shown = format!("```rust\n{text}```\n");
                assert!(
                    super::DOCUMENT.contains(&shown),
                    "not in the document:\n{text}"
                );
                main()
            }
        }
    };
}

program!(receiver);
program!(sender);
program!(owner);
program!(user);
program!(server);
program!(client);

/// Runs `serve` in a thread that may go on, and each of `clients` until it succeeds once, in a namespace with the
/// address that the programs name.
fn try_out(serve: fn() -> Result<()>, clients: &[fn() -> Result<()>]) {
    if !netlab::netns::is_permitted() {
        return;
    }
    let hosts = netlab::netns::Topology::pair("tut", 1500).expect("permitted");
    let links = hosts.a().rtnetlink().expect("permitted");
    let named = [192, 0, 2, 1].into();
    links.assign_address("lo", named, 32).expect("free");
    let enter = || hosts.a().enter().expect("permitted");
    thread::scope(|scope| {
        // It may never end, so the scope must not wait for it.
        scope.spawn(|| {
            enter();
            thread::spawn(serve);
        });
        scope.spawn(|| {
            enter();
            let end = Instant::now() + PATIENCE;
            for client in clients {
                // The server may not listen, or export, yet.
                while let Err(error) = client() {
                    assert!(Instant::now() < end, "{error}");
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
    });
}

#[test]
fn tutorial__connect_and_send() {
    try_out(receiver::run, &[sender::run]);
}

#[test]
fn tutorial__remote_memory() {
    try_out(owner::run, &[user::run, user::run]);
}

#[test]
fn tutorial__server_of_many_clients() {
    let client: fn() -> Result<()> = client::run;
    try_out(server::run, &[client; 20]);
}
