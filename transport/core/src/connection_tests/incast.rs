//! Tests that several senders to one receiver share a switch port with a shallow queue, in virtual time.

use super::seeds;
use super::shared::Scheduler;
use super::star::{Load, Star};
use crate::*;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;

const SENDERS: usize = 8;
const RATE_BYTES: f64 = 125e6;

/// 1 Gb/s, round trip of 100 us, 64 packets.
fn shallow() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(50),
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 64,
        ..LinkConfig::default()
    }
}

/// Payload as a part of the port's payload capacity, without headers of UDP, IP and ST: 1432 of 1500.
fn filled(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * (1500.0 / 1432.0) / time.as_secs_f64() / RATE_BYTES
}

fn run(star: &mut Star, time: Duration) -> (f64, Vec<u64>) {
    let before = star.received();
    star.run_for(time);
    let received: Vec<u64> = star
        .received()
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    (filled(received.iter().sum(), time), received)
}

fn least_and_mean(received: &[u64]) -> (u64, u64) {
    let least = received.iter().copied().min().unwrap_or(0);
    (least, received.iter().sum::<u64>() / received.len() as u64)
}

fn assert_few_losses(star: &Star) {
    let (sent, lost) = star.data();
    assert!(lost * 1000 <= sent, "{lost} of {sent} lost");
}

#[test]
fn fair__eight_senders_fill_the_link_without_loss() {
    seeds::each(6, |seed| {
        let delay = Duration::from_micros([5, 20, 50, 150, 300, 500][seed as usize % 6]);
        let link = LinkConfig { delay, ..shallow() };
        let scheduler = Scheduler::new(Schedule::Automatic);
        let mut star = Star::new(link, seed, &scheduler, &[Load::ENDLESS; SENDERS]);
        star.start();
        star.run_for(Duration::from_millis(100));
        let (all, received) = run(&mut star, Duration::from_millis(300));
        let (least, mean) = least_and_mean(&received);
        assert!(all >= 0.93, "{all}");
        assert!(least >= mean / 2, "{received:?}");
        assert_few_losses(&star);
        assert!(
            star.grants_deferred() > 0,
            "each is held back for the others"
        );
    });
}

#[test]
fn fair__hosts_that_are_late_get_more_grants() {
    // A round trip of one and a half milliseconds, of which the wire takes a tenth.
    let scheduler = Scheduler::new(Schedule::Fair);
    let mut star = Star::new(shallow(), 2, &scheduler, &[Load::ENDLESS; SENDERS]);
    star.set_late(Duration::from_millis(1));
    star.start();
    star.run_for(Duration::from_millis(300));
    let (all, received) = run(&mut star, Duration::from_millis(500));
    let (least, mean) = least_and_mean(&received);
    assert!(all >= 0.78, "{all}");
    assert!(least >= mean / 2, "{received:?}");
    let (sent, lost) = star.data();
    assert!(lost * 200 <= sent, "{lost} of {sent} lost");
}

/// Loss is the same however little is granted, so it tells nothing about a queue.
#[test]
fn fair__a_path_that_loses_by_itself_is_no_full_queue() {
    for (delay, loss, least) in [(2, 0.02, 0.075), (10, 0.01, 0.06), (30, 0.01, 0.028)] {
        let link = LinkConfig {
            delay: Duration::from_millis(delay),
            rate_bits_per_s: Some(100_000_000),
            queue_packets: 1000,
            loss: Loss::Random(loss),
            ..LinkConfig::default()
        };
        let scheduler = Scheduler::new(Schedule::Automatic);
        let mut star = Star::new(link, 3, &scheduler, &[Load::ENDLESS; 3]);
        star.start();
        star.run_for(Duration::from_secs(8));
        let (all, received) = run(&mut star, Duration::from_secs(4));
        // Of ten times this link's rate.
        assert!(all >= least, "{delay} ms, {loss}: {all}, {received:?}");
        let (least, mean) = least_and_mean(&received);
        assert!(least >= mean / 2, "{received:?}");
    }
}

#[test]
fn fair__more_senders_than_the_queue_has_places() {
    const MANY: usize = 80;
    let load = Load {
        length: 64 << 10,
        ..Load::ENDLESS
    };
    seeds::each(1, |seed| {
        let scheduler = Scheduler::new(Schedule::Fair);
        let mut star = Star::new(shallow(), seed, &scheduler, &[load; MANY]);
        // Announcements share the queue; some are lost and repeated.
        star.start();
        star.run_for(Duration::from_millis(300));
        star.count_data_from_here();
        let (all, received) = run(&mut star, Duration::from_millis(700));
        let (least, mean) = least_and_mean(&received);
        assert!(all >= 0.93, "{all}");
        assert!(least >= mean / 2, "{received:?}");
        assert_few_losses(&star);
    });
}

