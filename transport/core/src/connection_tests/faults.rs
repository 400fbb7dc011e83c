//! Tests that connections survive failing links, dead peers, clock jumps and wrapping counters.

use super::seeds::{Dice, each};
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::{Profile, Profiles, Reason};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn link() -> LinkConfig {
    LinkConfig {
        delay: MS,
        rate_bits_per_s: Some(100_000_000),
        queue_packets: 100_000,
        ..LinkConfig::default()
    }
}

fn classic() -> Config {
    Config {
        profiles: Profiles::only(Profile::Classic),
        ..Config::default()
    }
}

fn connected(link: LinkConfig, seed: u64, config: &Config) -> Sim {
    let mut sim = Sim::new(link, seed, config.clone(), config.clone());
    sim.connect();
    sim
}

struct Posted {
    from: TransferId,
    to: TransferId,
    target: Span,
    content: u64,
    length: u64,
}

/// Posts a send at A and a receive for it at B.
fn post(sim: &mut Sim, content: u64, length: u64) -> Posted {
    let now = sim.now();
    let source = sim.a.filled(content, length);
    let target = sim.b.empty(length);
    let to = sim.b.c().post_receive(now, target).unwrap();
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    Posted {
        from,
        to,
        target,
        content,
        length,
    }
}

fn finish(sim: &mut Sim, posted: &Posted, limit: Duration) {
    sim.run_until(limit, |sim| {
        sim.a.sent(posted.from) && sim.b.received(posted.to) == Some(posted.length)
    });
    assert!(sim.b.holds(posted.target, posted.content, posted.length));
    sim.b.assert_guards();
}

#[test]
fn link__down_for_five_seconds_goes_on_by_itself() {
    for config in [Config::default(), classic()] {
        let mut sim = connected(link(), 1, &config);
        let posted = post(&mut sim, 7, 3_000_000);
        sim.run_for(100 * MS);
        for side in Side::BOTH {
            sim.net.link_mut(side).set_up(false);
        }
        sim.run_for(5 * S);
        for side in Side::BOTH {
            sim.net.link_mut(side).set_up(true);
        }
        finish(&mut sim, &posted, 3 * S);
    }
}

#[test]
fn peer__dead_is_found_by_both_sides_within_the_idle_timeout() {
    let mut sim = connected(link(), 1, &Config::default());
    let posted = post(&mut sim, 7, 3_000_000);
    sim.run_for(50 * MS);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_up(false);
    }
    sim.run_for(13 * S);
    assert_eq!(
        (sim.a.closed(), sim.b.closed()),
        (None, None),
        "not before its time"
    );
    sim.run_for(5 * S);
    let dead = Some(CloseReason::PeerDead);
    assert_eq!((sim.a.closed(), sim.b.closed()), (dead, dead));
    let error = Some(TransferError::Closed(CloseReason::PeerDead));
    assert_eq!(
        (sim.a.failed(posted.from), sim.b.failed(posted.to)),
        (error, error)
    );
    assert_eq!(sim.a.c().next_timeout(), None);
}

#[test]
fn peer__silent_while_nothing_depends_on_it_is_not_dead() {
    let mut sim = connected(link(), 1, &Config::default());
    sim.run_for(S);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_up(false);
    }
    sim.run_for(100 * S);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_up(true);
    }
    let posted = post(&mut sim, 7, 1000);
    finish(&mut sim, &posted, 2 * S);
}

#[test]
fn peer__dead_while_nothing_depends_on_it_is_found_with_keep_alive() {
    let watching = Config {
        keep_alive: true,
        ..Config::default()
    };
    let mut sim = Sim::new(link(), 1, watching, Config::default());
    sim.connect();
    sim.run_for(100 * S);
    assert_eq!((sim.a.closed(), sim.b.closed()), (None, None), "it answers");
    for side in Side::BOTH {
        sim.net.link_mut(side).set_up(false);
    }
    sim.run_for(13 * S);
    assert_eq!(sim.a.closed(), None, "not before its time");
    sim.run_for(5 * S);
    let dead = Some(CloseReason::PeerDead);
    assert_eq!((sim.a.closed(), sim.b.closed()), (dead, None));
    assert_eq!(sim.a.c().next_timeout(), None);
}

