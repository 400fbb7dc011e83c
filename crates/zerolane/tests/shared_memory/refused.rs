//! Where the kernel lets one process not read another: payload goes through the ring, and is counted.

use crate::child::{Job, RECEIVED, child, lane_of, told};
use crate::{LEN, accept, content, listen};
use nix::unistd::geteuid;
use std::process::Command;
use zerolane::counters::{LaneKind, MoveCause};
use zerolane::options::LaneChoice;

/// As a sandbox does, or Yama: this user may not read what is not dumpable. Root may.
#[test]
fn payload__of_a_process_that_may_not_be_read_comes_through_the_ring() {
    if geteuid().is_root() {
        eprintln!("skipped: this process has the rights to read every process");
        return;
    }
    let job = Job {
        first: "hide",
        ..Job::SEND
    };
    let mut endpoint = listen(LaneChoice::SharedMemory);
    let (mut child, mut said) = child(endpoint.local_addr(), &job);
    let mut connection = accept(&mut endpoint);
    assert!(lane_of(&mut said).starts_with("SharedMemory"));
    let mut buffer = vec![0; LEN];
    for seed in 0..RECEIVED {
        connection.recv_into(&mut buffer).expect("received");
        assert!(buffer == content(seed, LEN), "Transfer {seed}");
    }
    let account = connection.account();
    assert_eq!(account.lane, LaneKind::SharedMemory);
    let whole = (RECEIVED * LEN) as u64;
    assert!(account.moved(MoveCause::Ring) >= whole, "{account:?}");
    assert_eq!(account.bytes_placed, 0);
    child.kill().expect("ours");
    child.wait().expect("killed");
}

/// One in a PID namespace of its own does not see the listener, which sees it.
#[test]
fn payload__for_a_process_of_another_pid_namespace_comes_through_the_ring() {
    const UNSHARE: [&str; 4] = ["unshare", "--pid", "--fork", "--kill-child"];
    let mut tried = Command::new(UNSHARE[0]);
    if !tried
        .args(&UNSHARE[1..])
        .arg("true")
        .output()
        .is_ok_and(|it| it.status.success())
    {
        eprintln!("skipped: no PID namespace may be made here");
        return;
    }
    let job = Job {
        then: "receive",
        started_by: &UNSHARE,
        ..Job::SEND
    };
    let mut endpoint = listen(LaneChoice::SharedMemory);
    let (mut child, mut said) = child(endpoint.local_addr(), &job);
    let mut connection = accept(&mut endpoint);
    assert!(lane_of(&mut said).starts_with("SharedMemory"));
    for seed in 0..RECEIVED {
        connection.send(&content(seed, LEN)).expect("sent");
    }
    let whole = RECEIVED * LEN;
    assert_eq!(told(&mut said, "came"), format!("{whole} 0"));
    child.wait().expect("done");
}
