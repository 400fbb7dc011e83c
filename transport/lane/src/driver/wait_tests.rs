//! Tests the driver's loop over a scripted lane: what ends a wait, what a turn does, and what becomes of memory.
#![allow(non_snake_case)]
use super::*;
use crate::driver::scripted::{Answer, ScriptedLane};
use crate::driver::{Report, Step};
use crate::error::LaneError;
use crate::memory::Region;
use crate::wait::Clock;
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
        driver
            .wait(None, OnWake::Return, |_| false)
            .expect("no error");
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

/// One failure does not end the connection, because a later call may succeed.
#[test]
fn turn__reports_an_error_of_the_system_and_goes_on() {
    let mut driver = ScriptedLane::default().driver();
    send(&mut driver);
    let refused = Err(LaneError::Io(std::io::ErrorKind::PermissionDenied.into()));
    driver.lane_mut().receives = [Ok(true), refused].into();
    driver.turn(Step::Whole).expect("it received");
    let turned = driver.turn(Step::Whole);
    assert!(matches!(turned, Err(DriverError::Io(_))), "{turned:?}");
    assert!(!driver.has_moved(), "what moved was the turn before");
    assert_eq!((driver.life(), driver.in_flight()), (Life::Connecting, 1));
    let turned = driver.turn(Step::Whole).expect("it goes on");
    assert_eq!(turned, Progress::Idle);
}

#[test]
fn turn__that_would_copy_in_strict_mode_ends_the_connection() {
    let mut driver = ScriptedLane::default().driver();
    send(&mut driver);
    driver.lane_mut().receives = [Err(LaneError::Strict { bytes: 5 })].into();
    let turned = driver.turn(Step::Whole);
    let strict = matches!(turned, Err(DriverError::Strict { bytes: 5 }));
    assert!(strict, "{turned:?}");
    assert_eq!(driver.closed(), Some(CloseReason::Local));
    let completion = driver.next_completion().expect("it failed");
    let closed = TransferError::Closed(CloseReason::Local);
    assert_eq!(completion.result, Err(closed));
}

#[test]
fn turn__of_a_lane_that_died_ends_every_request() {
    let mut driver = ScriptedLane::default().driver();
    let regions = [send(&mut driver), send(&mut driver)];
    driver.lane_mut().receives = [Err(LaneError::Gone)].into();
    driver.turn(Step::Whole).expect("no error");
    assert_eq!(driver.closed(), Some(CloseReason::PeerDead));
    for _ in regions {
        let completion = driver.next_completion().expect("it failed");
        let dead = TransferError::Closed(CloseReason::PeerDead);
        assert_eq!(completion.result, Err(dead));
        assert!(completion.memory.is_some());
    }
    assert_eq!(driver.lane().recalled, regions);
    let waited = driver.wait(None, OnWake::Return, |_| false);
    assert_eq!(waited.expect("no error"), Waited::Got(()));
    assert_eq!(driver.lane().sleeps, 0);
}

#[test]
fn wait__reports_that_the_system_refuses_to_sleep() {
    let lane = ScriptedLane {
        in_sleep: Some(|_, _| Err(std::io::ErrorKind::OutOfMemory.into())),
        ..ScriptedLane::default()
    };
    let waited = lane.driver().wait(None, OnWake::Return, |_| false);
    assert!(matches!(waited, Err(DriverError::Io(_))), "{waited:?}");
}

#[test]
fn wait__ends_for_a_wake_in_its_sleep_or_leaves_it_to_the_next() {
    let woken = || ScriptedLane {
        in_sleep: Some(|number, waker| {
            if number == 1 {
                waker.wake();
            }
            Ok(false)
        }),
        ..ScriptedLane::default()
    };
    let mut driver = woken().driver();
    let waited = driver.wait(None, OnWake::Return, |_| false);
    assert_eq!(waited.expect("no error"), Waited::Woken);
    assert_eq!(driver.lane().sleeps, 1);
    assert!(!driver.take_wake(), "it is used up");
    // A call that waits for a request goes on.
    let mut driver = woken().driver();
    let third = |it: &Driver<ScriptedLane>| it.lane().sleeps == 3;
    let waited = driver.wait(None, OnWake::GoOn, third);
    assert_eq!(waited.expect("no error"), Waited::Got(()));
    let waited = driver.wait(None, OnWake::Return, |_| false);
    assert_eq!(waited.expect("no error"), Waited::Woken);
    assert_eq!(driver.lane().sleeps, 3, "it did not sleep again");
}

