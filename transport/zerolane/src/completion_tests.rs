//! Tests what a completion of each kind returns, and that values of other kinds are none.
#![allow(non_snake_case)]
use super::*;
use zerolane_lane::{RemotePlace, RemoteRegion};
use zerolane_wire::Rights;

const CONTEXT: u64 = 5;

fn region(len: usize) -> Memory {
    Region::from_vec(vec![7; len]).into()
}

/// The region of this end that an immediate's put wrote.
const WRITTEN: RemoteRegion = RemoteRegion {
    start: RemotePlace {
        handle: 1 << 31 | 9,
        mx: 9,
        address: 0,
    },
    length: 4096,
    rights: Rights::WRITE,
};

/// What the lane reports of a request of `kind`.
fn of(
    kind: WorkKind,
    result: std::result::Result<u64, TransferError>,
    memory: Option<Memory>,
) -> Completion {
    let it = zerolane_lane::Completion {
        id: 3,
        kind,
        context: CONTEXT,
        result,
        memory,
        pooled: false,
        delivery: Delivery::Polled,
        value: 40,
        control: MessageControl::default(),
        region: (kind == WorkKind::Immediate).then_some(WRITTEN),
    };
    Completion::new(it, Poster::next(), None)
}

const FAILED: std::result::Result<u64, TransferError> = Err(TransferError::Cancelled);

#[test]
fn kind__of_each_and_the_memory_that_it_has() {
    use WorkKind::*;
    for kind in [
        Send,
        Receive,
        Offer,
        Read,
        Put,
        Get,
        Message,
        MessageReceived,
    ] {
        let done = of(kind, Ok(8), Some(region(8)));
        assert_eq!(
            (done.kind(), done.context, done.result),
            (kind, CONTEXT, Ok(8))
        );
        assert_eq!(done.memory().map(Memory::len), Some(8), "{kind:?}");
        assert_eq!(done.into_region().expect("a region").len(), 8);
        let failed = of(kind, FAILED, Some(region(8)));
        assert_eq!(failed.into_memory().map(|it| it.len()), Some(8), "{kind:?}");
    }
}

#[test]
fn memory__of_a_kind_without_is_none() {
    use WorkKind::*;
    for kind in [FetchOp, Immediate, Open, Put, Message, MessageReceived] {
        let done = || of(kind, Ok(0), None);
        assert!(
            done().memory().is_none() && done().into_memory().is_none(),
            "{kind:?}"
        );
        assert!(
            matches!(done().into_region(), Err(Error::NoRegion)),
            "{kind:?}"
        );
        assert!(done().into_pieces().is_empty(), "{kind:?}");
    }
}

#[test]
fn values__of_other_kinds_are_none() {
    use WorkKind::*;
    for kind in [
        Send,
        Receive,
        Offer,
        Read,
        Put,
        Get,
        FetchOp,
        Message,
        MessageReceived,
        Immediate,
        Open,
    ] {
        let done = of(kind, Ok(8), None);
        assert_eq!(done.before(), (kind == FetchOp).then_some(40), "{kind:?}");
        let told = super::Immediate {
            number: 40,
            region: RegionKey::new(WRITTEN),
            length: 8,
        };
        assert_eq!(
            done.immediate(),
            (kind == Immediate).then_some(told),
            "{kind:?}"
        );
        assert_eq!(
            done.control().is_some(),
            kind == MessageReceived,
            "{kind:?}"
        );
        assert_eq!(done.key(), None, "{kind:?}");
        let fills = matches!(kind, Receive | Read | Get | MessageReceived);
        assert_eq!(done.arrived(), fills.then_some(8), "{kind:?}");
        assert_eq!(done.id == RequestId::NONE, kind == Immediate, "{kind:?}");
    }
}

#[test]
fn values__of_a_failure_are_none() {
    assert_eq!(of(WorkKind::FetchOp, FAILED, None).before(), None);
    assert_eq!(of(WorkKind::Open, FAILED, None).key(), None);
    // The part of it that came before.
    assert_eq!(
        of(WorkKind::Receive, FAILED, Some(region(64))).arrived(),
        Some(40)
    );
}

#[test]
fn into_region__of_shared_memory_and_pieces() {
    let shared = Region::from_vec(vec![7; 8]).share();
    let done = || of(WorkKind::Send, Ok(8), Some(shared.clone().into()));
    let refused = done().into_region().expect_err("it is shared");
    assert!(refused.to_string().contains("still shared"), "{refused}");
    assert_eq!(done().into_pieces().len(), 1);
    let pieces = || Some(vec![region(1), region(2)].into());
    let lengths = |it: Completion| it.into_pieces().iter().map(Memory::len).collect::<Vec<_>>();
    assert_eq!(lengths(of(WorkKind::Get, Ok(3), pieces())), [1, 2]);
    let whole = of(WorkKind::Get, Ok(3), pieces()).into_region();
    assert!(matches!(whole, Err(Error::NoRegion)));
}
