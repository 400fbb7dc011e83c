//! Tests that `zerolane serve` accepts a socket from systemd.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

use super::lab::*;

/// Starts the program with `variables`, and with this descriptor right after the standard ones.
fn with_passed(passed: impl Into<OwnedFd>, variables: &str) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("{variables} exec \"$@\" 3<&0 </dev/null");
    shell
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_zerolane")])
        .env("ZEROLANE_HOME", HOME)
        .env("ZEROLANE_CONFIG", "/dev/null")
        .stdin(Stdio::from(passed.into()));
    shell
}

const ONE: &str = "LISTEN_PID=$$ LISTEN_FDS=1";

/// A socket as systemd creates it.
fn bound() -> UdpSocket {
    let passed = UdpSocket::bind("127.0.0.1:0").unwrap();
    setsockopt(&passed, sockopt::ReuseAddr, &true).unwrap();
    passed
}

/// Serves on `passed`, which also stays open here, and copies in both directions.
fn serve_and_copy(passed: UdpSocket) {
    let address = passed.local_addr().unwrap().to_string();
    let mut lab = Lab::new(&[]);
    lab.server = None;
    fs::write(lab.local("a"), content(1, 3 * MIB)).unwrap();
    // A restarted server finds the socket, too.
    for round in 0..2 {
        let program = with_passed(passed.try_clone().unwrap(), ONE);
        // This address is not of this host, but the socket takes precedence.
        lab.start(program, &[], "192.0.2.1:1");
        assert_eq!(lab.address, address);
        let (there, back) = (format!("there{round}"), format!("back{round}"));
        succeed(lab.put(&[], "a", &there));
        succeed(lab.get(&[], &there, &back));
        assert!(fs::read(lab.local(&back)).unwrap() == content(1, 3 * MIB));
        lab.server = None;
    }
}

#[test]
fn activation__files_through_a_passed_socket() {
    serve_and_copy(bound());
}

#[test]
fn activation__the_socket_is_another_users() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let passed = bound();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    nix::unistd::fchown(&passed, Some(nobody.uid), None).unwrap();
    serve_and_copy(passed);
}

#[test]
fn activation__who_knocked_before_the_start_is_heard() {
    let passed = bound();
    let mut lab = Lab::new(&[]);
    lab.server = None;
    lab.address = passed.local_addr().unwrap().to_string();
    fs::write(lab.local("a"), b"early").unwrap();
    let mut copy = lab.put(&["--server-key", &own_key()], "a", "a");
    let copy = copy.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = Running(copy.spawn().unwrap());
    // The datagram waits in the socket, which is only peeked at here.
    passed.peek_from(&mut [0; 8]).unwrap();
    lab.start(with_passed(passed, ONE), &[], "127.0.0.1:1");
    let status = client.0.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(fs::read(lab.share("a")).unwrap(), b"early");
}

#[test]
fn activation__what_cannot_be_listened_on_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0";
    let connected = UdpSocket::bind(any).unwrap();
    connected.connect(connected.local_addr().unwrap()).unwrap();
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let unbound = socket(family, SockType::Datagram, flags, None).unwrap();
    let two = "exec 4<&-; LISTEN_PID=$$ LISTEN_FDS=2";
    for (passed, variables, words) in [
        (File::open("/dev/null").unwrap().into(), ONE, "not a socket"),
        (
            TcpListener::bind(any).unwrap().into(),
            ONE,
            "not a UDP socket: systemd makes one of ListenDatagram=",
        ),
        (
            UnixDatagram::unbound().unwrap().into(),
            ONE,
            "not an IPv4 or IPv6 socket: systemd makes one of ListenDatagram=",
        ),
        (OwnedFd::from(connected), ONE, "connected to 127.0.0.1:"),
        (unbound, ONE, "not bound to an address and a port"),
        (
            bound().into(),
            "exec 4<&0; LISTEN_PID=$$ LISTEN_FDS=2",
            "leave one ListenDatagram= in the .socket unit",
        ),
        (bound().into(), two, "LISTEN_FDS promises descriptor 4"),
        (
            bound().into(),
            "LISTEN_PID=$$ LISTEN_FDS=one",
            "LISTEN_FDS=\"one\" is not a number",
        ),
    ] {
        let mut serve = with_passed(passed, variables);
        serve.arg("serve").arg(base.path());
        fail(serve, 1, words);
    }
}

#[test]
fn activation__meant_for_another_process_means_nothing() {
    let passed = bound();
    let address = passed.local_addr().unwrap().to_string();
    let mut lab = Lab::new(&[]);
    lab.server = None;
    let program = with_passed(passed, "LISTEN_PID=1 LISTEN_FDS=1");
    lab.start(program, &[], "127.0.0.1:0");
    assert_ne!(lab.address, address);
}
