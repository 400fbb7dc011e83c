//! Tests that a link delays, drops, marks and reorders as configured, and repeats its outcome for a seed.
#![allow(non_snake_case)]

use super::*;
use proptest::prelude::*;

const SEED: u64 = 7;

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Takes out everything in flight, with the time at which each was due.
fn drain<P>(link: &mut Link<P>) -> Vec<(Duration, P)> {
    let mut arrived = Vec::new();
    while let Some(due) = link.next_delivery() {
        let packet = link.pop_due(due).expect("due now");
        arrived.push((due, packet));
    }
    arrived
}

fn packets_of<P>(arrived: Vec<(Duration, P)>) -> Vec<P> {
    arrived.into_iter().map(|(_, packet)| packet).collect()
}

/// Share of `count` packets that arrive under `loss`.
fn loss_share(loss: Loss, count: u32) -> f64 {
    let config = LinkConfig {
        loss,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    for packet in 0..count {
        link.send(us(u64::from(packet)), 100, packet);
    }
    let arrived = drain(&mut link).len() as f64;
    1.0 - arrived / f64::from(count)
}

#[test]
fn send__perfect_link_delivers_at_once_in_order() {
    let mut link = Link::new(LinkConfig::default(), SEED);
    for packet in 0..100 {
        link.send(ms(3), 1500, packet);
    }
    let arrived = drain(&mut link);
    assert!(arrived.iter().all(|&(due, _)| due == ms(3)));
    assert_eq!(packets_of(arrived), (0..100).collect::<Vec<_>>());
    assert_eq!(link.stats().delivered, 100);
    assert_eq!(link.stats().dropped(), 0);
}

#[test]
fn send__time_never_runs_backwards() {
    let mut link = Link::new(LinkConfig::default(), SEED);
    link.send(ms(9), 10, 'a');
    link.send(ms(2), 10, 'b');
    assert_eq!(drain(&mut link), [(ms(9), 'a'), (ms(9), 'b')]);
}

#[test]
fn send__rate_spaces_packets() {
    let config = LinkConfig {
        delay: ms(1),
        rate_bits_per_s: Some(8_000_000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 1000, 'a');
    link.send(ms(0), 500, 'b');
    // The bottleneck has been idle again since 1.5 ms.
    link.send(ms(10), 1000, 'c');
    assert_eq!(
        drain(&mut link),
        [(ms(2), 'a'), (us(2500), 'b'), (ms(12), 'c')]
    );
}

#[test]
fn send__zero_rate_is_one_bit_per_second() {
    let config = LinkConfig {
        rate_bits_per_s: Some(0),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 1, ());
    assert_eq!(link.next_delivery(), Some(Duration::from_secs(8)));
}

#[test]
fn send__full_queue_drops_the_tail() {
    let config = LinkConfig {
        rate_bits_per_s: Some(8_000_000),
        queue_packets: 2,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    for packet in 0..5 {
        link.send(ms(0), 1000, packet);
    }
    // One left the bottleneck by now, so one more finds room.
    link.send(ms(1), 1000, 5);
    assert_eq!(link.stats().queue_dropped, 2);
    assert_eq!(packets_of(drain(&mut link)), [0, 1, 2, 5]);
}

#[test]
fn send__queue_of_bytes_drops_what_does_not_fit() {
    let config = LinkConfig {
        rate_bits_per_s: Some(8_000_000),
        queue_bytes: Some(1500),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    // The first is being serialised; 1000 + 500 wait; a byte more does not fit.
    for (size, name) in [(1000, 'a'), (1000, 'b'), (501, 'x'), (500, 'c'), (1, 'y')] {
        link.send(ms(0), size, name);
    }
    // The second is in the bottleneck now, and its bytes are free.
    link.send(ms(1), 1000, 'd');
    assert_eq!(link.stats().queue_dropped, 2);
    assert_eq!(packets_of(drain(&mut link)), ['a', 'b', 'c', 'd']);
}

#[test]
fn send__idle_bottleneck_takes_a_packet_bigger_than_its_queue() {
    let config = LinkConfig {
        rate_bits_per_s: Some(8_000_000),
        queue_bytes: Some(10),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 1000, ());
    link.send(ms(1), 1000, ());
    assert_eq!(link.stats().queue_dropped, 0);
}

#[test]
fn send__marks_what_finds_the_queue_at_the_threshold() {
    let config = LinkConfig {
        rate_bits_per_s: Some(8_000_000),
        mark_packets: Some(2),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    for _ in 0..5 {
        link.send(ms(0), 1000, ());
    }
    let mut marks = Vec::new();
    while let Some(due) = link.next_delivery() {
        marks.push(link.pop_arrival(due).expect("due now").marked);
    }
    // One is served and two wait when the fourth comes.
    assert_eq!(marks, [false, false, false, true, true]);
    assert_eq!(link.stats().marked, 2);
}

#[test]
fn bursts__lose_the_mean_in_bursts_of_the_length() {
    for (mean, length) in [(0.01, 10.0), (0.2, 3.0), (0.05, 0.0)] {
        let share = loss_share(Loss::bursts(mean, length), 1_000_000);
        assert!(
            (share - mean).abs() < mean / 10.0,
            "{mean} {length}: {share}"
        );
    }
}

#[test]
fn send__lost_packets_use_up_the_rate() {
    let config = LinkConfig {
        rate_bits_per_s: Some(8_000_000),
        loss: Loss::Random(1.0),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 1000, "lost");
    link.set_config(LinkConfig {
        loss: Loss::None,
        ..config
    });
    link.send(ms(0), 1000, "kept");
    assert_eq!(link.stats().lost, 1);
    assert_eq!(drain(&mut link), [(ms(2), "kept")]);
}

#[test]
fn send__bigger_than_mtu_vanishes() {
    let config = LinkConfig {
        mtu: Some(1500),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 1501, "big");
    link.send(ms(0), 1500, "fits");
    assert_eq!(link.stats().too_big, 1);
    assert_eq!(packets_of(drain(&mut link)), ["fits"]);
}

#[test]
fn send__duplicates_every_packet_when_certain() {
    let config = LinkConfig {
        duplicate: 1.0,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 10, 'a');
    link.send(ms(0), 10, 'b');
    assert_eq!(packets_of(drain(&mut link)), ['a', 'a', 'b', 'b']);
    assert_eq!(link.stats().duplicated, 2);
    assert_eq!(link.stats().reordered, 0);
}

#[test]
fn send__random_loss_is_as_frequent_as_asked() {
    for p in [0.0, 0.01, 0.05, 0.2, 1.0] {
        let share = loss_share(Loss::Random(p), 100_000);
        // Four standard deviations of a binomial share.
        let bound = 4.0 * (p * (1.0 - p) / 100_000.0f64).sqrt();
        assert!((share - p).abs() <= bound, "asked {p}, got {share}");
    }
}

#[test]
fn send__probabilities_out_of_range_are_clamped() {
    assert_eq!(loss_share(Loss::Random(-1.0), 100), 0.0);
    assert_eq!(loss_share(Loss::Random(f64::NAN), 100), 0.0);
    assert_eq!(loss_share(Loss::Random(2.0), 100), 1.0);
}

#[test]
fn send__bursts_have_the_share_and_length_asked() {
    let loss = Loss::GilbertElliott {
        p_good_to_bad: 0.01,
        p_bad_to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let config = LinkConfig {
        loss,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    let count = 200_000u32;
    (0..count).for_each(|packet| link.send(ms(0), 10, packet));
    let arrived = packets_of(drain(&mut link));
    let lost = f64::from(count) - arrived.len() as f64;
    let bursts = arrived.windows(2).filter(|w| w[1] != w[0] + 1).count() as f64;

    // Stationary share of the bad state: 0.01 / (0.01 + 0.25).
    let share = lost / f64::from(count);
    assert!((share - 0.03846).abs() < 0.003, "share {share}");
    let length = lost / bursts;
    assert!((length - 4.0).abs() < 0.25, "mean burst length {length}");
}

#[test]
fn send__held_back_packets_are_overtaken() {
    let config = LinkConfig {
        delay: ms(1),
        reorder: Reorder {
            probability: 0.1,
            by: ms(5),
        },
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    for packet in 0..1000 {
        link.send(us(packet * 10), 100, packet);
    }
    let arrived = drain(&mut link);
    let mut highest = 0;
    let mut late = 0;
    for &(due, packet) in &arrived {
        let held_back = due == us(packet * 10) + ms(6);
        assert!(held_back || due == us(packet * 10) + ms(1));
        late += u64::from(packet < highest);
        highest = highest.max(packet);
    }
    assert_eq!(arrived.len(), 1000);
    assert_eq!(link.stats().reordered, late);
    assert!((50..200).contains(&late), "{late} of 1000 were late");
}

#[test]
fn set_config__keeps_order_when_the_delay_shrinks() {
    let config = LinkConfig {
        delay: ms(50),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 10, "slow");
    link.set_config(LinkConfig::default());
    link.send(ms(1), 10, "fast");
    assert_eq!(drain(&mut link), [(ms(50), "slow"), (ms(50), "fast")]);
}

#[test]
fn set_config__jitter_does_not_change_which_packets_are_lost() {
    let survivors = |jitter| {
        let config = LinkConfig {
            loss: Loss::Random(0.3),
            jitter,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, SEED);
        (0..500).for_each(|packet| link.send(ms(packet), 10, packet));
        packets_of(drain(&mut link))
    };
    assert_eq!(survivors(ms(0)), survivors(ms(40)));
}

#[test]
fn set_up__down_drops_what_is_in_flight_and_what_is_sent() {
    let config = LinkConfig {
        delay: ms(10),
        rate_bits_per_s: Some(8_000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, SEED);
    link.send(ms(0), 1000, "in flight");
    link.set_up(false);
    link.send(ms(1), 1000, "while down");
    assert!(!link.is_up());
    assert_eq!(link.next_delivery(), None);
    assert_eq!(link.stats().down, 2);

    link.set_up(true);
    link.send(ms(2), 1, "after");
    assert_eq!(drain(&mut link), [(ms(13), "after")]);
}

/// Pins the outcome of a seed: if this fails, old seeds in bug reports have
/// lost their meaning.
#[test]
fn link__outcome_of_a_seed_is_pinned() {
    let mut link = Link::new(rough_link(), 42);
    for packet in 0..12u64 {
        link.send(us(packet * 100), 1000, packet);
    }
    let arrived: Vec<(u128, u64)> = drain(&mut link)
        .into_iter()
        .map(|(due, packet)| (due.as_nanos(), packet))
        .collect();
    assert_eq!(arrived, PINNED);
}

/// Delivery time in nanoseconds and packet.
const PINNED: [(u128, u64); 13] = [
    (3_050_477, 0),
    (3_050_477, 2),
    (3_050_477, 3),
    (3_050_477, 3),
    (3_050_477, 6),
    (3_749_219, 7),
    (3_826_559, 8),
    (3_826_559, 9),
    (3_919_695, 10),
    (3_919_695, 11),
    (6_100_822, 5),
    (6_330_077, 4),
    (6_919_695, 11),
];

/// Everything switched on at once.
fn rough_link() -> LinkConfig {
    LinkConfig {
        delay: ms(2),
        jitter: ms(1),
        loss: Loss::Random(0.2),
        reorder: Reorder {
            probability: 0.2,
            by: ms(3),
        },
        duplicate: 0.2,
        rate_bits_per_s: Some(100_000_000),
        queue_packets: 4,
        queue_bytes: None,
        mark_packets: None,
        mtu: Some(1500),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send { after: Duration, size: usize },
    Pop { after: Duration },
    SetUp(bool),
    SetConfig(LinkConfig),
}

fn any_loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (0.0..=1.0).prop_map(Loss::Random),
        (0.0..=1.0, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0).prop_map(|(gb, bg, good, bad)| {
            Loss::GilbertElliott {
                p_good_to_bad: gb,
                p_bad_to_good: bg,
                loss_good: good,
                loss_bad: bad,
            }
        }),
    ]
}

fn any_duration() -> impl Strategy<Value = Duration> {
    (0..5_000u64).prop_map(us)
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    (
        (any_duration(), any_duration(), any_loss()),
        (0.0..=1.0, any_duration(), 0.0..=1.0),
        (
            proptest::option::of(100_000..1_000_000_000u64),
            0..20usize,
            proptest::option::of(0..20_000usize),
            proptest::option::of(0..20usize),
            proptest::option::of(100..2000usize),
        ),
    )
        .prop_map(
            |(
                (delay, jitter, loss),
                (probability, by, duplicate),
                (rate, queue, queue_bytes, mark_packets, mtu),
            )| {
                LinkConfig {
                    delay,
                    jitter,
                    loss,
                    reorder: Reorder { probability, by },
                    duplicate,
                    rate_bits_per_s: rate,
                    queue_packets: queue,
                    queue_bytes,
                    mark_packets,
                    mtu,
                }
            },
        )
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any_duration(), 0..2000usize).prop_map(|(after, size)| Step::Send { after, size }),
        4 => any_duration().prop_map(|after| Step::Pop { after }),
        1 => any::<bool>().prop_map(Step::SetUp),
        1 => any_config().prop_map(Step::SetConfig),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Runs the steps; returns the link and what arrived when.
fn run(config: LinkConfig, seed: u64, steps: &[Step]) -> (Link<usize>, Vec<(Duration, usize)>) {
    let mut link = Link::new(config, seed);
    let mut now = Duration::ZERO;
    let mut arrived = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Send { after, size } => {
                now += after;
                link.send(now, size, index);
            }
            Step::Pop { after } => {
                now += after;
                while let Some(packet) = link.pop_due(now) {
                    arrived.push((now, packet));
                }
            }
            Step::SetUp(up) => link.set_up(up),
            Step::SetConfig(config) => link.set_config(config),
        }
    }
    (link, arrived)
}

proptest! {
    #[test]
    fn link__every_packet_is_accounted_for(
        config in any_config(), seed: u64, steps in any_steps(),
    ) {
        let (mut link, arrived) = run(config, seed, &steps);
        let stats = link.stats();
        prop_assert_eq!(stats.delivered, arrived.len() as u64);
        let ended = stats.delivered + stats.dropped();
        prop_assert_eq!(stats.sent + stats.duplicated, ended + link.in_flight() as u64);

        let rest = drain(&mut link).len() as u64;
        let stats = link.stats();
        prop_assert_eq!(stats.delivered, arrived.len() as u64 + rest);
        prop_assert_eq!(stats.sent + stats.duplicated, stats.delivered + stats.dropped());
    }

    #[test]
    fn link__same_seed_same_outcome(config in any_config(), seed: u64, steps in any_steps()) {
        let (link, arrived) = run(config, seed, &steps);
        let (again_link, again) = run(config, seed, &steps);
        prop_assert_eq!(arrived, again);
        prop_assert_eq!(link.stats(), again_link.stats());
    }

    #[test]
    fn link__without_reordering_order_is_kept(
        config in any_config(), seed: u64, gaps in proptest::collection::vec(any_duration(), 0..200),
    ) {
        // Jitter stays on: by contract it does not reorder.
        let config = LinkConfig { reorder: Reorder::default(), ..config };
        let mut link = Link::new(config, seed);
        let mut now = Duration::ZERO;
        for (packet, gap) in gaps.into_iter().enumerate() {
            now += gap;
            link.send(now, 100, packet);
        }
        let arrived = packets_of(drain(&mut link));
        prop_assert!(arrived.is_sorted(), "{:?}", arrived);
        prop_assert_eq!(link.stats().reordered, 0);
    }

    #[test]
    fn link__rate_is_never_exceeded(
        config in any_config(), seed: u64, rate in 1_000_000..10_000_000_000u64,
        packets in proptest::collection::vec((0..200u64, 1..1500usize), 1..200),
    ) {
        let config = LinkConfig {
            jitter: Duration::ZERO,
            reorder: Reorder::default(),
            rate_bits_per_s: Some(rate),
            queue_packets: 1000,
            ..config
        };
        let mut link = Link::new(config, seed);
        let mut now = Duration::ZERO;
        for (gap, size) in packets {
            now += us(gap);
            link.send(now, size, size);
        }
        let arrived = drain(&mut link);
        // In any interval between two deliveries, all that was delivered after
        // the first was serialised within the interval.
        for (first, &(from, _)) in arrived.iter().enumerate() {
            let mut bits = 0;
            for &(until, size) in &arrived[first + 1..] {
                bits += size as u128 * 8;
                let allowed = (until - from).as_nanos() * u128::from(rate) / 1_000_000_000;
                prop_assert!(bits <= allowed, "{} bits in {:?}", bits, until - from);
            }
        }
    }

    #[test]
    fn link__delay_is_within_delay_and_jitter(
        delay in any_duration(), jitter in any_duration(), seed: u64,
    ) {
        let config = LinkConfig { delay, jitter, ..LinkConfig::default() };
        let mut link = Link::new(config, seed);
        for packet in 0..100 {
            // Far enough apart that no packet waits for the one before.
            link.send(ms(20) * packet, 100, packet);
        }
        for (due, packet) in drain(&mut link) {
            let took = due - ms(20) * packet;
            prop_assert!(took >= delay && took <= delay + jitter, "took {:?}", took);
        }
    }
}
