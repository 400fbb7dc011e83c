//! Tests that a child of fork cannot use a worker's handles, whose thread it does not have.

use super::handles::{exported, pair, spawned};
use super::{PATIENCE, content, region};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use zerolane::failure::Refused;
use zerolane::memory::Memory;
use zerolane::request::PutPieces;
use zerolane::worker::{Outcome, Worker};
use zerolane::{Error, Options};

/// Runs `act` in a child, which must end without a panic.
pub(super) fn in_a_child(act: impl FnOnce()) {
    // SAFETY: what the child runs takes no lock that another thread of this program may hold but the allocator's, which
    // survives a fork.
    let child = match unsafe { fork() }.expect("forked") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let ran = catch_unwind(AssertUnwindSafe(act));
            // SAFETY: the child ends here, without running anything else.
            unsafe { nix::libc::_exit(i32::from(ran.is_err())) }
        }
    };
    let end = Instant::now() + PATIENCE;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).expect("a child") {
            WaitStatus::StillAlive if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            WaitStatus::StillAlive => {
                let _ = kill(child, Signal::SIGKILL);
                let _ = waitpid(child, None);
                panic!("the child hangs");
            }
            ended => break assert_eq!(ended, WaitStatus::Exited(child, 0)),
        }
    }
}

fn is_forked<T>(outcome: Outcome<T>) -> Refused<Option<Memory>> {
    let refused = outcome.err().expect("refused");
    assert!(matches!(refused.error, Error::Forked), "{refused}");
    refused
}

#[test]
fn drop__in_a_child_of_fork_leaves_the_worker_to_its_parent() {
    let worker = spawned();
    let (endpoint, client, server) = pair(&worker);
    let (_memory, key) = exported(&server);
    let address = endpoint.local_addr();
    let receiving = server.recv(region(1, 64));
    let accepting = endpoint.accept();
    let mut kept = Some((worker, endpoint, client, server, receiving, accepting));
    in_a_child(|| {
        let (worker, endpoint, client, server, mut receiving, accepting) =
            kept.take().expect("there");
        // Posted by the child: the memory comes back.
        let refused = is_forked(client.send(region(7, 100)).wait());
        let back = refused.memory.expect("it came back");
        assert!(back.as_slice() == Some(&content(7, 100)[..]));
        let pieces = vec![(0, region(5, 10).into()), (50, region(6, 20).into())];
        let put = client.post(PutPieces::new(&key, pieces));
        let back = is_forked(put.wait()).memory;
        assert!(matches!(back, Some(Memory::Gathered(pieces)) if pieces.len() == 2));
        is_forked(worker.connect(address, &Options::default()).wait());
        is_forked(endpoint.accept().wait());
        is_forked(server.immediate().wait());
        // Requested by the parent.
        is_forked(receiving.wait_for(PATIENCE).expect("nothing comes"));
        is_forked(accepting.wait());
        drop((receiving, client, server, endpoint));
        drop(worker);
    });
    let (worker, endpoint, client, server, receiving, accepting) = kept.expect("the child's only");
    client.send(region(3, 64)).wait().expect("sent");
    let received = receiving.wait().expect("posted");
    assert!(
        received.into_region().expect("a region")[..] == content(3, 64),
        "content"
    );
    let other = worker.connect(address, &Options::default());
    accepting.wait().expect("accepted");
    other.wait().expect("connected");
    drop((endpoint, server));
    worker.stop().expect("stopped");
}

#[test]
fn stop__in_a_child_of_fork_is_refused() {
    let worker = spawned();
    let handles = pair(&worker);
    let mut kept = Some(worker);
    in_a_child(|| {
        let stopped = kept.take().expect("there").stop();
        assert!(matches!(stopped, Err(Error::Forked)), "{stopped:?}");
        // A worker of its own works as usual.
        let own = Worker::new()
            .expect("descriptors")
            .spawn()
            .expect("a thread");
        drop(pair(&own));
        own.stop().expect("stopped");
    });
    let (_, client, server) = handles;
    let received = server.recv(region(1, 64));
    client.send(region(3, 64)).wait().expect("sent");
    received.wait().expect("posted").result.expect("received");
    kept.expect("the child's only").stop().expect("stopped");
}
