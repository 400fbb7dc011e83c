//! Tests that a server at its limit of connections, per address and in total, refuses more.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::lab::*;

/// The limit of connections from one address.
const OF_ADDRESS: usize = 24;

#[test]
fn ls__a_full_server_says_busy_until_a_client_goes() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("a"), content(1, 8 * MIB)).unwrap();
    let list = || {
        let mut ls = zerolane();
        ls.arg("ls").arg(lab.there(""));
        ls
    };
    let clients = receiving(&lab, OF_ADDRESS, |client| {
        lab.get(&LIMIT, "a", &client.to_string())
    });
    fail(list(), 8, "the peer is at its limit");
    // Even a client that could resume does not wait for the first connection.
    fail(lab.get(&[], "a", "last"), 8, "the peer is at its limit");
    still_there(clients);
    eventually("there is a place again", || {
        (run(list()).0 == 0).then_some(())
    });
}

/// Starts this many clients, each receiving its own copy under its number. Staggered, because each has only some
/// seconds to connect.
fn receiving(lab: &Lab, clients: usize, copy: impl Fn(usize) -> Command) -> Vec<Running> {
    let local = lab.local("");
    let start = |client: usize| {
        let mut slow = copy(client);
        let quiet = slow.stdout(Stdio::null()).stderr(Stdio::null());
        let started = Running(quiet.spawn().unwrap());
        eventually("it receives", || {
            part(&local, &client.to_string()).map(|_| ())
        });
        started
    };
    (0..clients).map(start).collect()
}

/// Ends clients, asserting that none was refused.
fn still_there(clients: Vec<Running>) {
    for mut client in clients {
        assert_eq!(client.0.try_wait().unwrap(), None, "one was turned away");
    }
}

/// With this rate each copy takes minutes.
const LIMIT: [&str; 2] = ["--limit", "16KiB/s"];

/// The limit of connections in total.
const IN_ALL: usize = 32;

/// Forwards between one client and the server, which sees another host, until the flow falls silent.
fn from_elsewhere(server: SocketAddr) -> SocketAddr {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.2:0").unwrap();
    back.connect(server).unwrap();
    for socket in [&front, &back] {
        let quiet = Some(Duration::from_secs(60));
        socket.set_read_timeout(quiet).unwrap();
    }
    let address = front.local_addr().unwrap();
    let (answers, to_client) = (back.try_clone().unwrap(), front.try_clone().unwrap());
    thread::spawn(move || {
        let mut datagram = vec![0; 1 << 16];
        let mut is_connected = false;
        while let Ok((len, client)) = front.recv_from(&mut datagram) {
            if !is_connected {
                front.connect(client).unwrap();
                is_connected = true;
            }
            let _ = back.send(&datagram[..len]);
        }
    });
    thread::spawn(move || {
        let mut datagram = vec![0; 1 << 16];
        while let Ok(len) = answers.recv(&mut datagram) {
            let _ = to_client.send(&datagram[..len]);
        }
    });
    address
}

#[test]
fn cp__a_server_with_32_connections_tells_the_next_one_so() {
    let lab = Lab::new(&["--anyone"]);
    fs::write(lab.share("a"), content(1, 8 * MIB)).unwrap();
    // Separate keys and known hosts, because each relay counts as another server.
    let home = tempfile::tempdir().unwrap();
    let server: SocketAddr = lab.address.parse().unwrap();
    let get = |client: usize, options: &[&str]| -> Command {
        let address = match client {
            ..OF_ADDRESS => server,
            _ => from_elsewhere(server),
        };
        let mut slow = zerolane();
        slow.env("ZEROLANE_HOME", home.path());
        slow.arg("cp").args(options);
        slow.arg(format!("{address}:a"));
        slow.arg(lab.local(&client.to_string()));
        slow
    };
    let clients = receiving(&lab, IN_ALL, |client| get(client, &LIMIT));
    for options in [&LIMIT[..], &[]] {
        // A server waits only briefly for the request of a client that it refuses.
        eventually("it is told so", || {
            let (code, _, err) = run(get(IN_ALL, options));
            (code == 8 && err.contains("has too many connections")).then_some(())
        });
    }
    still_there(clients);
}
