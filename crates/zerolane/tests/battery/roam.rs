//! Addresses that change in the middle of a Transfer.

use crate::drive::{Flag, PATIENCE, both, stream_while, transfer};
use crate::path::{Net, Pair, hosts};
use netlab::Side;
use netlab::link::LinkConfig;
use netlab::netns::Topology;
use netlab::udp::Relay;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use zerolane::{Connection, Endpoint, Options, Security};

const PIECE: usize = 256 << 10;

/// The listening end stays: through it an end hears of its peer's new address.
struct Roaming {
    pair: Pair,
    endpoint: Endpoint,
}

/// Two ends behind a relay, and that.
fn behind_nat(security: Security) -> Roaming {
    let options = Options {
        security,
        ..Options::default()
    };
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("bind");
    let link = LinkConfig {
        delay: Duration::from_millis(1),
        rate_bits_per_s: Some(200_000_000),
        ..LinkConfig::default()
    };
    let relay = Relay::start(endpoint.local_addr(), link, link, 7).expect("relay");
    let (a, b) = connect(&mut endpoint, relay.addr(), &options, &|_, work| work());
    let net = Net::Relay(relay);
    Roaming {
        pair: Pair { a, b, net },
        endpoint,
    }
}

/// Work of one end, run where its sockets are to live.
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
            let mut accepted = accepted.expect("somebody connects");
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

/// Streams both ways, each time with `happen` in the middle of it; then the Responder knows where its
/// peer is.
fn stream_amid(pair: &mut Pair, happen: impl Fn(&Net) + Sync) {
    let Pair { a, b, net } = pair;
    let before = b.peer_addr();
    stream_while(a, b, PIECE, || happen(net));
    assert_ne!(b.peer_addr(), before, "it moved");
    let before = b.peer_addr();
    stream_while(b, a, PIECE, || happen(net));
    assert_ne!(b.peer_addr(), before, "it moved again");
    assert!(b.account().protocol.moves >= 2);
}

#[test]
fn nat__forgets_the_port_and_nobody_accepts() {
    for security in [Security::plain(), Security::default()] {
        let Roaming { mut pair, endpoint } = behind_nat(security);
        stream_amid(&mut pair, |net| relay(net).rebind());
        transfer(&mut pair, 91, &[100_000, 1]);
        drop(endpoint);
    }
}

#[test]
fn nat__forgets_the_port_while_somebody_accepts() {
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
                    // It ends in the end.
                    let _ = connection.poll();
                }
            }
            accepted.len()
        });
        let raised = done.raise_at_end();
        stream_amid(&mut pair, |net| {
            relay(net).rebind();
            // What is for the listener still gets there.
            Connection::connect(address, &Options::default()).expect("connected");
        });
        drop(raised);
        assert_eq!(accepting.join().expect("no panic"), 2);
    });
}

/// Nothing is under way when it happens, and the end that has to notice waits for nothing but the peer.
#[test]
fn nat__forgets_the_port_of_an_idle_connection() {
    let Roaming { mut pair, endpoint } = behind_nat(Security::default());
    transfer(&mut pair, 90, &[1000]);
    relay(&pair.net).rebind();
    let announced = |b: &mut Connection| {
        let length = b.announced(Some(PATIENCE)).expect("connected");
        assert_eq!(length, Some(3000));
        crate::drive::receive_all(b, 91, &[3000]);
    };
    both(
        &mut pair,
        |a| crate::drive::send_all(a, 91, &[3000]),
        announced,
    );
    assert_eq!(pair.b.account().protocol.moves, 1);
    drop(endpoint);
}

fn ip(hosts: &Topology, side: Side, arguments: &[&str]) {
    let mut command: Command = hosts.side(side).command("ip");
    let output = command.args(arguments).output().expect("ip");
    assert!(output.status.success(), "{output:?}");
}

/// The machine of the Initiator gets another address; the old one is gone.
#[test]
fn host__gets_another_address() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let bind = || Endpoint::bind((hosts.b().ipv4(), 0), Options::default());
    let mut endpoint = hosts.b().enter_thread(bind).expect("enter").expect("bind");
    let to = endpoint.local_addr();
    let (a, b) = connect(&mut endpoint, to, &Options::default(), &|side, work| {
        hosts.side(side).enter_thread(work).expect("enter");
    });
    let before = b.peer_addr();
    let net = Net::Hosts(hosts);
    let mut pair = Pair { a, b, net };
    let next = &std::sync::Mutex::new(vec!["10.77.0.78", "10.77.0.77"]);
    let last = &std::sync::Mutex::new(before.ip().to_string());
    stream_amid(&mut pair, |net| {
        let (hosts, device) = (net.hosts(), net.hosts().a().device());
        let new = next.lock().expect("no panic").pop().expect("two");
        let old = std::mem::replace(&mut *last.lock().expect("no panic"), new.to_string());
        ip(
            hosts,
            Side::A,
            &["addr", "del", &format!("{old}/24"), "dev", device],
        );
        ip(
            hosts,
            Side::A,
            &["addr", "add", &format!("{new}/24"), "dev", device],
        );
    });
    assert_eq!(pair.b.peer_addr().ip().to_string(), "10.77.0.78");
    transfer(&mut pair, 91, &[100_000, 1]);
}
