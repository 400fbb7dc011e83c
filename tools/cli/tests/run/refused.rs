//! Tests what `zerolane run` refuses, and its exit codes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::lab::{Lab, free_port, has_library, program, run, text};
use crate::programs;

fn code(options: &[&str], words: &[&str]) -> (Option<i32>, String) {
    let output = Lab::new().output(run(options, words));
    (output.status.code(), text(&output))
}

#[test]
fn run__ends_as_the_program_does() {
    if !has_library() {
        return;
    }
    assert_eq!(code(&[], &["true"]).0, Some(0));
    assert_eq!(code(&[], &["sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(code(&[], &["sh", "-c", "kill -9 $$"]).0, Some(137));
    // Not before the children of the program.
    let (code, said) = code(&[], &["sh", "-c", "(sleep 1; echo late) & exit 3"]);
    assert_eq!(code, Some(3));
    assert!(said.contains("late"), "{said}");
}

#[test]
fn run__refuses_in_words_what_loads_no_library() {
    if !has_library() {
        return;
    }
    let (exit, said) = code(&[], &["no-such-program"]);
    assert_eq!(exit, Some(127), "{said}");
    let lab = Lab::new();
    let copy = lab.path("true");
    fs::copy("/bin/true", &copy).unwrap();
    let name = copy.to_str().unwrap();
    assert_eq!(code(&[], &[name]).0, Some(0));
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let (exit, said) = code(&[], &[name]);
    assert_eq!(exit, Some(126), "{said}");
    assert!(said.contains("set-user-ID"), "{said}");
    if programs::are_there(&["cc"]) {
        let (source, made) = (lab.path("s.c"), lab.path("s"));
        fs::write(&source, "int main(void) { return 3; }").unwrap();
        let mut compile = Command::new("cc");
        compile.arg("-static").arg(&source).arg("-o").arg(&made);
        assert!(compile.status().unwrap().success());
        let (exit, said) = code(&[], &[made.to_str().unwrap()]);
        assert_eq!(exit, Some(126), "{said}");
        assert!(said.contains("statically"), "{said}");
        assert!(said.contains("--trap"), "{said}");
    }
}

#[test]
fn run__fails_if_the_linker_did_not_load_the_library() {
    if !has_library() {
        return;
    }
    // Another directory, where the library is none.
    let lab = Lab::new();
    let other = lab.path("zerolane");
    if fs::hard_link(program(), &other).is_err() {
        fs::copy(program(), &other).unwrap();
    }
    fs::write(lab.path("libzerolane_sockets.so"), "no library").unwrap();
    let mut command = Command::new(&other);
    command.args(["run", "--", "true"]);
    let output = lab.output(command);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("did not load the library"));
    fs::remove_file(lab.path("libzerolane_sockets.so")).unwrap();
    let mut command = Command::new(&other);
    command.args(["run", "--", "true"]);
    let output = lab.output(command);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("cargo build -p zerolane-preload"));
}

#[test]
fn run__strict_fails_instead_of_falling_back() {
    if !has_library() || !programs::are_there(&["python3"]) {
        return;
    }
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port();
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 60)");
    let (exit, said) = code(&["--strict"], &["python3", "-c", &connect]);
    assert_eq!(exit, Some(1), "{said}");
    assert!(said.contains("ConnectionRefusedError"), "{said}");
    assert!(
        said.contains("there is no Zerolane at its UDP port"),
        "{said}"
    );
    // What no rule covers stays TCP.
    let (exit, said) = code(
        &["--strict", "--only", "192.0.2.0/24:*"],
        &["python3", "-c", &connect],
    );
    assert_eq!(exit, Some(0), "{said}");
    assert!(said.contains("no rule covers it"), "{said}");
    let (exit, said) = code(&["--only", "host:80"], &["true"]);
    assert_eq!(exit, Some(2), "{said}");
}

#[test]
fn sockets__lists_the_connections_of_a_process() {
    if !has_library() || !programs::are_there(&["python3"]) {
        return;
    }
    let lab = Lab::new();
    let port = free_port();
    let pair = format!(
        "import os, socket, time\n\
         l = socket.create_server(('127.0.0.1', {port}))\n\
         c = socket.create_connection(l.getsockname()); a, _ = l.accept()\n\
         c.sendall(b'12345'); a.recv(5); print('pid', os.getpid(), 'end', flush=True); time.sleep(300)"
    );
    let mut server = lab.start(run(&[], &["python3", "-c", &pair]));
    server.says("end");
    let said = server.said();
    let process = said
        .split_whitespace()
        .skip_while(|it| *it != "pid")
        .nth(1)
        .unwrap();
    let list = |process: &str| {
        let mut command = Command::new(program());
        command.args(["sockets", process]);
        lab.output(command)
    };
    let output = list(process);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let rows: Vec<Vec<&str>> = said
        .lines()
        .map(|it| it.split_whitespace().collect::<Vec<_>>())
        .filter(|it| it.first() == Some(&"zerolane"))
        .collect();
    assert_eq!(rows.len(), 2, "{said}");
    let server = format!("127.0.0.1:{port}");
    assert!(
        rows.iter().any(|it| it[1] == server && it[4] == "5"),
        "{said}"
    );
    assert!(
        rows.iter().any(|it| it[2] == server && it[3] == "5"),
        "{said}"
    );
    let own = std::process::id().to_string();
    let said = text(&list(&own));
    assert!(said.contains("was not started by `zerolane run`"), "{said}");
}