#[test]
fn peer__that_waits_for_a_send_is_kept_alive() {
    let mut sim = connected(link(), 1, &Config::default());
    let now = sim.now();
    let target = sim.b.empty(10);
    sim.b.c().post_receive(now, target).unwrap();
    sim.run_for(200 * S);
    assert_eq!((sim.a.closed(), sim.b.closed()), (None, None));
}

#[test]
fn clock__jump_of_an_hour_kills_no_connection() {
    for config in [Config::default(), classic()] {
        let mut sim = connected(link(), 1, &config);
        let posted = post(&mut sim, 7, 3_000_000);
        sim.run_for(50 * MS);
        // A was suspended: it neither receives nor sends, then all its timers expire.
        sim.a.skew += 3600 * S;
        finish(&mut sim, &posted, 5 * S);
        sim.b.skew += 3600 * S;
        let posted = post(&mut sim, 8, 300_000);
        finish(&mut sim, &posted, 5 * S);
    }
}

#[test]
fn link__slow_is_not_taken_for_broken() {
    for rate in [1_000_000, 3_000_000, 10_000_000] {
        let slow = LinkConfig {
            rate_bits_per_s: Some(rate),
            ..link()
        };
        let config = Config {
            block: 6_000,
            window: 60_000,
            burst_segments: 2,
            ..Config::default()
        };
        let mut sim = connected(slow, 1, &config);
        sim.run_for(S);
        let posted = post(&mut sim, 7, 400_000);
        finish(&mut sim, &posted, 60 * S);
        let (a, b) = (*sim.a.c().counters(), *sim.b.c().counters());
        assert_eq!(a.bytes_resent, 0, "at {rate} bit/s");
        assert_eq!(b.dropped(DropReason::Duplicate), 0);
        assert!(b.reports_sent <= 20, "{} reports", b.reports_sent);
    }
}

fn jumbo() -> Config {
    Config {
        path_datagram: 8972,
        ..Config::default()
    }
}

#[test]
fn path__grows_to_what_it_carries() {
    for (mtu, stu) in [(9000, 8928), (4400, 4280), (1500, 1432), (1280, 1208)] {
        let mut sim = connected(
            LinkConfig {
                mtu: Some(mtu),
                ..link()
            },
            1,
            &jumbo(),
        );
        sim.run_for(5 * S);
        let posted = post(&mut sim, 7, 500_000);
        finish(&mut sim, &posted, 5 * S);
        assert_eq!(sim.a.c().stu(), stu, "MTU {mtu}");
        assert_eq!(
            sim.a.c().counters().bytes_resent,
            0,
            "probes cost no payload"
        );
    }
}

#[test]
fn path__told_to_shrink_in_the_middle() {
    let mut sim = connected(link(), 1, &jumbo());
    sim.run_for(S);
    let posted = post(&mut sim, 7, 10_000_000);
    sim.run_for(100 * MS);
    let small = LinkConfig {
        mtu: Some(1500),
        ..link()
    };
    sim.net.link_mut(Side::A).set_config(small);
    let now = sim.now();
    sim.a.c().set_path_datagram(now, 1472);
    finish(&mut sim, &posted, 5 * S);
    assert_eq!(sim.a.c().stu(), 1432);
}

#[test]
fn path__that_is_new_is_searched_again() {
    let small = LinkConfig {
        mtu: Some(1500),
        ..link()
    };
    let mut sim = connected(small, 1, &jumbo());
    sim.run_for(S);
    assert_eq!(sim.a.c().stu(), 1432);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_config(link());
    }
    let now = sim.now();
    sim.a.c().on_new_path(now);
    sim.run_for(S);
    assert_eq!(sim.a.c().stu(), 8928);
}

#[test]
fn path__black_hole_in_the_middle_is_found() {
    for config in [
        jumbo(),
        Config {
            path_datagram: 8972,
            ..classic()
        },
    ] {
        let mut sim = connected(link(), 1, &config);
        sim.run_for(S);
        let before = sim.a.c().stu();
        let posted = post(&mut sim, 7, 10_000_000);
        sim.run_for(100 * MS);
        let small = LinkConfig {
            mtu: Some(1500),
            ..link()
        };
        sim.net.link_mut(Side::A).set_config(small);
        finish(&mut sim, &posted, 10 * S);
        assert!(before > 8000 && sim.a.c().stu() <= 1432);
    }
}

#[test]
fn window__smaller_than_an_stu_still_moves() {
    let config = Config {
        window: 10,
        block: 5,
        ..Config::default()
    };
    let mut sim = connected(link(), 1, &config);
    let posted = post(&mut sim, 7, 30_000);
    finish(&mut sim, &posted, 5 * S);
}

