//! Tests that overtaken payload is requested in time, and that late payload adjusts the patience.
#![allow(non_snake_case)]
use super::*;

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(8);

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

fn ranges(watch: &mut LossDetector, now: Instant) -> Vec<(u32, u32, u32)> {
    std::iter::from_fn(|| watch.take_due(now, RTT))
        .map(|it| (it.sequence, it.start, it.end))
        .collect()
}

#[test]
fn take_due__a_gap_is_lost_after_a_quarter_of_a_round_trip() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 100, 200), false);
    watch.overtaken(at(500), (1, 300, 400), false);
    assert_eq!(watch.next_due(at(0), RTT), Some(at(2000)));
    assert_eq!(ranges(&mut watch, at(1999)), []);
    assert_eq!(ranges(&mut watch, at(2000)), [(1, 100, 200)]);
    assert_eq!(ranges(&mut watch, at(2500)), [(1, 300, 400)]);
    assert_eq!(watch.next_due(at(2500), RTT), None);
}

#[test]
fn asked__waits_longer_each_time() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 100, 200), false);
    let mut now = at(2000);
    for wait in [10, 20, 40] {
        let it = watch.take_due(now, RTT).unwrap();
        watch.asked(now, it, (100, 200), 10 * MS);
        assert_eq!(watch.next_due(now, RTT), Some(now + wait * MS));
        now = now + wait * MS;
    }
}

#[test]
fn asked__a_part_is_a_new_matter() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 100, 200), false);
    let it = watch.take_due(at(2000), RTT).unwrap();
    watch.asked(at(2000), it, (100, 200), 10 * MS);
    let it = watch.take_due(at(12_000), RTT).unwrap();
    watch.asked(at(12_000), it, (110, 120), 10 * MS);
    watch.asked(at(12_000), it, (130, 140), 10 * MS);
    let due = ranges(&mut watch, at(22_000));
    assert_eq!(due, [(1, 110, 120), (1, 130, 140)]);
}

#[test]
fn asked__by_how_long_they_wait() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 0, 10), false);
    let twice = watch.take_due(at(2000), RTT).unwrap();
    watch.asked(at(2000), twice, (0, 10), 10 * MS);
    let twice = watch.take_due(at(12_000), RTT).unwrap();
    watch.asked(at(12_000), twice, (0, 10), 10 * MS);
    watch.overtaken(at(15_000), (1, 10, 20), false);
    let once = watch.take_due(at(17_000), RTT).unwrap();
    watch.asked(at(17_000), once, (10, 20), 10 * MS);
    assert_eq!(ranges(&mut watch, at(26_999)), []);
    assert_eq!(ranges(&mut watch, at(27_000)), [(1, 10, 20)]);
    assert_eq!(ranges(&mut watch, at(32_000)), [(1, 0, 10)]);
}

#[test]
fn asked__an_answer_to_another_ends_long_waits() {
    let mut watch = LossDetector::default();
    // Requested five times without an answer: the last wait is 160 ms long.
    watch.overtaken(at(0), (1, 0, 10), false);
    let mut now = at(2000);
    for wait in [10, 20, 40, 80, 160] {
        let it = watch.take_due(now, RTT).unwrap();
        watch.asked(now, it, (0, 10), 10 * MS);
        now = now + wait * MS;
    }
    // Another range, requested a moment later, is repaired.
    let later = at(160_000);
    watch.overtaken(at(155_000), (1, 10, 20), false);
    let it = watch.take_due(later, RTT).unwrap();
    watch.asked(later, it, (10, 20), 10 * MS);
    assert_eq!(
        watch.filled(later + RTT, (1, 10, 20), RTT),
        LateArrival::Repaired(RTT)
    );
    let it = watch.take_due(later + RTT, RTT).unwrap();
    assert_eq!((it.start, it.end), (0, 10));
    // A range requested on a path that answers waits no longer than any other.
    watch.asked(later + RTT, it, (0, 10), 10 * MS);
    assert_eq!(
        ranges(&mut watch, later + RTT + 10 * MS),
        [(1, 10, 20), (1, 0, 10)]
    );
}

#[test]
fn filled__finds_the_answer_among_thousands() {
    let mut watch = LossDetector::default();
    for gap in 0..2000u32 {
        watch.overtaken(at(u64::from(gap)), (1, 20 * gap, 20 * gap + 10), false);
    }
    for gap in 0..2000u32 {
        let now = at(2000 + u64::from(gap));
        let it = watch.take_due(now, RTT).unwrap();
        watch.asked(now, it, (it.start, it.end), 100 * MS);
    }
    // Every fifth is lost.
    for gap in (0..2000u32).filter(|gap| gap % 5 != 0) {
        let late = watch.filled(
            at(10_000 + u64::from(gap)),
            (1, 20 * gap, 20 * gap + 10),
            RTT,
        );
        assert_eq!(late, LateArrival::Repaired(RTT), "{gap}");
    }
}

#[test]
fn filled__late_payload_teaches_patience() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 100, 200), false);
    let late = watch.filled(at(6000), (1, 100, 200), RTT);
    assert_eq!(late, LateArrival::Reordered);
    assert_eq!(watch.reordering(at(6000)), 9 * MS, "half as much again");
    watch.overtaken(at(10_000), (1, 300, 400), false);
    assert_eq!(ranges(&mut watch, at(10_000 + 8999)), [(1, 100, 200)]);
    assert_eq!(ranges(&mut watch, at(10_000 + 9000)), [(1, 300, 400)]);
    let later = at(0) + REORDERING_MEMORY + 6 * MS;
    assert_eq!(watch.reordering(later), Duration::ZERO, "forgotten");
}

