//! Tests that a wait ends when its lane fails to send, and that memory stays while the lane holds it.
#![allow(non_snake_case)]
use super::*;
use crate::driver::{Report, Step};
use crate::driver::scripted::{Answer, ScriptedLane};
use crate::error::LaneError;
use crate::memory::Region;
use std::ptr::NonNull;
use std::sync::Arc;
use zerolane_core::{CloseReason, Delivery, TransferError, WorkRequest};
use zerolane_wire::Reason;

/// A driver whose lane fails with `failure` on its second send, the one before its first sleep. The first send is in
/// the turn.
fn failing_before_its_sleep(failure: LaneError) -> Driver<ScriptedLane> {
    let transmits: [Answer; 2] = [Ok(false), Err(failure)];
    let lane = ScriptedLane {
        transmits: transmits.into(),
        ..ScriptedLane::default()
    };
    lane.driver()
}

fn send(driver: &mut Driver<ScriptedLane>) -> zerolane_core::RegionId {
    send_region(driver, Region::from_vec(vec![7; 100]))
}

fn send_region(driver: &mut Driver<ScriptedLane>, region: Region) -> zerolane_core::RegionId {
    let request = WorkRequest::Send {
        delivery: Delivery::Interrupt,
    };
    let id = driver.post_source(request, Report::default(), region.into());
    let posted = &driver.posted[&id.expect("posted")];
    posted.region.expect("it has memory")
}

#[test]
fn wait__does_not_sleep_once_the_connection_ended_before_it() {
    for (failure, reason) in [
        (LaneError::Gone, CloseReason::PeerDead),
        (LaneError::Broken, CloseReason::Violation),
    ] {
        let mut driver = failing_before_its_sleep(failure);
        driver.wait(None, OnWake::Return, |_| false).expect("no error");
        assert_eq!(driver.closed(), Some(reason));
        assert_eq!(driver.lane().sleeps, 0, "{reason:?}");
    }
}

#[test]
fn wait__does_not_sleep_once_its_request_ended_before_it() {
    let mut driver = ScriptedLane::default().driver();
    let region = send(&mut driver);
    let failure = Err(LaneError::Fault(region));
    driver.lane_mut().transmits = [Ok(false), failure].into();
    let done = |it: &Driver<ScriptedLane>| it.has_completion();
    driver.wait(None, OnWake::Return, done).expect("no error");
    assert_eq!(driver.lane().sleeps, 0);
    let completion = driver.next_completion().expect("it failed");
    let fault = TransferError::Refused(Reason::MemoryFault);
    assert_eq!(completion.result, Err(fault));
    assert_eq!(completion.memory.map(|it| it.len()), Some(100));
    assert_eq!(driver.lane().recalled, [region]);
    assert_eq!(driver.closed(), None, "the connection goes on");
}

#[test]
fn wait__says_what_the_lane_cannot_go_on_for() {
    let refused = || LaneError::Io(std::io::ErrorKind::PermissionDenied.into());
    let mut driver = failing_before_its_sleep(refused());
    let waited = driver.wait(None, OnWake::Return, |_| false);
    assert!(matches!(waited, Err(DriverError::Io(_))), "{waited:?}");
    let mut driver = failing_before_its_sleep(LaneError::Strict { bytes: 5 });
    let waited = driver.wait(None, OnWake::Return, |_| false);
    let strict = matches!(waited, Err(DriverError::Strict { bytes: 5 }));
    assert!(strict, "{waited:?}");
    assert_eq!(driver.lane().sleeps, 0);
}

/// Its memory returns when the lane releases it.
#[test]
fn fault__of_memory_that_the_lane_holds_completes_later() {
    let mut driver = ScriptedLane::default().driver();
    let region = send(&mut driver);
    let lane = driver.lane_mut();
    lane.held.push(region);
    lane.transmits = [Err(LaneError::Fault(region))].into();
    driver.turn(Step::Whole).expect("it goes on");
    assert!(!driver.has_completion() && driver.in_flight() == 1);
    driver.lane_mut().held.clear();
    driver.turn(Step::Whole).expect("it goes on");
    let completion = driver.next_completion().expect("let go of");
    assert!(completion.result.is_err() && completion.memory.is_some());
}

/// Nothing tells when the kernel, which reads it still, is done.
#[test]
fn drop__gives_memory_back_unless_the_lane_holds_it() {
    static BYTES: [u8; 100] = [7; 100];
    for held in [false, true] {
        let mut driver = ScriptedLane::default().driver();
        let owner = Arc::new(());
        let kept = Box::new(Arc::clone(&owner));
        // SAFETY: the bytes are static, and only sent.
        let region = unsafe { Region::foreign(NonNull::from(&BYTES).cast(), 100, false, kept) };
        let region = send_region(&mut driver, region);
        driver.lane_mut().held.extend(held.then_some(region));
        drop(driver);
        assert_eq!(Arc::strong_count(&owner) > 1, held);
    }
}
