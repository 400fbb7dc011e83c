//! Tests that the end of a connection is told, also to a program that posted nothing on it.

use super::fork::in_a_child;
use super::handles::{pair, spawned};
use super::{PATIENCE, anywhere};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use zerolane::failure::CloseReason;
use zerolane::options::LaneChoice;
use zerolane::worker::{ConnectionHandle, Pending};
use zerolane::{Connection, Error, Options};

fn reason(mut closed: Pending<Error>) -> CloseReason {
    let ended = closed.wait_for(PATIENCE).expect("in time");
    match ended.expect("the worker lives") {
        Error::Closed(reason) => reason,
        other => panic!("{other}"),
    }
}

/// Gets the reason for which a function of the program is called.
fn called(connection: &ConnectionHandle) -> Receiver<String> {
    let (tell, told) = channel();
    connection.on_closed(move |reason| {
        let _ = tell.send(reason.to_string());
    });
    told
}

#[test]
fn closed__and_on_closed_tell_who_ended_it_also_afterwards() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (theirs, told) = (client.closed(), called(&client));
    let own = called(&server);
    drop(client.closed());
    let soon = client.closed().wait_for(Duration::from_millis(1));
    assert!(soon.is_none() && told.try_recv().is_err(), "it lives");
    server.close().wait().expect("closed");
    assert!(matches!(reason(theirs), CloseReason::Peer(_)));
    let words = told.recv_timeout(PATIENCE).expect("called");
    assert_eq!(Ok(&words), called(&client).recv_timeout(PATIENCE).as_ref());
    assert!(matches!(reason(client.closed()), CloseReason::Peer(_)));
    assert!(told.recv().is_err(), "once");
    // Also without a handle.
    own.recv_timeout(PATIENCE).expect("called");
}

#[test]
fn closed__is_refused_and_on_closed_called_if_the_worker_ends_first() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (waiting, told) = (client.closed(), called(&client));
    let released = called(&server);
    let server = server.release().wait().expect("idle");
    assert!(released.recv_timeout(PATIENCE).is_ok());
    drop(worker);
    waiting.wait().expect_err("no answer comes");
    assert!(told.recv_timeout(PATIENCE).is_ok());
    assert!(called(&client).recv_timeout(PATIENCE).is_ok());
    drop(server);
}

#[test]
fn on_closed__is_not_called_in_a_child_of_fork() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let told = called(&client);
    in_a_child(|| assert!(called(&client).recv().is_err(), "dropped without a call"));
    assert!(told.try_recv().is_err());
    drop(server);
    told.recv_timeout(PATIENCE).expect("called");
}

#[test]
fn keep_alive__ends_an_idle_connection_whose_peer_makes_no_call() {
    let watching = Options::default().with(|it| {
        it.lane.choice = LaneChoice::Udp;
        it.times.idle = Duration::from_millis(500);
        it.times.keep_alive = true;
    });
    let worker = spawned();
    let endpoint = worker.listen(anywhere(), watching).wait();
    let endpoint = endpoint.expect("a port");
    let calm = Options::default().with(|it| it.lane.choice = LaneChoice::Udp);
    let silent = Connection::connect(endpoint.local_addr(), &calm).expect("connected");
    let server = endpoint.accept().wait().expect("accepted");
    assert_eq!(reason(server.closed()), CloseReason::PeerDead);
    drop(silent);
}

const SERVER: &str = "ZEROLANE_TEST_WATCHED_SERVER";
const LANE: &str = "ZEROLANE_TEST_WATCHED_LANE";

/// Not a test: a process that the next test starts, and kills.
#[test]
fn child__is_idle_until_killed() {
    let Ok(server) = std::env::var(SERVER) else {
        return;
    };
    let options = Options::default().with(|it| {
        it.lane.choice = match std::env::var(LANE).as_deref() {
            Ok("udp") => LaneChoice::Udp,
            _ => LaneChoice::Best,
        }
    });
    let worker = spawned();
    let server: SocketAddr = server.parse().expect("an address");
    let connection = worker.connect(server, &options).wait();
    let connection = connection.expect("connected");
    // The parent kills it; its end must not leave the process behind.
    let _ = connection.closed().wait_for(4 * PATIENCE);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn peer__killed_while_idle_is_told() {
    for (lane, keep_alive) in [("udp", true), ("best", false)] {
        let watching = Options::default().with(|it| {
            it.times.idle = Duration::from_secs(5);
            it.times.keep_alive = keep_alive;
        });
        let worker = spawned();
        let endpoint = worker.listen(anywhere(), watching).wait();
        let endpoint = endpoint.expect("a port");
        let mut command = Command::new(std::env::current_exe().expect("known"));
        command.args(["--exact", "ended::child__is_idle_until_killed"]);
        command.env(SERVER, endpoint.local_addr().to_string());
        command.env(LANE, lane).stdout(Stdio::null());
        let mut child = Killed(command.spawn().expect("the test itself"));
        let accepted = endpoint.accept().wait_for(PATIENCE).expect("in time");
        let accepted = accepted.expect("accepted");
        let mut closed = accepted.closed();
        assert!(closed.wait_for(Duration::from_millis(50)).is_none());
        child.0.kill().expect("killed");
        let why = reason(closed);
        let dead = matches!(why, CloseReason::PeerDead | CloseReason::Unreachable);
        assert!(dead, "{lane}: {why:?}");
    }
}
