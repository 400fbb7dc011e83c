//! Tests that ends notice absent listeners, and peers that vanish, sleep, or never speak.

use crate::content;
use crate::drive::{PATIENCE, both, idle, next, receive_all, transfer};
use crate::path::{Pair, Path, plain};
use netsim::Side;
use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerolane::advanced::{Offer, Read};
use zerolane::failure::{CloseReason, Reason, TransferError};
use zerolane::options::{Profile, Profiles};
use zerolane::{Connection, Endpoint, Error, Options, Region, RequestId};
use zerolane_wire::{
    Capabilities, ConnectionAnswer, ConnectionVerdict, Eager, Operation, Packet, RequestConnection,
    Route,
};

/// Options for peers that fall silent.
fn impatient() -> Options {
    silent_for(Duration::from_millis(600))
}

/// Ends that give up a silent peer after this time, and may take longer to connect.
fn silent_for(idle_timeout: Duration) -> Options {
    Options::default().with(|it| {
        it.times.idle = idle_timeout;
        it.times.connect = PATIENCE;
    })
}

/// Options for peers that never answer.
fn hasty() -> Options {
    Options::default().with(|it| it.times.connect = Duration::from_millis(300))
}

#[test]
fn connect__to_a_closed_port_is_refused_before_the_timeout() {
    let free = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = free.local_addr().expect("bound");
    drop(free);
    let patient = Options::default().with(|it| it.times.connect = PATIENCE);
    let error = Connection::connect(address, &patient).expect_err("nothing listens there");
    assert!(
        matches!(error, Error::Closed(CloseReason::Unreachable)),
        "{error}"
    );
}

#[test]
fn connect__to_a_silent_socket_times_out() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = silent.local_addr().expect("bound");
    let error = Connection::connect(address, &hasty()).expect_err("silent");
    assert!(matches!(error, Error::ConnectTimeout(_)), "{error}");
}

#[test]
fn connect__to_something_else_times_out() {
    let other = UdpSocket::bind("127.0.0.1:0").expect("bind");
    other
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("set");
    let address = other.local_addr().expect("bound");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let Ok((len, from)) = other.recv_from(&mut buffer) else {
                    continue;
                };
                // The request itself, half of it, nothing, and a message of another protocol.
                for answer in [
                    &buffer[..len],
                    &buffer[..len / 2],
                    &[],
                    b"HTTP/1.1 400\r\n\r\n",
                ] {
                    other.send_to(answer, from).expect("sent");
                }
            }
        });
        let error = Connection::connect(address, &hasty()).expect_err("not Zerolane");
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(error, Error::ConnectTimeout(_)), "{error}");
    });
}

fn speaks(profile: Profile) -> Options {
    Options::default().with(|it| it.profiles = Profiles::only(profile))
}

#[test]
fn connect__without_a_common_profile_is_rejected_with_words() {
    is_rejected(speaks(Profile::Classic), speaks(Profile::Extended));
}

/// An end that did not request the classic profile never gets it.
#[test]
fn connect__classic_is_rejected_by_an_end_that_did_not_ask_for_it() {
    is_rejected(Options::default(), speaks(Profile::Classic));
    is_rejected(speaks(Profile::Classic), Options::default());
    is_rejected(
        plain(),
        speaks(Profile::Classic).with(|it| it.security = plain().security),
    );
}

/// Tests that an endpoint refuses a connection without a common profile, and reports that.
fn is_rejected(accepting: Options, connecting: Options) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", accepting).expect("bind");
    let address = endpoint.local_addr();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || {
            let result = Connection::connect(address, &connecting);
            stop.store(true, Ordering::Relaxed);
            result
        });
        while !stop.load(Ordering::Relaxed) {
            let accepted = endpoint.accept(Some(Duration::from_millis(10)));
            assert!(accepted.expect("the socket works").is_none());
        }
        let error = connecting
            .join()
            .expect("no panic")
            .expect_err("nothing in common");
        let says = error.to_string();
        let Error::Closed(CloseReason::Rejected { reason, .. }) = error else {
            panic!("{error}");
        };
        assert_eq!(reason, Reason::NoCommonProfile);
        assert!(says.contains("both ends must ask for classic"), "{says}");
    });
}

