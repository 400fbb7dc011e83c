//! Tests that the kernel is asked for arrival times only once there is bulk to time.

use super::*;

/// Arrival times cost a little for each message, so short ones do without.
#[test]
fn arrival_times__are_told_of_bulk_and_not_before() {
    let (mut a, mut b) = join_in_real_time(None, address_of_b(None), &sealed());
    let short = content(1_000, 1);
    verify(transfer(&mut a, &mut b, &short), &short);
    for end in [&a, &b] {
        assert!(!udp(end).first().0.is_timed());
    }
    let long = content(8 << 20, 2);
    verify(transfer(&mut a, &mut b, &long), &long);
    for end in [&a, &b] {
        assert!(udp(end).first().0.is_timed());
        let set = socket::tells_arrival_times(udp(end).first().1);
        assert!(set, "the kernel was not asked");
    }
    // Control messages have room for it.
    assert_eq!(b.account().dropped_truncated, 0);
    verify(transfer(&mut a, &mut b, &long), &long);
}

fn udp(end: &End) -> &DatagramLane {
    match end.lane() {
        AnyLane::Datagram(lane, _) => lane,
        _ => panic!("not asked for"),
    }
}
