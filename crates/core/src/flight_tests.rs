#![allow(non_snake_case)]
use super::*;

const MS: Duration = Duration::from_millis(1);

fn flown(bursts: u32) -> Flight {
    let mut flight = Flight::new();
    for burst in 0..bursts {
        flight.sent(Instant::ZERO + MS * burst, 1, 0, burst * 10, 10);
    }
    flight
}

#[test]
fn saw__gives_the_burst_once() {
    let mut flight = flown(5);
    let sent = flight.saw(Instant::ZERO, 3).unwrap().unwrap();
    assert_eq!((sent.number, sent.start, sent.total), (3, 20, 30));
    assert_eq!(sent.at, Instant::ZERO + 2 * MS);
    assert_eq!(flight.saw(Instant::ZERO, 3), Ok(None), "repeated");
    assert_eq!(flight.saw(Instant::ZERO, 2), Ok(None), "from the past");
    assert_eq!(flight.saw(Instant::ZERO, 0), Ok(None), "nothing seen");
    assert_eq!((flight.seen(), flight.len()), (3, 2));
}

#[test]
fn saw__refuses_what_was_never_sent() {
    let mut flight = flown(5);
    assert_eq!(flight.saw(Instant::ZERO, 6), Err(DropReason::Unexpected));
    assert_eq!(
        flight.saw(Instant::ZERO, u32::MAX / 2),
        Err(DropReason::Unexpected)
    );
    assert_eq!(flight.seen(), 0);
    assert!(flight.saw(Instant::ZERO, 5).is_ok());
}

fn under_way(flight: &Flight, now: Duration, flight_time: Duration) -> Vec<u32> {
    let now = Instant::ZERO + now;
    let ranges = flight.under_way(1, 0, now, flight_time);
    ranges.map(|(start, _)| start).collect()
}

#[test]
fn under_way__young_enough() {
    let mut flight = flown(5);
    flight.sent(Instant::ZERO + 5 * MS, 1, 1, 0, 10);
    assert_eq!(under_way(&flight, 10 * MS, 11 * MS), [40, 30, 20, 10, 0]);
    assert_eq!(under_way(&flight, 10 * MS, 7 * MS), [40]);
    assert_eq!(under_way(&flight, 15 * MS, 10 * MS), []);
}

#[test]
fn under_way__what_follows_the_last_one_seen_may_be_as_late() {
    let mut flight = flown(5);
    // Burst 2 left at 1 ms and was reported at 101: the path holds a queue.
    flight.saw(Instant::ZERO + 101 * MS, 2).unwrap();
    assert_eq!(under_way(&flight, 102 * MS, 8 * MS), [40, 30, 20]);
    assert_eq!(under_way(&flight, 105 * MS, 8 * MS), [40]);
    assert_eq!(under_way(&flight, 106 * MS, 8 * MS), []);
}

#[test]
fn sent__numbers_wrap_past_zero_and_memory_is_bounded() {
    let mut flight = flown(0);
    flight.next = u32::MAX - 1;
    flight.seen = u32::MAX - 2;
    for _ in 0..2 * MAX_FLIGHT {
        assert_ne!(flight.next_number(), 0);
        flight.sent(Instant::ZERO, 1, 0, 0, 1);
    }
    assert_eq!(flight.len(), MAX_FLIGHT);
    let newest = flight.next_number() - 1;
    assert_eq!(
        flight.saw(Instant::ZERO, newest).unwrap().unwrap().number,
        newest
    );
    assert_eq!(flight.len(), 0);
}
