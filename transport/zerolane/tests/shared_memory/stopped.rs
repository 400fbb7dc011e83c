//! Tests that Transfers survive a stopped peer, and that one stopped for too long counts as dead.

use crate::child::{Job, SWAPPED, child, lane_of, swap, told};
use crate::random::{Random, seeds};
use crate::{PATIENCE, accept, listen, options, receive_until_gone, signal};
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
use std::time::Duration;
use zerolane::failure::{CloseReason, TransferError};
use zerolane::options::LaneChoice;
use zerolane::{Endpoint, Error};

#[test]
fn processes__stopped_in_the_middle_and_killed() {
    for round in 0..4 {
        let mut endpoint = listen(LaneChoice::SharedMemory);
        let (mut child, mut said) = child(endpoint.local_addr(), &Job::SEND);
        let mut connection = accept(&mut endpoint);
        lane_of(&mut said);
        let (came, first) = std::sync::mpsc::channel();
        let killing = std::thread::spawn(move || {
            first.recv_timeout(PATIENCE).expect("something came");
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(3 + round));
                signal(&child, SIGSTOP);
                std::thread::sleep(Duration::from_millis(40));
                signal(&child, SIGCONT);
            }
            std::thread::sleep(Duration::from_millis(20));
            signal(&child, SIGSTOP);
            std::thread::sleep(Duration::from_millis(40));
            child.kill().expect("ours");
            child.wait().expect("killed");
        });
        receive_until_gone(&mut connection, || {
            // The first one is waited for.
            let _ = came.send(());
        });
        killing.join().expect("no panic");
        assert!(connection.account().bytes_placed > 0);
    }
}

/// Whatever the peer was doing when it was stopped, all payload of both ends is complete after it continues.
#[test]
fn processes__stopped_at_any_point_and_continued_have_right_content() {
    let patient =
        options(LaneChoice::SharedMemory).with(|it| it.times.idle = Duration::from_secs(600));
    for seed in seeds(6) {
        let mut random = Random::new(seed);
        let mut endpoint = Endpoint::bind("127.0.0.1:0", patient.clone()).expect("a port");
        let job = Job {
            then: "swap",
            ..Job::SEND
        };
        let (mut child, mut said) = child(endpoint.local_addr(), &job);
        let mut connection = accept(&mut endpoint);
        connection.set_timeout(Some(PATIENCE));
        assert!(lane_of(&mut said).starts_with("SharedMemory"));
        std::thread::scope(|scope| {
            let swapping = scope.spawn(|| swap(&mut connection, [1, 0], SWAPPED));
            loop {
                signal(&child, SIGSTOP);
                std::thread::sleep(random.micros(8000));
                signal(&child, SIGCONT);
                std::thread::sleep(random.micros(3000));
                if swapping.is_finished() {
                    break;
                }
            }
            let swapped = swapping.join().expect("right content");
            swapped.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
        told(&mut said, "swapped");
        connection.close().expect("closed");
        assert!(child.wait().expect("done").success(), "seed {seed}");
    }
}

/// A peer that stays stopped counts as dead after the idle timeout, and learns of it when it continues.
#[test]
fn processes__stopped_for_good_are_missed_after_the_idle_timeout() {
    let impatient =
        options(LaneChoice::SharedMemory).with(|it| it.times.idle = Duration::from_secs(1));
    let mut endpoint = Endpoint::bind("127.0.0.1:0", impatient).expect("a port");
    let job = Job {
        then: "swap on",
        ..Job::SEND
    };
    let (mut child, mut said) = child(endpoint.local_addr(), &job);
    let mut connection = accept(&mut endpoint);
    connection.set_timeout(Some(PATIENCE));
    lane_of(&mut said);
    signal(&child, SIGSTOP);
    let missed = swap(&mut connection, [1, 0], usize::MAX);
    let missed = missed.expect_err("it is stopped");
    let named = matches!(
        missed,
        Error::Closed(CloseReason::PeerDead)
            | Error::Transfer(TransferError::Closed(CloseReason::PeerDead))
    );
    assert!(named, "{missed}");
    drop(connection);
    signal(&child, SIGCONT);
    assert!(child.wait().expect("done").success(), "it was told");
}
