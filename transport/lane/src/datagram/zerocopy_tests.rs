//! Tests that lent memory is released as the kernel reports, and when lending pays.
#![allow(non_snake_case)]
use super::*;
use zerolane_core::RegionId;

const REGION: RegionId = RegionId {
    index: 7,
    generation: 1,
};

fn zerocopy_tracker(state: Zerocopy) -> ZerocopyTracker {
    ZerocopyTracker {
        state,
        next: u32::MAX,
        held: VecDeque::new(),
        free: Vec::new(),
    }
}

fn lend(zerocopy_tracker: &mut ZerocopyTracker, regions: &[Option<RegionId>]) {
    for &region in regions {
        let headers = zerocopy_tracker.headers();
        zerocopy_tracker.lent(headers, region);
    }
}

fn report(first: u32, last: u32, copied: bool) -> Report {
    Report {
        first,
        last,
        copied,
    }
}

#[test]
fn apply__releases_what_is_reported_in_any_order_over_the_wrap() {
    let other = RegionId { index: 8, ..REGION };
    let mut zerocopy_tracker = zerocopy_tracker(Zerocopy::Used);
    lend(
        &mut zerocopy_tracker,
        &[Some(REGION), Some(other), Some(REGION), None],
    );
    zerocopy_tracker.apply(report(0, 0, false));
    assert!(
        !zerocopy_tracker.holds(other),
        "the second send has number 0"
    );
    assert!(zerocopy_tracker.holds(REGION));
    zerocopy_tracker.apply(report(u32::MAX, 1, false));
    assert!(!zerocopy_tracker.holds(REGION));
    assert!(
        zerocopy_tracker.is_lending(),
        "the last one is not reported"
    );
    zerocopy_tracker.apply(report(2, 2, false));
    assert!(!zerocopy_tracker.is_lending());
    assert_eq!(zerocopy_tracker.free.len(), 4, "headers are used again");
}

#[test]
fn apply__the_probe_decides() {
    for (copied, state) in [(true, Zerocopy::Copied), (false, Zerocopy::Used)] {
        let mut zerocopy_tracker = zerocopy_tracker(Zerocopy::Untried);
        lend(&mut zerocopy_tracker, &[None]);
        assert_eq!(zerocopy_tracker.state(), Zerocopy::Probing);
        assert!(zerocopy_tracker.probe(&[0; 40]).is_none(), "one is enough");
        zerocopy_tracker.apply(report(u32::MAX, u32::MAX, copied));
        assert_eq!(zerocopy_tracker.state(), state);
    }
}

#[test]
fn apply__a_route_that_begins_to_copy_ends_it() {
    let mut zerocopy_tracker = zerocopy_tracker(Zerocopy::Used);
    lend(&mut zerocopy_tracker, &[Some(REGION)]);
    zerocopy_tracker.apply(report(u32::MAX, u32::MAX, true));
    assert_eq!(zerocopy_tracker.state(), Zerocopy::Copied);
    assert_eq!(zerocopy_tracker.datagrams(8932), 0);
}

#[test]
fn datagrams__as_many_as_have_fragments_if_that_pays() {
    let mut zerocopy_tracker = zerocopy_tracker(Zerocopy::Used);
    assert_eq!(zerocopy_tracker.datagrams(1432), 0, "5 of 1432 bytes");
    assert_eq!(
        zerocopy_tracker.datagrams(8932),
        3,
        "each 1 + 3 + 1 fragments at worst"
    );
    assert_eq!(zerocopy_tracker.datagrams(65_467), 0, "18 fragments");
    for _ in 0..MAX_HELD {
        lend(&mut zerocopy_tracker, &[None]);
    }
    assert_eq!(
        zerocopy_tracker.datagrams(8932),
        0,
        "the kernel holds enough"
    );
}

#[test]
fn refused__what_is_zerocopys_own_is_sent_with_the_copy() {
    let mut zerocopy_tracker = zerocopy_tracker(Zerocopy::Used);
    let mut refused = |errno| {
        let headers = zerocopy_tracker.headers();
        let again = zerocopy_tracker.refused(headers, &io::Error::from_raw_os_error(errno));
        (again, zerocopy_tracker.state())
    };
    assert_eq!(refused(libc::ENOBUFS), (true, Zerocopy::Used));
    assert_eq!(refused(libc::EAGAIN), (false, Zerocopy::Used));
    assert_eq!(refused(libc::EPERM), (true, Zerocopy::Refused));
}
