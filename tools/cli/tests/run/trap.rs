//! Tests `zerolane run --trap` with programs that load no library: a static one in C, and one in Go.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab::{Lab, free_port, run, text};
use crate::programs;

const C: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/trapped.c");
const GO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/trapped.go");

/// Whether the system traps calls; prints why not.
pub(crate) fn is_permitted() -> bool {
    let output = Lab::new().output(run(&["--trap"], &["true"]));
    let said = text(&output);
    if !output.status.success() {
        // Any other refusal is a fault.
        let known = [
            "Linux 5.19",
            "already",
            "does not allow programs to trap calls",
        ];
        assert!(known.iter().any(|it| said.contains(it)), "{said}");
        eprintln!("skipped: {said}");
    }
    output.status.success()
}

/// The program in C, linked statically.
fn static_program(lab: &Lab) -> Option<String> {
    if !is_permitted() || !programs::are_there(&["cc"]) {
        return None;
    }
    let made = lab.path("program");
    let mut compile = Command::new("cc");
    compile.args(["-static", "-O1", "-o"]).arg(&made).arg(C);
    let output = compile.output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: no static C library: {}", text(&output));
        return None;
    }
    Some(made.to_str().unwrap().to_owned())
}

/// Go's compiler, also where its own archive puts it. All that it writes, telemetry too, goes into `lab`.
fn go(lab: &Lab) -> Option<Command> {
    let command = |program: &str| {
        let mut command = Command::new(program);
        command
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "")
            .env("GOCACHE", lab.path("cache"))
            .env("GOPATH", lab.path("path"))
            .env("XDG_CONFIG_HOME", lab.path("config"));
        command
    };
    let works = |it: &&str| command(it).arg("version").output().is_ok();
    let found = ["go", "/usr/local/go/bin/go"].into_iter().find(works);
    if found.is_none() {
        eprintln!("skipped: go is not installed");
    }
    found.map(command)
}

fn trapped<'a>(options: &[&'a str], words: &[&'a str]) -> Command {
    run(&[&["--trap"], options].concat(), words)
}

/// `program` serves and asks, each time as `words` say, at both ends by Zerolane.
fn is_carried(lab: &Lab, host: &str, program: &str, ways: &[&[&str]]) {
    let port = free_port().to_string();
    let times = ways.len().to_string();
    let mut server = lab.start(trapped(&[], &[program, "serve", host, &port, &times]));
    server.says("listens");
    for way in ways {
        let words = [&[program, "ask", host, &port], *way].concat();
        let output = lab.output(trapped(&[], &words));
        let said = text(&output);
        assert!(output.status.success(), "{host} {way:?}: {said}");
        assert!(said.contains("the same"), "{host} {way:?}: {said}");
        assert_eq!(said.matches("Zerolane over").count(), 1, "{said}");
    }
    assert_eq!(server.ends(), Some(0), "{}", server.said());
    let said = server.said();
    assert_eq!(said.matches("Zerolane over").count(), ways.len(), "{said}");
}

#[test]
fn trap__a_static_program_is_client_and_server() {
    let lab = Lab::new();
    let Some(program) = static_program(&lab) else {
        return;
    };
    for host in ["127.0.0.1", "::1"] {
        is_carried(&lab, host, &program, &[&[], &["epoll"], &["epoll"], &[]]);
    }
    // No socket listens there.
    let port = free_port().to_string();
    for way in [&[][..], &["epoll"]] {
        let words = [&[&program, "ask", "127.0.0.1", &port], way].concat();
        let output = lab.output(trapped(&[], &words));
        assert!(
            text(&output).contains("connect: Connection refused"),
            "{}",
            text(&output)
        );
    }
}

#[test]
fn trap__a_go_program_is_client_and_server() {
    let lab = Lab::new();
    if !is_permitted() {
        return;
    }
    let Some(mut compile) = go(&lab) else {
        return;
    };
    compile.args(["build", "-o", "program"]).arg(GO);
    let output = lab.output(compile);
    assert!(output.status.success(), "{}", text(&output));
    let program = lab.path("program");
    let program = program.to_str().unwrap();
    // Both families at one socket.
    for (on, to) in [
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("", "127.0.0.1"),
    ] {
        let port = free_port();
        let (on, to) = (format!("{on}:{port}"), format!("{to}:{port}"));
        let mut server = lab.start(trapped(&[], &[program, "serve", &on]));
        server.says("listens");
        let output = lab.output(trapped(&[], &[program, "ask", &to]));
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches("the same: true").count(), 8, "{said}");
        assert!(said.matches("Zerolane over").count() > 0, "{said}");
        assert!(server.said().contains("Zerolane over"), "{}", server.said());
    }
}

