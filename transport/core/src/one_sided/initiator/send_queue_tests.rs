//! Tests that the send queue confirms, repeats, refuses and limits numbered operations.
#![allow(non_snake_case)]
use super::*;
use crate::request::{Atomic, Content, RemotePlace, WorkFlags};
use crate::span::{RegionId, Span};
use zerolane_wire::{FetchOpKind, Reason};

const NOW: Instant = Instant::ZERO;
const PLACE: RemotePlace = RemotePlace {
    handle: 1 << 31 | 1,
    mx: 0,
    address: 0,
};

fn request(id: TransferId, fetch: bool) -> Request {
    let span = Span {
        region: RegionId {
            index: 0,
            generation: 1,
        },
        offset: 0,
        len: 8,
    };
    let atomic = Atomic {
        kind: FetchOpKind::Increment,
        word: zerolane_wire::Word::U64,
        operand: 0,
        comparand: 0,
    };
    let kind = match fetch {
        true => RequestKind::Fetch {
            place: PLACE,
            atomic,
        },
        false => RequestKind::Put {
            place: PLACE,
            content: Content::Memory(span),
            immediate: None,
        },
    };
    Request {
        id,
        flags: WorkFlags::default(),
        kind,
    }
}

/// Operations 1 to `count`, of which every third is a FetchOp, all sent; numbers wrap among them.
fn sent(count: u32) -> (SendQueue, u32) {
    let mut stream = SendQueue::default();
    let base = u32::MAX - 1;
    stream.age(base);
    for id in 1..=count {
        stream.push(NOW, request(id, id % 3 == 0));
    }
    stream.take(NOW, count as usize);
    (stream, base)
}

fn popped(stream: &mut SendQueue) -> Vec<(TransferId, Outcome)> {
    std::iter::from_fn(|| stream.pop())
        .map(|over| (over.request.id, over.outcome))
        .collect()
}

#[test]
fn confirm__all_below_but_values_that_are_missing() {
    let (mut stream, base) = sent(5);
    assert!(stream.confirm(NOW, base.wrapping_add(5)));
    assert_eq!(
        popped(&mut stream),
        [(1, Outcome::Done), (2, Outcome::Done)]
    );
    assert!(stream.value(NOW, base.wrapping_add(2), 3, 77));
    let rest = [
        (3, Outcome::Value(77)),
        (4, Outcome::Done),
        (5, Outcome::Done),
    ];
    assert_eq!(popped(&mut stream), rest);
    assert!(stream.is_empty() && !stream.awaits());
}

#[test]
fn confirm__nothing_that_was_not_sent() {
    let (mut stream, base) = sent(2);
    stream.push(NOW, request(9, false));
    for expected in [3, 4, 1000, u32::MAX] {
        assert!(!stream.confirm(NOW, base.wrapping_add(expected)));
    }
    assert!(popped(&mut stream).is_empty());
}

#[test]
fn widen__finds_the_number_by_its_low_half() {
    let (stream, base) = sent(5);
    for ahead in 0..5 {
        let number = base.wrapping_add(ahead);
        assert_eq!(stream.widen(number as u16), number);
    }
}

#[test]
fn value__once_and_for_the_right_one() {
    let (mut stream, base) = sent(4);
    let number = base.wrapping_add(2);
    assert!(!stream.value(NOW, number, 2, 1), "another identifier");
    assert!(!stream.value(NOW, base, 1, 1), "a put");
    assert!(stream.value(NOW, number, 3, 1));
    assert!(!stream.value(NOW, number, 3, 2), "again");
    assert_eq!(popped(&mut stream).last(), Some(&(3, Outcome::Value(1))));
}

#[test]
fn go_back__to_the_first_without_an_outcome() {
    let (mut stream, base) = sent(6);
    stream.confirm(NOW, base.wrapping_add(4));
    popped(&mut stream);
    stream.go_back(NOW);
    let next = stream.upcoming().map(|request| request.id);
    assert_eq!(next, Some(3), "executed, but its value is missing");
    assert!(stream.is_repeat(base.wrapping_add(2)));
}

#[test]
fn refuse__fails_one_and_sends_what_followed_again() {
    let (mut stream, base) = sent(5);
    let why = |_: &RequestKind| TransferError::Refused(Reason::Denied);
    assert_eq!(stream.refuse(NOW, 2, why), Some(base.wrapping_add(1)));
    let failed = Outcome::Failed(TransferError::Refused(Reason::Denied));
    assert_eq!(popped(&mut stream), [(1, Outcome::Done), (2, failed)]);
    assert_eq!(stream.upcoming().map(|request| request.id), Some(3));
    assert_eq!(
        stream.refuse(NOW, 2, why),
        Some(base.wrapping_add(1)),
        "unheard"
    );
    assert_eq!(stream.refuse(NOW, 8, why), None, "unknown");
}

