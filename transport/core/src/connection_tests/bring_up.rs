//! Tests that connections come up, or fail with a reason.

use super::seeds::each;
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::{
    Capabilities, ConnectionAnswer, ConnectionVerdict, Eager, Operation, Packet, Profile, Profiles,
    Reason, RequestConnection, Route,
};

const MS: Duration = Duration::from_millis(1);

fn speaking(profiles: Profiles) -> Config {
    Config {
        profiles,
        ..Config::default()
    }
}

const BOTH: Profiles = Profiles::BOTH;
const CLASSIC: Profiles = Profiles::only(Profile::Classic);
const EXTENDED: Profiles = Profiles::only(Profile::Extended);

#[test]
fn connect__profile_matrix() {
    let (classic, extended) = (Some(Profile::Classic), Some(Profile::Extended));
    let matrix = [
        (BOTH, BOTH, extended),
        (BOTH, CLASSIC, classic),
        (BOTH, EXTENDED, extended),
        (CLASSIC, BOTH, classic),
        (CLASSIC, CLASSIC, classic),
        (CLASSIC, EXTENDED, None),
        (EXTENDED, BOTH, extended),
        (EXTENDED, CLASSIC, None),
        (EXTENDED, EXTENDED, extended),
    ];
    for (a, b, profile) in matrix {
        let mut sim = Sim::new(LinkConfig::default(), 1, speaking(a), speaking(b));
        sim.run_for(Duration::from_secs(1));
        let Some(profile) = profile else {
            let Some(CloseReason::Rejected { reason, .. }) = sim.a.closed() else {
                panic!("{a:?} with {b:?}: {:?}", sim.a.events);
            };
            assert_eq!(reason, Reason::NoCommonProfile);
            assert!(
                sim.b.connection.is_none(),
                "keeps nothing of a rejected peer"
            );
            continue;
        };
        for host in [&mut sim.a, &mut sim.b] {
            assert_eq!(host.events, [Event::Connected(profile)]);
            assert_eq!(host.c().profile(), profile);
        }
    }
}

/// An unauthenticated peer cannot choose the profile without congestion control, unless this end asked for it.
#[test]
fn listen__refuses_classic_unless_it_was_asked_for() {
    let mut classic = request(1, 1);
    if let Operation::RequestConnection(it) = &mut classic.operation {
        it.capabilities.profiles = CLASSIC;
    }
    let (_, verdict) = rejection(&classic);
    let ConnectionVerdict::Reject {
        reason,
        version_min,
        version_max,
    } = verdict
    else {
        panic!("{verdict:?}");
    };
    assert_eq!(reason, Reason::NoCommonProfile);
    let reason = CloseReason::Rejected {
        reason,
        version_min,
        version_max,
    };
    assert_eq!(
        reason.to_string(),
        "rejected: no profile in common (both ends must ask for classic)"
    );
    let asked_for = listen(Instant::ZERO, speaking(BOTH), entropy(), &classic);
    assert_eq!(asked_for.expect("accepted").profile(), Profile::Classic);
}

/// Nor can the Responder.
#[test]
fn connect__takes_no_answer_in_a_profile_that_it_did_not_offer() {
    for (offered, life) in [
        (Config::default(), Life::Closed),
        (speaking(BOTH), Life::Established),
    ] {
        let mut connection = Connection::connect(Instant::ZERO, offered, entropy());
        let asked = connection.poll_transmit(Instant::ZERO, BurstLimit::default());
        let Some(Transmit::Control(asked)) = asked else {
            panic!("{asked:?}");
        };
        let asked = Packet::parse(asked.bytes()).expect("well-formed");
        let Operation::RequestConnection(request) = asked.operation else {
            panic!("{asked:?}");
        };
        let answer = Packet {
            route: Route {
                d_port: asked.route.s_port,
                s_port: 4,
                d_key: request.s_key,
            },
            operation: Operation::ConnectionAnswer(ConnectionAnswer {
                verdict: ConnectionVerdict::Accept {
                    version: 1,
                    capabilities: Capabilities {
                        profiles: CLASSIC,
                        ..request.capabilities
                    },
                    s_key: 12,
                },
                sync: request.sync,
            }),
        };
        let (bytes, len) = answer.emit();
        connection.on_control(Instant::ZERO, &bytes[..len], len);
        assert_eq!(connection.life(), life);
    }
}

fn request(version_min: u8, version_max: u8) -> Packet {
    Packet {
        route: Route {
            d_port: 1,
            s_port: 9,
            d_key: 0,
        },
        operation: Operation::RequestConnection(RequestConnection {
            version_min,
            version_max,
            capabilities: Capabilities {
                profiles: Profiles::BOTH,
                checksum: false,
                out_of_order: true,
                persistent: false,
                slots: 1,
                max_stu: 1000,
                buffer_log2: 12,
                eager: Eager::NONE,
                frames: false,
                advance_grants: false,
                advance_messages: false,
                datagrams: false,
                paths: 1,
            },
            s_key: 4711,
            sync: 8,
        }),
    }
}

