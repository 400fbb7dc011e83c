//! Tests that names lead to memory that is open, in bounds and of the permitted kind alone.
#![allow(non_snake_case)]
use super::*;

const fn memory(writable: bool) -> EntryKind {
    EntryKind::Borrowed { writable }
}

#[test]
fn target__only_open_in_bounds_writable_and_of_this_life() {
    let mut bytes = [0u8; 16];
    let mut registry = Registry::default();
    // SAFETY: bytes outlives the entry and is not touched otherwise.
    let span = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(true)) };
    assert!(registry.target(span).is_some());
    assert!(
        registry.target(Span { offset: 1, ..span }).is_none(),
        "beyond the end"
    );
    assert!(
        registry
            .target(Span {
                offset: u64::MAX,
                ..span
            })
            .is_none(),
        "wraps"
    );
    registry.close(span.region);
    assert!(registry.target(span).is_none(), "closed");
    // SAFETY: as above.
    let next = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(false)) };
    assert_eq!(next.region.index, span.region.index);
    assert!(registry.source(span).is_none(), "an earlier life");
    assert!(
        registry.source(next).is_some() && registry.target(next).is_none(),
        "read only"
    );
}

#[test]
fn shared_source__whole_words_of_exported_memory_alone() {
    let mut bytes = [0u64; 4];
    let start = bytes.as_mut_ptr().cast::<u8>();
    let mut registry = Registry::default();
    // SAFETY: bytes outlives the entries and is not touched otherwise.
    let mut open = |kind| unsafe { registry.open(start, 32, kind) };
    let exported = open(EntryKind::Exported { file: false });
    let (file, exclusive) = (open(EntryKind::Exported { file: true }), open(memory(true)));
    let offset_of = |span| {
        let source = registry.shared_source(span)?;
        Some(source as usize - start as usize)
    };
    assert_eq!(offset_of(exported), Some(0));
    assert_eq!(offset_of(exported.part(8, 16)), Some(8));
    for (at, len) in [(4, 8), (8, 12), (1, 31)] {
        assert_eq!(offset_of(exported.part(at, len)), None, "{len} at {at}");
    }
    assert_eq!((offset_of(file), offset_of(exclusive)), (None, None));
    let beyond = Span {
        offset: 8,
        ..exported
    };
    assert_eq!(offset_of(beyond), None);
    registry.close(exported.region);
    assert!(registry.shared_source(exported).is_none(), "closed");
}

/// The bytes of `span`, read piece by piece.
fn collect(registry: &Registry, span: Span) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    for (start, len) in registry.pieces(span)? {
        // SAFETY: the test's memory outlives the entry.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
    }
    Some(bytes)
}

#[test]
fn pieces__of_any_span_and_none_beyond() {
    let whole: Vec<u8> = (0..20_000u32).map(|n| (n * 7 / 3) as u8).collect();
    let lens = [1, 0, 1999, 1, 500, 0, 17_499, 0];
    let mut parts = vec![];
    for len in lens {
        let at = parts.iter().map(Vec::len).sum();
        parts.push(whole[at..at + len].to_vec());
    }
    let mut registry = Registry::default();
    let raw: Vec<_> = parts
        .iter_mut()
        .map(|it| (it.as_mut_ptr(), it.len()))
        .collect();
    // SAFETY: the parts outlive the entry and are not touched otherwise.
    let span = unsafe { registry.open_pieces(&raw, false) };
    assert_eq!(span.len, 20_000);
    let edges = [
        0, 1, 2, 999, 2000, 2001, 2002, 2500, 2501, 2502, 19_999, 20_000,
    ];
    for start in edges {
        for end in edges.into_iter().filter(|end| *end >= start) {
            let part = span.part(start, end - start);
            let expected = &whole[start as usize..end as usize];
            assert_eq!(collect(&registry, part).expect("open"), expected);
            let mut read = vec![0; expected.len()];
            assert!(registry.read(part, &mut read) && read == expected);
            assert_eq!(registry.sum(part).ok(), Some(Sum::of(expected)));
            let alone = registry.source(part).is_some();
            assert_eq!(alone, collect_count(&registry, part) == 1, "{start}..{end}");
            assert!(registry.target(part).is_none(), "read only");
        }
    }
    let beyond = Span { offset: 1, ..span };
    assert!(registry.pieces(beyond).is_none() && registry.source(beyond).is_none());
    assert!(!registry.is_lendable(span.region));
    registry.close(span.region);
    assert!(registry.pieces(span).is_none() && registry.entries.is_empty());
}

fn collect_count(registry: &Registry, span: Span) -> usize {
    registry.pieces(span).map_or(0, Iterator::count)
}

#[test]
fn target__is_not_what_is_settled() {
    let mut bytes = [0u8; 16];
    let mut registry = Registry::default();
    // SAFETY: bytes outlives the entry and is not touched otherwise.
    let span = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(true)) };
    registry.settle(span.region, 6);
    registry.settle(span.region, 4);
    assert!(registry.target(span.part(5, 3)).is_none(), "in part");
    assert!(registry.target(span.part(6, 10)).is_some());
    assert!(registry.source(span).is_some(), "it may be read");
    let settled = [(0, 16, 6), (0, 3, 3), (5, 3, 1), (6, 2, 0), (9, 1, 0)];
    for (start, len, expected) in settled {
        assert_eq!(registry.settled(span.part(start, len)), expected);
    }
    registry.close(span.region);
    // SAFETY: as above.
    let next = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(true)) };
    registry.settle(span.region, 9);
    assert_eq!(registry.settled(next), 0, "an earlier life's");
}