#[test]
fn classic__more_blocks_than_grants_are_held() {
    let config = Config {
        classic_block_log2: 9,
        ..classic()
    };
    let mut sim = connected(
        LinkConfig {
            delay: Duration::ZERO,
            ..link()
        },
        1,
        &config,
    );
    let posted = post(&mut sim, 7, 1500 * 512);
    finish(&mut sim, &posted, 60 * S);
}

#[test]
fn posted__up_to_the_limit_and_all_of_them_done() {
    let mut sim = connected(link(), 1, &Config::default());
    let all: Vec<Posted> = (0..limits::MAX_POSTED as u64)
        .map(|n| post(&mut sim, n, 8 + n % 50))
        .collect();
    let now = sim.now();
    let one = sim.a.filled(1, 1);
    assert_eq!(
        sim.a.c().post_send(now, one, Delivery::Polled),
        Err(PostError::Full)
    );
    assert_eq!(sim.b.c().post_receive(now, one), Err(PostError::Full));
    for posted in &all {
        finish(&mut sim, posted, 60 * S);
    }
}

#[test]
fn slots__one_is_enough() {
    let config = Config {
        slots: 1,
        ..Config::default()
    };
    let mut sim = connected(link(), 1, &config);
    let all: Vec<Posted> = (0..50).map(|n| post(&mut sim, n, 1000)).collect();
    for posted in &all {
        finish(&mut sim, posted, 60 * S);
    }
}

#[test]
fn numbers__wrap_everywhere() {
    each(40, |seed| {
        let bad = LinkConfig {
            loss: Loss::Random(0.05),
            duplicate: 0.1,
            ..link()
        };
        let config = Config {
            block: 10_000,
            slots: 4,
            ..Config::default()
        };
        let mut sim = connected(bad, seed, &config);
        let start = u32::MAX - 5;
        for host in [&mut sim.a, &mut sim.b] {
            let connection = host.c();
            connection.sending.age(start);
            connection.receiving.age(start, start);
            connection.cx.age((start >> 1) - 5, start);
        }
        let all: Vec<Posted> = (0..12).map(|n| post(&mut sim, n, 35_000)).collect();
        for posted in &all {
            finish(&mut sim, posted, 60 * S);
        }
        let reads: Vec<_> = (0..12)
            .map(|n| {
                let now = sim.now();
                let source = sim.a.filled(100 + n, 500);
                sim.a.c().post_offer(now, source, Delivery::Polled).unwrap();
                let target = sim.b.empty(500);
                (sim.b.c().post_read(now, target).unwrap(), target, 100 + n)
            })
            .collect();
        for (read, target, content) in reads {
            sim.run_until(60 * S, |sim| sim.b.received(read).is_some());
            assert!(sim.b.holds(target, content, 500));
        }
    });
}

/// Cancelled memory stays unchanged, whatever arrives late or is replayed.
#[test]
fn cancel__late_packets_are_never_written() {
    each(60, |seed| {
        let mut dice = Dice::new(seed);
        let bad = LinkConfig {
            loss: Loss::Random(0.05),
            duplicate: 0.2,
            reorder: Reorder {
                probability: 0.3,
                by: 20 * MS,
            },
            ..link()
        };
        let config = if dice.chance(30) {
            classic()
        } else {
            Config::default()
        };
        let mut sim = connected(bad, seed, &config);
        sim.trace = Some(vec![]);
        let first = post(&mut sim, 1, 150_000);
        let second = post(&mut sim, 2, 50_000);
        sim.run_for(Duration::from_micros(dice.below(30_000)));
        let now = sim.now();
        let cancelled = if dice.chance(50) {
            sim.b.c().cancel(now, first.to)
        } else {
            sim.a.c().cancel(now, first.from)
        };
        // The receiver's memory belongs to the user again once the cancel was reported.
        sim.run_until(60 * S, |sim| sim.b.outcomes(first.to) == 1);
        sim.b.freeze(first.target);
        let recorded = sim.trace.take().unwrap();
        for (side, datagram) in recorded.iter().rev() {
            sim.inject(side.other(), datagram);
        }
        // If the first send was never heard of, the first receive takes the second send.
        let shifted = sim.b.received(first.to) == Some(second.length);
        if shifted {
            assert!(sim.b.holds(first.target, 2, second.length));
        }
        if cancelled {
            assert!(sim.b.failed(first.to).is_some() || sim.b.received(first.to).is_some());
        }
        sim.run_for(20 * S);
        for (side, datagram) in &recorded {
            sim.inject(side.other(), datagram);
        }
        sim.run_for(S);
        sim.b.assert_frozen();
        sim.b.assert_guards();
        let third = post(&mut sim, 3, 20_000);
        sim.run_for(20 * S);
        assert_eq!(sim.b.outcomes(second.to), 1, "matching goes on");
        assert_eq!(sim.b.outcomes(third.to), usize::from(!shifted));
    });
}

