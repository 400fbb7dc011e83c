//! Tests that delivery modes decide what wakes a waiting receiver and what only a poll finds.
//!
//! Wake-ups are counted: returns of `wait` with a completion, and of a queue's descriptor. The last Transfer of each
//! stream interrupts, so the test needs no timing: an earlier wake-up would be counted first.

use crate::content;
use crate::drive::{PATIENCE, both, next};
use crate::path::{Pair, Path};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use zerolane::Delivery::{self, Interrupt, Polled, Silent};
use zerolane::request::{Output, ReceiveMessage, Transfer};
use zerolane::{Completion, CompletionQueue, Connection, Options, Region, RequestId};

const LEN: usize = 10_000;
/// Tag of the connection in a queue.
const TAG: u64 = 7;

/// A pair whose receiver honours what the sender asks for.
fn pair() -> Option<Pair> {
    let mut pair = Path::LoopbackV4.connect(&Options::default())?;
    pair.b.honour_delivery(true);
    Some(pair)
}

/// Sends one Transfer for each mode, one after the other: the n-th has the content `1 + n`.
fn send_as(source: &mut Connection, deliveries: &[Delivery]) {
    for (seed, &delivery) in (1..).zip(deliveries) {
        send(source, seed, delivery);
    }
}

/// Sends one Transfer, and waits until the peer has received it.
fn send(source: &mut Connection, seed: u64, delivery: Delivery) {
    let sent = source.post(Transfer::new(content::region(seed, LEN)).delivery(delivery));
    let id = sent.expect("posted");
    let completion = next(source);
    assert_eq!((completion.id, completion.result), (id, Ok(LEN)));
}

fn post(target: &mut Connection, count: usize) -> Vec<RequestId> {
    let region = || Region::anonymous(LEN).expect("memory");
    let posted = (0..count).map(|_| target.post_recv(region()).expect("posted"));
    posted.collect()
}

/// Tests that the n-th completion is the n-th request posted, with its content.
fn verify(n: usize, ids: &[RequestId], completion: Completion) {
    assert_eq!((completion.id, completion.result), (ids[n], Ok(LEN)));
    content::verify(1 + n as u64, &completion.into_region().expect("a region"));
}

/// Polls until there is a completion.
fn look(target: &mut Connection) -> Completion {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "{:#?}", target.account());
        if let Some(completion) = target.poll().expect("connected") {
            return completion;
        }
    }
}

/// Polls until at most `left` requests are in flight, and once more. No poll may return a completion.
fn find_nothing_while(target: &mut Connection, left: usize) {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "{:#?}", target.account());
        let is_over = target.in_flight() <= left;
        let found = target.poll().expect("connected");
        assert!(found.is_none(), "{found:?}");
        if is_over {
            return;
        }
    }
}

/// Sends a Transfer for each of `deliveries`, and counts how many Transfers each return of the receiver's `wait`
/// brought. After one that interrupts, the sender waits until it was counted.
fn wake_ups(pair: &mut Pair, deliveries: &[Delivery]) -> Vec<usize> {
    let (counted, go_on) = mpsc::channel();
    let source = move |source: &mut Connection| {
        for (seed, &delivery) in (1..).zip(deliveries) {
            send(source, seed, delivery);
            if delivery == Interrupt {
                go_on.recv_timeout(PATIENCE).expect("it wakes");
            }
        }
    };
    let target = |target: &mut Connection| {
        let ids = post(target, deliveries.len());
        let (mut taken, mut wake_ups) = (0, Vec::new());
        while taken < deliveries.len() {
            let before = taken;
            let mut came = Some(next(target));
            while let Some(completion) = came {
                let Output::Receive { delivery, .. } = completion.output else {
                    panic!("a Transfer was sent");
                };
                assert_eq!(delivery, deliveries[taken]);
                verify(taken, &ids, completion);
                taken += 1;
                // Completions that came with it.
                came = target.wait(Some(Duration::ZERO)).expect("connected").got();
            }
            wake_ups.push(taken - before);
            counted.send(()).expect("awaited");
        }
        wake_ups
    };
    both(pair, source, target).1
}

/// On every path of the battery.
pub fn wakes_as_its_sender_asks(pair: &mut Pair) {
    pair.b.honour_delivery(true);
    assert_eq!(wake_ups(pair, &[Interrupt; 3]), [1; 3]);
    assert_eq!(wake_ups(pair, &[Polled, Polled, Interrupt]), [3]);
    assert_eq!(wake_ups(pair, &[Silent, Silent, Interrupt]), [3]);
    let mixed = [Silent, Interrupt, Polled, Silent, Interrupt];
    assert_eq!(wake_ups(pair, &mixed), [2, 3]);
}

