//! Tests that payload goes through the ring, and is counted, if a process may not read the other.

use crate::child::{Job, RECEIVED, child, lane_of, listener, told};
use crate::{LEN, accept, content, listen, options};
use nix::unistd::geteuid;
use std::net::SocketAddr;
use std::process::Command;
use zerolane::Connection;
use zerolane::counters::{LaneKind, MoveCause};
use zerolane::options::LaneChoice;

/// The bit of CAP_SYS_PTRACE.
const TRACE: u64 = 1 << 19;

/// Sends to a child, which reports the bytes that came through the ring, and those that it read in place.
fn send_to(job: &Job) -> String {
    let mut endpoint = listen(LaneChoice::SharedMemory);
    let (mut child, mut said) = child(endpoint.local_addr(), job);
    let mut connection = accept(&mut endpoint);
    assert!(lane_of(&mut said).starts_with("SharedMemory"));
    for seed in 0..RECEIVED {
        connection.send(&content(seed, LEN)).expect("sent");
    }
    let came = told(&mut said, "came");
    assert!(child.wait().expect("done").success());
    came
}

/// All of it through the ring.
fn through_the_ring() -> String {
    format!("{} 0", RECEIVED * LEN)
}

fn receive_all(connection: &mut Connection) {
    let mut buffer = vec![0; LEN];
    for seed in 0..RECEIVED {
        connection.recv_into(&mut buffer).expect("received");
        assert!(buffer == content(seed, LEN), "Transfer {seed}");
    }
}

/// As in a sandbox, or with Yama: this user may not read a process that is not dumpable. Root may.
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
    receive_all(&mut connection);
    let account = connection.account();
    assert_eq!(account.lane, LaneKind::SharedMemory);
    let whole = (RECEIVED * LEN) as u64;
    assert!(account.moved(MoveCause::Ring) >= whole, "{account:?}");
    assert_eq!(account.bytes_placed, 0);
    child.kill().expect("ours");
    child.wait().expect("killed");
}

/// A process in its own PID namespace does not see the listener, which sees it.
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
    assert_eq!(send_to(&job), through_the_ring());
}

/// As in a container, where root lacks some capabilities: it may not read a process that has more.
#[test]
fn payload__for_a_process_without_the_right_to_trace_comes_through_the_ring() {
    const WITHOUT: [&str; 3] = [
        "setpriv",
        "--bounding-set=-sys_ptrace",
        "--inh-caps=-sys_ptrace",
    ];
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let rights = status.lines().find_map(|it| it.strip_prefix("CapPrm:"));
    let rights = u64::from_str_radix(rights.expect("there").trim(), 16).expect("a number");
    let mut tried = Command::new(WITHOUT[0]);
    let tried = tried.args(&WITHOUT[1..]).arg("true").output();
    if rights & TRACE == 0 || !tried.is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: this process has no right to trace that another one could lack");
        return;
    }
    let job = Job {
        then: "receive",
        started_by: &WITHOUT,
        ..Job::SEND
    };
    assert_eq!(send_to(&job), through_the_ring());
}

/// Yama lets a process read its descendants, and no other.
#[test]
fn payload__for_a_process_that_yama_restricts_comes_through_the_ring() {
    if geteuid().is_root() {
        eprintln!("skipped: this process has the rights to read every process");
        return;
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if scope.map_or(true, |it| it.trim() == "0") {
        eprintln!("skipped: this kernel has no Yama, or it restricts nothing");
        return;
    }
    let job = Job {
        then: "receive",
        ..Job::SEND
    };
    assert_eq!(send_to(&job), through_the_ring());
}

/// Payload to it goes through the ring. It reads nothing, but its peers may read it.
#[test]
fn payload__for_a_process_that_landlock_confines_comes_through_the_ring() {
    let confined = |then| Job {
        first: "confine",
        then,
        ..Job::SEND
    };
    // As a server, which is confined once it listens.
    for then in ["receive", "send"] {
        let (mut child, mut said) = listener(&confined(then));
        let at: SocketAddr = told(&mut said, "at").parse().expect("an address");
        let status = told(&mut said, "confined");
        if status == "NotEnforced" {
            eprintln!("skipped: this kernel confines no process: it has no Landlock");
            child.kill().expect("ours");
            child.wait().expect("killed");
            return;
        }
        let mut connection =
            Connection::connect(at, &options(LaneChoice::SharedMemory)).expect("met");
        if then == "receive" {
            for seed in 0..RECEIVED {
                connection.send(&content(seed, LEN)).expect("sent");
            }
            assert_eq!(told(&mut said, "came"), through_the_ring());
            assert!(child.wait().expect("done").success());
            continue;
        }
        receive_all(&mut connection);
        let account = connection.account();
        assert!(
            account.bytes_placed >= (RECEIVED * LEN) as u64,
            "{account:?}"
        );
        assert_eq!(account.moved(MoveCause::Ring), 0);
        child.kill().expect("ours");
        child.wait().expect("killed");
    }
    // And as a client.
    assert_eq!(send_to(&confined("receive")), through_the_ring());
}

/// The rings' memory is not a file in /dev/shm, and needs no huge page.
#[test]
fn payload__where_dev_shm_is_full_and_no_page_is_huge_is_read_in_place() {
    const FULL: [&str; 5] = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs -o size=4k none /dev/shm && ! head -c 9000 /dev/zero >/dev/shm/full && exec \"$0\" \"$@\"",
    ];
    let mut tried = Command::new(FULL[0]);
    let tried = tried.args(&FULL[1..]).arg("true").output();
    if !tried.is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: nothing may be mounted here");
        return;
    }
    let job = Job {
        first: "no huge pages",
        then: "receive",
        started_by: &FULL,
        ..Job::SEND
    };
    assert_eq!(send_to(&job), format!("0 {}", RECEIVED * LEN));
}
