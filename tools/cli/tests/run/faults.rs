//! Tests what programs see when the other end, or Zerolane, goes away.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab::{Lab, PATIENCE, Running, free_port, has_library, run};
use crate::programs;

/// A server that sends back what comes.
fn echo(port: u16) -> String {
    format!(
        "import socket, threading\n\
         l = socket.create_server(('127.0.0.1', {port}))\n\
         print('listens', flush=True)\n\
         def serve(c):\n    \
             while (b := c.recv(65536)): c.sendall(b)\n    \
             c.close()\n\
         while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()"
    )
}

/// A client that says what it meets.
fn client(port: u16) -> String {
    format!(
        "import socket\n\
         c = socket.create_connection(('127.0.0.1', {port}), 120)\n\
         c.sendall(b'x'); assert c.recv(1) == b'x'; print('connected', flush=True)\n\
         try: print('got', c.recv(1), flush=True)\n\
         except OSError as e: print('met', type(e).__name__, flush=True)"
    )
}

/// A server and a client, connected by Zerolane.
fn both(lab: &Lab, port: u16) -> (Running, Running) {
    let mut server = lab.start(run(&[], &["python3", "-c", &echo(port)]));
    server.says("listens");
    let mut near = lab.start(run(&[], &["python3", "-c", &client(port)]));
    near.says("connected");
    server.says("Zerolane over");
    assert!(near.said().contains("Zerolane over"), "{}", near.said());
    (server, near)
}

fn can() -> bool {
    has_library() && programs::are_there(&["python3"])
}

/// The process `zerolane run` below `timeout`, and the program below that.
fn processes(of: &Running) -> (Pid, Pid) {
    let child = |process: String| {
        let path = format!("/proc/{process}/task/{process}/children");
        let children = std::fs::read_to_string(path).unwrap();
        children.split_whitespace().next().unwrap().to_owned()
    };
    let runner = child(of.child.id().to_string());
    let program = child(runner.clone());
    let number = |it: &str| Pid::from_raw(it.parse().unwrap());
    (number(&runner), number(&program))
}

#[test]
fn run__killed_at_the_other_end_is_a_reset() {
    if !can() {
        return;
    }
    let lab = Lab::new();
    let (server, mut near) = both(&lab, free_port());
    kill(processes(&server).0, Signal::SIGKILL).unwrap();
    near.says("met ConnectionResetError");
    assert_eq!(near.ends(), Some(0));
}

#[test]
fn run__killed_here_is_a_reset() {
    if !can() {
        return;
    }
    let lab = Lab::new();
    let (_server, mut near) = both(&lab, free_port());
    kill(processes(&near).0, Signal::SIGKILL).unwrap();
    near.says("met ConnectionResetError");
}

#[test]
fn run__the_killed_program_ends_its_connections() {
    if !can() {
        return;
    }
    let lab = Lab::new();
    let (mut server, mut near) = both(&lab, free_port());
    kill(processes(&server).1, Signal::SIGKILL).unwrap();
    // As with TCP: nothing was unread.
    near.says("got b''");
    assert_eq!(server.ends(), Some(137));
}

#[test]
fn run__a_server_that_is_restarted_without_zerolane_is_reached() {
    if !can() {
        return;
    }
    let lab = Lab::new();
    let port = free_port();
    let code = format!(
        "import socket, time\n\
         def ask():\n    \
             c = socket.create_connection(('127.0.0.1', {port}), 120)\n    \
             c.sendall(b'abc'); return c.recv(3) == b'abc'\n\
         print('first', ask(), flush=True)\n\
         until = time.time() + 100\n\
         while time.time() < until:\n    \
             try: print('then', ask(), flush=True); time.sleep(0.05)\n    \
             except OSError: time.sleep(0.05)"
    );
    let mut server = lab.start(run(&[], &["python3", "-c", &echo(port)]));
    server.says("listens");
    let mut near = lab.start(run(&[], &["python3", "-c", &code]));
    near.says("then True");
    drop(server);
    let mut plain = std::process::Command::new("python3");
    plain.args(["-c", &echo(port)]);
    let mut plain = lab.start(plain);
    // A connection of the dead server may hold the port.
    plain.says("listens");
    near.says("there is no Zerolane at its UDP port");
    let said = near.said();
    assert!(!said.contains("False"), "{said}");
    let then = said.rfind("there is no Zerolane").unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    while !near.said()[then..].contains("then True") {
        assert!(std::time::Instant::now() < until, "{}", near.said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn run__strangers_get_nothing_and_harm_nothing() {
    if !can() {
        return;
    }
    let lab = Lab::new();
    let port = free_port();
    let mut server = lab.start(run(&[], &["python3", "-c", &echo(port)]));
    server.says("listens");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut question = [0; 96];
    question[..8].copy_from_slice(b"ZLsock1?");
    question[24..26].copy_from_slice(&port.to_le_bytes());
    let longer = [&question[..], b"x"].concat();
    // An address that is not the sender's, a question for nothing, too much, too little.
    for packet in [
        &question[..],
        b"",
        &longer,
        &question[..50],
        &[0xff; 96],
        &[0; 2000],
    ] {
        socket.send_to(packet, ("127.0.0.1", port)).unwrap();
        let answer = socket.recv(&mut [0; 100]).map_err(|it| it.kind());
        assert_eq!(answer, Err(ErrorKind::WouldBlock), "{packet:?}");
    }
    // A plain client is served, also if a question announced Zerolane from its port.
    let near = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let from = near.local_addr().unwrap().port();
    drop(near);
    let own = socket.local_addr().unwrap().port();
    question[26..28].copy_from_slice(&from.to_le_bytes());
    question[28..30].copy_from_slice(&own.to_le_bytes());
    let mapped = "::ffff:127.0.0.1".parse::<std::net::Ipv6Addr>().unwrap();
    question[30..46].copy_from_slice(&mapped.octets());
    socket.send_to(&question, ("127.0.0.1", port)).unwrap();
    let mut answer = [0; 100];
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = socket.recv(&mut answer).unwrap();
    assert!(len <= question.len() && answer.starts_with(b"ZLsock1!"));
    for bound in [from, 0] {
        let mut stream = connect_from(bound, port);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"plain").unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"plain");
    }
    server.says("the client uses TCP");
}

/// Connects from a port of choice.
fn connect_from(from: u16, to: u16) -> TcpStream {
    use std::net::{Ipv4Addr, SocketAddrV4};
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let address = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    rustix::net::bind(&socket, &address(from)).unwrap();
    rustix::net::connect(&socket, &address(to)).unwrap();
    socket.into()
}