#[test]
fn delivery__not_honoured_wakes_in_all_modes() {
    let Some(mut pair) = Path::LoopbackV4.connect(&Options::default()) else {
        return;
    };
    assert_eq!(wake_ups_of_each(&mut pair, &[Silent, Polled, Silent]), 3);
    pair.b.honour_delivery(true);
    pair.b.honour_delivery(false);
    assert_eq!(wake_ups_of_each(&mut pair, &[Polled, Silent]), 2);
}

/// Sends a Transfer for each of `deliveries` once the receiver waits for it, and counts the returns of its `wait`.
fn wake_ups_of_each(pair: &mut Pair, deliveries: &[Delivery]) -> usize {
    let (counted, go_on) = mpsc::channel();
    let source = move |source: &mut Connection| {
        for (seed, &delivery) in (1..).zip(deliveries) {
            send(source, seed, delivery);
            go_on.recv_timeout(PATIENCE).expect("it wakes");
        }
    };
    let target = |target: &mut Connection| {
        let ids = post(target, deliveries.len());
        for n in 0..deliveries.len() {
            verify(n, &ids, next(target));
            counted.send(()).expect("awaited");
        }
        ids.len()
    };
    both(pair, source, target).1
}

#[test]
fn delivery__a_look_finds_polled_and_not_silent() {
    let Some(mut pair) = pair() else { return };
    let (looked, go_on) = mpsc::channel();
    both(
        &mut pair,
        move |a| {
            send_as(a, &[Polled, Silent]);
            go_on.recv_timeout(PATIENCE).expect("it looked");
            send(a, 3, Polled);
        },
        |b| {
            let ids = post(b, 3);
            verify(0, &ids, look(b));
            find_nothing_while(b, 1);
            looked.send(()).expect("awaited");
            // In order: the silent one comes together with the next one.
            verify(1, &ids, look(b));
            verify(2, &ids, look(b));
        },
    );
}

#[test]
fn delivery__silent_is_deferred_until_asked_for_by_number() {
    let Some(mut pair) = pair() else { return };
    both(
        &mut pair,
        |a| {
            send_as(a, &[Silent, Silent]);
            // They complete in order, so they are complete when this one is.
            a.send_message(b"two", None).expect("sent");
        },
        |b| {
            let ids = post(b, 3);
            let message = b.post(ReceiveMessage::new()).expect("posted");
            // Requested before it completes.
            assert!(b.notify(ids[0]));
            verify(0, &ids, next(b));
            // The message interrupts: the silent one before it is returned first.
            verify(1, &ids, next(b));
            assert_eq!(next(b).id, message);
            assert!(b.cancel(ids[2]));
            assert!(next(b).result.is_err());
            assert!(!b.notify(ids[1]), "it was taken");
        },
    );
}

#[test]
fn delivery__silent_that_is_there_is_had_by_its_number() {
    let Some(mut pair) = pair() else { return };
    both(
        &mut pair,
        |a| send_as(a, &[Silent]),
        |b| {
            let ids = post(b, 2);
            find_nothing_while(b, 1);
            assert!(b.notify(ids[0]));
            verify(0, &ids, next(b));
        },
    );
}

#[test]
fn delivery__blocking_calls_return_in_all_modes() {
    let Some(mut pair) = pair() else { return };
    let deliveries = [Silent, Polled, Interrupt, Silent];
    both(
        &mut pair,
        |a| send_as(a, &deliveries),
        |b| {
            for n in 0..deliveries.len() {
                let mut buffer = vec![0; LEN];
                assert_eq!(b.recv_into(&mut buffer).expect("received"), LEN);
                content::verify(1 + n as u64, &buffer);
            }
        },
    );
}

#[test]
fn delivery__a_transfer_that_finds_no_receive_wakes() {
    let Some(mut pair) = pair() else { return };
    both(
        &mut pair,
        |a| send_as(a, &[Silent, Silent, Silent]),
        |b| {
            let mut ids = post(b, 2);
            // The third is announced, and the memory for it belongs to a completion that was held back.
            verify(0, &ids, next(b));
            verify(1, &ids, next(b));
            ids.extend(post(b, 1));
            assert!(b.notify(ids[2]));
            verify(2, &ids, next(b));
        },
    );
}

