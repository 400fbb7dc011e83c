//! Tests that hosts of one kernel with separate networks, such as containers, meet by a name or use UDP.

use crate::{LEN, PATIENCE, accept, content};
use netlab::netns::{self, Topology};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use zerolane::counters::{LaneKind, NoSharedMemory};
use zerolane::options::{LaneChoice, RendezvousName};
use zerolane::{Connection, Endpoint, Options};

/// A name for this process alone, so that other processes' tests do not use it.
fn name(what: &str) -> RendezvousName {
    let name = format!("{what}-{}", std::process::id());
    name.parse().expect("a name")
}

fn options(rendezvous: Option<RendezvousName>) -> Options {
    Options::default().with(|it| {
        it.lane.rendezvous = rendezvous;
        it.lane.choice = LaneChoice::Best;
        it.times.connect = PATIENCE;
    })
}

/// The lane of a connection from one network to another, and why it is not shared memory, after [`LEN`] verified bytes.
/// `None` if namespaces are not permitted.
fn met_by(
    listener: Option<RendezvousName>,
    initiator: Option<RendezvousName>,
) -> Option<(LaneKind, Option<NoSharedMemory>)> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    let hosts = Topology::pairs("shm", 1500, 1).expect("permitted");
    let (a, b) = (hosts.a(), hosts.b());
    let (tell, told) = channel::<SocketAddr>();
    let receiving = || {
        b.enter().expect("enter");
        let at = SocketAddr::from((b.ipv4(), 0));
        let mut endpoint = Endpoint::bind(at, options(listener)).expect("bind");
        tell.send(endpoint.local_addr()).expect("heard");
        let mut connection = accept(&mut endpoint);
        let mut buffer = vec![0; LEN];
        connection.recv_into(&mut buffer).expect("received");
        assert!(buffer == content(7, LEN), "other bytes than were sent");
        connection.account().lane
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(receiving);
        let to = told.recv_timeout(PATIENCE).expect("listening");
        let sent = a.enter_thread(|| {
            let mut connection = Connection::connect(to, &options(initiator)).expect("connected");
            connection.send(&content(7, LEN)).expect("sent");
            let account = connection.account();
            (account.lane, account.no_shared_memory)
        });
        let sent = sent.expect("enter");
        assert_eq!(receiver.join().expect("received"), sent.0);
        Some(sent)
    })
}

#[test]
fn networks__of_one_kernel_meet_in_shared_memory_by_a_name() {
    let name = name("met");
    // A listener that is suspended for a second admits no client: such an attempt is repeated.
    let late = (LaneKind::Udp, Some(NoSharedMemory::NotAdmitted));
    let mut tries = (0..10).map(|_| met_by(Some(name.clone()), Some(name.clone())));
    let met = tries.find(|met| *met != Some(late));
    if let Some(met) = met.expect("a listener that runs") {
        assert_eq!(met, (LaneKind::SharedMemory, None));
    }
}

#[test]
fn networks__with_one_name_too_few_or_another_go_by_udp() {
    let by_udp = |why| (LaneKind::Udp, Some(why));
    let tries = [
        (None, None, NoSharedMemory::NotLocal),
        (Some(name("one")), None, NoSharedMemory::NotLocal),
        (None, Some(name("one")), NoSharedMemory::NoListener),
        (
            Some(name("one")),
            Some(name("other")),
            NoSharedMemory::NoListener,
        ),
    ];
    for (listener, initiator, why) in tries {
        if let Some(met) = met_by(listener, initiator) {
            assert_eq!(met, by_udp(why));
        }
    }
}

#[test]
fn name__of_a_rendezvous_is_no_path() {
    for bad in [
        "",
        ".",
        "..",
        "a/b",
        "/x",
        "-a",
        "+a",
        "a\0b",
        &"n".repeat(64),
    ] {
        assert!(bad.parse::<RendezvousName>().is_err(), "{bad:?}");
    }
    for good in ["a", "7", "job.42_x-y", &"n".repeat(63)] {
        assert!(good.parse::<RendezvousName>().is_ok(), "{good:?}");
    }
}

/// The second listens by UDP alone, because the name belongs to the first.
#[test]
fn name__is_of_one_listener_at_a_time() {
    let name = name("single");
    let listen = || Endpoint::bind("127.0.0.1:0", options(Some(name.clone()))).expect("a port");
    let first = listen();
    let second = listen();
    assert_eq!(first.no_shared_memory(), None);
    assert_eq!(second.no_shared_memory(), Some(NoSharedMemory::System));
    drop(first);
    assert_eq!(listen().no_shared_memory(), None);
}