/// Some of them wait for others, which finish long before the end of a slice.
#[test]
fn fair__many_short_transfers_leave_no_gap_between_turns() {
    const MANY: usize = 60;
    let load = Load {
        length: 20 << 10,
        transfers: 1,
    };
    seeds::each(3, |seed| {
        let scheduler = Scheduler::new(Schedule::Automatic);
        let mut star = Star::new(shallow(), seed, &scheduler, &[load; MANY]);
        let began = star.now() - Instant::ZERO;
        star.start();
        star.run_for(Duration::from_millis(200));
        let last = star
            .finished()
            .into_iter()
            .map(|it| it.expect("all arrive"));
        let took = last.max().expect("there are some") - began;
        let filled = filled(MANY as u64 * load.length, took);
        assert!(filled >= 0.6, "{filled} in {took:?}");
    });
}

#[test]
fn fair__weights_are_respected() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let mut star = Star::new(shallow(), 1, &scheduler, &[Load::ENDLESS; 4]);
    star.receiver(0).set_weight(3);
    star.start();
    let (all, received) = run(&mut star, Duration::from_millis(400));
    assert!(all >= 0.93, "{all}");
    for other in 1..4 {
        let ratio = received[0] as f64 / received[other] as f64;
        assert!((2.4..3.6).contains(&ratio), "{received:?}");
    }
}

#[test]
fn fair__a_lone_stream_is_not_bounded() {
    let scheduler = Scheduler::new(Schedule::Automatic);
    let link = LinkConfig {
        queue_packets: 10_000,
        ..shallow()
    };
    let mut star = Star::new(
        link,
        1,
        &scheduler,
        &[Load {
            length: 8 << 20,
            transfers: 4,
        }],
    );
    star.start();
    star.run_for(Duration::from_millis(20));
    assert!(
        star.most_outstanding() >= 1 << 20,
        "{}",
        star.most_outstanding()
    );
    assert_eq!(star.grants_deferred(), 0);
}

#[test]
fn fast__turns_go_round_and_none_starves() {
    seeds::each(2, |seed| {
        let scheduler = Scheduler::new(Schedule::Fast);
        let mut star = Star::new(shallow(), seed, &scheduler, &[Load::ENDLESS; 4]);
        star.start();
        star.run_for(Duration::from_millis(100));
        let mut fastest = vec![];
        let (mut total, mut most) = (0.0, 0);
        const LOOKS: u32 = 120;
        for _ in 0..LOOKS {
            let (all, received) = run(&mut star, limits::ADMISSION_SLICE / 5);
            total += all / f64::from(LOOKS);
            assert!(
                received.iter().all(|&bytes| bytes > 0),
                "a trickle each: {received:?}"
            );
            let best = (0..4).max_by_key(|&index| received[index]).unwrap();
            fastest.push(best);
            most += u32::from(received[best] * 10 > received.iter().sum::<u64>() * 7);
        }
        let (least, mean) = least_and_mean(&star.received());
        assert!(total >= 0.93, "{total}");
        assert!(most >= LOOKS / 2, "one at a time: {most}");
        assert!((0..4).all(|index| fastest.contains(&index)), "{fastest:?}");
        assert!(least >= mean / 2, "{:?}", star.received());
        assert_few_losses(&star);
    });
}

#[test]
fn request_fast__granted_to_one_refused_to_others() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let mut star = Star::new(shallow(), 1, &scheduler, &[Load::ENDLESS; 4]);
    star.start();
    star.run_for(Duration::from_millis(50));
    let now = star.now();
    assert_eq!(star.receiver(2).request_fast(now), FastAnswer::Granted);
    assert_eq!(star.receiver(1).request_fast(now), FastAnswer::Refused);
    star.run_for(Duration::from_millis(10));
    let (all, received) = run(&mut star, Duration::from_millis(50));
    assert!(all >= 0.93, "{all}");
    let others: u64 = received[0] + received[1] + received[3];
    assert!(received[2] > 4 * others, "{received:?}");
    assert!(received.iter().all(|&bytes| bytes > 0), "{received:?}");
    // Its turn is over, and the next turn belongs to another stream.
    star.run_for(Duration::from_millis(50));
    let now = star.now();
    assert_eq!(star.receiver(2).request_fast(now), FastAnswer::Refused);
    assert_eq!(star.receiver(1).request_fast(now), FastAnswer::Granted);
}

