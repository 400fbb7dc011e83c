//! Tests that requests keep their options and timeouts, and that completions can be taken in any way.

use super::{PATIENCE, content, pair, small, turns};
use std::time::Duration;
use zerolane::request::{
    Fetch, Get, Message, Put, PutInline, PutPieces, Receive, ReceiveMessage, Transfer, WorkKind,
};
use zerolane::{
    Completion, Connection, Delivery, Error, ExportedRegion, FetchOp, Region, RequestId, Rights,
    Waited,
};

fn exported(owner: &mut Connection) -> (ExportedRegion, zerolane::RegionKey) {
    let memory = Region::anonymous(1 << 16).expect("memory");
    let memory = ExportedRegion::new(memory).expect("page-aligned");
    let key = owner.export(&memory, Rights::ALL).expect("exported");
    (memory, key)
}

/// Drives both ends until `here` has `count` completions.
fn exchange(here: &mut Connection, there: &mut Connection, count: usize) -> Vec<Completion> {
    let mut done = vec![];
    let end = std::time::Instant::now() + PATIENCE;
    while done.len() < count {
        assert!(std::time::Instant::now() < end, "{} of {count}", done.len());
        here.poll_batch(&mut done, 64).expect("connected");
        let _ = there.poll().expect("connected");
    }
    done
}

#[test]
fn context__comes_back_with_each_kind_of_request() {
    let (mut here, mut there) = pair();
    let (_memory, key) = exported(&mut there);
    there.post_recv(small(0)).expect("posted");
    there.post(ReceiveMessage::new()).expect("posted");
    let far = u64::MAX - 7;
    let ids = [
        here.post(Transfer::new(small(1)).context(far))
            .expect("posted"),
        here.post(Put::new(&key, 0, small(2)).context(2))
            .expect("posted"),
        here.post(PutInline::new(&key, 8, b"inline").context(3))
            .expect("posted"),
        here.post(Get::new(&key, 0, small(4)).context(4))
            .expect("posted"),
        here.post(Fetch::new(&key, 64, FetchOp::Increment).context(5))
            .expect("posted"),
        here.post(Message::new(b"m").context(6)).expect("posted"),
        here.post(
            PutPieces::new(&key, vec![(0, small(7).into()), (32, small(8).into())]).context(7),
        )
        .expect("posted"),
    ];
    let mut done = exchange(&mut here, &mut there, ids.len());
    done.sort_by_key(|it| it.context);
    let contexts: Vec<u64> = done.iter().map(|it| it.context).collect();
    assert_eq!(contexts, [2, 3, 4, 5, 6, 7, far]);
    for completion in &done {
        completion.result.expect("done");
        let index = match completion.context {
            n if n == far => 0,
            n => n as usize - 1,
        };
        assert_eq!(completion.id, ids[index], "{completion:?}");
    }

    here.post(Receive::new(small(0)).context(11))
        .expect("posted");
    here.post(ReceiveMessage::new().context(12))
        .expect("posted");
    there.post_send(small(1)).expect("posted");
    there.post(Message::new(b"m")).expect("posted");
    let mut done = exchange(&mut here, &mut there, 2);
    done.sort_by_key(|it| it.context);
    let found: Vec<_> = done.iter().map(|it| (it.context, it.kind())).collect();
    assert_eq!(
        found,
        [(11, WorkKind::Receive), (12, WorkKind::MessageReceived)]
    );
}

#[test]
fn context__comes_back_with_a_failure() {
    let (mut here, there) = pair();
    here.post(Receive::new(small(0)).context(41))
        .expect("posted");
    drop(there);
    let failed = here.wait(Some(PATIENCE)).expect("connected").got();
    let failed = failed.expect("in time");
    assert!(failed.result.is_err());
    assert_eq!(failed.context, 41);
}

#[test]
fn unsignalled__sends_and_vectored_puts_report_failures_alone() {
    let (mut here, mut there) = pair();
    let (memory, key) = exported(&mut there);
    there.post_recv(small(0)).expect("posted");
    here.post(Transfer::new(small(1)).signalled(false))
        .expect("posted");
    let pieces = vec![(0, small(2).into()), (4096, small(3).into())];
    here.post(PutPieces::new(&key, pieces).signalled(false))
        .expect("posted");
    // After them, and signalled.
    here.post(Put::new(&key, 8192, small(4)).fence(true).context(4))
        .expect("posted");
    let done = exchange(&mut here, &mut there, 1);
    assert_eq!(done[0].context, 4);
    let mut placed = [0; 3];
    for (n, at) in [(0, 0), (1, 4096), (2, 8192)] {
        memory.read(at, &mut placed[n..=n]);
    }
    assert_eq!(placed, [2, 3, 4]);

    drop(there);
    here.post(Transfer::new(small(1)).signalled(false).context(9))
        .expect("posted");
    let failed = here.wait(Some(PATIENCE)).expect("connected").got();
    let failed = failed.expect("in time");
    assert!(failed.result.is_err());
    assert_eq!(failed.context, 9);
}

