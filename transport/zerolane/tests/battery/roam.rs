//! Tests that connections follow peers whose addresses change in the middle of a Transfer.

use crate::drive::{Flag, PATIENCE, both, stream_while, transfer};
use crate::path::{Net, Pair, hosts};
use netlab::netns::Topology;
use netlab::udp::Relay;
use netsim::Side;
use netsim::link::LinkConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;
use zerolane::{Connection, Endpoint, Options, Security};

const PIECE: usize = 256 << 10;

/// The connected ends, and the listening endpoint, which may be dropped.
struct Roaming {
    pair: Pair,
    endpoint: Endpoint,
}

fn with(security: Security) -> Options {
    Options::default().with(|it| it.security = security)
}

/// Two ends behind a relay, and the relay.
fn behind_nat(security: Security) -> Roaming {
    let options = with(security);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("bind");
    let relay = relay_to(&endpoint);
    let (a, b) = connect(&mut endpoint, relay.addr(), &options, &|_, work| work());
    let net = Net::Relay(relay);
    Roaming {
        pair: Pair { a, b, net },
        endpoint,
    }
}

fn relay_to(endpoint: &Endpoint) -> Relay {
    let link = LinkConfig {
        delay: Duration::from_millis(1),
        rate_bits_per_s: Some(200_000_000),
        ..LinkConfig::default()
    };
    Relay::start(endpoint.local_addr(), link, link, 7).expect("relay")
}

/// Work of one end, run in the network namespace of its sockets.
type Work<'a> = &'a mut (dyn FnMut() + Send);

fn connect(
    endpoint: &mut Endpoint,
    to: SocketAddr,
    options: &Options,
    run: &(dyn Fn(Side, Work<'_>) + Sync),
) -> (Connection, Connection) {
    let connected = &Flag::default();
    let (mut a, mut b) = (None, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(Side::A, &mut || {
                let _raised = connected.raise_at_end();
                a = Some(Connection::connect(to, options).expect("connect"));
            });
        });
        run(Side::B, &mut || {
            let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
            let mut accepted = accepted.expect("a client connects");
            connected.drive_until_raised(&mut accepted);
            b = Some(accepted);
        });
    });
    (a.expect("connected"), b.expect("accepted"))
}

fn relay(net: &Net) -> &Relay {
    match net {
        Net::Relay(relay) => relay,
        _ => panic!("a path without relay"),
    }
}

/// Streams both ways, each time with `happen` in the middle, which gives the end on `mover` another address; afterwards
/// the other end knows the peer's new address.
fn stream_amid(pair: &mut Pair, mover: Side, happen: impl Fn(&Net) + Sync) {
    for to in [Side::B, Side::A] {
        let before = follower(pair, mover).peer_addr();
        stream_while(pair, to, PIECE, &happen);
        assert_ne!(follower(pair, mover).peer_addr(), before, "it moved");
    }
    assert!(follower(pair, mover).account().protocol.migrations >= 2);
}

/// The end whose peer moved.
fn follower(pair: &mut Pair, mover: Side) -> &mut Connection {
    match mover {
        Side::A => &mut pair.b,
        Side::B => &mut pair.a,
    }
}

#[test]
fn nat__forgets_the_port_without_an_accept() {
    for security in [Security::plain(), Security::default()] {
        let Roaming { mut pair, endpoint } = behind_nat(security);
        stream_amid(&mut pair, Side::A, |net| relay(net).rebind(Side::B));
        transfer(&mut pair, 91, &[100_000, 1]);
        drop(endpoint);
    }
}

#[test]
fn nat__forgets_the_port_without_a_listener() {
    let Roaming { mut pair, endpoint } = behind_nat(Security::default());
    drop(endpoint);
    stream_amid(&mut pair, Side::A, |net| relay(net).rebind(Side::B));
    transfer(&mut pair, 91, &[100_000, 1]);
}

/// Two connections share the port that has no listener any more.
#[test]
fn nat__forgets_the_ports_of_two_without_a_listener() {
    let options = Options::default();
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("bind");
    let relays = [relay_to(&endpoint), relay_to(&endpoint)];
    let mut pairs = relays.map(|relay| {
        let (a, b) = connect(&mut endpoint, relay.addr(), &options, &|_, work| work());
        let net = Net::Relay(relay);
        Pair { a, b, net }
    });
    drop(endpoint);
    std::thread::scope(|scope| {
        for pair in &mut pairs {
            scope.spawn(|| stream_amid(pair, Side::A, |net| relay(net).rebind(Side::B)));
        }
    });
}

/// Packets of the Initiator to the old address vanish.
#[test]
fn nat__of_the_listening_end_forgets_the_port() {
    for security in [Security::plain(), Security::default()] {
        let Roaming { mut pair, endpoint } = behind_nat(security);
        stream_amid(&mut pair, Side::B, |net| relay(net).rebind(Side::A));
        transfer(&mut pair, 91, &[100_000, 1]);
        drop(endpoint);
    }
}