#[test]
fn pause__until_it_is_time() {
    let (mut stream, _) = sent(3);
    let until = NOW + Duration::from_millis(5);
    assert!(stream.pause(NOW, 2, until));
    assert!(!stream.has_unsent() && stream.awaits());
    assert_eq!(stream.repeat_at(Duration::ZERO), until);
    stream.go_back(until);
    assert_eq!(stream.upcoming().map(|request| request.id), Some(2));
    assert!(stream.has_unsent());
    assert!(!stream.pause(NOW, 9, until), "unknown");
}

#[test]
fn is_stuck__with_more_than_fits_short_datagrams_until_an_answer() {
    let (mut stream, base) = sent(4);
    let repeat = |stream: &mut SendQueue| {
        for _ in 0..BLACK_HOLE_REPAIRS {
            assert!(!stream.is_stuck(8));
            stream.go_back(NOW);
        }
        assert!(stream.is_stuck(8) && !stream.is_stuck(1000));
    };
    repeat(&mut stream);
    assert!(stream.pause(NOW, 1, NOW) && !stream.is_stuck(8));
    stream.confirm(NOW, base.wrapping_add(1));
    repeat(&mut stream);
    stream.confirm(NOW, base.wrapping_add(2));
    assert!(!stream.is_stuck(8));
}

#[test]
fn window__shrinks_with_loss_and_grows_again() {
    let mut stream = SendQueue::default();
    let put = request(1, false).kind;
    let fill = |stream: &mut SendQueue| {
        let mut count = 0;
        while stream.has_room(&put, 1, MAX_FETCHES) {
            stream.push(NOW, request(7, false));
            count += 1;
        }
        let first = stream.next_unsent();
        stream.take(NOW, count);
        (first, count)
    };
    let (first, count) = fill(&mut stream);
    assert_eq!(count, FIRST_WINDOW);
    (0..10).for_each(|_| stream.go_back(NOW));
    stream.take(NOW, count);
    stream.confirm(NOW, first.wrapping_add(count as u32));
    popped(&mut stream);
    let (_, count) = fill(&mut stream);
    assert_eq!(count, MIN_UNCONFIRMED_DATAGRAMS + FIRST_WINDOW / 16);
    stream.assert_bounded();
}

#[test]
fn window__is_of_datagrams_which_small_operations_share() {
    let mut stream = SendQueue::default();
    stream.share(true);
    let (put, fetch) = (request(1, false).kind, request(1, true).kind);
    for _ in 1..FIRST_WINDOW {
        stream.push(NOW, request(1, true));
    }
    assert!(stream.has_room(&fetch, 1, MAX_FETCHES));
    let mut count = 0;
    while stream.has_room(&put, 1, MAX_FETCHES) {
        stream.push(NOW, request(7, false));
        count += 1;
    }
    assert_eq!(count, MAX_SMALL as usize / (FRAME_HEAD_LEN + 8));
    let all = FIRST_WINDOW - 1 + count;
    stream.take(NOW, all);
    stream.assert_bounded();
    // A completed operation frees its share, whatever its outcome.
    assert!(stream.cancel(7));
    stream.confirm(NOW, all as u32);
    (1..FIRST_WINDOW as u32).for_each(|n| assert!(stream.value(NOW, n - 1, 1, 0)));
    assert_eq!(popped(&mut stream).len(), all);
    assert_eq!(stream.occupied, 0);
    stream.assert_bounded();
}

#[test]
fn takes_run__half_of_the_window_which_confirmations_open_and_refusals_only_open_again() {
    let takes = |stream: &mut SendQueue, count| stream.takes_run(count, 16 << 10);
    let mut stream = SendQueue::default();
    assert!(takes(&mut stream, FIRST_WINDOW / 2) && !takes(&mut stream, FIRST_WINDOW / 2 + 1));
    for _ in 0..1_000 {
        takes(&mut stream, FIRST_WINDOW);
    }
    assert!(!takes(&mut stream, FIRST_WINDOW / 2 + 1), "no confirmation");
    let mut confirmed = 0;
    for id in 0..1_000 {
        stream.push(NOW, request(id, false));
        stream.take(NOW, 1);
        confirmed += 1;
        assert!(stream.confirm(NOW, confirmed));
        popped(&mut stream);
    }
    assert!(takes(&mut stream, MAX_EAGER_DATAGRAMS));
    assert!(!takes(&mut stream, MAX_EAGER_DATAGRAMS + 1));
    stream.push(NOW, request(1_000, false));
    stream.take(NOW, 1);
    stream.go_back(NOW);
    assert!(!takes(&mut stream, 1), "something is to be repeated");
    assert!(stream.confirm(NOW, confirmed + 1));
    popped(&mut stream);
    assert!(takes(&mut stream, MAX_EAGER_DATAGRAMS / 2));
    assert!(!takes(&mut stream, MAX_EAGER_DATAGRAMS / 2 + 1));
}