#[test]
fn immediate__of_pieces_comes_once_and_behind_them() {
    let (mut here, mut there) = pair();
    let (memory, key) = exported(&mut there);
    let pieces = (0..3).map(|n| (n * 4096, small(n as u8 + 1).into()));
    here.post(PutPieces::new(&key, pieces.collect()).immediate(7))
        .expect("posted");
    // Behind all that the pieces bring.
    here.post(PutInline::new(&key, 8, &[0]).immediate(8))
        .expect("posted");
    let end = std::time::Instant::now() + PATIENCE;
    let mut brought = vec![];
    while brought.last() != Some(&8) {
        assert!(std::time::Instant::now() < end, "in time");
        let _ = here.poll().expect("connected");
        let Some(completion) = there.poll().expect("connected") else {
            continue;
        };
        brought.push(completion.immediate().expect("nothing else comes").number);
        let mut placed = [0; 3];
        for n in 0..3 {
            memory.read(4096 * n, &mut placed[n..=n]);
        }
        assert_eq!(placed, [1, 2, 3]);
    }
    assert_eq!(brought, [7, 8]);
}

#[test]
fn poll__takes_what_is_there_before_it_reads_the_socket() {
    let (mut here, mut there) = pair();
    let (_memory, key) = exported(&mut there);
    for n in 0..64 {
        here.post(Put::new(&key, n * 16, small(n as u8)))
            .expect("posted");
    }
    let end = std::time::Instant::now() + PATIENCE;
    while here.in_flight() > 0 {
        assert!(std::time::Instant::now() < end);
        // Makes progress without taking a completion.
        here.announced(Some(Duration::ZERO))
            .expect("connected")
            .got();
        let _ = there.poll().expect("connected");
    }
    let before = turns(&here);
    for n in 0..64 {
        assert!(here.poll().expect("connected").is_some(), "{n}");
    }
    assert_eq!(turns(&here), before, "nothing was read for them");
    assert!(here.poll().expect("connected").is_none());
    assert_eq!(turns(&here), before + 1);
}

#[test]
fn poll_batch__takes_at_most_as_many_as_asked_for_in_one_turn() {
    let (mut here, mut there) = pair();
    for n in 0..10 {
        here.post(Receive::new(small(0)).context(n))
            .expect("posted");
        there
            .post(Transfer::new(small(n as u8)).delivery(Delivery::Interrupt))
            .expect("posted");
    }
    let mut done = vec![];
    let end = std::time::Instant::now() + PATIENCE;
    while done.len() < 10 {
        assert!(std::time::Instant::now() < end, "{}", done.len());
        let (before, read) = (done.len(), turns(&here));
        let count = here.poll_batch(&mut done, 3).expect("connected");
        assert_eq!(done.len() - before, count);
        assert!(count <= 3 && turns(&here) - read <= 1);
        let _ = there.poll().expect("connected");
    }
    for (n, completion) in done.into_iter().enumerate() {
        assert_eq!(completion.context, n as u64);
        assert_eq!(
            completion.into_region().expect("a region")[0],
            n as u8,
            "content"
        );
    }
}

/// A call that times out.
type Call = fn(&mut Connection, &zerolane::RegionKey) -> zerolane::Result<()>;

#[test]
fn set_timeout__ends_each_blocking_call_and_the_connection_goes_on() {
    let calls: [(&str, Call); 12] = [
        ("send", |it, _| it.send(&content(1, 100_000))),
        ("recv_into", |it, _| it.recv_into(&mut [0; 64]).map(drop)),
        ("send_message", |it, _| it.send_message(b"late", None)),
        ("send_message with a payload", |it, _| {
            it.send_message(b"late", Some(&content(1, 100_000)))
        }),
        ("recv_message", |it, _| it.recv_message(None).map(drop)),
        ("recv_message with a payload", |it, _| {
            it.recv_message(Some(&mut [0; 64])).map(drop)
        }),
        ("open_region", |it, _| {
            it.open_region("m", Rights::READ).map(drop)
        }),
        ("put", |it, key| it.put(key, 0, &content(1, 10_000))),
        ("put_with_immediate", |it, key| {
            it.put_with_immediate(key, 0, &content(1, 10_000), 7)
        }),
        ("get", |it, key| it.get(key, 0, &mut [0; 10_000])),
        ("fetch_op", |it, key| {
            it.fetch_op(key, 0, FetchOp::Increment).map(drop)
        }),
        ("compare_and_swap", |it, key| {
            it.compare_and_swap(key, 0, 0, 1).map(drop)
        }),
    ];
    for (name, call) in calls {
        let (mut here, mut there) = pair();
        let (memory, key) = exported(&mut there);
        here.set_timeout(Some(Duration::from_millis(30)));
        // The peer makes no call, so nothing of the request is done.
        let late = call(&mut here, &key);
        assert!(matches!(late, Err(Error::TimedOut(_))), "{name}: {late:?}");
        assert_eq!(here.in_flight(), 0, "{name}: its memory is free");
        here.set_timeout(None);
        let serving = std::thread::spawn(move || {
            let mut back = vec![0; 5_000];
            let len = loop {
                match there.recv_into(&mut back) {
                    // It matched the send that was cancelled.
                    Err(Error::Transfer(_)) => {}
                    received => break received,
                }
            };
            len.map(|len| (len, back, there))
        });
        here.send(&content(9, 5_000))
            .expect("the connection goes on");
        let (len, back, _there) = serving.join().expect("no panic").expect("received");
        assert!(len == 5_000 && back == content(9, 5_000), "{name}: content");
        drop(memory);
    }
}

