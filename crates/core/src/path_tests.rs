#![allow(non_snake_case)]
use super::*;

#[test]
fn next_probe__limit_then_plateaus_then_rest() {
    let mut path = Path::new(Encapsulation::UdpV4, 9000 - 28);
    assert_eq!(path.confirmed(), 1252);
    let probes: Vec<usize> = std::iter::from_fn(|| path.next_probe()).take(50).collect();
    assert_eq!(probes.len(), 15, "three tries of five sizes, then it ends");
    assert_eq!(probes[0], 8972);
    assert_eq!(probes[6], 1472);
    assert_eq!(path.confirmed(), 1252);
}

#[test]
fn probe_passed__only_the_size_asked() {
    let mut path = Path::new(Encapsulation::UdpV4, 1472);
    assert_eq!(path.next_probe(), Some(1472));
    assert!(
        !path.probe_passed(9000),
        "a size never probed confirms nothing"
    );
    assert!(path.probe_passed(1472));
    assert_eq!(path.confirmed(), 1472);
    assert_eq!(path.next_probe(), None);
}

#[test]
fn black_hole__retreats_and_probes_anew() {
    let mut path = Path::new(Encapsulation::UdpV4, 8972);
    path.next_probe();
    path.probe_passed(8972);
    assert!(path.black_hole());
    assert_eq!(path.confirmed(), 1252);
    assert!(!path.black_hole(), "already at the floor");
    let probes: Vec<usize> = (0..4).filter_map(|_| path.next_probe()).collect();
    assert_eq!(probes, [8972, 8972, 8972, 4324], "three tries of each");
}

#[test]
fn set_limit__below_the_floor_is_obeyed() {
    let mut path = Path::new(Encapsulation::UdpV4, 1472);
    path.next_probe();
    path.probe_passed(1472);
    assert!(path.set_limit(600));
    assert_eq!(path.confirmed(), 600);
}

#[test]
fn probe_passed__late_answer_to_a_larger_size_counts() {
    let mut path = Path::new(Encapsulation::UdpV4, 8972);
    let probes: Vec<usize> = (0..7).filter_map(|_| path.next_probe()).collect();
    assert_eq!(probes[6], 1472);
    assert!(path.probe_passed(1472));
    assert!(path.probe_passed(8972), "it was on its way all the time");
    assert!(path.is_settled());
    assert_eq!(path.confirmed(), 8972);
    assert!(
        !path.probe_passed(1472),
        "smaller than what is known to pass"
    );
}

#[test]
fn path__in_memory_is_whole_at_once_and_never_probed() {
    let whole = Encapsulation::Memory.max_stu(usize::MAX) + zerolane_wire::HEADER_LEN;
    let mut path = Path::new(Encapsulation::Memory, whole);
    assert_eq!(path.confirmed(), whole);
    assert_eq!(path.next_probe(), None);
    assert!(!path.black_hole(), "nothing vanishes in memory");
    assert_eq!(path.confirmed(), whole);
}
