//! Tests that copies to and from shared memory are exact and never tear a word.
#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;
use std::sync::Barrier;

proptest! {
    #[test]
    fn store__changes_just_these_bytes(
        // By words, and by pairs of words.
        long in any::<bool>(),
        first in 0..2usize,
        len in 1..80usize,
        at in 0..80usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..700),
    ) {
        let len = len + if long { 700 } else { 0 };
        let at = at.min(len);
        let bytes = &bytes[..bytes.len().min(len - at)];
        let mut memory: Vec<u64> = (0..101).map(|n| n * 0x0123_4567_89ab_cdef).collect();
        let whole = 800;
        let bounds = Bounds { start: memory[first..].as_mut_ptr().cast(), len };
        let all = Bounds { len: whole, ..bounds };
        let (mut before, mut after) = (vec![0; whole], vec![0; whole]);
        let mut read = vec![0; bytes.len()];
        // SAFETY: `memory` is exclusively ours and larger than both bounds.
        unsafe {
            load(all, 0, &mut before);
            store(bounds, at, bytes);
            load(all, 0, &mut after);
            load(bounds, at, &mut read);
        }
        before[at..at + bytes.len()].copy_from_slice(bytes);
        prop_assert_eq!(after, before);
        prop_assert_eq!(read, bytes);
    }
}

proptest! {
    #[test]
    fn fetch_op__does_what_the_operation_says_and_no_more(
        kind in 0..FetchOpKind::ALL.len(),
        half in any::<bool>(),
        skip in 0..2usize,
        // Small numbers are often equal.
        (before, operand, comparand) in prop_oneof![
            (0..3u64, 0..3u64, 0..3u64),
            (any::<u64>(), any::<u64>(), any::<u64>()),
        ],
    ) {
        let kind = FetchOpKind::ALL[kind];
        let (word, skip) = if half { (Word::U32, 4 * skip) } else { (Word::U64, 0) };
        let [before, operand, comparand] = [before, operand, comparand].map(|it| it & word.max());
        let atomic = Atomic { kind, word, operand, comparand };
        let filled = |value: u64| match word {
            Word::U64 => value,
            Word::U32 => {
                let mut bytes = [0x5a; 8];
                bytes[skip..skip + 4].copy_from_slice(&(value as u32).to_ne_bytes());
                u64::from_ne_bytes(bytes)
            }
        };
        let memory = AtomicU64::new(filled(before));
        prop_assert_eq!(fetch_op(&memory, skip, atomic), before);
        prop_assert_eq!(memory.into_inner(), filled(atomic.apply(before)));
    }
}

#[test]
fn fetch_op__on_both_halves_and_the_whole_by_many_threads_loses_none() {
    // So many that threads of one core interrupt each other, too.
    const EACH: u64 = 300_000;
    let (memory, ready) = (AtomicU64::new(0), Barrier::new(5));
    let add = |word, operand| Atomic {
        kind: FetchOpKind::Add,
        word,
        operand,
        comparand: 0,
    };
    std::thread::scope(|scope| {
        for skip in [0, 4] {
            for _ in 0..2 {
                let (memory, ready) = (&memory, &ready);
                scope.spawn(move || {
                    ready.wait();
                    for _ in 0..EACH {
                        fetch_op(memory, skip, add(Word::U32, 1));
                    }
                });
            }
        }
        scope.spawn(|| {
            ready.wait();
            for _ in 0..EACH {
                // One on each half.
                fetch_op(&memory, 0, add(Word::U64, 1 << 32 | 1));
            }
        });
    });
    assert_eq!(memory.into_inner(), ((3 * EACH) << 32) | (3 * EACH));
}

/// Long copies use pairs of words, in both directions.
#[test]
fn copies__of_many_words_have_none_half_written() {
    const WORDS: usize = 515;
    let mut memory = vec![0u64; WORDS];
    let bounds = Bounds {
        start: memory.as_mut_ptr().cast(),
        len: 8 * WORDS,
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for n in 0..20_000u64 {
                let value = [if n % 2 == 0 { 0 } else { 0xff }; 8 * WORDS];
                // SAFETY: in bounds; only accessed in the way of this module until both threads are done.
                unsafe { store(bounds, 0, &value) };
            }
        });
        let mut seen = [1; 8 * WORDS];
        while !writer.is_finished() {
            // SAFETY: as above.
            unsafe { load(bounds, 0, &mut seen) };
            let words = seen
                .as_chunks::<8>()
                .0
                .iter()
                .map(|it| u64::from_ne_bytes(*it));
            for word in words {
                assert!(word == 0 || word == u64::MAX, "{word:x}");
            }
        }
    });
}

#[test]
fn store__a_word_is_never_seen_half_written() {
    let mut memory = vec![0u64; 4];
    let bounds = Bounds {
        start: memory.as_mut_ptr().cast(),
        len: 32,
    };
    // SAFETY: in bounds; only accessed in the way of this module until both threads are done.
    let word = unsafe { word(bounds, 8) };
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let bounds = Bounds {
                start: std::ptr::from_ref(word).cast_mut().cast::<u8>(),
                len: 8,
            };
            for n in 0..20_000u64 {
                let value = if n % 2 == 0 { [0; 8] } else { [0xff; 8] };
                // SAFETY: as above.
                unsafe { store(bounds, 0, &value) };
            }
        });
        while !writer.is_finished() {
            let seen = word.load(Ordering::Acquire);
            assert!(seen == 0 || seen == u64::MAX, "{seen:x}");
        }
    });
}
