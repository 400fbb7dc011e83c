//! Tests that completions can be taken from a queue in batches.

use super::{PATIENCE, pair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use zerolane::CompletionQueue;
use zerolane::request::ReceiveMessage;

/// Whether an event loop would be notified.
fn is_readable(queue: &CompletionQueue) -> bool {
    let mut fds = [PollFd::new(queue, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).expect("polled") == 1
}

#[test]
fn poll_batch__takes_what_is_there_in_order_and_no_more() {
    let (mut connection, _peer) = pair();
    let queue = CompletionQueue::new(16).expect("a queue");
    connection.set_completion_queue(&queue, 9);
    let posted = (0..6u64).map(|n| {
        connection
            .post(ReceiveMessage::new().context(n))
            .expect("posted")
    });
    let posted: Vec<_> = posted.collect();
    assert!(posted.iter().all(|&id| connection.cancel(id)));
    assert!(connection.poll().expect("connected").is_none());

    let mut batch = Vec::new();
    assert_eq!(queue.poll_batch(&mut batch, 0), 0);
    assert_eq!(queue.poll_batch(&mut batch, 4), 4);
    assert!(is_readable(&queue), "there are two more");
    assert_eq!(queue.poll_batch(&mut batch, usize::MAX), 2);
    assert!(!is_readable(&queue) && queue.is_empty());
    assert_eq!(queue.poll_batch(&mut batch, 4), 0);
    let told = batch.iter().map(|(tag, it)| (*tag, it.id, it.context));
    let told: Vec<_> = told.collect();
    let expected = posted.iter().zip(0..).map(|(&id, n)| (9, id, n));
    assert_eq!(told, expected.collect::<Vec<_>>());
}

/// Taking many completions makes room for many: connections that waited for room continue.
#[test]
fn poll_batch__wakes_connections_that_wait_for_room() {
    let (mut connection, mut peer) = pair();
    let queue = CompletionQueue::new(2).expect("a queue");
    connection.set_completion_queue(&queue, 0);
    for _ in 0..20 {
        connection.post(ReceiveMessage::new()).expect("posted");
    }
    let driver = std::thread::spawn(move || while connection.wait(None).is_ok() {});
    let sender = std::thread::spawn(move || {
        for n in 0..20 {
            peer.send_message(&[n], None).expect("received");
        }
        peer.close()
    });
    let (mut batch, bound) = (Vec::new(), Instant::now() + PATIENCE);
    while batch.len() < 20 {
        assert!(queue.poll_batch(&mut batch, 2) <= 2);
        assert!(Instant::now() < bound, "{} in time", batch.len());
        std::thread::sleep(Duration::from_micros(100));
    }
    let told = batch.iter().filter_map(|(_, it)| it.control());
    let told: Vec<u8> = told.map(|control| control[0]).collect();
    assert_eq!(told, (0..20).collect::<Vec<u8>>());
    sender.join().expect("no panic").expect("closed");
    driver.join().expect("no panic");
}
