//! Tests that eager payload is accepted once, held within limits, and requested when missing.
#![allow(non_snake_case)]
use super::*;
use crate::span::RegionId;
use zerolane_wire::Target;

fn announced(sequence: u32, length: u64) -> RequestToSend {
    RequestToSend {
        length,
        s_id: 40 + sequence,
        target: Target::Receive,
        sequence,
        send_state: true,
    }
}

const SPAN: Span = Span {
    region: RegionId {
        index: 3,
        generation: 1,
    },
    offset: 1000,
    len: 100,
};

fn range(start: u32, len: u32) -> Range {
    Range { start, len }
}

#[test]
fn take__moves_what_is_here_and_no_more() {
    let mut arrivals = Arrivals::default();
    let rts = announced(7, 100);
    arrivals.begin(Instant::ZERO, &rts);
    for (start, len) in [(20, 30), (90, 10)] {
        let taken = arrivals.accept(&rts, start, len).expect("fits");
        assert_eq!((taken.new_bytes, taken.place), (len, None));
    }
    let missing: Vec<Range> = arrivals.get_mut(7).expect("there").missing().collect();
    assert_eq!(missing, [range(0, 20), range(50, 40)]);
    assert_eq!(arrivals.take(7, 5, SPAN), Some((40, Delivery::Interrupt)));
    assert_eq!(arrivals.held(), 0);
    let moved = |start, len| HoldOrder::Move {
        number: 7,
        start,
        to: SPAN.part(start.into(), len),
    };
    let orders: Vec<HoldOrder> = core::iter::from_fn(|| arrivals.next_order()).collect();
    assert_eq!(orders, [moved(20, 30), moved(90, 10), HoldOrder::Free(7)]);
    let taken = arrivals.accept(&rts, 0, 20).expect("fits");
    assert_eq!(
        taken.place,
        Some((5, SPAN.part(0, 20))),
        "straight to its place"
    );
    arrivals.forget(7);
    assert_eq!(arrivals.next_order(), None, "freed once");
}

#[test]
fn accept__refuses_what_is_here_or_says_something_else() {
    let mut arrivals = Arrivals::default();
    let rts = announced(7, 100);
    arrivals.begin(Instant::ZERO, &rts);
    assert!(arrivals.accept(&rts, 0, 50).is_ok());
    let refused = |arrivals: &mut Arrivals, rts, start| {
        arrivals.accept(&rts, start, 10).expect_err("refused")
    };
    assert_eq!(refused(&mut arrivals, rts, 10), DropReason::Duplicate);
    let longer = announced(7, 200);
    assert_eq!(refused(&mut arrivals, longer, 60), DropReason::Unexpected);
    let other = RequestToSend { s_id: 1, ..rts };
    assert_eq!(refused(&mut arrivals, other, 60), DropReason::Unexpected);
    assert_eq!(
        refused(&mut arrivals, announced(8, 100), 60),
        DropReason::NoGrant
    );
    arrivals.clear();
    assert_eq!(arrivals.next_order(), Some(HoldOrder::Free(7)));
    arrivals.assert_bounded(0, 0);
}

#[test]
fn accept__no_more_gaps_than_are_remembered() {
    let mut arrivals = Arrivals::default();
    let rts = announced(7, 64 << 10);
    arrivals.begin(Instant::ZERO, &rts);
    let far = MAX_EAGER_GAPS as u32 - 1;
    for n in 1..=far {
        assert!(arrivals.accept(&rts, 2 * n, 1).is_ok());
    }
    let refused = arrivals.accept(&rts, 2 * (far + 1), 1);
    assert_eq!(refused.err(), Some(DropReason::Limit));
    arrivals.assert_bounded(1, 64 << 10);
    assert!(
        arrivals.accept(&rts, 0, 2).is_ok(),
        "what comes first is taken"
    );
    assert!(
        arrivals.accept(&rts, 2 * (far + 1), 1).is_ok(),
        "there is room again"
    );
}

#[test]
fn due__sooner_behind_a_gap_and_later_after_each_question() {
    let ms = core::time::Duration::from_millis;
    let at = |n| Instant::ZERO + ms(n);
    let mut arrivals = Arrivals::default();
    let rts = announced(7, 100);
    arrivals.begin(Instant::ZERO, &rts);
    assert!(arrivals.accept(&rts, 0, 10).is_ok());
    assert_eq!(
        arrivals.set_due(7, at(3), at(20)),
        Some(at(20)),
        "the rest may come"
    );
    assert!(arrivals.accept(&rts, 30, 10).is_ok());
    assert_eq!(arrivals.set_due(7, at(3), at(20)), Some(at(3)), "overtaken");
    assert_eq!(arrivals.next_due(2), Some(at(3)));
    assert!(arrivals.take_due(at(2), 2).is_none());
    for (now, next) in [(3, Some(13)), (13, None)] {
        arrivals
            .take_due(at(now), 2)
            .expect("due")
            .asked(at(now), ms(10), 2);
        assert_eq!(arrivals.next_due(2), next.map(at));
    }
    arrivals.take(7, 5, SPAN);
    assert_eq!(arrivals.next_due(2), Some(at(33)), "a receive waits for it");
    assert!(arrivals.accept(&rts, 10, 20).is_ok());
    assert!(arrivals.accept(&rts, 40, 60).is_ok());
    assert_eq!(arrivals.next_due(2), None, "all of it is here");
}