#[test]
fn filled__a_block_whose_grant_was_lost_is_not_late() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 0, 200), true);
    assert_eq!(
        watch.filled(at(1000), (1, 0, 10), RTT),
        LateArrival::Unknown
    );
    assert_eq!(watch.reordering(at(1000)), Duration::ZERO);
}

#[test]
fn filled__patience_has_an_end() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 100, 200), false);
    watch.filled(at(0) + Duration::from_secs(3600), (1, 100, 200), RTT);
    let now = at(0) + Duration::from_secs(3600);
    assert_eq!(watch.reordering(now), 4 * RTT);
}

#[test]
fn filled__sooner_than_a_repair_can_be_was_a_spurious_request() {
    let ask = |answered_after: Duration| {
        let mut watch = LossDetector::default();
        watch.overtaken(at(0), (1, 100, 200), false);
        let it = watch.take_due(at(2000), RTT).unwrap();
        watch.asked(at(2000), it, (100, 200), 10 * MS);
        watch.filled(at(2000) + answered_after, (1, 150, 160), RTT)
    };
    assert_eq!(ask(5 * MS), LateArrival::SpuriousRequest);
    let hair = MS / 100;
    assert_eq!(ask(RTT - hair), LateArrival::Repaired(RTT - hair));
    assert_eq!(ask(8 * MS), LateArrival::Repaired(8 * MS));
}

#[test]
fn filled__the_rest_of_what_was_asked_for_as_a_whole_teaches_nothing() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 100, 200), false);
    let it = watch.take_due(at(2000), RTT).unwrap();
    watch.asked(at(2000), it, (100, 200), 10 * MS);
    let it = watch.take_due(at(12_000), RTT).unwrap();
    watch.asked(at(12_000), it, (150, 200), 10 * MS);
    // Whether it answers the first request or the second is unknown.
    for after in [1, 9] {
        let late = watch.filled(at(12_000) + after * MS, (1, 150, 160), RTT);
        assert_eq!(late, LateArrival::Unknown);
    }
    assert_eq!(watch.reordering(at(21_000)), Duration::ZERO);
}

#[test]
fn filled__an_answer_to_a_later_request_makes_earlier_ones_overdue() {
    let mut watch = LossDetector::default();
    for (time, start) in [(0, 0), (3000, 10)] {
        watch.overtaken(at(time), (1, start, start + 10), false);
        let now = at(time + 2000);
        let it = watch.take_due(now, RTT).unwrap();
        watch.asked(now, it, (start, start + 10), 100 * MS);
    }
    assert_eq!(ranges(&mut watch, at(13_000)), []);
    let late = watch.filled(at(13_000), (1, 10, 20), RTT);
    assert_eq!(late, LateArrival::Repaired(8 * MS));
    assert_eq!(ranges(&mut watch, at(13_000)), [(1, 0, 10)]);
}

#[test]
fn filled__finds_its_gap_across_a_wrap_of_the_numbers() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (u32::MAX, 500, 600), false);
    watch.overtaken(at(1), (0, 0, 100), false);
    watch.overtaken(at(2), (1, 200, 300), false);
    for place in [(u32::MAX, 500, 600), (0, 50, 60), (1, 200, 201)] {
        assert_eq!(
            watch.filled(at(10), place, RTT),
            LateArrival::Reordered,
            "{place:?}"
        );
    }
    for place in [(u32::MAX, 0, 500), (0, 100, 200), (1, 300, 400), (7, 0, 1)] {
        assert_eq!(
            watch.filled(at(10), place, RTT),
            LateArrival::Unknown,
            "{place:?}"
        );
    }
}

#[test]
fn overtaken__is_bounded() {
    let mut watch = LossDetector::default();
    for gap in 0..2 * MAX_OVERTAKEN as u32 {
        watch.overtaken(at(0), (1, 2 * gap, 2 * gap + 1), false);
    }
    assert_eq!(watch.len(), MAX_OVERTAKEN);
}

#[test]
fn put_back__the_rest_is_due_at_once() {
    let mut watch = LossDetector::default();
    watch.overtaken(at(0), (1, 0, 100), false);
    watch.overtaken(at(0), (1, 200, 300), false);
    // For the first time, and after a request without effect.
    for now in [at(2000), at(12_000)] {
        let it = watch.take_due(now, RTT).unwrap();
        let part = (it.start, it.start + 10);
        watch.asked(now, it, part, 100 * MS);
        assert!(watch.put_back(it, it.start + 20));
        let mut due: Vec<_> = std::iter::from_fn(|| watch.take_due(now, RTT)).collect();
        due.sort_by_key(|it| it.start);
        let starts: Vec<u32> = due.iter().map(|it| it.start).collect();
        assert_eq!(starts, [it.start + 20, 200], "{now:?}");
        watch = LossDetector::default();
        for it in due {
            watch.asked(now, it, (it.start, it.end), 10 * MS);
        }
    }
}

#[test]
fn take_due__gives_back_the_room_of_what_wandered_on() {
    let mut watch = LossDetector::default();
    let mut now = Instant::ZERO;
    for n in 0..MAX_OVERTAKEN as u32 {
        assert!(watch.overtaken(now, (0, 2 * n, 2 * n + 1), false));
    }
    let rtt = Duration::from_millis(1);
    for _ in 0..WAITS {
        now = now + Duration::from_secs(3600);
        while let Some(it) = watch.take_due(now, rtt) {
            assert!(watch.asked(now, it, (it.start, it.end), rtt));
            let lists = watch.asked.iter().chain([&watch.fresh]);
            let room: usize = lists.map(VecDeque::capacity).sum();
            assert!(
                room <= 2 * MAX_OVERTAKEN + (WAITS + 1) * KEPT_ROOM,
                "{room}"
            );
        }
    }
    assert_eq!(watch.len(), MAX_OVERTAKEN);
}