#[test]
fn delivery__a_transfer_of_no_bytes_wakes() {
    let Some(mut pair) = pair() else { return };
    both(
        &mut pair,
        |a| {
            send_as(a, &[Silent]);
            let sent =
                a.post(Transfer::new(Region::anonymous(0).expect("memory")).delivery(Silent));
            sent.expect("posted");
            assert_eq!(next(a).result, Ok(0));
        },
        |b| {
            let ids = post(b, 2);
            verify(0, &ids, next(b));
            assert_eq!(next(b).result, Ok(0));
        },
    );
}

#[test]
fn delivery__deferred_memory_comes_back_at_the_end() {
    let Some(Pair { mut a, mut b, .. }) = pair() else {
        return;
    };
    let ids = post(&mut b, 1);
    let sender = std::thread::spawn(move || {
        send_as(&mut a, &[Silent]);
        a.close()
    });
    verify(0, &ids, next(&mut b));
    assert!(b.wait(Some(PATIENCE)).is_err(), "nothing more comes");
    sender.join().expect("no panic").expect("closed");
}

/// Whether the queue's descriptor is readable.
fn is_readable(queue: &CompletionQueue) -> bool {
    let mut fds = [PollFd::new(queue, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).expect("polled") > 0
}

#[test]
fn delivery__a_queue_is_notified_of_what_interrupts_alone() {
    let Some(mut pair) = pair() else { return };
    let deliveries = [Polled, Silent, Polled, Interrupt, Polled];
    both(
        &mut pair,
        |a| send_as(a, &deliveries),
        |b| {
            let queue = CompletionQueue::new(8).expect("a queue");
            b.set_completion_queue(&queue, TAG);
            let ids = post(b, deliveries.len());
            // Returns when a completion interrupts; earlier ones are in the queue then.
            assert!(b.wait(Some(PATIENCE)).expect("connected").got().is_none());
            assert!(queue.len() >= 4, "{}", queue.len());
            for n in 0..4 {
                assert!(is_readable(&queue), "{n}");
                verify(n, &ids, told(&queue));
            }
            assert!(!is_readable(&queue), "what is left was polled");
            let end = Instant::now() + PATIENCE;
            while queue.is_empty() {
                assert!(Instant::now() < end, "{:#?}", b.account());
                b.poll().expect("connected");
                assert!(!is_readable(&queue));
            }
            let (_, completion) = queue.poll().expect("found by looking");
            verify(4, &ids, completion);
        },
    );
}

/// The result of a wait on the queue.
fn told(queue: &CompletionQueue) -> Completion {
    let (tag, completion) = queue.wait(Some(PATIENCE)).expect("no error").expect("told");
    assert_eq!(tag, TAG);
    completion
}

/// A full queue must wake, or nothing would empty it.
#[test]
fn delivery__a_full_queue_wakes() {
    let Some(mut pair) = pair() else { return };
    both(
        &mut pair,
        |a| send_as(a, &[Polled, Polled, Interrupt]),
        |b| {
            let queue = CompletionQueue::new(2).expect("a queue");
            b.set_completion_queue(&queue, TAG);
            let ids = post(b, 3);
            assert!(b.wait(Some(PATIENCE)).expect("connected").got().is_none());
            assert!(is_readable(&queue));
            for n in 0..2 {
                verify(n, &ids, told(&queue));
            }
            assert!(b.wait(Some(PATIENCE)).expect("connected").got().is_none());
            verify(2, &ids, told(&queue));
        },
    );
}

/// A Waker and a timeout end a wait, even while polled Transfers keep it busy.
#[test]
fn delivery__polled_keeps_no_wait_from_its_end() {
    let Some(mut pair) = pair() else { return };
    both(
        &mut pair,
        |a| send_as(a, &[Polled, Polled]),
        |b| {
            let ids = post(b, 2);
            let end = Instant::now() + PATIENCE;
            while b.in_flight() > 0 {
                assert!(Instant::now() < end, "{:#?}", b.account());
                let woken = b
                    .wait(Some(Duration::from_millis(1)))
                    .expect("connected")
                    .got();
                assert!(woken.is_none());
            }
            b.waker().wake();
            assert!(b.wait(None).expect("connected").got().is_none());
            verify(0, &ids, look(b));
            verify(1, &ids, look(b));
        },
    );
}