#[test]
fn shortest__short_transfers_finish_first() {
    let lengths = [4 << 20, 256 << 10, 2 << 20, 1 << 20];
    let finish = |schedule| {
        let loads = lengths.map(|length| Load {
            length,
            transfers: 1,
        });
        let scheduler = Scheduler::new(schedule);
        // The last one is alone; then only its own window limits it.
        let deep = LinkConfig {
            queue_packets: 10_000,
            ..shallow()
        };
        let mut star = Star::new(deep, 1, &scheduler, &loads);
        star.start();
        star.run_for(Duration::from_millis(200));
        let finished = star.finished();
        finished
            .into_iter()
            .map(|at| at.expect("finished"))
            .collect::<Vec<_>>()
    };
    let (shortest, fair) = (finish(Schedule::Shortest), finish(Schedule::Fair));
    assert!(shortest[1] < shortest[3] && shortest[3] < shortest[2] && shortest[2] < shortest[0]);
    let mean = |times: &[Duration]| times.iter().sum::<Duration>();
    assert!(mean(&shortest) < mean(&fair), "{shortest:?} {fair:?}");
}

#[test]
fn shortest__long_transfers_make_progress() {
    let load = |length| Load {
        length,
        ..Load::ENDLESS
    };
    let mut loads = [load(32 << 10); SENDERS];
    loads[0] = load(4 << 20);
    let scheduler = Scheduler::new(Schedule::Shortest);
    let mut star = Star::new(shallow(), 1, &scheduler, &loads);
    star.start();
    let (_, received) = run(&mut star, Duration::from_millis(300));
    assert!(received[0] > 100 << 10, "{received:?}");
}

#[test]
fn hostile__a_sender_that_withholds_granted_payload_does_not_starve_others() {
    seeds::each(2, |seed| {
        let scheduler = Scheduler::new(Schedule::Fair);
        let mut star = Star::new(shallow(), seed, &scheduler, &[Load::ENDLESS; 4]);
        for liar in 1..4 {
            star.withhold_after(liar, 40);
        }
        star.start();
        star.run_for(Duration::from_millis(100));
        let (_, received) = run(&mut star, Duration::from_millis(200));
        assert!(
            filled(received[0], Duration::from_millis(200)) >= 0.9,
            "{received:?}"
        );
    });
}

#[test]
fn hostile__a_sender_that_brings_little_is_held_to_little() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let mut star = Star::new(shallow(), 1, &scheduler, &[Load::ENDLESS; 4]);
    for slow in 1..4 {
        star.withhold_after(slow, 0);
    }
    star.start();
    let mut honest = 0;
    const DRIPS: u32 = 200;
    let drip = Duration::from_millis(2);
    for n in 0..DRIPS {
        (1..4).for_each(|slow| star.withhold_after(slow, 1));
        let (_, received) = run(&mut star, drip);
        honest += if n >= DRIPS / 2 { received[0] } else { 0 };
    }
    let part = filled(honest, drip * (DRIPS / 2));
    assert!(part >= 0.85, "{part}");
}

#[test]
fn death__frees_the_share() {
    seeds::each(2, |seed| {
        let scheduler = Scheduler::new(Schedule::Fair);
        let mut star = Star::new(shallow(), seed, &scheduler, &[Load::ENDLESS; 4]);
        star.start();
        star.run_for(Duration::from_millis(100));
        for dead in 1..3 {
            star.kill(dead);
        }
        star.run_for(Duration::from_millis(50));
        let (all, received) = run(&mut star, Duration::from_millis(100));
        assert!(all >= 0.93, "{all}");
        let ratio = received[0] as f64 / received[3] as f64;
        assert!((0.8..1.25).contains(&ratio), "{received:?}");
    });
}

#[test]
fn close__frees_the_share() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let mut star = Star::new(shallow(), 1, &scheduler, &[Load::ENDLESS; 2]);
    star.start();
    star.run_for(Duration::from_millis(20));
    assert!(format!("{scheduler:?}").contains("streams: 2"));
    let now = star.now();
    star.receiver(0).close(now);
    assert_eq!(scheduler.ledger().streams(), 1);
}
