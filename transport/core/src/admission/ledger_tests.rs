//! Tests that allowances stay within the budget and that every member gets its turn.
#![allow(non_snake_case)]
use super::*;
use crate::admission::Admission;
use crate::admission::fast::HOLD;
use crate::connection::tests::shared::{Member, Scheduler};

const STU: u32 = 1432;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

fn wants(bytes: u64) -> Demand {
    Demand {
        wanted: bytes,
        stu: STU,
        ..Demand::default()
    }
}

#[test]
fn review__alone_is_unlimited() {
    let scheduler = Scheduler::new(Schedule::Automatic);
    let mut member = scheduler.join();
    assert_eq!(member.review(at(1), &wants(1 << 30)), Allowance::UNLIMITED);
}

#[test]
fn review__nothing_wanted_is_nothing_held() {
    let scheduler = Scheduler::new(Schedule::Automatic);
    let (mut first, mut second) = (scheduler.join(), scheduler.join());
    first.review(at(1), &wants(1 << 30));
    first.review(at(2), &wants(0));
    let allowed = second.review(at(3), &wants(1 << 30)).bytes;
    assert!(allowed >= crate::limits::INITIAL_BUDGET / 2, "{allowed}");
}

#[test]
fn review__allowances_never_add_up_to_more_than_the_budget() {
    for members in 2..40 {
        let scheduler = Scheduler::new(Schedule::Fair);
        let mut members: Vec<Member> = (0..members).map(|_| scheduler.join()).collect();
        let mut demands = vec![wants(1 << 20); members.len()];
        for round in 0..20 {
            for (index, member) in members.iter_mut().enumerate() {
                let now = at(1000 + round * 400 + index as u64);
                let allowed = member.review(now, &demands[index]).bytes;
                let more = allowed.saturating_sub(demands[index].outstanding);
                demands[index].outstanding += more;
                demands[index].wanted -= more;
            }
            let sum: u64 = demands.iter().map(|it| it.outstanding).sum();
            assert!(
                sum <= crate::limits::INITIAL_BUDGET,
                "{} {sum}",
                members.len()
            );
        }
    }
}

#[test]
fn review__a_member_that_gets_nothing_is_told_when_to_ask() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let mut members: Vec<Member> = (0..100).map(|_| scheduler.join()).collect();
    for member in &mut members {
        let allowance = member.review(at(5000), &wants(1 << 20));
        assert!(allowance.bytes > 0 || allowance.review_at.is_some_and(|it| it > at(5000)));
    }
}

/// As large as STUs of shared memory and of loopback: one is all that an unmeasured budget permits.
const LARGE_STU: u32 = 64 << 10;

#[test]
fn review__a_turn_ends_with_its_work() {
    const MEMBERS: usize = 6;
    let scheduler = Scheduler::new(Schedule::Automatic);
    let mut members: Vec<Member> = (0..MEMBERS).map(|_| scheduler.join()).collect();
    let mut demands = [Demand {
        wanted: u64::from(LARGE_STU),
        stu: LARGE_STU,
        ..Demand::default()
    }; MEMBERS];
    // Granted payload arrives this much later.
    let flight = Duration::from_micros(20);
    let mut due = [Some(at(1000)); MEMBERS];
    let mut now = at(1000);
    while let Some((at, index)) = (0..MEMBERS).filter_map(|it| Some((due[it]?, it))).min() {
        now = at;
        let demand = &mut demands[index];
        demand.arrived += demand.outstanding;
        demand.outstanding = 0;
        let allowance = members[index].review(now, demand);
        let granted = allowance.bytes.min(demand.wanted);
        demand.wanted -= granted;
        demand.outstanding = granted;
        due[index] = match granted {
            0 => allowance.review_at,
            _ => Some(now + flight),
        };
    }
    assert!(demands.iter().all(|it| it.wanted == 0), "{demands:?}");
    let passed = now - at(1000);
    assert!(
        passed < Duration::from_millis(2),
        "{passed:?} for six turns"
    );
}

#[test]
fn review__those_that_wait_for_long_turns_ask_at_the_end_of_the_slice() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let mut members: Vec<Member> = (0..100).map(|_| scheduler.join()).collect();
    let review = |it: &mut Member| it.review(at(5000), &wants(1 << 30));
    members.iter_mut().for_each(|it| {
        review(it);
    });
    let again: Vec<_> = (members.iter_mut())
        .map(|it| it.review(at(5500), &wants(1 << 30)))
        .filter(|it| it.bytes == 0)
        .collect();
    assert!(again.len() > 50, "{}", again.len());
    let early = again.iter().filter(|it| {
        it.review_at
            .is_some_and(|it| it - at(5500) < ADMISSION_SLICE / 2)
    });
    assert_eq!(early.count(), 0);
}

#[test]
fn leave__frees_the_share() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let (mut first, mut second) = (scheduler.join(), scheduler.join());
    first.review(at(1000), &wants(1 << 20));
    let before = second.review(at(2000), &wants(1 << 20)).bytes;
    drop(first);
    let after = second.review(at(3000), &wants(1 << 20)).bytes;
    assert!(
        before < crate::limits::INITIAL_BUDGET && after == u64::MAX,
        "{before} {after}"
    );
    assert_eq!(scheduler.ledger().streams(), 1);
}

#[test]
fn request_fast__one_at_a_time_and_not_for_ever() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let (mut first, mut second) = (scheduler.join(), scheduler.join());
    first.review(at(1), &wants(1 << 20));
    second.review(at(1), &wants(1 << 20));
    let hold = HOLD.as_micros() as u64;
    assert_eq!(first.request_fast(at(10)), FastAnswer::Granted);
    assert_eq!(first.request_fast(at(20)), FastAnswer::Granted);
    assert_eq!(second.request_fast(at(20)), FastAnswer::Refused);
    // Its turn began with the first request, and then the others have theirs.
    assert_eq!(first.request_fast(at(10 + hold)), FastAnswer::Refused);
    assert_eq!(second.request_fast(at(10 + hold)), FastAnswer::Granted);
    assert_eq!(first.request_fast(at(20 + hold)), FastAnswer::Refused);
}

#[test]
fn request_fast__a_holder_that_wants_nothing_holds_nothing() {
    let scheduler = Scheduler::new(Schedule::Fair);
    let (mut first, mut second) = (scheduler.join(), scheduler.join());
    first.review(at(1), &wants(1 << 20));
    assert_eq!(first.request_fast(at(10)), FastAnswer::Granted);
    first.review(at(20), &wants(0));
    assert_eq!(second.request_fast(at(30)), FastAnswer::Granted);
}
