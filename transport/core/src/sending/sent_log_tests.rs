//! Tests that bursts in flight are tracked by number, and give correct rates.
#![allow(non_snake_case)]
use super::*;

const MS: Duration = Duration::from_millis(1);

fn flown(bursts: u32) -> SentLog {
    let mut flight = SentLog::new();
    for burst in 0..bursts {
        flight.on_sent(Instant::ZERO + MS * burst, 1, 0, burst * 10, 10);
    }
    flight
}

#[test]
fn saw__gives_the_burst_once() {
    let mut flight = flown(5);
    let sent = flight.on_seen(Instant::ZERO, 3).unwrap().unwrap();
    assert_eq!((sent.number, sent.start, sent.total), (3, 20, 30));
    assert_eq!(sent.at, Instant::ZERO + 2 * MS);
    assert_eq!(flight.on_seen(Instant::ZERO, 3), Ok(None), "repeated");
    assert_eq!(flight.on_seen(Instant::ZERO, 2), Ok(None), "from the past");
    assert_eq!(flight.on_seen(Instant::ZERO, 0), Ok(None), "nothing seen");
    assert_eq!((flight.seen(), flight.len()), (3, 2));
}

#[test]
fn saw__refuses_what_was_never_sent() {
    let mut flight = flown(5);
    assert_eq!(
        flight.on_seen(Instant::ZERO, 6),
        Err(DropReason::Unexpected)
    );
    assert_eq!(
        flight.on_seen(Instant::ZERO, u32::MAX / 2),
        Err(DropReason::Unexpected)
    );
    assert_eq!(flight.seen(), 0);
    assert!(flight.on_seen(Instant::ZERO, 5).is_ok());
}

fn under_way(flight: &SentLog, now: Duration, flight_time: Duration) -> Vec<u32> {
    let now = Instant::ZERO + now;
    let ranges = flight.in_flight(1, 0, now, flight_time);
    ranges.map(|(start, _)| start).collect()
}

#[test]
fn in_flight__young_enough() {
    let mut flight = flown(5);
    flight.on_sent(Instant::ZERO + 5 * MS, 1, 1, 0, 10);
    assert_eq!(under_way(&flight, 10 * MS, 11 * MS), [40, 30, 20, 10, 0]);
    assert_eq!(under_way(&flight, 10 * MS, 7 * MS), [40]);
    assert_eq!(under_way(&flight, 15 * MS, 10 * MS), []);
}

#[test]
fn in_flight__what_follows_the_last_one_seen_may_be_as_late() {
    let mut flight = flown(5);
    // Burst 2 left at 1 ms and was reported at 101: the path holds a queue.
    flight.on_seen(Instant::ZERO + 101 * MS, 2).unwrap();
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
        flight.on_sent(Instant::ZERO, 1, 0, 0, 1);
    }
    assert_eq!(flight.len(), MAX_FLIGHT);
    let newest = flight.next_number() - 1;
    assert_eq!(
        flight
            .on_seen(Instant::ZERO, newest)
            .unwrap()
            .unwrap()
            .number,
        newest
    );
    assert_eq!(flight.len(), 0);
}

#[test]
fn sample__the_rate_does_not_hang_on_how_long_the_burst_was_that_asked() {
    let (mut flight, rtt) = (SentLog::new(), 3 * MS);
    let timing = Timing {
        rtt,
        min_rtt: rtt,
        waited: Duration::ZERO,
        lateness: Lateness::default(),
    };
    let at = |micros: u64| Instant::ZERO + Duration::from_micros(micros);
    // A megabyte a second: bursts of a kilobyte, and sometimes a repair of 100 bytes.
    let bursts = [1000, 1000, 100, 1000, 1000, 1000, 100, 1000].repeat(8);
    let ends = |count: usize| bursts[..count].iter().sum::<u64>();
    let mut answered = 0;
    for number in 1..=bursts.len() {
        let now = at(ends(number));
        while answered < number && at(ends(answered + 1)) + rtt <= now {
            answered += 1;
            let answer = at(ends(answered)) + rtt;
            let len = bursts[answered - 1];
            let progress = Progress {
                received: ends(answered),
                // It has been waiting since its first STU.
                delay_us: len as u32,
                marked: 0,
                capable: 0,
                trains: false,
            };
            let sent = flight.on_seen(answer, answered as u32).unwrap().unwrap();
            let sample = flight.sample(answer, &sent, &progress, timing);
            let rate = sample.expect("news").rate;
            let least = if answered < 8 { 0 } else { 999_000 };
            assert!((least..=1_001_000).contains(&rate), "{answered}: {rate}");
        }
        flight.on_sent(now, 1, 0, 0, bursts[number - 1] as u32);
    }
    assert!(answered > 40);
}

