//! Tests that queues, lateness and stale round trips are told apart.
#![allow(non_snake_case)]
use super::*;

const MS: Duration = Duration::from_millis(1);

fn sample(rtt: Duration) -> Sample {
    Sample {
        rtt,
        min_rtt: 10 * MS,
        rate: 1 << 20,
        limited: false,
        received: 1,
        marked: 0,
        under_way: 0,
        round: true,
        lateness: Lateness::default(),
    }
}

/// State after answers that alternate between two round trips.
fn after(rtts: [Duration; 2]) -> Delay {
    let mut delay = Delay::default();
    for n in 0..100 {
        delay.note(Instant::ZERO + MS * n, &sample(rtts[n as usize % 2]));
    }
    delay
}

#[test]
fn unsteadiness__is_what_the_round_trip_varies_by_and_bounded() {
    assert_eq!(after([10 * MS; 2]).unsteadiness(), Duration::ZERO);
    let varying = after([10 * MS, 11 * MS]).unsteadiness();
    assert!(
        varying > MS / 2 && varying < MAX_UNSTEADINESS,
        "{varying:?}"
    );
    assert_eq!(after([10 * MS, 40 * MS]).unsteadiness(), MAX_UNSTEADINESS);
}

#[test]
fn is_stale__when_no_answer_came_soon_for_long() {
    let mut delay = Delay::new(Instant::ZERO, None);
    let end = Instant::ZERO + PROBE_RTT_INTERVAL;
    delay.note(end, &sample(20 * MS));
    assert!(!delay.is_stale(end));
    assert!(delay.is_stale(end + MS));
    delay.probed(end + MS);
    assert!(!delay.is_stale(end + MS), "it was looked for");
    let mut delay = Delay::new(Instant::ZERO, None);
    delay.note(end, &sample(10 * MS));
    assert!(!delay.is_stale(end + MS), "one came as soon as ever");
}

#[test]
fn is_crowded__after_many_rounds_with_a_queue_in_a_row() {
    let queued = Round {
        samples: 1,
        rtt_sum: 20 * MS,
        ..Round::default()
    };
    let free = Round {
        rtt_sum: 10 * MS,
        ..queued
    };
    let mut delay = after([10 * MS; 2]);
    for _ in 1..CROWDED_ROUNDS {
        assert!(delay.note_round(&queued) && !delay.is_crowded());
    }
    delay.note_round(&free);
    for _ in 1..CROWDED_ROUNDS {
        assert!(delay.note_round(&queued) && !delay.is_crowded(), "in a row");
    }
    assert!(delay.note_round(&queued) && delay.is_crowded());
    delay.cleared();
    assert!(!delay.is_crowded());
}