#[test]
fn nat__forgets_the_port_during_an_accept() {
    let Roaming {
        mut pair,
        mut endpoint,
    } = behind_nat(Security::default());
    let (done, address) = (&Flag::default(), endpoint.local_addr());
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            let mut accepted = Vec::new();
            while !done.is_raised() {
                let next = endpoint.accept(Some(Duration::from_millis(20)));
                accepted.extend(next.expect("the socket works"));
                for connection in &mut accepted {
                    // The loop below waits for its end.
                    let _ = connection.poll();
                }
            }
            while accepted.len() < 2 {
                let last = endpoint.accept(Some(PATIENCE)).expect("the socket works");
                accepted.push(last.expect("the client stays"));
            }
            accepted.len()
        });
        let raised = done.raise_at_end();
        // They stay: the backlog drops those that leave before `accept`.
        let clients = Mutex::new(Vec::new());
        stream_amid(&mut pair, Side::A, |net| {
            relay(net).rebind(Side::B);
            // Packets for the listener still arrive.
            let client = Connection::connect(address, &Options::default());
            clients.lock().unwrap().push(client.expect("connected"));
        });
        drop(raised);
        assert_eq!(accepting.join().expect("no panic"), 2);
    });
}

/// Nothing is in flight when it happens. The end that must notice only waits for the peer.
#[test]
fn nat__forgets_the_port_of_an_idle_connection() {
    for (mover, seen_by) in [(Side::A, Side::B), (Side::B, Side::A)] {
        let Roaming { mut pair, endpoint } = behind_nat(Security::default());
        transfer(&mut pair, 90, &[1000]);
        relay(&pair.net).rebind(seen_by);
        let send = |end: &mut Connection| crate::drive::send_all(end, 91, &[3000]);
        let announced = |end: &mut Connection| {
            let length = end.announced(Some(PATIENCE)).expect("connected").got();
            assert_eq!(length, Some(3000));
            crate::drive::receive_all(end, 91, &[3000]);
        };
        match mover {
            Side::A => both(&mut pair, send, announced),
            Side::B => both(&mut pair, announced, send),
        };
        assert_eq!(follower(&mut pair, mover).account().protocol.migrations, 1);
        drop(endpoint);
    }
}

/// The router reports to the end with something to send that the old port is closed. The other end is idle for longer
/// than that, and then sends from its new port.
#[test]
fn nat__refuses_the_old_port_of_an_idle_connection() {
    for security in [Security::plain(), Security::default()] {
        let Roaming { mut pair, endpoint } = behind_nat(security);
        transfer(&mut pair, 90, &[1000]);
        relay(&pair.net).rebind_and_refuse(Side::B);
        let send = |end: &mut Connection| crate::drive::send_all(end, 91, &[3000]);
        let idle = |end: &mut Connection| {
            std::thread::sleep(Duration::from_secs(3));
            crate::drive::receive_all(end, 91, &[3000]);
        };
        both(&mut pair, idle, send);
        assert_eq!(pair.b.account().protocol.migrations, 1);
        drop(endpoint);
    }
}

/// A host gets another address in the middle of each stream; the old one is removed.
fn readdress(mover: Side, listens_on: impl FnOnce(&Topology) -> String) {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let on = listens_on(&hosts);
    let bind = || Endpoint::bind(on, Options::default());
    let mut endpoint = hosts.b().enter_thread(bind).expect("enter").expect("bind");
    let to = (hosts.b().ipv4(), endpoint.local_addr().port()).into();
    let (a, b) = connect(&mut endpoint, to, &Options::default(), &|side, work| {
        hosts.side(side).enter_thread(work).expect("enter");
    });
    let [first, second] = [78, 77].map(|it| Ipv4Addr::new(10, 77, 0, it));
    let addresses = &std::sync::Mutex::new(vec![first, second, hosts.side(mover).ipv4()]);
    let net = Net::Hosts(hosts);
    let mut pair = Pair { a, b, net };
    stream_amid(&mut pair, mover, |net| {
        let host = net.hosts().side(mover);
        let mut addresses = addresses.lock().expect("no panic");
        let old = addresses.pop().expect("one");
        let new = *addresses.last().expect("one more");
        let kernel = host.rtnetlink().expect("there");
        let removed = kernel.remove_address(host.device(), old.into(), 24);
        removed.expect("it has it");
        let assigned = kernel.assign_address(host.device(), new.into(), 24);
        assigned.expect("free");
    });
    let peer = follower(&mut pair, mover).peer_addr();
    assert_eq!(peer.ip().to_string(), "10.77.0.78");
    transfer(&mut pair, 91, &[100_000, 1]);
}

#[test]
fn host__that_connected_gets_another_address() {
    readdress(Side::A, |hosts| format!("{}:0", hosts.b().ipv4()));
}

#[test]
fn host__that_listens_gets_another_address() {
    readdress(Side::B, |_| "0.0.0.0:0".into());
}

/// A client that connects to one of several addresses accepts packets only from that address.
#[test]
fn host__with_two_addresses_answers_from_the_one_that_was_called() {
    for (security, on) in [
        (Security::default(), "0.0.0.0:0"),
        (Security::plain(), "0.0.0.0:0"),
        (Security::default(), "[::]:0"),
    ] {
        let Some(hosts) = hosts(1500) else {
            return;
        };
        let called = IpAddr::from([10, 77, 0, 99]);
        let kernel = hosts.b().rtnetlink().expect("there");
        let assigned = kernel.assign_address(hosts.b().device(), called, 24);
        assigned.expect("free");
        let options = with(security);
        let bind = || Endpoint::bind(on, options.clone());
        let mut endpoint = hosts.b().enter_thread(bind).expect("enter").expect("bind");
        let to = SocketAddr::new(called, endpoint.local_addr().port());
        let (a, b) = connect(&mut endpoint, to, &options, &|side, work| {
            hosts.side(side).enter_thread(work).expect("enter");
        });
        let net = Net::Hosts(hosts);
        transfer(&mut Pair { a, b, net }, 91, &[100_000, 1]);
    }
}
