//! Tests that leases survive numbers that only a malicious peer would choose. `tests/loom.rs` has every order of the
//! steps.
#![allow(non_snake_case)]
use super::lease::{Accesses, Accessor, Lease};

#[test]
fn access__by_a_number_of_the_peers_choice_that_wraps() {
    for number in [u64::MAX, u64::MAX - 1, 0] {
        let lease = Lease::default();
        let (accesses, mut accessor) = (Accesses::default(), Accessor::default());
        let last = number.wrapping_sub(4);
        assert_eq!(lease.grant(last), number);
        let done = accessor.access(&accesses, (&lease, number), || lease.end(number));
        assert_eq!(done, Some(Some(())), "{number:#x}: begun before its end");
        let done = accessor.access(&accesses, (&lease, number), || ());
        assert_eq!(done, None, "{number:#x}: it ended");
        lease.grant(last);
        let done = accessor.access(&accesses, (&lease, number), || lease.abandon(number));
        assert_eq!(done, Some(None), "{number:#x}: it does not count");
    }
}