#[test]
fn cancel__before_it_was_heard_frees_its_place() {
    for config in [
        Config::default(),
        Config {
            slots: 1,
            ..Config::default()
        },
    ] {
        let mut sim = connected(link(), 1, &config);
        sim.run_for(S);
        let now = sim.now();
        let source = sim.a.filled(1, 100);
        let first = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
        sim.net.link_mut(Side::A).set_up(false);
        sim.run_for(MS);
        let now = sim.now();
        assert!(sim.a.c().cancel(now, first));
        assert!(!sim.a.c().cancel(now, first), "once");
        // Long enough for every timeout.
        sim.run_for(12 * S);
        sim.net.link_mut(Side::A).set_up(true);
        let posted = post(&mut sim, 2, 5000);
        finish(&mut sim, &posted, 5 * S);
    }
}

#[test]
fn unreachable__is_believed_only_of_a_silent_peer() {
    let mut sim = connected(link(), 1, &Config::default());
    let posted = post(&mut sim, 7, 1_000_000);
    sim.run_for(20 * MS);
    let now = sim.now();
    sim.a.c().unreachable(now);
    finish(&mut sim, &posted, 5 * S);
    sim.net.link_mut(Side::B).set_up(false);
    post(&mut sim, 8, 1000);
    // A NAT may have assigned the peer another address, from which it sends when it misses this end.
    for _ in 0..5 {
        sim.run_for(S);
        let now = sim.now();
        sim.a.c().unreachable(now);
        assert_eq!(sim.a.closed(), None);
    }
    sim.run_for(2 * S);
    let now = sim.now();
    sim.a.c().unreachable(now);
    sim.run_for(MS);
    assert_eq!(sim.a.closed(), Some(CloseReason::Unreachable));
}

/// An end that waits for nothing asks, too, and only that if nothing else is heard of it.
#[test]
fn unreachable__is_a_hint_to_an_idle_end() {
    let mut sim = connected(link(), 1, &Config::default());
    sim.run_for(60 * S);
    let sent = |sim: &Sim| {
        sim.a
            .connection
            .as_ref()
            .map(|it| it.counters().control_sent)
    };
    let before = sent(&sim);
    let now = sim.now();
    sim.a.c().unreachable(now);
    sim.run_for(60 * S);
    assert_eq!(
        sent(&sim),
        before.map(|it| it + 1),
        "the peer is asked once, and answers"
    );
    assert_eq!(sim.a.closed(), None);
    // The report is not repeated while the peer is silent: nothing depends on it.
    sim.net.link_mut(Side::B).set_up(false);
    let now = sim.now();
    sim.a.c().unreachable(now);
    sim.run_for(60 * S);
    assert_eq!(sim.a.closed(), None);
    // It is repeated, for each keep-alive.
    for _ in 0..20 {
        let now = sim.now();
        sim.a.c().unreachable(now);
        sim.run_for(S);
    }
    assert_eq!(sim.a.closed(), Some(CloseReason::Unreachable));
}

/// Its process has most likely ended: nothing more will be heard of it.
#[test]
fn unreachable__is_believed_of_a_peer_that_disconnects() {
    let mut sim = connected(link(), 1, &Config::default());
    let now = sim.now();
    sim.b.c().close_with(now, Reason::GoingAway);
    let life = |sim: &Sim| sim.a.connection.as_ref().map(Connection::life);
    sim.run_until(S, |sim| life(sim) == Some(Life::Answering));
    sim.net.link_mut(Side::B).set_up(false);
    let now = sim.now();
    sim.a.c().unreachable(now);
    assert_eq!(sim.a.c().life(), Life::Closed);
    sim.run_for(MS);
    assert_eq!(sim.a.closed(), Some(CloseReason::Peer(Reason::GoingAway)));
}
