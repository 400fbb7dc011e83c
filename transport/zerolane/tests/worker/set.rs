//! Tests that one descriptor tells which of any set of requests are over.

use super::fork::in_a_child;
use super::handles::{pair, spawned};
use super::{PATIENCE, anywhere, content, region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;
use zerolane::worker::{PendingSet, Worker};
use zerolane::{Error, Options};

fn is_readable(set: &PendingSet) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(set.as_fd(), PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).expect("a descriptor") == 1
}

fn next(set: &PendingSet) -> u64 {
    let token = set.wait(Some(PATIENCE)).expect("no error");
    token.expect("in time")
}

#[test]
fn wait__gives_each_token_once_when_its_answer_is_there() {
    const REQUESTS: u64 = 200;
    let (one, other) = (spawned(), spawned());
    let (pair_of_one, pair_of_other) = (pair(&one), pair(&other));
    let set = PendingSet::new().expect("a descriptor");
    let mut waiting = Vec::new();
    for token in 0..REQUESTS {
        // Requests of two workers.
        let (_, client, server) = match token % 2 {
            0 => &pair_of_one,
            _ => &pair_of_other,
        };
        let mut received = server.recv(region(1, 64));
        set.add(&mut received, token).expect("our process");
        waiting.push(Some(received));
        client.send(region(token, 64)).detach();
    }
    for _ in 0..REQUESTS {
        let pending = waiting[next(&set) as usize].take();
        let mut pending = pending.expect("a token comes once");
        let received = pending.wait_for(Duration::ZERO).expect("it is there");
        received.expect("posted");
    }
    assert_eq!(set.wait(Some(Duration::ZERO)).expect("no error"), None);
    assert!(!is_readable(&set));
}

#[test]
fn descriptor__is_readable_while_there_are_tokens() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let set = PendingSet::new().expect("a descriptor");
    let mut receives: Vec<_> = (0..4).map(|_| server.recv(region(1, 8))).collect();
    for (token, receive) in (0..).zip(&mut receives) {
        set.add(receive, token).expect("our process");
    }
    assert!(!is_readable(&set), "nothing was sent");
    let mut tokens = Vec::new();
    assert_eq!(set.poll_batch(&mut tokens, 8), 0);
    for _ in 0..4 {
        client.send(region(3, 8)).detach();
    }
    for receive in &mut receives {
        let received = receive.wait_for(PATIENCE).expect("in time");
        received.expect("posted");
    }
    // The last token comes just behind its answer, and before the next one.
    client.account().wait().expect("open");
    assert!(is_readable(&set));
    assert_eq!((set.poll_batch(&mut tokens, 0), tokens.len()), (0, 0));
    assert_eq!(set.poll_batch(&mut tokens, 3), 3);
    assert!(is_readable(&set), "one is left");
    assert_eq!(set.poll_batch(&mut tokens, 8), 1);
    assert!(!is_readable(&set));
    let all: BTreeSet<u64> = tokens.into_iter().collect();
    assert_eq!(all, (0..4).collect());
}

#[test]
fn add__of_a_request_that_is_over_gives_its_token_at_once() {
    let worker = spawned();
    let (_endpoint, client, _server) = pair(&worker);
    let set = PendingSet::new().expect("a descriptor");
    let mut counted = client.account();
    set.add(&mut counted, 1).expect("our process");
    assert_eq!(next(&set), 1);
    // It is there, and was not taken.
    set.add(&mut counted, 2).expect("our process");
    assert_eq!(set.wait(Some(Duration::ZERO)).expect("no error"), Some(2));
    counted
        .wait_for(Duration::ZERO)
        .expect("there")
        .expect("open");
    set.add(&mut counted, u64::MAX).expect("our process");
    assert_eq!(next(&set), u64::MAX, "it was taken");
}

#[test]
fn add__again_replaces_and_a_dropped_request_has_no_token() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (set, other) = (
        PendingSet::new().expect("a descriptor"),
        PendingSet::new().expect("a descriptor"),
    );
    let mut given_up = server.recv(region(1, 8));
    set.add(&mut given_up, 1).expect("our process");
    drop(given_up);
    let mut received = server.recv(region(1, 8));
    set.add(&mut received, 2).expect("our process");
    other.add(&mut received, 3).expect("our process");
    client.send(region(3, 8)).detach();
    assert_eq!(next(&other), 3);
    assert!(!is_readable(&set) && !is_readable(&other));
}

#[test]
fn add__a_request_that_is_dropped_or_detached_gives_no_token() {
    let worker = spawned();
    let (endpoint, client, server) = pair(&worker);
    let set = PendingSet::new().expect("a descriptor");
    let (entered, hold) = std::sync::mpsc::channel();
    let (go, waiting) = std::sync::mpsc::channel::<()>();
    // Its call keeps the worker's thread, so nothing below has its answer yet.
    server.on_closed(move |_| {
        entered.send(()).expect("the test waits");
        let _ = waiting.recv_timeout(PATIENCE);
    });
    let mut received = client.recv(region(1, 8));
    set.add(&mut received, 1).expect("our process");
    received.detach();
    drop(server);
    hold.recv_timeout(PATIENCE).expect("called");
    let mut counted = client.account();
    set.add(&mut counted, 2).expect("our process");
    drop(counted);
    let mut connecting = worker.connect(endpoint.local_addr(), &Options::default());
    set.add(&mut connecting, 3).expect("our process");
    connecting.detach();
    go.send(()).expect("the worker waits");
    // Behind all of them, and the end of the receive.
    client.closed().wait().expect("it ended");
    let ended = worker.connect(endpoint.local_addr(), &Options::default());
    ended.wait().expect("connected");
    assert!(!is_readable(&set));
    assert_eq!(set.poll_batch(&mut Vec::new(), 8), 0);
}

