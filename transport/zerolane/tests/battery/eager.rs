//! Tests that short Transfers are sent together with their announcement.

use crate::content;
use crate::drive::{PATIENCE, both, next, transfer};
use crate::path::Path;
use zerolane::counters::MoveCause;
use zerolane::request::{Message, ReceiveMessage};
use zerolane::{Connection, Options, Region};

/// Up to the longest that is sent eagerly.
const LENGTHS: [usize; 7] = [1, 2, 100, 1432, 1433, 4096, 16 << 10];

fn empty(len: usize) -> Region {
    Region::anonymous(len).expect("memory")
}

/// Sends and messages whose receives are posted before they arrive, or afterwards.
pub fn arrives_with_and_without_a_receive(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    transfer(&mut pair, 100, &LENGTHS);
    let sends = |a: &mut Connection| {
        for (seed, len) in (0..).zip(LENGTHS) {
            let sent = a.post_send(content::region(seed, len));
            sent.expect("posted");
            assert_eq!(next(a).result, Ok(len));
            let payload = content::region(50 + seed, len);
            let sent = a.post(Message::new(&[seed as u8; 20]).payload(payload));
            sent.expect("posted");
            assert_eq!(next(a).result, Ok(len));
        }
    };
    let receives = |b: &mut Connection| {
        for (seed, len) in (0..).zip(LENGTHS) {
            let announced = b.announced(Some(PATIENCE)).expect("connected").got();
            assert_eq!(announced, Some(len as u64));
            b.post_recv(empty(len)).expect("posted");
            let received = next(b);
            assert_eq!(received.result, Ok(len));
            content::verify(seed, &received.into_region().expect("a region"));
            b.post(ReceiveMessage::new().payload(empty(len)))
                .expect("posted");
            let message = next(b);
            assert_eq!(message.result, Ok(len));
            assert_eq!(message.control(), Some(&[seed as u8; 20][..]));
            content::verify(50 + seed, &message.into_region().expect("a region"));
        }
    };
    both(&mut pair, sends, receives);
    let (a, b) = (pair.a.account(), pair.b.account());
    // The payload of a message may be numbered operations.
    let sends = 2 * LENGTHS.len() as u64;
    assert!(a.protocol.eager_sent >= sends, "{a:#?}");
    // An eager one that was lost may have been granted.
    let received = b.protocol.eager_received;
    assert!(received > 0 && received <= a.protocol.eager_sent, "{b:#?}");
    let held = b.moved(MoveCause::Held);
    assert!(held > 0 && b.moved(MoveCause::Eager) > held, "{b:#?}");
}

#[test]
fn eager__only_what_both_ends_take() {
    for base in [Options::default(), crate::path::plain()] {
        let limited = |eager_limit| base.clone().with(|it| it.flow.eager_limit = eager_limit);
        let strict = base.clone().with(|it| it.strict = true);
        for (a, b, expected) in [
            (limited(16 << 10), limited(2000), 1),
            (limited(2000), limited(16 << 10), 1),
            (limited(0), limited(16 << 10), 0),
            (limited(16 << 10), limited(0), 0),
            (base.clone(), strict, 0),
            (limited(64 << 10), limited(64 << 10), 3),
        ] {
            let pair = Path::LoopbackV4.connect_with(&a, &b);
            let mut pair = pair.expect("always permitted");
            transfer(&mut pair, 7, &[2000, 2001, 64 << 10, 64 << 10 | 1]);
            assert_eq!(pair.a.account().protocol.eager_sent, expected);
            assert_eq!(pair.b.account().protocol.eager_received, expected);
        }
    }
}

#[test]
fn eager__costs_one_datagram_each_way() {
    for base in [Options::default(), crate::path::plain()] {
        let pair = Path::LoopbackV4.connect(&base);
        let mut pair = pair.expect("always permitted");
        transfer(&mut pair, 7, &[1]);
        let before = [&pair.a, &pair.b].map(|it| it.account().protocol);
        const COUNT: u64 = 50;
        transfer(&mut pair, 7, &[1; COUNT as usize]);
        let after = [&pair.a, &pair.b].map(|it| it.account().protocol);
        assert_eq!(after[0].eager_sent - before[0].eager_sent, COUNT);
        assert_eq!(after[1].stus_received - before[1].stus_received, COUNT);
    }
}