/// A peer that always sends prevents idle turns.
#[test]
fn wait__ends_during_traffic_when_its_time_is_over_or_it_is_woken() {
    let busy = || {
        let receives: Vec<Answer> = (0..100).map(|_| Ok(true)).collect();
        let lane = ScriptedLane {
            receives: receives.into(),
            ..ScriptedLane::default()
        };
        lane.driver()
    };
    let mut driver = busy();
    let waited = driver.wait(Some(Duration::ZERO), OnWake::Return, |_| false);
    assert_eq!(waited.expect("no error"), Waited::TimedOut);
    assert_eq!(driver.lane().reads, 1);
    let mut driver = busy();
    driver.waker().wake();
    let waited = driver.wait(None, OnWake::Return, |_| false);
    assert_eq!(waited.expect("no error"), Waited::Woken);
    assert_eq!(driver.lane().reads, 1);
}

/// Nothing else announces the rest.
#[test]
fn turn__that_leaves_input_says_so_until_the_next() {
    let mut driver = ScriptedLane::default().driver();
    driver.lane_mut().has_more = true;
    driver.turn(Step::Whole).expect("no error");
    assert!(driver.has_more());
    for step in [Step::Send, Step::BeforeSleep] {
        driver.turn(step).expect("no error");
        assert!(driver.has_more(), "{step:?} reads nothing");
    }
    driver.lane_mut().has_more = false;
    driver.turn(Step::Whole).expect("no error");
    assert!(!driver.has_more());
}

#[test]
fn turn__without_input_reads_nothing_fires_timers_and_sends() {
    let mut driver = ScriptedLane::default().driver();
    driver.lane_mut().receives = [Ok(true)].into();
    driver.lane_mut().transmits = [Ok(true)].into();
    let progress = driver.turn(Step::WithoutInput).expect("no error");
    assert_eq!(progress, Progress::Moved);
    assert_eq!((driver.lane().reads, driver.has_moved()), (0, true));
    let progress = driver.turn(Step::WithoutInput).expect("no error");
    assert_eq!(progress, Progress::Idle);
    assert_eq!((driver.lane().reads, driver.has_moved()), (0, false));
    // Its connect timer.
    driver.clock = Clock::of_this_thread(driver.clock.now() + Duration::from_secs(60));
    driver.turn(Step::WithoutInput).expect("no error");
    assert_eq!(driver.closed(), Some(CloseReason::ConnectTimeout));
}

/// The buffer belongs to its caller again.
#[test]
fn request__that_takes_too_long_is_cancelled_and_reported_to_no_one_else() {
    let mut driver = ScriptedLane::default().driver();
    let timeout = Duration::from_millis(1);
    driver.set_request_timeout(Some(timeout));
    let mut buffer = [0; 8];
    let received = driver.lend_target(WorkRequest::Receive, &mut buffer);
    let timed_out = matches!(received, Err(DriverError::TimedOut(after)) if after == timeout);
    assert!(timed_out, "{received:?}");
    assert!(!driver.has_completion() && driver.in_flight() == 0);
    assert!(
        !driver.lane().recalled.is_empty(),
        "it is not used any more"
    );
    assert_eq!(driver.closed(), None, "the connection goes on");
    // The peer's next Transfer is for the next receive.
    driver.set_request_timeout(None);
    driver.lane_mut().receives = [Err(LaneError::Gone)].into();
    let received = driver.lend_target(WorkRequest::Receive, &mut buffer);
    let dead = TransferError::Closed(CloseReason::PeerDead);
    assert_eq!(received.expect("reported").result, Err(dead));
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

/// Nothing tells when the kernel, which reads it still, is done; nor after its request is over.
#[test]
fn drop__gives_memory_back_unless_the_lane_holds_it() {
    static BYTES: [u8; 100] = [7; 100];
    for (held, over) in [(false, false), (true, false), (true, true), (false, true)] {
        let mut driver = ScriptedLane::default().driver();
        let owner = Arc::new(());
        let kept = Box::new(Arc::clone(&owner));
        // SAFETY: the bytes are static, and only sent.
        let region = unsafe { Region::foreign(NonNull::from(&BYTES).cast(), 100, false, kept) };
        let region = send_region(&mut driver, region);
        driver.lane_mut().held.extend(held.then_some(region));
        if over {
            driver.lane_mut().transmits = [Err(LaneError::Fault(region))].into();
            driver.turn(Step::Whole).expect("it goes on");
            assert_eq!(driver.has_completion(), !held);
        }
        drop(driver);
        assert_eq!(Arc::strong_count(&owner) > 1, held, "{held} {over}");
    }
}