#[test]
fn accept__times_out_and_ignores_unauthenticated_datagrams() {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).expect("bind");
    let unauthenticated = UdpSocket::bind("127.0.0.1:0").expect("bind");
    for len in [0, 1, 39, 40, 72, 73, 1400] {
        let bytes = vec![len as u8; len];
        unauthenticated
            .send_to(&bytes, endpoint.local_addr())
            .expect("sent");
    }
    let accepted = endpoint.accept(Some(Duration::from_millis(20)));
    assert!(accepted.expect("the socket works").is_none());
}

#[test]
fn wait__times_out() {
    let pair = Path::LoopbackV4.connect(&Options::default());
    let mut pair = pair.expect("always permitted");
    let short = Some(Duration::from_millis(5));
    assert!(pair.a.wait(short).expect("connected").got().is_none());
    assert!(pair.a.announced(short).expect("connected").got().is_none());
    assert!(pair.a.poll().expect("connected").is_none());
    transfer(&mut pair, 1, &[10]);
}

#[test]
fn waker__ends_this_wait_or_the_next() {
    let pair = Path::LoopbackV4.connect(&Options::default());
    let mut pair = pair.expect("always permitted");
    let waker = pair.a.waker();
    waker.wake();
    assert!(
        pair.a
            .wait(Some(PATIENCE))
            .expect("connected")
            .got()
            .is_none(),
        "the next"
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert!(
            pair.a.wait(None).expect("connected").got().is_none(),
            "this"
        );
    });
    transfer(&mut pair, 1, &[10]);
}

/// Posts sends, receives, a Read and an offer that will get no answer.
fn post_some(connection: &mut Connection) -> HashSet<RequestId> {
    let memory = || Region::anonymous(4 << 20).expect("memory");
    let mut posted = HashSet::new();
    for _ in 0..3 {
        posted.insert(connection.post_send(memory()).expect("posted"));
        posted.insert(connection.post_recv(memory()).expect("posted"));
    }
    posted.insert(connection.post(Read::new(memory())).expect("posted"));
    posted.insert(connection.post(Offer::new(memory())).expect("posted"));
    posted
}