fn entropy() -> Entropy {
    Entropy {
        key: 1,
        port: 2,
        sync: 3,
    }
}

fn rejection(packet: &Packet) -> (Packet, ConnectionVerdict) {
    match listen(Instant::ZERO, Config::default(), entropy(), packet) {
        Err(Some(rejection)) => {
            let Operation::ConnectionAnswer(answer) = rejection.operation else {
                panic!("{rejection:?}");
            };
            (rejection, answer.verdict)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn listen__rejects_in_words_a_version_it_does_not_speak() {
    let (packet, verdict) = rejection(&request(7, 9));
    let ConnectionVerdict::Reject {
        reason,
        version_min,
        version_max,
    } = verdict
    else {
        panic!("{verdict:?}");
    };
    assert_eq!(reason, Reason::VersionMismatch);
    assert_eq!(
        packet.route.d_key, 4711,
        "with the forged peer's key, so that it believes it"
    );
    let reason = CloseReason::Rejected {
        reason,
        version_min,
        version_max,
    };
    assert_eq!(
        reason.to_string(),
        "rejected: the peer speaks protocol versions 1 to 1, this end 1 to 1"
    );
}

#[test]
fn listen__rejects_costly_peers_and_unknown_ports() {
    let mut costly = request(1, 1);
    if let Operation::RequestConnection(it) = &mut costly.operation {
        it.capabilities.max_stu = 1;
    }
    let reason_of = |packet: &Packet| match rejection(packet).1 {
        ConnectionVerdict::Reject { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason_of(&costly), Reason::ProtocolViolation);
    let mut lost = request(1, 1);
    lost.route.d_port = 99;
    assert_eq!(reason_of(&lost), Reason::NoListener);
}

#[test]
fn listen__answers_nothing_but_requests() {
    let nop = Packet {
        route: request(1, 1).route,
        operation: Operation::Nop(Default::default()),
    };
    assert!(matches!(
        listen(Instant::ZERO, Config::default(), entropy(), &nop),
        Err(None)
    ));
    assert_eq!(reject(&nop, Reason::Busy), None);
}

#[test]
fn reject__busy_reaches_the_initiator() {
    let mut sim = Sim::new(
        LinkConfig::default(),
        1,
        Config::default(),
        Config::default(),
    );
    sim.busy = true;
    sim.run_for(Duration::from_secs(1));
    let Some(reason) = sim.a.closed() else {
        panic!("{:?}", sim.a.events);
    };
    assert_eq!(reason.to_string(), "rejected: the peer is at its limit");
}

#[test]
fn connect__forged_answers_are_ignored() {
    let mut sim = Sim::new(
        LinkConfig::default(),
        1,
        Config::default(),
        Config::default(),
    );
    let forged = Packet {
        route: Route {
            d_port: 11,
            s_port: 22,
            d_key: 1,
        },
        operation: Operation::ConnectionAnswer(ConnectionAnswer {
            verdict: ConnectionVerdict::Reject {
                reason: Reason::Busy,
                version_min: 1,
                version_max: 1,
            },
            sync: 77,
        }),
    };
    let (bytes, len) = forged.emit();
    sim.inject(Side::A, &bytes[..len]);
    sim.connect();
}

#[test]
fn connect__without_an_answer_gives_up_in_time() {
    let mut sim = Sim::new(
        LinkConfig::default(),
        1,
        Config::default(),
        Config::default(),
    );
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_for(Duration::from_millis(4900));
    assert_eq!(sim.a.closed(), None);
    sim.run_for(Duration::from_millis(200));
    assert_eq!(sim.a.closed(), Some(CloseReason::ConnectTimeout));
    assert_eq!(sim.a.c().next_timeout(), None);
    let tries = sim.a.c().counters().control_sent;
    assert!((10..=30).contains(&tries), "{tries} requests");
}

/// As when an Initiator finds that the first lane does not reach the peer.
#[test]
fn restart__by_another_lane_keeps_what_was_posted() {
    let slow = Config {
        window: 8 << 10,
        max_window: 8 << 10,
        path_datagram: 9000,
        ..Config::default()
    };
    let mut sim = Sim::new(LinkConfig::default(), 1, slow, Config::default());
    sim.net.link_mut(Side::A).set_up(false);
    let [sent, short] = [300_000, 50].map(|len| {
        let span = sim.a.filled(len, len);
        let id = sim
            .a
            .c()
            .post_send(Instant::ZERO, span, Delivery::Interrupt);
        id.expect("posted")
    });
    let back = sim.a.empty(200_000);
    let received = sim.a.c().post_receive(Instant::ZERO, back).expect("posted");
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.a.events, []);
    let now = sim.now();
    let restarted = sim.a.c().restart(now, Config::default(), entropy());
    assert!(restarted);
    sim.net.link_mut(Side::A).set_up(true);
    sim.connect();
    let places = [300_000, 50].map(|len| sim.b.empty(len));
    for place in places {
        let now = sim.now();
        sim.b.c().post_receive(now, place).expect("posted");
    }
    let answer = sim.b.filled(7, 200_000);
    let now = sim.now();
    let answered = sim.b.c().post_send(now, answer, Delivery::Interrupt);
    answered.expect("posted");
    sim.run_for(Duration::from_secs(1));
    assert!(sim.a.sent(sent) && sim.a.sent(short));
    assert_eq!(sim.a.received(received), Some(200_000));
    assert!(sim.a.holds(back, 7, 200_000));
    for (place, len) in places.into_iter().zip([300_000, 50]) {
        assert!(sim.b.holds(place, len, len));
    }
    let now = sim.now();
    let again = sim.a.c().restart(now, Config::default(), entropy());
    assert!(!again, "it is connected");
}

#[test]
fn restart__without_an_answer_gives_up_when_the_first_beginning_would_have() {
    let mut sim = Sim::new(
        LinkConfig::default(),
        1,
        Config::default(),
        Config::default(),
    );
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_for(Duration::from_secs(4));
    let now = sim.now();
    assert!(sim.a.c().restart(now, Config::default(), entropy()));
    sim.run_for(Duration::from_millis(900));
    assert_eq!(sim.a.closed(), None);
    sim.run_for(Duration::from_millis(200));
    assert_eq!(sim.a.closed(), Some(CloseReason::ConnectTimeout));
}

#[test]
fn connect__under_loss_both_ends_open_though_neither_sends() {
    each(300, |seed| {
        let link = LinkConfig {
            delay: 5 * MS,
            loss: Loss::Random(0.2),
            duplicate: 0.1,
            reorder: Reorder {
                probability: 0.2,
                by: 40 * MS,
            },
            ..LinkConfig::default()
        };
        // No path to probe: only the third step itself informs the Responder.
        let config = Config {
            path_datagram: 1252,
            ..Config::default()
        };
        let mut sim = Sim::new(link, seed, config.clone(), config);
        sim.run_for(Duration::from_secs(20));
        assert!(sim.a.connected() && sim.b.connected());
        assert_eq!((sim.a.closed(), sim.b.closed()), (None, None));
        let sent = sim.a.c().counters().control_sent;
        assert!(sent < 100, "an idle connection is quiet: {sent} operations");
    });
}

#[test]
fn close__either_end_or_both_at_once() {
    for (a, b) in [(true, false), (false, true), (true, true)] {
        each(20, |seed| {
            let link = LinkConfig {
                delay: MS,
                loss: Loss::Random(0.1),
                ..LinkConfig::default()
            };
            let mut sim = Sim::new(link, seed, Config::default(), Config::default());
            sim.connect();
            let now = sim.now();
            if a {
                sim.a.c().close(now);
            }
            if b {
                sim.b.c().close_with(now, Reason::GoingAway);
            }
            sim.run_for(Duration::from_secs(10));
            let peers = |reason| Some(CloseReason::Peer(reason));
            let local = Some(CloseReason::Local);
            let expect_a = if a { local } else { peers(Reason::GoingAway) };
            let expect_b = if b { local } else { peers(Reason::Normal) };
            assert_eq!((sim.a.closed(), sim.b.closed()), (expect_a, expect_b));
        });
    }
}

#[test]
fn close__on_a_clean_link_is_a_handshake_of_three() {
    let mut sim = Sim::new(
        LinkConfig::default(),
        1,
        Config::default(),
        Config::default(),
    );
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    sim.trace = Some(vec![]);
    let now = sim.now();
    sim.a.c().close(now);
    sim.run_for(Duration::from_secs(10));
    assert_eq!(
        sim.spoken(),
        "A RequestDisconnect, B DisconnectAnswer, A DisconnectComplete"
    );
}

#[test]
fn abandon__tells_the_peer_once_and_is_over() {
    let mut sim = Sim::new(
        LinkConfig::default(),
        1,
        Config::default(),
        Config::default(),
    );
    sim.connect();
    let now = sim.now();
    sim.a.c().abandon(now, Reason::GoingAway);
    sim.run_for(Duration::from_secs(10));
    assert_eq!(sim.a.closed(), Some(CloseReason::Local));
    assert_eq!(sim.b.closed(), Some(CloseReason::Peer(Reason::GoingAway)));
}
