#![allow(non_snake_case)]
use super::*;
use zerolane_core::RegionId;

const REGION: RegionId = RegionId {
    index: 7,
    generation: 1,
};

fn lender(state: Zerocopy) -> Lender {
    Lender {
        state,
        next: u32::MAX,
        held: VecDeque::new(),
        free: Vec::new(),
    }
}

fn lend(lender: &mut Lender, regions: &[Option<RegionId>]) {
    for &region in regions {
        let headers = lender.headers();
        lender.lent(headers, region);
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
    let mut lender = lender(Zerocopy::Used);
    lend(
        &mut lender,
        &[Some(REGION), Some(other), Some(REGION), None],
    );
    lender.apply(report(0, 0, false));
    assert!(!lender.holds(other), "the second send has number 0");
    assert!(lender.holds(REGION));
    lender.apply(report(u32::MAX, 1, false));
    assert!(!lender.holds(REGION));
    assert!(lender.is_lending(), "the last one is not reported");
    lender.apply(report(2, 2, false));
    assert!(!lender.is_lending());
    assert_eq!(lender.free.len(), 4, "headers are used again");
}

#[test]
fn apply__the_probe_decides() {
    for (copied, state) in [(true, Zerocopy::Copied), (false, Zerocopy::Used)] {
        let mut lender = lender(Zerocopy::Untried);
        lend(&mut lender, &[None]);
        assert_eq!(lender.state(), Zerocopy::Probing);
        assert!(lender.probe(&[0; 40]).is_none(), "one is enough");
        lender.apply(report(u32::MAX, u32::MAX, copied));
        assert_eq!(lender.state(), state);
    }
}

#[test]
fn apply__a_route_that_begins_to_copy_ends_it() {
    let mut lender = lender(Zerocopy::Used);
    lend(&mut lender, &[Some(REGION)]);
    lender.apply(report(u32::MAX, u32::MAX, true));
    assert_eq!(lender.state(), Zerocopy::Copied);
    assert_eq!(lender.datagrams(8932), 0);
}

#[test]
fn datagrams__as_many_as_have_fragments_if_that_pays() {
    let mut lender = lender(Zerocopy::Used);
    assert_eq!(lender.datagrams(1432), 0, "5 of 1432 bytes");
    assert_eq!(
        lender.datagrams(8932),
        3,
        "each 1 + 3 + 1 fragments at worst"
    );
    assert_eq!(lender.datagrams(65_467), 0, "18 fragments");
    for _ in 0..MAX_HELD {
        lend(&mut lender, &[None]);
    }
    assert_eq!(lender.datagrams(8932), 0, "the kernel holds enough");
}

#[test]
fn refused__what_is_zerocopys_own_is_sent_with_the_copy() {
    let mut lender = lender(Zerocopy::Used);
    let mut refused = |errno| {
        let headers = lender.headers();
        let again = lender.refused(headers, &io::Error::from_raw_os_error(errno));
        (again, lender.state())
    };
    assert_eq!(refused(libc::ENOBUFS), (true, Zerocopy::Used));
    assert_eq!(refused(libc::EAGAIN), (false, Zerocopy::Used));
    assert_eq!(refused(libc::EPERM), (true, Zerocopy::Refused));
}
