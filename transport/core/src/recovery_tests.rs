//! Tests that round-trip samples set the timeouts, and that back-off and progress change them.
#![allow(non_snake_case)]
use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(millis: u64) -> Instant {
    Instant::ZERO + MS * millis as u32
}

#[test]
fn answered__first_sample_sets_the_round_trip() {
    let mut recovery = Recovery::adaptive();
    assert_eq!(recovery.control_timeout(), INITIAL_RTO);
    recovery.time(Timed::Nop(1), at(0));
    recovery.answered(Timed::Nop(2), at(5));
    assert_eq!(
        recovery.rtt(),
        None,
        "another request's answer is no sample"
    );
    recovery.answered(Timed::Nop(1), at(40));
    assert_eq!(recovery.rtt(), Some(40 * MS));
    assert_eq!(recovery.control_timeout(), 120 * MS);
}

#[test]
fn untime__repeated_request_gives_no_sample() {
    let mut recovery = Recovery::adaptive();
    recovery.time(Timed::Announcement(1), at(0));
    recovery.untime(Timed::Announcement(1));
    recovery.answered(Timed::Announcement(1), at(40));
    assert_eq!(recovery.rtt(), None);
}

#[test]
fn time__a_measurement_without_end_is_replaced() {
    let mut recovery = Recovery::adaptive();
    recovery.time(Timed::Grant(1), at(0));
    recovery.time(Timed::Nop(1), at(10));
    recovery.answered(Timed::Nop(1), at(20));
    assert_eq!(recovery.rtt(), None, "one at a time");
    recovery.time(Timed::Nop(2), at(10_000));
    recovery.answered(Timed::Nop(2), at(10_020));
    assert_eq!(recovery.rtt(), Some(20 * MS));
}

#[test]
fn less_delay__takes_off_half_of_the_quickest_answer_at_most() {
    let mut recovery = Recovery::adaptive();
    let less = |recovery: &Recovery, delay| recovery.less_delay(50 * MS, delay * MS);
    assert_eq!(less(&recovery, 70), Duration::ZERO, "nothing is known");
    for (request, at_ms, took) in [
        (Timed::Handshake, 0, 1),
        (Timed::Nop(1), 100, 40),
        (Timed::Nop(2), 200, 45),
    ] {
        recovery.time(request, at(at_ms));
        recovery.answered(request, at(at_ms + took));
    }
    assert_eq!(less(&recovery, 10), 40 * MS);
    assert_eq!(less(&recovery, 31), 20 * MS);
    assert_eq!(less(&recovery, 70), 20 * MS);
    let early = recovery.less_delay(5 * MS, Duration::ZERO);
    assert_eq!(early, 20 * MS, "of what cannot have arrived");
    let doubts = |recovery: &Recovery, delay| recovery.doubts(50 * MS, delay * MS);
    assert!(doubts(&recovery, 31) && !doubts(&recovery, 30));
    recovery.time(Timed::Nop(3), at(300));
    assert!(!doubts(&recovery, 31), "it is asked already");
}

#[test]
fn back_off__ends_at_the_longest_timeout_and_progress_resets_it() {
    let mut recovery = Recovery::adaptive();
    (0..50).for_each(|_| recovery.back_off());
    assert_eq!(recovery.control_timeout(), MAX_RTO);
    recovery.progress();
    assert_eq!(recovery.control_timeout(), INITIAL_RTO);
}

#[test]
fn control_timeout__is_never_below_the_round_trip() {
    let mut recovery = Recovery::adaptive();
    recovery.time(Timed::Handshake, at(0));
    recovery.answered(Timed::Handshake, at(3000));
    assert!(recovery.control_timeout() >= 3000 * MS);
}

#[test]
fn fix_data_timeout__zero_is_not_zero() {
    let mut recovery = Recovery::adaptive();
    recovery.fix_data_timeout(Duration::ZERO);
    assert!(
        recovery.data_timeout() > Duration::ZERO,
        "a timer that strikes at once never ends"
    );
}

#[test]
fn patience__follows_confirmations_which_say_nothing_of_the_path() {
    let mut recovery = Recovery::adaptive();
    recovery.time(Timed::Nop(1), at(0));
    recovery.answered(Timed::Nop(1), at(1));
    assert_eq!(recovery.patience(), MIN_RTO);
    recovery.time_operation(u32::MAX, at(100));
    recovery.time_operation(1, at(110));
    recovery.operations_confirmed(u32::MAX, at(120));
    assert_eq!(recovery.patience(), MIN_RTO, "the one before it");
    recovery.operations_confirmed(2, at(140));
    assert_eq!(
        recovery.patience(),
        120 * MS,
        "the first that left, over the wrap"
    );
    assert_eq!(recovery.rtt(), Some(MS));
    recovery.time_operation(2, at(200));
    recovery.untime_operation();
    recovery.operations_confirmed(3, at(900));
    assert_eq!(recovery.patience(), 120 * MS, "repeated");
}
