//! Tests that a connection outlives the thread of one of its paths.

use super::*;
use crate::address::PathAddresses;
use crate::datagram::path_thread::Order;
use crate::options::PathThreads;
use zerolane_core::{PathLife, PathState};

const SECOND: usize = 1;

fn second(end: &End) -> Option<PathState> {
    let mut paths = end.paths().into_iter();
    paths.find(|(path, _)| *path == SECOND).map(|it| it.1)
}

fn is_usable(end: &End) -> bool {
    second(end).is_some_and(|it| it.life == PathLife::Usable)
}

fn is_removed(end: &End) -> bool {
    second(end).is_none_or(|it| it.life == PathLife::Absent)
}

/// Ends the thread of the second path as a defect would.
fn panic_at(end: &End) {
    let AnyLane::Datagram(lane, _) = end.lane() else {
        panic!("a lane of datagrams")
    };
    let mut threads = lane.links().expect("two paths").threads();
    threads.next().expect("one").channel().order(Order::Panic);
}

#[test]
fn path__whose_thread_panics_is_removed_and_its_payload_goes_on() {
    let options = sealed().with(|it| {
        it.paths.most = 2;
        it.paths.threads = PathThreads::OnePerPath;
    });
    for at_sender in [true, false] {
        let (mut a, mut b) = join_in_real_time(None, Ipv4Addr::LOCALHOST.into(), &options);
        assert!(a.lane_mut().add_path(PathAddresses::default()));
        drive(&mut a, &mut b, |a, b| is_usable(a) && is_usable(b));
        let bytes = content(16 * SIZE, 1);
        post(&mut a, &mut b, &bytes);
        drive(&mut a, &mut b, |a, b| {
            let sent = second(a).is_some_and(|it| it.bytes_sent > 0);
            sent || b.has_completion()
        });
        assert!(!b.has_completion(), "the second path carries none");
        panic_at(if at_sender { &a } else { &b });
        drive(&mut a, &mut b, |_, b| b.has_completion());
        verify(b.next_completion(), &bytes);
        drive(&mut a, &mut b, |a, b| is_removed(a) && is_removed(b));
        let bytes = content(SIZE, 2);
        verify(transfer(&mut a, &mut b, &bytes), &bytes);
    }
}
