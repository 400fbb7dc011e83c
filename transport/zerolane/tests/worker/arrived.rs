//! Tests that handles can read parts of requests in progress, and announcements.

use super::{PATIENCE, anywhere, content, region};
use netlab::udp::Relay;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane::worker::{ConnectionHandle, EndpointHandle, Worker, WorkerThread};
use zerolane::{Completion, Options, Region};

const LEN: usize = 6 << 20;

struct Ends {
    worker: WorkerThread,
    _endpoint: EndpointHandle,
    _relay: Relay,
    client: ConnectionHandle,
    server: ConnectionHandle,
}

/// Two ends over a link that loses and reorders.
fn ends(seed: u64) -> Ends {
    let bad = LinkConfig {
        delay: Duration::from_micros(500),
        loss: Loss::Random(0.01),
        reorder: Reorder {
            probability: 0.02,
            by: Duration::from_millis(1),
        },
        ..LinkConfig::default()
    };
    let worker = Worker::new()
        .expect("descriptors")
        .spawn()
        .expect("a thread");
    let endpoint = worker.listen(anywhere(), Options::default()).wait();
    let endpoint = endpoint.expect("a port");
    let relay = Relay::start(endpoint.local_addr(), bad, bad, seed).expect("relay");
    // Slow enough that the checking thread sees the arrival in progress.
    let slow = Options::default().with(|it| it.rate.max = Some(3 << 20));
    let client = worker.connect(relay.addr(), &slow);
    let client = client.wait().expect("connected");
    let server = endpoint.accept().wait().expect("accepted");
    Ends {
        worker,
        _endpoint: endpoint,
        _relay: relay,
        client,
        server,
    }
}

fn over(mut pending: zerolane::worker::Pending<Completion>) -> Completion {
    let ended = pending.wait_for(PATIENCE).expect("in time");
    ended.expect("posted")
}

#[test]
fn wait_arrived__and_share_arrived_show_what_is_there_while_the_rest_arrives() {
    let ends = ends(31);
    let expected = content(9, LEN);
    let receiving = ends.server.recv(Region::anonymous(LEN).expect("memory"));
    let id = receiving.id();
    assert_eq!(ends.server.arrived(id).wait().expect("open"), Some(0));
    let sending = ends.client.send(region(9, LEN));
    let (mut seen, mut parts) = (0, 0);
    loop {
        let mut more = ends.server.wait_arrived(id, seen);
        let more = more.wait_for(PATIENCE).expect("in time").expect("open");
        let Some(arrived) = more else { break };
        assert!(arrived > seen, "{arrived} beyond {seen}");
        if let Some(part) = ends.server.share_arrived(id).wait().expect("open") {
            assert!(part.len() as u64 >= arrived, "it never becomes less");
            assert!(part[seen as usize..] == expected[seen as usize..part.len()]);
            parts += 1;
        }
        seen = arrived;
    }
    assert!(parts >= 3, "{parts} parts before the end");
    let received = over(receiving);
    assert_eq!(received.result, Ok(LEN));
    let memory = received.into_memory().expect("it comes back");
    assert!(memory.as_slice() == Some(&expected[..]), "content");
    assert_eq!(over(sending).result, Ok(LEN));
    // It is over; and for a send nothing arrives.
    assert_eq!(ends.server.arrived(id).wait().expect("open"), None);
    let other = ends.client.recv(region(1, 8));
    assert_eq!(ends.server.arrived(other.id()).wait().expect("open"), None);
    let send = ends.client.send(region(1, 100_000));
    assert_eq!(
        ends.client.wait_arrived(send.id(), 0).wait().expect("open"),
        None
    );
    drop(ends.worker);
    assert!(ends.client.wait_arrived(other.id(), 0).wait().is_err());
}

/// Waits for a part end with the connection.
#[test]
fn wait_arrived__and_announced_end_with_the_connection() {
    let ends = ends(32);
    let receiving = ends.server.recv(region(1, 8));
    let waiting = ends.server.wait_arrived(receiving.id(), 0);
    let announced = ends.server.announced();
    ends.client.close().wait().expect("closed");
    assert!(!matches!(waiting.wait(), Ok(Some(_))));
    assert!(announced.wait().is_err());
    assert!(ends.server.announced().wait().is_err());
}

#[test]
fn announced__tells_the_length_of_what_no_receive_takes() {
    let ends = ends(33);
    // A wait that was given up takes nothing away.
    drop(ends.server.announced());
    for (seed, len) in [(1, 100_000), (2, 700), (3, 1 << 20)] {
        let mut before = ends.server.announced();
        assert!(before.wait_for(Duration::from_millis(1)).is_none());
        let sending = ends.client.send(region(seed, len));
        let told = before.wait_for(PATIENCE).expect("in time").expect("open");
        assert_eq!(told, len as u64);
        assert_eq!(ends.server.announced().wait().expect("open"), told);
        let into = Region::anonymous(told as usize).expect("memory");
        let received = over(ends.server.recv(into));
        assert!(
            received.into_region().expect("a region")[..] == content(seed, len),
            "content"
        );
        over(sending);
    }
}