/// Tests that every posted request fails exactly once because the connection ended, and that later calls return the
/// reason.
#[track_caller]
fn assert_all_fail(connection: &mut Connection, mut posted: HashSet<RequestId>) -> CloseReason {
    loop {
        match connection.wait(Some(PATIENCE)).map(zerolane::Waited::got) {
            Ok(Some(it)) => {
                assert!(posted.remove(&it.id), "{:?} twice", it.id);
                assert!(
                    matches!(it.result, Err(TransferError::Closed(_))),
                    "{:?}",
                    it.result
                );
                // The memory came back.
                assert_eq!(it.into_region().expect("a region").len(), 4 << 20);
            }
            Err(Error::Closed(reason)) => {
                assert!(posted.is_empty(), "never completed: {posted:?}");
                assert_eq!(connection.in_flight(), 0);
                return reason;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn assert_gone(reason: CloseReason) {
    assert!(
        matches!(reason, CloseReason::PeerDead | CloseReason::Unreachable),
        "{reason}"
    );
}

#[test]
fn peer__dropped_without_close_says_so() {
    for path in [
        Path::LoopbackV4,
        Path::LoopbackV6,
        Path::Shared,
        Path::Veth(1500),
        Path::Ethernet(1500),
        Path::Ip118(1500),
    ] {
        let Some(Pair { mut a, b, net }) = path.connect(&impatient()) else {
            continue;
        };
        let posted = post_some(&mut a);
        drop(b);
        let reason = assert_all_fail(&mut a, posted);
        assert_eq!(reason, CloseReason::Peer(Reason::GoingAway));
        assert!(
            a.post_recv(Region::from_vec(vec![0; 8])).is_err(),
            "it is over"
        );
        drop(net);
    }
}

/// The peer is connected once it has the answer. This end has not seen that yet.
#[test]
fn peer__dropped_after_its_first_call_says_so() {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", impatient()).expect("bind");
    let address = endpoint.local_addr();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || Connection::connect(address, &impatient()));
        let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
        let mut b = accepted.expect("a client connects");
        assert!(b.poll().expect("the answer leaves").is_none());
        let mut a = connecting.join().expect("no panic").expect("connected");
        let posted = post_some(&mut a);
        drop(b);
        let reason = assert_all_fail(&mut a, posted);
        assert_eq!(reason, CloseReason::Peer(Reason::GoingAway));
    });
}

#[test]
fn peer__that_never_calls_again_is_dead_after_the_idle_timeout() {
    for path in [
        Path::LoopbackV4,
        Path::LoopbackV6,
        Path::Shared,
        Path::Veth(1500),
        Path::Ethernet(1500),
        Path::Ip118(1500),
    ] {
        let Some(Pair { mut a, b, net }) = path.connect(&impatient()) else {
            continue;
        };
        let posted = post_some(&mut a);
        // Its socket stays open and is not read.
        std::mem::forget(b);
        assert_eq!(assert_all_fail(&mut a, posted), CloseReason::PeerDead);
        assert!(
            a.post_recv(Region::from_vec(vec![0; 8])).is_err(),
            "it is over"
        );
        drop(net);
    }
}

#[test]
fn peer__behind_a_cut_link_is_dead_after_the_idle_timeout() {
    let Some(Pair { mut a, b, net }) = Path::Veth(1500).connect(&impatient()) else {
        return;
    };
    let posted = post_some(&mut a);
    net.hosts().set_link_up(Side::B, false).expect("set");
    assert_gone(assert_all_fail(&mut a, posted));
    drop(b);
}

const PEER: &str = "ZEROLANE_TEST_PEER";

/// Not a test: the process that the next test kills.
#[test]
fn child__streams_until_killed() {
    let Ok(address) = std::env::var(PEER) else {
        return;
    };
    let address: SocketAddr = address.parse().expect("an address");
    let mut connection = Connection::connect(address, &Options::default()).expect("connect");
    let shared = content::region(1, 4 << 20).share();
    // Ends by itself if it is not killed: the parent's death ends the connection.
    while connection.post_send(shared.clone()).is_ok() {
        if !matches!(
            connection.wait(Some(PATIENCE)).map(zerolane::Waited::got),
            Ok(Some(_))
        ) {
            return;
        }
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn peer__killed_process_is_noticed() {
    // The child may be suspended for a while before it is killed.
    let options = silent_for(Duration::from_secs(10));
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options).expect("bind");
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", "death::child__streams_until_killed"]);
    command.env(PEER, endpoint.local_addr().to_string());
    command.stdout(std::process::Stdio::null());
    let mut child = Killed(command.spawn().expect("the test itself"));
    let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
    let mut connection = accepted.expect("the child connects");
    receive_all(&mut connection, 1, &[4 << 20]);
    let posted = post_some(&mut connection);
    // SIGKILL: no destructor of the child runs.
    child.0.kill().expect("killed");
    let mut posted = posted;
    let reason = loop {
        match connection.wait(Some(PATIENCE)).map(zerolane::Waited::got) {
            // Payload in flight may still have arrived.
            Ok(Some(it)) if it.result.is_ok() => {
                assert!(posted.remove(&it.id));
                content::verify(1, &it.into_region().expect("a region"));
            }
            Ok(Some(it)) => assert!(posted.remove(&it.id), "{it:?}"),
            Err(Error::Closed(reason)) => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(posted.is_empty(), "never completed: {posted:?}");
    assert_gone(reason);
}

#[test]
fn peer__that_sleeps_less_than_the_idle_timeout_comes_back() {
    let options = Options::default().with(|it| it.times.idle = Duration::from_secs(10));
    for path in [
        Path::LoopbackV4,
        Path::Shared,
        Path::Veth(1500),
        Path::Ethernet(1500),
        Path::Ip118(1500),
        Path::Lossy(0.05),
    ] {
        let Some(mut pair) = path.connect(&options) else {
            continue;
        };
        let len = path.scale(32 << 20);
        let sends = |a: &mut Connection| {
            a.post_send(content::region(1, len)).expect("posted");
            for _ in 0..3 {
                let _ = a.poll().expect("connected");
            }
            std::thread::sleep(Duration::from_millis(300));
            next(a).result.expect("sent");
        };
        let receives = |b: &mut Connection| {
            b.post_recv(Region::anonymous(len).expect("memory"))
                .expect("posted");
            while b.account().protocol.bytes_received == 0 {
                assert!(b.poll().expect("connected").is_none());
            }
            std::thread::sleep(Duration::from_millis(700));
            let completion = next(b);
            assert_eq!(completion.result, Ok(len));
            content::verify(1, &completion.into_region().expect("a region"));
        };
        both(&mut pair, sends, receives);
        transfer(&mut pair, 2, &[1000]);
    }
}

#[test]
fn connection__outlives_silence_when_nothing_is_posted() {
    // The following requests take less on any machine.
    let timeout = Duration::from_secs(2);
    let pair = Path::LoopbackV4.connect(&silent_for(timeout));
    let mut pair = pair.expect("always permitted");
    // Twice the idle timeout without a call at either end, then at one end only.
    std::thread::sleep(2 * timeout);
    idle(&mut pair.a, Duration::from_millis(100));
    transfer(&mut pair, 1, &[100_000]);
}

#[test]
fn close__without_a_peer_ends_with_an_error() {
    let pair = Path::LoopbackV4.connect(&impatient());
    let Pair { mut a, b, net } = pair.expect("always permitted");
    a.post_send(content::region(1, 1 << 20)).expect("posted");
    drop(b);
    let closed = a.close();
    assert!(closed.is_err(), "{closed:?}");
    drop(net);
}

/// The port that endpoints listen on, within the protocol.
const SERVICE_PORT: u16 = 1;

/// A version that no end speaks yet.
const LATER: u8 = 200;

#[test]
fn connect__to_another_version_is_refused_with_words() {
    let scripted = UdpSocket::bind("127.0.0.1:0").expect("bind");
    scripted.set_read_timeout(Some(PATIENCE)).expect("set");
    let address = scripted.local_addr().expect("bound");
    let answering = std::thread::spawn(move || {
        let mut buffer = [0; 256];
        let (len, from) = scripted.recv_from(&mut buffer).expect("a request");
        let request = Packet::parse(&buffer[..len]).expect("well-formed");
        let Operation::RequestConnection(asked) = request.operation else {
            panic!("{request:?}");
        };
        let answer = Packet {
            route: Route {
                d_port: request.route.s_port,
                s_port: request.route.d_port,
                d_key: asked.s_key,
            },
            operation: Operation::ConnectionAnswer(ConnectionAnswer {
                verdict: ConnectionVerdict::Reject {
                    reason: Reason::VersionMismatch,
                    version_min: LATER,
                    version_max: LATER,
                },
                sync: asked.sync,
            }),
        };
        let (bytes, len) = answer.emit();
        scripted.send_to(&bytes[..len], from).expect("sent");
    });
    let error = Connection::connect(address, &plain()).expect_err("another version");
    answering.join().expect("no panic");
    let says = error.to_string();
    assert!(
        says.contains("the peer speaks protocol versions 200 to 200"),
        "{says}"
    );
}

#[test]
fn accept__refuses_another_version_with_words_and_goes_on() {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", plain()).expect("bind");
    let scripted = UdpSocket::bind("127.0.0.1:0").expect("bind");
    scripted.set_read_timeout(Some(PATIENCE)).expect("set");
    let capabilities = Capabilities {
        profiles: Profiles::BOTH,
        checksum: false,
        out_of_order: true,
        persistent: false,
        slots: 4,
        max_stu: 1000,
        buffer_log2: 32,
        eager: Eager::NONE,
        frames: false,
        advance_grants: false,
        advance_messages: false,
        datagrams: false,
        paths: 1,
    };
    let request = Packet {
        route: Route {
            d_port: SERVICE_PORT,
            s_port: 7,
            ..Route::default()
        },
        operation: Operation::RequestConnection(RequestConnection {
            version_min: LATER,
            version_max: LATER,
            capabilities,
            s_key: 0x1234_5678,
            sync: 9,
        }),
    };
    let (bytes, len) = request.emit();
    scripted
        .send_to(&bytes[..len], endpoint.local_addr())
        .expect("sent");
    let accepted = endpoint.accept(Some(Duration::from_millis(200)));
    assert!(accepted.expect("the socket works").is_none());
    let mut buffer = [0; 256];
    let answered = scripted.recv(&mut buffer).expect("an answer");
    assert!(answered <= len, "no amplification");
    let answer = Packet::parse(&buffer[..answered]).expect("well-formed");
    let Operation::ConnectionAnswer(ConnectionAnswer { verdict, sync: 9 }) = answer.operation
    else {
        panic!("{answer:?}");
    };
    let ours = zerolane_wire::VERSION;
    assert!(
        matches!(verdict, ConnectionVerdict::Reject {
            reason: Reason::VersionMismatch,
            version_max,
            ..
        } if version_max == ours),
        "{verdict:?}"
    );
}
