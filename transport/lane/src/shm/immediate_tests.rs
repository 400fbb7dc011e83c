//! Tests that puts around an immediate in flight are stored, delayed and reported in the right order.
#![allow(non_snake_case)]

use super::*;
use crate::account::MoveCause;
use crate::driver::{Completion, Report, Step, WorkKind};
use crate::memory::ExportedRegion;
use crate::shm::tests::{End, content, drive, export, join, memfd, options, put, read, region};
use std::sync::atomic::Ordering;
use zerolane_core::{
    Atomic, PostError, RemotePlace, TransferError, TransferId, WorkFlags, WorkRequest,
};
use zerolane_wire::FetchOpKind;

const UNSIGNALLED: Report = Report {
    signalled: false,
    context: 0,
};

fn offset(place: RemotePlace, by: usize) -> RemotePlace {
    RemotePlace {
        address: place.address + by as u64,
        ..place
    }
}

fn with(
    mut request: WorkRequest<'static>,
    change: impl FnOnce(&mut WorkFlags),
) -> WorkRequest<'static> {
    change(request.flags_mut().expect("a request on memory"));
    request
}

fn fenced(request: WorkRequest<'static>) -> WorkRequest<'static> {
    with(request, |it| it.fence = true)
}

fn unsignalled(request: WorkRequest<'static>) -> WorkRequest<'static> {
    with(request, |it| it.signalled = false)
}

fn words(end: &mut End, place: RemotePlace, immediate: Option<u32>, word: u64) -> TransferId {
    let posted = end.post_inline(
        put(place, immediate),
        Report::default(),
        &word.to_ne_bytes(),
    );
    posted.expect("room")
}

fn word(memory: &ExportedRegion, offset: usize) -> u64 {
    memory.word(offset).load(Ordering::SeqCst)
}

/// All completions that are there.
fn completions(end: &mut End) -> Vec<Completion> {
    std::iter::from_fn(|| end.next_completion()).collect()
}

/// The numbers of the immediates among `completions`.
fn shown(completions: &[Completion]) -> Vec<u64> {
    let immediates = completions
        .iter()
        .filter(|it| it.kind == WorkKind::Immediate);
    immediates.map(|it| it.value).collect()
}

/// Two ends, and memory of the second that the first has mapped.
fn mapped(len: usize) -> (End, End, ExportedRegion, RemotePlace) {
    let (mut a, mut b) = join(&options());
    let memory = memfd(len);
    let at = export(&mut a, &mut b, &memory, Rights::ALL);
    (a, b, memory, at)
}

#[test]
fn immediate__puts_with_it_and_behind_it_are_stored_at_once() {
    const LEN: usize = 9001;
    const ROUNDS: usize = 100;
    let (mut a, mut b, memory, at) = mapped(3 * ROUNDS * LEN);
    let mut posted = Vec::new();
    for round in 0..ROUNDS {
        for (part, immediate) in [None, Some(round as u32), None].into_iter().enumerate() {
            let number = 3 * round + part;
            let bytes = content(LEN + number)[number..].to_vec();
            let request = put(offset(at, number * LEN), immediate);
            let id = a.post_source(request, Report::default(), region(&bytes).into());
            posted.push(id.expect("room"));
            // The peer has made no turn.
            assert!(read(&memory, number * LEN, LEN) == bytes, "{number}");
        }
    }
    let account = a.account();
    assert_eq!(account.direct_operations, posted.len() as u64);
    assert_eq!(account.bytes_direct, (posted.len() * LEN) as u64);
    let (mut ended, mut seen) = (Vec::new(), Vec::new());
    drive(&mut a, &mut b, |a, b| {
        ended.extend(completions(a));
        seen.extend(shown(&completions(b)));
        ended.len() == posted.len()
    });
    assert_eq!(seen, (0..ROUNDS as u64).collect::<Vec<_>>());
    for (completion, id) in ended.iter().zip(posted) {
        assert_eq!((completion.id, &completion.result), (id, &Ok(LEN as u64)));
        assert_eq!(
            completion.memory.as_ref().map(crate::memory::Memory::len),
            Some(LEN)
        );
    }
    let account = b.account();
    let copied = (account.bytes_placed, account.moved(MoveCause::Ring));
    assert_eq!(copied, (0, 0), "no bytes go by the ring");
}

#[test]
fn immediate__that_is_unsignalled_is_over_before_what_tells_behind_it() {
    let (mut a, mut b, memory, at) = mapped(4096);
    let posted = a.post_inline(
        unsignalled(put(at, Some(1))),
        UNSIGNALLED,
        &1_u64.to_ne_bytes(),
    );
    posted.expect("room");
    let behind = unsignalled(put(offset(at, 8), None));
    let posted = a.post_inline(behind, UNSIGNALLED, &2_u64.to_ne_bytes());
    posted.expect("room");
    words(&mut a, offset(at, 16), None, 3);
    assert_eq!([0, 8, 16].map(|at| word(&memory, at)), [1, 2, 3]);
    assert_eq!(a.account().direct_operations, 3);
    assert!(!a.has_completion(), "the peer has not taken the immediate");
    drive(&mut a, &mut b, |a, _| a.has_completion());
    assert_eq!(shown(&completions(&mut b)), [1]);
    let ended = completions(&mut a);
    assert_eq!(ended.len(), 1);
    ended[0].result.expect("done");
}

/// Gets, atomic operations, messages and fenced requests wait for the immediate, and puts wait for those.
#[test]
fn immediate__holds_up_all_but_puts() {
    for case in 0..4 {
        let (mut a, mut b, memory, at) = mapped(4096);
        words(&mut a, at, Some(7), 40);
        assert_eq!(a.account().direct_operations, 1);
        let flags = WorkFlags::default();
        let report = Report::default();
        match case {
            0 => {
                let get = WorkRequest::Get { place: at, flags };
                a.post_target(get, report, region(&[0; 8])).expect("room");
            }
            1 => {
                let atomic = Atomic {
                    kind: FetchOpKind::Add,
                    word: zerolane_wire::Word::U64,
                    operand: 2,
                    comparand: 0,
                };
                let (place, bare) = (at, flags);
                let add = WorkRequest::FetchOp {
                    place,
                    atomic,
                    flags: bare,
                };
                a.post_bare(add, report).expect("room");
            }
            2 => {
                a.post_message(b"behind it", None, flags, report)
                    .expect("room");
                b.post_message_receive(report, None).expect("posted");
            }
            _ => {
                let put = fenced(put(offset(at, 16), None));
                a.post_inline(put, report, &3_u64.to_ne_bytes())
                    .expect("room");
            }
        }
        words(&mut a, offset(at, 8), Some(8), 5);
        words(&mut a, offset(at, 24), None, 6);
        assert_eq!(a.account().direct_operations, 1, "case {case}");
        assert_eq!([8, 16, 24].map(|at| word(&memory, at)), [0; 3]);
        let (mut ended, mut seen) = (Vec::new(), Vec::new());
        drive(&mut a, &mut b, |a, b| {
            ended.extend(completions(a));
            seen.extend(completions(b));
            ended.len() == 4
        });
        assert!(ended.iter().all(|it| it.result.is_ok()), "case {case}");
        assert_eq!(shown(&seen), [7, 8], "case {case}");
        assert_eq!([8, 24].map(|at| word(&memory, at)), [5, 6]);
        match case {
            0 => {
                let got = ended
                    .iter()
                    .find(|it| it.kind == WorkKind::Get)
                    .expect("got");
                let memory = got.memory.as_ref().expect("it comes back");
                let parts = memory.parts().expect("no file");
                assert_eq!(parts.concat(), 40_u64.to_ne_bytes());
            }
            1 => {
                let fetched = ended.iter().find(|it| it.kind == WorkKind::FetchOp);
                assert_eq!(fetched.expect("done").value, 40);
                assert_eq!(word(&memory, 0), 42);
            }
            2 => {
                let order: Vec<_> = seen.iter().map(|it| it.kind).collect();
                let (told, met) = (WorkKind::Immediate, WorkKind::MessageReceived);
                assert_eq!(order, [told, met, told]);
            }
            _ => assert_eq!(word(&memory, 16), 3),
        }
        // All requests are over, so the next is done at once again.
        words(&mut a, at, None, 1);
        assert_eq!(a.account().direct_operations, 2, "case {case}");
    }
}

#[test]
fn immediate__revoked_before_the_peer_takes_it_fails_and_is_not_shown() {
    let (mut a, mut b, memory, at) = mapped(4096);
    let failing = words(&mut a, at, Some(7), 40);
    let mut own = memory.revoke().expect("the only handle");
    assert_eq!(own[..8], 40_u64.to_ne_bytes(), "it was stored before");
    own.fill(5);
    let refused = words(&mut a, at, Some(8), 41);
    assert_eq!(a.account().direct_operations, 1);
    let mut ended = Vec::new();
    drive(&mut a, &mut b, |a, _| {
        ended.extend(completions(a));
        ended.len() == 2
    });
    let revoked = Err(TransferError::Refused(Reason::Revoked));
    let ended: Vec<_> = ended.iter().map(|it| (it.id, it.result)).collect();
    assert_eq!(ended, [(failing, revoked), (refused, revoked)]);
    assert_eq!(shown(&completions(&mut b)), [0; 0]);
    assert!(own.iter().all(|it| *it == 5));
}

#[test]
fn immediate__out_of_bounds_changes_nothing() {
    let (mut a, mut b, memory, at) = mapped(4096);
    words(&mut a, at, Some(1), 40);
    let beyond = put(offset(at, 4092), Some(2));
    let posted = a.post_inline(beyond, Report::default(), &[9; 8]);
    let beyond = posted.expect("the owner says");
    words(&mut a, offset(at, 8), Some(3), 41);
    let mut ended = Vec::new();
    drive(&mut a, &mut b, |a, _| {
        ended.extend(completions(a));
        ended.len() == 3
    });
    assert_eq!(shown(&completions(&mut b)), [1, 3]);
    let bounds = Err(TransferError::Refused(Reason::OutOfBounds));
    for it in ended {
        assert_eq!(it.result.is_err(), it.id == beyond);
        assert!(it.result.is_ok() || it.result == bounds);
    }
    assert_eq!(word(&memory, 4088), 0);
}

/// The peer shows at most this many immediates that its user has not read. Requests refused here change nothing there.
#[test]
fn immediate__not_looked_at_holds_up_no_bytes_until_this_end_is_full() {
    let (mut a, mut b, memory, at) = mapped(4096);
    let mut accepted = 0;
    let error = loop {
        let next = accepted + 1;
        let request = put(at, Some(next as u32));
        match a.post_inline(request, Report::default(), &u64::to_ne_bytes(next)) {
            Ok(_) => accepted = next,
            Err(error) => break error,
        }
        assert!(accepted < 10_000, "without end");
        if next % 64 == 0 {
            a.turn(Step::Whole).expect("a");
            b.turn(Step::Whole).expect("b");
        }
    };
    assert_eq!(error, PostError::Full);
    assert_eq!(word(&memory, 0), accepted, "what was refused is not there");
    assert_eq!(a.account().direct_operations, accepted);
    // A request without an answer proceeds.
    let silent = unsignalled(put(offset(at, 8), None));
    let posted = a.post_inline(silent, UNSIGNALLED, &7_u64.to_ne_bytes());
    posted.expect("stored");
    assert_eq!(word(&memory, 8), 7);
    let (mut ended, mut seen) = (0, Vec::new());
    drive(&mut a, &mut b, |a, b| {
        ended += completions(a).len() as u64;
        seen.extend(shown(&completions(b)));
        ended == accepted
    });
    assert!(seen.into_iter().eq(1..=accepted), "in order, each once");
}

#[test]
fn immediate__cancelled_gives_the_memory_back_and_is_not_shown() {
    let (mut a, mut b, _memory, at) = mapped(4096);
    let posted = a.post_source(put(at, Some(7)), Report::default(), region(&[9; 8]).into());
    let id = posted.expect("room");
    assert!(a.cancel(id));
    let ended = completions(&mut a);
    assert_eq!(
        (ended.len(), ended[0].result),
        (1, Err(TransferError::Cancelled))
    );
    assert!(ended[0].memory.is_some());
    words(&mut a, at, Some(8), 41);
    drive(&mut a, &mut b, |a, _| a.has_completion());
    assert_eq!(shown(&completions(&mut b)), [8]);
    assert_eq!(a.account().direct_operations, 2);
}

#[test]
fn immediate__of_a_peer_that_is_gone_ends_once() {
    let (mut a, b, _memory, at) = mapped(4096);
    let ids = [words(&mut a, at, Some(7), 1), words(&mut a, at, None, 2)];
    drop(b);
    let mut ended = Vec::new();
    for _ in 0..crate::shm::tests::PATIENCE {
        a.turn(Step::Whole).expect("a");
        ended.extend(completions(&mut a));
        if a.closed().is_some() {
            break;
        }
    }
    let told: Vec<_> = ended.iter().map(|it| (it.id, it.result.is_ok())).collect();
    assert_eq!(told, ids.map(|id| (id, false)));
    let posted = a.post_inline(put(at, Some(9)), Report::default(), &[3; 8]);
    assert_eq!(posted, Err(PostError::Closed));
    assert_eq!(a.account().direct_operations, 2);
}
