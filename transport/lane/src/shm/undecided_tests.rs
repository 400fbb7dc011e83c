//! Tests that an Initiator that a rendezvous does not admit continues by UDP.
#![allow(non_snake_case)]

use super::*;
use crate::address::LaneChoice;
use crate::any::AnyLane;
use crate::driver::{Report, Step};
use crate::listener::Listener;
use crate::memory::Region;
use crate::seal::Security;
use crate::shm::rendezvous::{BACKLOG, Rendezvous};
use crate::shm::tests::{End, PATIENCE, content, drive, post, received, region};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, SockAddr, Socket, Type};
use zerolane_core::{Delivery, WorkRequest};

fn options(lane: LaneChoice) -> Options {
    Options::default().with(|it| {
        it.lane.choice = lane;
        it.security = Security::plain();
        // An Initiator that is not admitted waits half of it.
        it.times.connect = Duration::from_secs(40);
    })
}

fn listen(lane: LaneChoice) -> Listener {
    Listener::bind(([127, 0, 0, 1], 0).into(), options(lane)).expect("listening")
}

/// A listener by UDP, and a separate rendezvous for its address.
fn apart() -> (Listener, Rendezvous) {
    let listener = listen(LaneChoice::Udp);
    let rendezvous = Rendezvous::listen(listener.local_addr(), None).expect("free");
    (listener, rendezvous)
}

fn connect(to: SocketAddr) -> End {
    crate::any::connect(to, &options(LaneChoice::Best)).expect("met")
}

