//! Tests that paths keep their queues, sizes and round trips apart.
#![allow(non_snake_case)]
use super::*;

fn two() -> Links {
    let mut links = Links::new();
    links.most = 8;
    links.open(Instant::ZERO, 1, (Encapsulation::UdpV4, 1472), None);
    links
}

#[test]
fn owe__no_more_than_the_limit() {
    let mut links = two();
    for sync in 0..MAX_OWED as u32 + 3 {
        let nop = Nop {
            reply: true,
            sync,
            ..Nop::default()
        };
        links.owe(1, Operation::Nop(nop));
    }
    links.selected = 1;
    let left = core::iter::from_fn(|| links.take_owed()).count();
    assert_eq!(left, MAX_OWED);
}

/// The size that every path of each kind carries.
#[test]
fn open__datagrams_are_as_long_as_what_carries_them_lets_them_be() {
    let mut links = two();
    links.open(Instant::ZERO, 2, (Encapsulation::Ethernet, 1500), None);
    let floors = [1, 2].map(|path| links.get(path)?.mtu.as_ref().map(Path::confirmed));
    assert_eq!(floors, [Some(1280 - 20 - 8), Some(1280)]);
}

#[test]
fn set_control__each_path_keeps_its_round_trip() {
    let mut links = two();
    let (now, ms) = (Instant::ZERO, Duration::from_millis(1));
    let mut of_control = Recovery::adaptive();
    of_control.sample(now, 5 * ms);
    let parked = links.parked_mut(1).expect("there");
    parked.sample(now, 20 * ms);
    links.set_control(1, &mut of_control);
    let first = |links: &Links| links.parked(0).and_then(Recovery::rtt);
    assert_eq!(
        (of_control.rtt(), first(&links)),
        (Some(20 * ms), Some(5 * ms))
    );
    links.set_control(0, &mut of_control);
    assert_eq!(of_control.rtt(), Some(5 * ms));
    assert_eq!(links.parked(1).and_then(Recovery::rtt), Some(20 * ms));
}

#[test]
fn of_burst__says_the_path_by_its_highest_bits() {
    let mut links = two();
    assert_eq!(links.of_burst(1 << 29 | 7), 1);
    assert_eq!(links.of_burst(u32::MAX), 7);
    links.most = 1;
    assert_eq!(links.of_burst(u32::MAX), 0);
}