#[test]
fn trap__signals_interrupt_as_without() {
    let lab = Lab::new();
    let Some(program) = static_program(&lab) else {
        return;
    };
    let port = free_port().to_string();
    let mut plain = Command::new("timeout");
    plain.args(["--signal=KILL", "300", &program, "signals", &port]);
    let output = lab.output(plain);
    assert!(text(&output).contains("as expected"), "{}", text(&output));
    let port = free_port().to_string();
    let output = lab.output(trapped(&[], &[&program, "signals", &port]));
    assert!(text(&output).contains("as expected"), "{}", text(&output));
}

#[test]
fn trap__a_stop_reaches_all_threads() {
    if !is_permitted() || !programs::are_there(&["python3"]) {
        return;
    }
    let port = free_port();
    let code = format!(
        "import os, socket, threading, time\n\
         l = socket.create_server(('127.0.0.1', {port}))\n\
         def serve():\n    \
             while True: l.accept()[0].sendall(b'x')\n\
         for _ in range(3): threading.Thread(target=serve).start()\n\
         print('pid', os.getpid(), 'end', flush=True)"
    );
    let lab = Lab::new();
    let mut server = lab.start(trapped(&[], &["python3", "-c", &code]));
    server.says("end");
    let said = server.said();
    let mut words = said.split_whitespace().skip_while(|it| *it != "pid");
    let process: i32 = words.nth(1).unwrap().parse().unwrap();
    let all_are = |stopped: bool| {
        let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let mut states = threads.map(|it| {
            let status = fs::read_to_string(it.unwrap().path().join("status"));
            status.unwrap().contains("State:\tT")
        });
        states.all(|it| it == stopped)
    };
    for (signal, stopped) in [(Signal::SIGSTOP, true), (Signal::SIGCONT, false)] {
        kill(Pid::from_raw(process), signal).unwrap();
        let until = std::time::Instant::now() + crate::lab::PATIENCE;
        while !all_are(stopped) {
            assert!(std::time::Instant::now() < until, "{signal}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(crate::lab::PATIENCE)).unwrap();
    std::io::Read::read_exact(&mut client, &mut [0]).unwrap();
}

#[test]
fn trap__calls_fail_if_the_runner_is_killed() {
    let lab = Lab::new();
    let Some(program) = static_program(&lab) else {
        return;
    };
    let port = free_port().to_string();
    let mut running = lab.start(trapped(&[], &[&program, "again", &port]));
    running.says("begins");
    let below = format!("/proc/{0}/task/{0}/children", running.child.id());
    let runner = fs::read_to_string(below).unwrap();
    let runner = runner.split_whitespace().next().unwrap().parse().unwrap();
    kill(Pid::from_raw(runner), Signal::SIGKILL).unwrap();
    let until = std::time::Instant::now() + crate::lab::PATIENCE;
    while !running.said().contains("met: Function not implemented") {
        assert!(std::time::Instant::now() < until, "{}", running.said());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn trap__ends_as_the_program_does_and_refuses_in_words() {
    let lab = Lab::new();
    let Some(program) = static_program(&lab) else {
        return;
    };
    let code = |words: &[&str]| {
        let output = lab.output(trapped(&[], words));
        (output.status.code(), text(&output))
    };
    // No library: neither is there one for it, nor is one asked for.
    assert_eq!(code(&[&program]).0, Some(3));
    assert_eq!(code(&["true"]).0, Some(0));
    assert_eq!(
        code(&["sh", "-c", "test -z \"$LD_PRELOAD\"; kill -9 $$"]).0,
        Some(137)
    );
    assert_eq!(code(&["no-such-program"]).0, Some(127));
    // The kernel finds nothing to execute after the trap is set.
    let script = lab.path("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(code(&[script.to_str().unwrap()]).0, Some(127));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let (exit, said) = code(&[&program]);
    assert_eq!(exit, Some(126), "{said}");
    assert!(said.contains("which a trapped program must not"), "{said}");
    // One trap, not two.
    let own = crate::lab::program();
    let (exit, said) = code(&[own, "run", "--trap", "--", "true"]);
    assert_eq!(exit, Some(126), "{said}");
    assert!(
        said.contains("traps the calls of this process already"),
        "{said}"
    );
}

#[test]
fn trap__strict_and_rules() {
    let lab = Lab::new();
    let Some(program) = static_program(&lab) else {
        return;
    };
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port().to_string();
    let words = [&program, "ask", "127.0.0.1", &port];
    let said = text(&lab.output(trapped(&["--strict"], &words)));
    assert!(
        said.contains("there is no Zerolane at its UDP port"),
        "{said}"
    );
    assert!(said.contains("connect: Connection refused"), "{said}");
    // What no rule covers is connected, by TCP; this server says nothing, and ends. The refused one was connected, too.
    let served = std::thread::spawn(move || drop([plain.accept(), plain.accept()]));
    let said = text(&lab.output(trapped(&["--strict", "--only", "192.0.2.0/24"], &words)));
    assert!(said.contains("no rule covers it"), "{said}");
    assert!(!said.contains("connect: "), "{said}");
    served.join().unwrap();
}
