//! Tests that the budget follows rate, delay, loss and hosts that answer late.
#![allow(non_snake_case)]
use super::*;

const MS: u64 = 1_000_000;

/// Runs `budget` for `ms` milliseconds at 125 MB/s and 100 us.
fn run(budget: &mut Budget, from_ms: u64, ms: u64, streams: u64) -> Instant {
    let mut now = Instant::ZERO;
    for at in from_ms..from_ms + ms {
        now = Instant::from_nanos(at * MS);
        let news = News {
            arrived: 125_000,
            delay: Some(Duration::from_micros(100)),
            streams,
            ..News::default()
        };
        budget.hear(now, news);
    }
    now
}

#[test]
fn bytes__before_anything_was_measured() {
    assert_eq!(Budget::new().bytes(Instant::ZERO), INITIAL_BUDGET);
}

#[test]
fn bytes__bandwidth_times_delay_and_margin() {
    let mut budget = Budget::new();
    let now = run(&mut budget, 1, 100, 2);
    // The first interval has one more arrival than it has milliseconds.
    let expected = 125_000 * 6 / 10;
    let bytes = budget.bytes(now);
    assert!((expected..expected * 9 / 8 + 1).contains(&bytes), "{bytes}");
}

#[test]
fn bytes__grow_with_the_link() {
    let mut budget = Budget::new();
    for at in 1..100 {
        let news = News {
            arrived: 1_250_000,
            delay: Some(Duration::from_micros(50)),
            streams: 2,
            ..News::default()
        };
        budget.hear(Instant::from_nanos(at * MS), news);
    }
    let bytes = budget.bytes(Instant::from_nanos(100 * MS));
    assert!((687_500..780_000).contains(&bytes), "{bytes}");
}

#[test]
fn bytes__shrink_when_many_lose_and_recover_when_quiet() {
    let mut budget = Budget::new();
    let now = run(&mut budget, 1, 100, 4);
    let before = budget.bytes(now);
    let lost = News {
        missing: 50_000,
        first_loss: true,
        streams: 4,
        ..News::default()
    };
    budget.hear(now, lost);
    let now = run(&mut budget, 101, 9, 4);
    assert!(budget.bytes(now) < before * 9 / 10);
    let now = run(&mut budget, 110, 4900, 4);
    assert_eq!(budget.bytes(now), before);
}

#[test]
fn bytes__losses_of_one_in_many_do_not_shrink_them() {
    let mut budget = Budget::new();
    let now = run(&mut budget, 1, 100, 8);
    let before = budget.bytes(now);
    let lost = News {
        missing: 50_000,
        first_loss: true,
        streams: 8,
        ..News::default()
    };
    budget.hear(now, lost);
    let now = run(&mut budget, 101, 20, 8);
    assert_eq!(budget.bytes(now), before);
}

#[test]
fn bytes__never_below_the_floor() {
    let mut budget = Budget::new();
    for at in 1..2000 {
        let news = News {
            arrived: 100,
            missing: 100,
            delay: Some(Duration::from_micros(10)),
            first_loss: true,
            streams: 2,
            ..News::default()
        };
        budget.hear(Instant::from_nanos(at * MS), news);
    }
    let bytes = budget.bytes(Instant::from_nanos(2000 * MS));
    assert_eq!(bytes, INITIAL_BUDGET / 4);
}

#[test]
fn base__is_measured_anew_with_an_empty_queue() {
    let mut budget = Budget::new();
    let mut drained = 0;
    for at in 1..20_000 {
        let now = Instant::from_nanos(at * MS);
        let delay = if at < 1000 { 100 } else { 300 };
        let news = News {
            arrived: 125_000,
            delay: Some(Duration::from_micros(delay)),
            streams: 2,
            ..News::default()
        };
        budget.hear(now, news);
        drained += u32::from(now < budget.drain_until);
    }
    assert_eq!(budget.base(), Some(Duration::from_micros(300)));
    assert!((3..=8).contains(&drained), "{drained}");
}

#[test]
fn rest__is_no_measurement() {
    let mut budget = Budget::new();
    let now = run(&mut budget, 1, 100, 2);
    let before = budget.bytes(now);
    budget.stop_interval();
    let now = run(&mut budget, 60_000, 20, 2);
    assert!(budget.bytes(now) >= before * 7 / 8);
}

/// Runs `budget` for ten seconds in which the queue runs empty for lack of grants. `missing` returns the bytes missing
/// in an interval, from the budget in it. Returns the largest budget.
fn run_empty(budget: &mut Budget, missing: impl Fn(u64) -> u64) -> u64 {
    let mut most = 0;
    for at in 1..10_000 {
        let now = Instant::from_nanos(at * MS);
        let missing = missing(budget.bytes(now));
        let news = News {
            arrived: 60_000,
            missing,
            first_loss: missing > 0,
            delay: Some(Duration::from_micros(100)),
            streams: 2,
            short: true,
        };
        budget.hear(now, news);
        most = most.max(budget.bytes(now));
    }
    most
}

#[test]
fn stretch__grows_while_the_queue_runs_empty() {
    let mut budget = Budget::new();
    let most = run_empty(&mut budget, |_| 0);
    assert!(most >= INITIAL_BUDGET * 15, "{most}");
}

#[test]
fn stretch__grows_slowly_while_the_link_is_full() {
    let grown = |later: u64| {
        let mut budget = Budget::new();
        let now = run(&mut budget, 1, 100, 2);
        for at in 100..300 {
            let news = News {
                arrived: later,
                delay: Some(Duration::from_micros(100)),
                streams: 2,
                short: true,
                ..News::default()
            };
            budget.hear(now + Duration::from_millis(at), news);
        }
        budget.stretch - ONE
    };
    // As much as the first interval, which has one arrival more than milliseconds.
    let (full, not_full) = (grown(140_000), grown(60_000));
    assert!(full > 0 && not_full >= 4 * full, "{full}, {not_full}");
}

#[test]
fn stretch__ends_at_losses() {
    let mut budget = Budget::new();
    let room = INITIAL_BUDGET * 2;
    let overflow = |bytes: u64| if bytes > room { 2_000 } else { 0 };
    let most = run_empty(&mut budget, overflow);
    assert!(most < room * 5 / 4, "{most}");
    assert!(budget.bytes(Instant::from_nanos(10_000 * MS)) > room / 2);
}

/// The loss is the same however little is granted: 2 % of everything.
#[test]
fn stretch__grows_whatever_the_path_loses_by_itself() {
    let mut budget = Budget::new();
    let most = run_empty(&mut budget, |_| 1_200);
    assert!(most >= INITIAL_BUDGET * 3, "{most}");
    // And no further than the queue has room for.
    let mut budget = Budget::new();
    let room = INITIAL_BUDGET;
    let lossy = |bytes: u64| 1_200 + if bytes > room { 6_000 } else { 0 };
    let most = run_empty(&mut budget, lossy);
    assert!(most < room * 5 / 4, "{most}");
}

#[test]
fn stretch__goes_when_there_is_a_queue() {
    let mut budget = Budget::new();
    run_empty(&mut budget, |_| 0);
    for at in 10_000..11_000 {
        let news = News {
            arrived: 125_000,
            delay: Some(Duration::from_micros(800)),
            streams: 2,
            short: true,
            ..News::default()
        };
        budget.hear(Instant::from_nanos(at * MS), news);
    }
    assert_eq!(budget.stretch, ONE);
}

#[test]
fn stretch__needs_a_member_that_wants_more() {
    let mut budget = Budget::new();
    run(&mut budget, 1, 5000, 4);
    assert_eq!(budget.stretch, ONE);
}
