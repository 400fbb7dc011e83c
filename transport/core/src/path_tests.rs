//! Tests that path probes find the datagram size, and that vanishing datagrams reduce it.
#![allow(non_snake_case)]
use super::*;

/// The next probe of a size above the one in use.
fn larger(path: &mut Path) -> Option<usize> {
    path.next_probes()[0]
}

#[test]
fn next_probe__limit_then_plateaus_then_rest() {
    let mut path = Path::new(Encapsulation::UdpV4, 9000 - 28);
    assert_eq!(path.confirmed(), 1252);
    let probes: Vec<usize> = std::iter::from_fn(|| larger(&mut path)).take(50).collect();
    assert_eq!(probes.len(), 15, "three tries of five sizes, then it ends");
    assert_eq!(probes[0], 8972);
    assert_eq!(probes[6], 1472);
    assert_eq!(path.confirmed(), 1252);
}

#[test]
fn probe_passed__only_the_size_asked() {
    let mut path = Path::new(Encapsulation::UdpV4, 1472);
    assert_eq!(larger(&mut path), Some(1472));
    assert!(
        !path.probe_passed(Instant::ZERO, 9000),
        "a size never probed confirms nothing"
    );
    assert!(path.probe_passed(Instant::ZERO, 1472));
    assert_eq!(path.confirmed(), 1472);
    assert_eq!(larger(&mut path), None);
}

#[test]
fn black_hole__retreats_and_probes_anew() {
    let mut path = Path::new(Encapsulation::UdpV4, 8972);
    larger(&mut path);
    path.probe_passed(Instant::ZERO, 8972);
    assert!(path.black_hole());
    assert_eq!(path.confirmed(), 1252);
    let probes: Vec<usize> = (0..4).filter_map(|_| larger(&mut path)).collect();
    assert_eq!(probes, [8972, 8972, 8972, 4324], "three tries of each");
}

#[test]
fn set_limit__below_the_floor_is_obeyed() {
    let mut path = Path::new(Encapsulation::UdpV4, 1472);
    larger(&mut path);
    path.probe_passed(Instant::ZERO, 1472);
    assert!(path.set_limit(600));
    assert_eq!(path.confirmed(), 600);
}

#[test]
fn set_limit__that_is_known_does_not_begin_anew() {
    let mut path = Path::new(Encapsulation::UdpV4, 524);
    fail(&mut path, NARROW_TRIES - 1);
    assert!(!path.set_limit(524));
    assert_eq!(fail(&mut path, 1), [true]);
    assert!(path.is_too_narrow() && path.least_mtu() == 576);
    assert!(path.set_limit(1472) && !path.is_too_narrow());
}

#[test]
fn probe_passed__late_answer_to_a_larger_size_counts() {
    let mut path = Path::new(Encapsulation::UdpV4, 8972);
    let probes: Vec<usize> = (0..7).filter_map(|_| larger(&mut path)).collect();
    assert_eq!(probes[6], 1472);
    assert!(path.probe_passed(Instant::ZERO, 1472));
    assert!(
        path.probe_passed(Instant::ZERO, 8972),
        "it was on its way all the time"
    );
    assert!(path.is_settled());
    assert_eq!(path.confirmed(), 8972);
    assert!(
        !path.probe_passed(Instant::ZERO, 1472),
        "smaller than what is known to pass"
    );
}

#[test]
fn path__in_memory_is_whole_at_once_and_never_probed() {
    let whole = Encapsulation::Memory.max_stu(usize::MAX) + zerolane_wire::HEADER_LEN;
    let mut path = Path::new(Encapsulation::Memory, whole);
    assert_eq!(path.confirmed(), whole);
    assert_eq!(larger(&mut path), None);
    assert!(!path.black_hole(), "nothing vanishes in memory");
    assert_eq!(path.confirmed(), whole);
}

