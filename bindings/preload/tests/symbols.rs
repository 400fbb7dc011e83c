//! Tests which functions the library stands in front of, and that it is silent without a runner.
#![allow(non_snake_case)]

use std::path::PathBuf;
use std::process::Command;

/// What cargo has built beside this program.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    let directories = own.ancestors().skip(1).take(2);
    let mut built = directories.map(|it| it.join("libzerolane_sockets.so"));
    built.find(|it| it.exists()).expect("the library is built")
}

#[test]
fn library__defines_the_calls_and_nothing_else() {
    let mut command = Command::new("nm");
    command.args(["-D", "--defined-only"]).arg(library());
    let Ok(output) = command.output() else {
        eprintln!("skipped: nm is not installed");
        return;
    };
    let said = String::from_utf8(output.stdout).expect("names");
    let mut names: Vec<_> = said.lines().filter_map(|it| it.split(' ').nth(2)).collect();
    names.sort_unstable();
    let calls = [
        "accept",
        "accept4",
        "bind",
        "connect",
        "epoll_ctl",
        "getpeername",
        "getsockname",
        "listen",
    ];
    assert_eq!(names, calls);
}

#[test]
fn library__without_a_runner_changes_nothing() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = address.local_addr().expect("a port").port();
    let values = [None, Some(""), Some("none"), Some("00 00 00 00")];
    let served = std::thread::spawn(move || values.map(|_| address.accept().map(|_| ())));
    for value in values {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")]);
        command
            .env("LD_PRELOAD", library())
            .env_remove("ZEROLANE_SOCKETS");
        if let Some(value) = value {
            command.env("ZEROLANE_SOCKETS", value);
        }
        let Ok(output) = command.output() else {
            eprintln!("skipped: bash is not installed");
            return;
        };
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
    }
    for client in served.join().expect("clients") {
        client.expect("a client");
    }
}