#[test]
fn into_io_error__says_its_kind_and_what_it_was() {
    let kind = |error: Error| {
        let words = error.to_string();
        let error = std::io::Error::from(error);
        assert_eq!(error.to_string(), words);
        error.kind()
    };
    use std::io::ErrorKind;
    assert_eq!(kind(Error::NoAddress), ErrorKind::InvalidInput);
    assert_eq!(
        kind(Error::TimedOut(Duration::from_secs(1))),
        ErrorKind::TimedOut
    );
    let closed = zerolane::failure::CloseReason::PeerDead;
    assert_eq!(kind(Error::Closed(closed)), ErrorKind::TimedOut);
    let full = zerolane::failure::PostError::Full;
    assert_eq!(kind(Error::Post(full)), ErrorKind::WouldBlock);
}

#[test]
fn local_addr__is_that_which_the_peer_sees() {
    let (here, there) = pair();
    assert_eq!(here.local_addr(), Some(there.peer_addr()));
    assert_eq!(there.local_addr(), Some(here.peer_addr()));
}

#[test]
fn id__of_another_connection_names_no_request() {
    let (mut here, mut there) = pair();
    let (mut other, _end) = pair();
    let ours = here.post_recv(small(0)).expect("posted");
    let theirs = other.post_recv(small(0)).expect("posted");
    assert_ne!(ours, theirs);
    for id in [theirs, RequestId::from_u64(0)] {
        assert!(!here.cancel(id) && !here.notify(id), "{id:?}");
        assert_eq!(here.arrived(id), None);
        assert_eq!(here.read_arrived(id, 0, &mut [0; 8]), 0);
        assert!(here.share_arrived(id).is_none());
    }
    assert_eq!(here.in_flight(), 1, "it was not cancelled");
    assert_eq!(RequestId::from_u64(ours.to_u64()), ours);
    let sending = std::thread::spawn(move || there.send(&[7; 16]).map(|()| there));
    let received = here.wait(Some(PATIENCE)).expect("connected").got();
    assert_eq!(received.expect("in time").id, ours);
    sending.join().expect("no panic").expect("received");
    assert!(other.cancel(theirs));
}

#[test]
fn waits__tell_a_timeout_a_wake_and_the_end_apart() {
    let (mut here, there) = pair();
    let moment = Some(Duration::from_millis(1));
    let waker = here.waker();
    assert!(matches!(here.wait(moment), Ok(Waited::TimedOut)));
    waker.wake();
    assert!(matches!(here.wait(None), Ok(Waited::Woken)));
    assert!(matches!(here.announced(moment), Ok(Waited::TimedOut)));
    waker.wake();
    assert!(matches!(here.announced(None), Ok(Waited::Woken)));
    let id = here.post_recv(small(0)).expect("posted");
    let arrived = here.wait_arrived(id, 0, moment);
    assert!(matches!(arrived, Ok(Waited::TimedOut)), "{arrived:?}");
    waker.wake();
    let arrived = here.wait_arrived(id, 0, None);
    assert!(matches!(arrived, Ok(Waited::Woken)), "{arrived:?}");
    assert!(here.cancel(id));
    let arrived = here.wait_arrived(id, 0, None);
    assert!(matches!(arrived, Ok(Waited::Got(None))), "{arrived:?}");
    assert!(matches!(here.wait(None), Ok(Waited::Got(_))));
    let closing = std::thread::spawn(|| there.close());
    assert!(matches!(here.wait(Some(PATIENCE)), Err(Error::Closed(_))));
    assert!(matches!(here.announced(None), Err(Error::Closed(_))));
    closing.join().expect("no panic").expect("closed");

    let mut worker = zerolane::worker::Worker::new().expect("descriptors");
    assert_eq!(worker.wait(moment).expect("allowed"), Waited::TimedOut);
    worker.waker().wake();
    assert_eq!(worker.wait(None).expect("allowed"), Waited::Woken);
}