#[test]
fn unanswered__what_is_in_use_does_not_pass() {
    let mut path = Path::new(Encapsulation::UdpV4, 1472);
    assert_eq!(path.next_probes(), [Some(1472), None]);
    assert!(!path.unanswered(true), "it tells nothing of what is in use");
    for _ in 0..VERIFY_TRIES {
        assert_eq!(path.confirmed(), 1252);
        assert_eq!(path.next_probes()[1], Some(1252));
        path.unanswered(true);
    }
    assert!(path.is_narrow());
    assert_eq!((path.confirmed(), path.mtu()), (548, Some(576)));
    let probes: Vec<usize> = std::iter::from_fn(|| larger(&mut path)).take(50).collect();
    assert_eq!(probes[..4], [1472, 1472, 1472, 1464]);
    assert_eq!(probes[9..12], [1252; 3]);
    assert_eq!(probes[15..], [1072, 1072, 1072, 978, 978, 978]);
    assert!(path.probe_passed(Instant::ZERO, 1072), "late");
    assert_eq!(path.confirmed(), 1072);
}

#[test]
fn unanswered__a_silent_peer_says_nothing_of_sizes() {
    let mut path = Path::new(Encapsulation::UdpV4, 1252);
    let mut rounds = 0;
    while path.next_probes() != [None, None] {
        assert!(!path.unanswered(false));
        rounds += 1;
    }
    assert_eq!((path.confirmed(), rounds), (1252, SILENT_ROUNDS));
    // Payload is lost later, repeatedly.
    let at = |millis| Instant::ZERO + core::time::Duration::from_millis(millis);
    let after = SUSPICION.as_millis() as u64;
    assert!(!path.doubt(at(10)) && !path.doubt(at(after)));
    path.proven();
    assert!(!path.doubt(at(after + 20)), "some of it arrived");
    assert!(!path.doubt(at(60_000)), "that was long ago");
    assert!(path.doubt(at(60_000 + after)) && !path.doubt(at(60_001 + after)));
    assert_eq!(path.next_probes(), [None, Some(1252)]);
    assert!(!path.probe_passed(Instant::ZERO, 1252));
    assert!(
        path.is_settled() && !path.doubt(at(60_002 + after)),
        "it is known"
    );
}

#[test]
fn black_hole__at_the_size_that_paths_are_thought_to_carry() {
    for (encapsulation, least) in [
        (Encapsulation::UdpV4, 576 - 28),
        (Encapsulation::IpV4, 576 - 20),
        (Encapsulation::UdpV6, 1280 - 48),
        (Encapsulation::Ethernet, 1280),
    ] {
        let mut path = Path::new(encapsulation, 1400);
        path.black_hole();
        assert_eq!(path.confirmed(), least);
        assert!(!path.black_hole(), "there is nothing less");
    }
}

/// Probes of the size in use fail, while short datagrams arrive.
fn fail(path: &mut Path, times: u32) -> Vec<bool> {
    let round = |_| {
        path.next_probes();
        path.unanswered(true)
    };
    (0..times).map(round).collect()
}

#[test]
fn unanswered__not_even_the_least_size_passes() {
    for encapsulation in [Encapsulation::UdpV4, Encapsulation::UdpV6] {
        let mut path = Path::new(encapsulation, 1472);
        assert!(fail(&mut path, 50).contains(&true));
        assert!(path.is_too_narrow() && path.is_settled());
        assert!(path.verify_least() && !path.verify_least());
        let found = fail(&mut path, NARROW_TRIES);
        let first = found.iter().position(|it| *it);
        assert_eq!(first, Some(NARROW_TRIES as usize - 1));
    }
}

#[test]
fn unanswered__the_least_size_passes_after_all() {
    let mut path = Path::new(Encapsulation::UdpV4, 1472);
    assert!(!path.verify_least(), "there is a smaller one");
    fail(&mut path, 50);
    assert!(path.verify_least());
    fail(&mut path, NARROW_TRIES - 1);
    path.proven();
    assert!(!path.is_too_narrow());
    assert!(!fail(&mut path, 50).contains(&true));
    assert!(path.verify_least());
    fail(&mut path, NARROW_TRIES);
    assert!(path.is_too_narrow() && path.verify_least());
    fail(&mut path, NARROW_TRIES - 1);
    path.probe_passed(Instant::ZERO, 548);
    assert!(!fail(&mut path, 50).contains(&true) && !path.is_too_narrow());
}

#[test]
fn verify_least__not_in_memory() {
    let mut memory = Path::new(Encapsulation::Memory, 4096);
    assert!(!memory.verify_least());
}
