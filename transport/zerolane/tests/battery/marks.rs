//! Tests that datagrams are sent ECN-capable, and that congestion marks are counted.

use crate::drive::transfer;
use crate::path::{Pair, Path};
use socket2::SockRef;
use zerolane::options::Control;
use zerolane::{Connection, Options};

const PATHS: [Path; 3] = [Path::LoopbackV4, Path::LoopbackV6, Path::VethV6(1500)];

fn controlled(control: Control) -> Options {
    Options::default().with(|it| it.rate.control = control)
}

/// Datagrams that `end` received: ECN-capable ones, and marked ones.
fn seen(end: &Connection) -> (u64, u64) {
    let counters = end.account().protocol;
    (counters.ecn_capable, counters.ecn_marked)
}

fn exchange(pair: &mut Pair) {
    transfer(pair, 1, &[4 << 20, 1, 300_000]);
}

#[test]
fn datagrams__are_capable_when_the_controller_reads_marks() {
    for path in PATHS {
        let Some(mut pair) = path.connect(&controlled(Control::Model)) else {
            continue;
        };
        exchange(&mut pair);
        let (capable, marked) = seen(&pair.b);
        assert!(capable > 0, "{path:?}");
        assert_eq!(marked, 0, "{path:?}");
    }
}

#[test]
fn datagrams__are_plain_where_grants_are_enough() {
    for path in PATHS {
        let Some(mut pair) = path.connect(&controlled(Control::Lan)) else {
            continue;
        };
        exchange(&mut pair);
        assert_eq!(seen(&pair.b), (0, 0), "{path:?}");
    }
}

/// Sets both bits, as a congested queue would.
#[test]
fn datagrams__that_are_marked_are_counted() {
    let Some(mut pair) = Path::LoopbackV4.connect(&controlled(Control::Lan)) else {
        return;
    };
    SockRef::from(&pair.a).set_tos_v4(0b11).expect("set");
    exchange(&mut pair);
    let (capable, marked) = seen(&pair.b);
    assert_eq!(capable, marked);
    let datagrams = pair.b.account().datagrams_received;
    assert!(marked > 0 && marked <= datagrams, "{marked} of {datagrams}");
}

/// Each datagram of a train counts, although the kernel merges them.
#[test]
fn datagrams__of_trains_are_each_counted() {
    let Some(mut pair) = Path::Veth(1500).connect(&controlled(Control::Lan)) else {
        return;
    };
    SockRef::from(&pair.a).set_tos_v4(0b11).expect("set");
    transfer(&mut pair, 1, &[8 << 20; 4]);
    let account = pair.b.account();
    assert!(account.protocol.trains_received > 0);
    let (capable, marked) = seen(&pair.b);
    assert_eq!(capable, marked);
    let least = account.protocol.bytes_received / 1500;
    assert!(marked >= least, "{marked} of {least} and more");
}