/// A registry with an entry of 64 bytes, and its span.
fn sixty_four(bytes: &mut [u8; 64]) -> (Registry, Span) {
    let mut registry = Registry::default();
    // SAFETY: the caller's bytes outlive the entry and are not touched otherwise.
    let span = unsafe { registry.open(bytes.as_mut_ptr(), 64, memory(true)) };
    (registry, span)
}

#[test]
fn target__calls_off_what_other_threads_were_to_write_there() {
    let mut bytes = [0; 64];
    let (registry, span) = sixty_four(&mut bytes);
    let (access, writing) = registry.delegations.write(span.part(16, 16));
    let apart = [span.part(0, 16), span.part(32, 32)];
    for part in apart {
        assert!(!registry.delegations.has_writer(part) && registry.target(part).is_some());
    }
    assert!(registry.delegations.has_writer(span.part(31, 1)));
    assert!(registry.target(span.part(8, 9)).is_some());
    assert!(!access.begin(), "it was called off");
    assert!(!registry.delegations.has_writer(span) && !registry.delegations.take_written(writing));
    // Two threads may read the same bytes.
    let access = registry.delegations.read(span);
    assert!(!registry.delegations.has_writer(span) && registry.target(span).is_some());
    assert!(access.begin());
}

/// The owner predicts arrivals only into memory that no other thread writes. Otherwise it would overwrite bytes
/// that another thread has written and not reported.
#[test]
fn has_writer__what_was_written_until_it_is_taken() {
    let mut bytes = [0; 64];
    let (registry, span) = sixty_four(&mut bytes);
    let written = || {
        let (access, writing) = registry.delegations.write(span);
        assert!(access.begin());
        writing
    };
    let writing = written();
    assert!(
        registry.delegations.has_writer(span),
        "it is over, and not taken"
    );
    assert!(registry.delegations.take_written(writing) && !registry.delegations.has_writer(span));
    assert!(!registry.delegations.take_written(writing), "once");
    let writing = written();
    assert!(registry.target(span).is_some(), "for something else");
    assert!(!registry.delegations.take_written(writing) && !registry.delegations.has_writer(span));
}

#[test]
fn target__waits_for_what_another_thread_is_writing_there() {
    let mut bytes = [0; 64];
    let (registry, span) = sixty_four(&mut bytes);
    let (access, _) = registry.delegations.write(span);
    assert!(access.begin());
    let written = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let written = &written;
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            written.store(true, std::sync::atomic::Ordering::Relaxed);
            drop(access);
        });
        assert!(registry.target(span.part(63, 1)).is_some());
        assert!(written.load(std::sync::atomic::Ordering::Relaxed));
    });
}

#[test]
fn close__calls_off_what_other_threads_were_to_do() {
    let mut bytes = [0; 64];
    let (mut registry, span) = sixty_four(&mut bytes);
    let mut other = [0; 64];
    // SAFETY: as above.
    let other = unsafe { registry.open(other.as_mut_ptr(), 64, memory(true)) };
    let accesses = [
        registry.delegations.write(span).0,
        registry.delegations.read(span),
    ];
    let (others, _) = registry.delegations.write(other);
    registry.close(span.region);
    assert!(accesses.iter().all(|it| !it.begin()));
    assert!(others.begin(), "another entry's");
    drop(others);
    let (last, _) = registry.delegations.write(other);
    registry.delegations.call_back_all();
    assert!(!last.begin() && !registry.delegations.has_writer(other));
}

#[test]
fn open_pieces__short_ones_become_one() {
    let (mut head, mut tail) = ([1u8; 100], [2u8; 92]);
    let raw = [(head.as_mut_ptr(), 100), (tail.as_mut_ptr(), 92)];
    let mut registry = Registry::default();
    for _ in 0..2 {
        // SAFETY: the two outlive the entry and are not touched otherwise.
        let span = unsafe { registry.open_pieces(&raw, false) };
        let bytes = registry.bytes(span).expect("one piece");
        assert_eq!((&bytes[..100], &bytes[100..]), (&head[..], &tail[..]));
        registry.close(span.region);
        assert!(registry.entries.is_empty() && registry.bytes(span).is_none());
    }
    // SAFETY: nothing is named.
    let nothing = unsafe { registry.open_pieces(&[], false) };
    assert_eq!(registry.bytes(nothing), Some(&[][..]));
}

/// The core uses [`Span::EMPTY`] where there is no memory, and may be late with the name of a closed entry.
#[test]
fn names__of_no_entry_find_nothing() {
    let mut bytes = [0u8; 16];
    let mut registry = Registry::default();
    let file = EntryKind::Posted {
        writable: true,
        file: true,
    };
    // SAFETY: bytes outlives the entry and is not touched otherwise.
    let closed = unsafe { registry.open(bytes.as_mut_ptr(), 16, file) };
    assert!(registry.is_file(closed.region) && !registry.is_lendable(closed.region));
    registry.settle(closed.region, 5);
    registry.close(closed.region);
    // SAFETY: as above.
    let open = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(true)) };
    registry.settle(open.region, 3);
    registry.close(closed.region);
    assert!(
        registry.source(open).is_some(),
        "the other is closed already"
    );
    let before = |it: RegionId| RegionId {
        generation: it.generation - 1,
        ..it
    };
    let never = before(open.region);
    for region in [Span::EMPTY.region, closed.region, never] {
        let span = Span { region, ..open };
        assert!(registry.source(span).is_none() && registry.target(span).is_none());
        assert!(!registry.is_file(region) && !registry.is_exclusive(region));
        assert!(!registry.is_lendable(region) && registry.bounds(region).is_none());
        assert_eq!(registry.settled(span), 0);
    }
    assert!(registry.bytes(Span::EMPTY).is_none());
    assert!(registry.is_exclusive(open.region) && registry.settled(open) == 3);
}