#[test]
fn set__of_ten_thousand_requests_of_which_every_second_is_dropped() {
    const REQUESTS: usize = 10_000;
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let set = PendingSet::new().expect("a descriptor");
    let mut receives = Vec::new();
    for token in 0..REQUESTS {
        let mut receive = server.recv(region(1, 8));
        set.add(&mut receive, token as u64).expect("our process");
        receives.push(Some(receive));
    }
    receives.iter_mut().step_by(2).for_each(|it| *it = None);
    for n in 0..REQUESTS / 2 {
        client.send(region(n as u64, 8)).detach();
    }
    let mut tokens = Vec::new();
    while tokens.len() < REQUESTS / 2 {
        tokens.push(next(&set));
        set.poll_batch(&mut tokens, 1000);
    }
    tokens.sort_unstable();
    let odd = (0..REQUESTS as u64).filter(|it| it % 2 == 1);
    assert!(tokens.iter().copied().eq(odd), "each once");
    assert!(!is_readable(&set));
    for (n, receive) in receives.into_iter().flatten().enumerate() {
        let received = receive.wait().expect("posted");
        let received = received.into_region().expect("a region");
        assert!(received[..] == content(n as u64, 8), "{n}");
    }
}

#[test]
fn set__dropped_before_its_requests_leaves_them() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let set = PendingSet::new().expect("a descriptor");
    let mut receives: Vec<_> = (0..2).map(|_| server.recv(region(1, 8))).collect();
    for (token, receive) in (0..).zip(&mut receives) {
        set.add(receive, token).expect("our process");
    }
    drop(set);
    let other = PendingSet::new().expect("a descriptor");
    other.add(&mut receives[1], 7).expect("our process");
    for seed in [3, 4] {
        client.send(region(seed, 8)).detach();
    }
    assert_eq!(next(&other), 7);
    for (seed, receive) in [3, 4].into_iter().zip(receives) {
        let received = receive.wait().expect("posted");
        let received = received.into_region().expect("a region");
        assert!(received[..] == content(seed, 8), "{seed}");
    }
}

#[test]
fn wait__ends_with_the_worker_by_a_signal_and_after_its_time() {
    let worker = spawned();
    let (_endpoint, _client, server) = pair(&worker);
    let set = PendingSet::new().expect("a descriptor");
    let mut waiting = server.recv(region(1, 8));
    set.add(&mut waiting, 7).expect("our process");
    let soon = set.wait(Some(Duration::from_millis(1)));
    assert_eq!(soon.expect("no error"), None);
    let theirs = set.clone();
    let sleeping = std::thread::spawn(move || theirs.wait(Some(Duration::MAX)));
    set.signal(8);
    let woken = sleeping.join().expect("no panic").expect("no error");
    assert_eq!(woken, Some(8));
    drop(worker);
    assert_eq!(next(&set), 7);
    waiting.wait().expect_err("its worker is gone");
}

#[test]
fn set__is_the_parents_after_fork() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let set = PendingSet::new().expect("a descriptor");
    let mut received = server.recv(region(1, 8));
    set.add(&mut received, 7).expect("our process");
    set.signal(8);
    in_a_child(|| {
        let refused = set.wait(Some(PATIENCE));
        assert!(matches!(refused, Err(Error::Forked)), "{refused:?}");
        assert_eq!(set.poll_batch(&mut Vec::new(), 8), 0);
        set.signal(9);
        // A request of the parent's in a set of the child's: its answer is that it is the parent's.
        let own = PendingSet::new().expect("a descriptor");
        assert!(matches!(set.add(&mut received, 1), Err(Error::Forked)));
        own.add(&mut received, 1).expect("our process");
        assert_eq!(own.wait(Some(PATIENCE)).expect("no error"), Some(1));
    });
    assert_eq!(next(&set), 8);
    assert!(!is_readable(&set), "the child added none");
    client.send(region(3, 8)).detach();
    assert_eq!(next(&set), 7);
}

#[test]
fn set__of_the_parent_is_not_readable_by_what_ends_in_its_child() {
    let worker = Worker::new().expect("descriptors");
    let handle = worker.handle();
    let set = PendingSet::new().expect("a descriptor");
    // The worker makes no progress, so it waits.
    let mut listening = handle.listen(anywhere(), Options::default());
    set.add(&mut listening, 7).expect("our process");
    let mut kept = Some((worker, handle));
    in_a_child(|| drop(kept.take()));
    assert!(!is_readable(&set), "a wait would spin");
    drop(kept);
    assert_eq!(next(&set), 7);
}
