//! Tests that the rate estimate is bounded in memory and ignores limited samples.
#![allow(non_snake_case)]
use super::*;
use crate::congestion::Lateness;

/// Each burst of a round is answered, and each answer shows a lower rate.
#[test]
fn note__ever_lower_rates_take_no_more_room_than_the_limit() {
    let mut rates = Rates::default();
    let now = Instant::ZERO + Duration::from_secs(1);
    let mut sample = Sample {
        rtt: Duration::from_millis(1),
        min_rtt: Duration::from_millis(1),
        rate: 1 << 30,
        limited: false,
        received: 1,
        marked: 0,
        under_way: 0,
        round: false,
        lateness: Lateness::default(),
    };
    for _ in 0..100 * MAX_RATES {
        sample.rate -= 1;
        rates.note(now, 1, &sample);
    }
    assert_eq!(rates.highest.len(), MAX_RATES);
    assert_eq!(rates.highest(), Some((1 << 30) - 1), "the highest counts");
    let newest = rates.highest.back().map(|it| it.2);
    assert_eq!(newest, Some(sample.rate), "when that is old, the newest");
}

/// The rate of a sender that ran out of payload tells nothing about the path, unless it is higher.
#[test]
fn note__what_was_limited_by_what_there_was_does_not_count() {
    let mut rates = Rates::default();
    let mut note = |round: u32, rate, limited| {
        let sample = Sample {
            rtt: Duration::from_millis(1),
            min_rtt: Duration::from_millis(1),
            rate,
            limited,
            received: 1,
            marked: 0,
            under_way: 0,
            round: true,
            lateness: Lateness::default(),
        };
        let now = Instant::ZERO + Duration::from_millis(100) * round;
        rates.note(now, u64::from(round), &sample);
        rates.highest()
    };
    assert_eq!(note(1, 1000, false), Some(1000));
    for round in 2..100 {
        assert_eq!(note(round, 10, true), Some(1000));
    }
    assert_eq!(note(100, 2000, true), Some(2000));
}
