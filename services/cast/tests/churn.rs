//! Tests that a cast survives a day of virtual time in which nodes come, die and return. `ZEROLANE_SEED` repeats one seed.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::sim::{Disturbance, Random, Setup, run};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How much longer all times of the options are than by default: a node beats three times a minute, so that a day of it is
/// simulated in seconds. To the nodes it is a day of seven minutes, in which a cast takes eighteen seconds.
const SCALE: u32 = 200;

/// 1 Gb/s.
const PORT: u64 = 125_000_000;

/// So long a life is enough for all, in times of the port's for the content.
const ENOUGH: u32 = 3;

const NODES: u32 = 30;

/// A time of which the mean is `mean`, and which has no memory.
fn until_chance(random: &mut Random, mean: Duration) -> Duration {
    let share = (random.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
    mean.mul_f64(-share.ln())
}

/// A content that a port passes in an hour. Each node lives for three hours in the mean and is away for twenty minutes; one in
/// three comes back with an empty disk.
fn day(seed: u64) -> Setup {
    let mut random = Random::new(seed);
    let mut setup = Setup::new(NODES, 200, PORT * 18, PORT).with_arity(1 + random.below(3) as u32);
    setup.seed = seed;
    let options = &mut setup.options;
    (options.expected, options.gather) = (0, MINUTE * 5);
    options.beat *= SCALE;
    options.suspicion *= SCALE;
    options.silence *= SCALE;
    options.stall *= SCALE;
    options.patience *= SCALE;
    for node in 1..=NODES {
        let mut at = random.before(HOUR * 2);
        setup.disturbances.push((at, Disturbance::Start(node)));
        loop {
            at += until_chance(&mut random, HOUR * 3);
            if at > DAY {
                break;
            }
            setup.disturbances.push((at, Disturbance::Kill(node)));
            at += until_chance(&mut random, MINUTE * 20);
            let comes_back = match random.below(3) {
                0 => Disturbance::Replace(node),
                _ => Disturbance::Start(node),
            };
            setup.disturbances.push((at, comes_back));
        }
    }
    setup.until = DAY + HOUR * 12;
    setup
}

#[test]
fn churn__of_a_day_and_every_node_that_lives_long_enough_has_all() {
    let seeds = match std::env::var("ZEROLANE_SEED") {
        Ok(seed) => vec![seed.parse().expect("ZEROLANE_SEED is a number")],
        Err(_) => vec![1, 2, 3],
    };
    for seed in seeds {
        let setup = day(seed);
        let outcome = run(&setup);
        let enough = setup.ideal() * ENOUGH;
        let mut whole = 0;
        for life in &outcome.lives {
            let what = format!("ZEROLANE_SEED={seed}: arity {}: {life:?}", setup.arity);
            assert!(
                !outcome.nodes[life.node as usize].wrong,
                "{what}: wrong content"
            );
            let took = life.done.map(|it| it - life.started);
            let lived = life.died.unwrap_or(setup.until) - life.started;
            assert!(
                lived < enough || took.is_some_and(|it| it <= enough),
                "{what}: not done"
            );
            whole += usize::from(took.is_some());
        }
        println!(
            "ZEROLANE_SEED={seed}: arity {}, {} lives, {whole} of them with all; ended after {:?}",
            setup.arity,
            outcome.lives.len(),
            outcome.ended
        );
        assert!(
            outcome.lives.len() > 100,
            "ZEROLANE_SEED={seed}: {} lives",
            outcome.lives.len()
        );
    }
}