/// Turns `a` until it goes by UDP. Returns why.
fn gives_up(a: &mut End) -> NoSharedMemory {
    for _ in 0..PATIENCE {
        a.turn(Step::Whole).expect("no error");
        if let AnyLane::Datagram(_, why) = a.lane() {
            return why.expect("it was asked for");
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("it waits");
}

/// The single connection that comes to `listener`, once it is established.
fn accept(a: &mut End, listener: &mut Listener) -> End {
    let accepted = (0..PATIENCE).find_map(|_| {
        a.turn(Step::Whole).expect("asking");
        listener.accept(Some(Duration::ZERO)).expect("accepting")
    });
    let mut b = accepted.expect("asked");
    drive(a, &mut b, |a, b| a.is_connected() && b.is_connected());
    for _ in 0..100 {
        let another = listener.accept(Some(Duration::ZERO));
        assert!(another.expect("accepting").is_none(), "one is enough");
    }
    b
}

/// Requests posted before the decision arrive, and later ones as well.
fn goes_by_udp(mut a: End, listener: &mut Listener, early: &[u8]) {
    let mut b = accept(&mut a, listener);
    assert_eq!(b.account().lane, LaneKind::Udp);
    let place = Region::anonymous(early.len()).expect("memory");
    b.post_target(WorkRequest::Receive, Report::default(), place)
        .expect("posted");
    drive(&mut a, &mut b, |a, b| {
        a.has_completion() && b.has_completion()
    });
    assert!(received(&mut b)[..] == early[..], "content");
    let sent = a.next_completion().expect("sent");
    assert_eq!(sent.result, Ok(early.len() as u64));
    let late = content(3 << 20);
    post(&mut b, &mut a, &late);
    drive(&mut a, &mut b, |a, _| a.has_completion());
    assert!(received(&mut a)[..] == late[..], "content");
}

fn post_early(a: &mut End, early: &[u8]) {
    let delivery = Delivery::Interrupt;
    let send = WorkRequest::Send { delivery };
    a.post_source(send, Report::default(), region(early).into())
        .expect("posted");
}

#[test]
fn undecided__where_nobody_lets_it_in_it_goes_by_udp() {
    let (mut listener, rendezvous) = apart();
    let early = content(300_000);
    let mut a = connect(listener.local_addr());
    post_early(&mut a, &early);
    assert_eq!(gives_up(&mut a), NoSharedMemory::NotAdmitted);
    goes_by_udp(a, &mut listener, &early);
    drop(rendezvous);
}

#[test]
fn undecided__where_it_is_turned_away_it_goes_by_udp() {
    let (mut listener, rendezvous) = apart();
    let early = content(50);
    let mut a = connect(listener.local_addr());
    post_early(&mut a, &early);
    a.turn(Step::Whole).expect("asking");
    drop(rendezvous.accept().expect("accepting").expect("it waits"));
    assert_eq!(gives_up(&mut a), NoSharedMemory::Rejected);
    goes_by_udp(a, &mut listener, &early);
}

/// A listener that checks after the Initiator has left makes no connection of the messages there.
#[test]
fn undecided__what_left_is_one_connection_by_udp() {
    let mut listener = listen(LaneChoice::Best);
    let mut a = connect(listener.local_addr());
    a.turn(Step::Whole).expect("asking");
    assert_eq!(gives_up(&mut a), NoSharedMemory::NotAdmitted);
    let early = content(9000);
    post_early(&mut a, &early);
    goes_by_udp(a, &mut listener, &early);
    assert!(listener.counters().refused > 0, "it came, and left");
}

/// An Initiator that was admitted waits, however slow the listener's program is.
#[test]
fn undecided__what_was_let_in_stays() {
    let mut listener = listen(LaneChoice::Best);
    let mut a = connect(listener.local_addr());
    // The listener has taken the memory and not answered yet.
    for _ in 0..10 {
        assert!(matches!(
            listener.try_accept().expect("looking"),
            crate::listener::Accept::Unauthenticated | crate::listener::Accept::Nothing
        ));
    }
    a.turn(Step::Whole).expect("asking");
    std::thread::sleep(Duration::from_millis(1200));
    a.turn(Step::Whole).expect("asking");
    let b = accept(&mut a, &mut listener);
    assert_eq!(b.account().lane, LaneKind::SharedMemory);
    assert!(!a.lane().is_undecided());
}

/// As many processes wait as may.
#[test]
fn connect__where_no_more_may_wait_is_by_udp_or_an_error() {
    let (mut listener, rendezvous) = apart();
    let to = listener.local_addr();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard one");
    let at = SockAddr::unix(rendezvous.path()).expect("short");
    let waiting: Vec<_> = (0..=BACKLOG + 1)
        .map_while(|_| {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            socket.set_nonblocking(true).expect("open");
            socket.connect(&at).ok().map(|()| socket)
        })
        .collect();
    assert!(waiting.len() <= BACKLOG as usize + 1, "more than may");
    let mut a = connect(to);
    assert_eq!(
        a.account().no_shared_memory,
        Some(NoSharedMemory::QueueFull)
    );
    let insisting = crate::any::connect(to, &options(LaneChoice::SharedMemory));
    let error = insisting.expect_err("no room").to_string();
    assert!(error.contains("too many processes wait"), "{error}");
    let early = content(5000);
    post_early(&mut a, &early);
    goes_by_udp(a, &mut listener, &early);
}

/// Options that shared memory does not support.
#[test]
fn connect__where_the_options_rule_shared_memory_out_is_by_udp() {
    let mut listener = listen(LaneChoice::Best);
    let to = listener.local_addr();
    let several = options(LaneChoice::Best).with(|it| it.paths.most = 2);
    let linked = options(LaneChoice::Best)
        .with(|it| it.paths.links = vec![crate::address::PathAddresses::default()]);
    for wanted in [several, linked] {
        let mut a = crate::any::connect(to, &wanted).expect("connecting");
        assert_eq!(a.account().no_shared_memory, Some(NoSharedMemory::Paths));
        assert_eq!(accept(&mut a, &mut listener).account().lane, LaneKind::Udp);
        let insisting = wanted.with(|it| it.lane.choice = LaneChoice::SharedMemory);
        let error = crate::any::connect(to, &insisting).expect_err("one path");
        assert!(error.to_string().contains("several paths"), "{error}");
    }
    let enciphering = options(LaneChoice::Best).with(|it| {
        it.security = Security {
            cipher: Some(zerolane_handshake::Cipher::ChaCha20Poly1305),
            ..Security::default()
        }
    });
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(any, enciphering.clone()).expect("by UDP");
    assert_eq!(listener.no_shared_memory(), Some(NoSharedMemory::Cipher));
    let insisting = enciphering.with(|it| it.lane.choice = LaneChoice::SharedMemory);
    Listener::bind(any, insisting).expect_err("nothing is left");
}