/// A megabyte a second, first reported by missing ranges, without a sum, and later with one.
#[test]
fn sample__what_arrived_before_the_burst_left_is_no_rate() {
    let (mut flight, rtt) = (SentLog::new(), 2 * MS);
    let at = |millis: u32| Instant::ZERO + MS * millis;
    for number in 1..=100 {
        flight.on_sent(at(number), 1, 0, 0, 1000);
        flight.on_seen(at(number) + rtt, number).unwrap().unwrap();
    }
    let late = at(200);
    for _ in 0..4 {
        flight.on_sent(late, 1, 0, 0, 1000);
    }
    let sent = flight.on_seen(late + rtt, 104).unwrap().unwrap();
    let progress = Progress {
        received: 104_000,
        delay_us: 0,
        marked: 0,
        capable: 0,
        trains: false,
    };
    let timing = Timing {
        rtt,
        min_rtt: rtt,
        waited: Duration::ZERO,
        lateness: Lateness::default(),
    };
    let sample = flight.sample(late + rtt, &sent, &progress, timing);
    assert_eq!(sample.expect("news").rate, 2_000_000, "4 kB in 2 ms");
}

/// A queue of a megabyte a second, a sender that sends eight bursts at once every 8 ms, and a receiver that receives as
/// rarely: it answers the first of those bursts before it has received the rest.
#[test]
fn sample__the_rate_of_late_ends_is_that_of_arrival() {
    let (mut flight, rtt) = (SentLog::new(), 2 * MS);
    let at = |millis: u32| Instant::ZERO + MS * millis;
    let answer = |flight: &mut SentLog, number: u32, now: Instant, received: u64, delay: u32| {
        let progress = Progress {
            received,
            delay_us: delay * 1000,
            marked: 0,
            capable: 0,
            trains: false,
        };
        let timing = Timing {
            rtt,
            min_rtt: rtt,
            waited: Duration::ZERO,
            lateness: Lateness::of(Duration::ZERO, MS * delay),
        };
        let sent = flight.on_seen(now, number).unwrap().unwrap();
        flight.sample(now, &sent, &progress, timing).expect("news")
    };
    for round in 0..8 {
        let (first, began) = (8 * round + 1, 8 * round);
        for number in first..first + 8 {
            flight.on_sent(at(began), 1, 0, 0, 1000);
            assert_eq!(flight.next_number(), number + 1);
        }
        // They arrived one per millisecond. The first was reported when it alone had been received, the last with all.
        let taken = at(began + 8);
        for (number, count, waited) in [(first, 1, 7), (first + 7, 8, 0)] {
            let received = u64::from(8 * round + count) * 1000;
            let sample = answer(&mut flight, number, taken, received, waited);
            assert!(sample.rate <= 1_000_000, "{number}: {}", sample.rate);
        }
    }
}

#[test]
fn number__of_a_path_keeps_its_bits_when_it_wraps() {
    let mut log = SentLog::of_path(5, 3);
    log.next = 5 << 29 | (u32::MAX >> 3);
    log.seen = log.next - 1;
    let (last, now) = (log.next_number(), Instant::ZERO);
    log.on_sent(now, 1, 0, 0, 100);
    assert_eq!(log.next_number(), 5 << 29 | 1, "0 is no number");
    log.on_sent(now, 1, 0, 100, 100);
    assert!(log.on_seen(now, last).expect("sent").is_some());
    assert_eq!(log.on_seen(now, 5 << 29 | 9), Err(DropReason::Unexpected));
    assert!(log.on_seen(now, 5 << 29 | 1).expect("sent").is_some());
    assert_eq!(log.on_seen(now, last), Ok(None), "it is old");
}
