//! Copies into and out of memory that others access at the same time.
//!
//! This program's threads, the lanes of several connections and the kernel read and write exported memory at the same
//! time. Rust code accesses it atomically and with one size: whole aligned words directly, and parts of a word by
//! compare-exchange. So there is no data race, and no reader sees an aligned word half written. Bytes after the last
//! whole word are accessed singly. If the processor has atomic accesses of two words ([`pairs`]), long copies use them.

mod pairs;

use crate::memory::uninit;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use zerolane_core::Atomic;
use zerolane_wire::{FetchOpKind, Word};

const WORD: usize = size_of::<u64>();

/// Start (aligned to a word) and length of a piece of shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: an address and a length, which mean the same in every thread. Only the functions below dereference it, each
// under its own contract.
unsafe impl Send for Bounds {}
// SAFETY: as above.
unsafe impl Sync for Bounds {}

impl Bounds {
    /// Length of the whole words, in bytes.
    fn words(self) -> usize {
        self.len / WORD * WORD
    }

    /// The offset of `at`, which must lie in the memory.
    pub(crate) fn offset_of(self, at: *const u8) -> usize {
        at as usize - self.start as usize
    }

    /// # Safety
    /// `at` is a multiple of the word size and below [`Bounds::words`]; the memory is mapped and, except by the kernel,
    /// only accessed in the way of this module.
    unsafe fn word<'a>(self, at: usize) -> &'a AtomicU64 {
        // SAFETY: in bounds and aligned, as promised.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast()) }
    }

    /// # Safety
    /// As [`Bounds::word`]; `at` is at least [`Bounds::words`] and below the length.
    unsafe fn byte<'a>(self, at: usize) -> &'a AtomicU8 {
        // SAFETY: in bounds, as promised.
        unsafe { AtomicU8::from_ptr(self.start.add(at)) }
    }
}

/// Writes `bytes` at `offset`; the last word is written last.
///
/// # Safety
/// The bytes lie within `bounds`, whose memory is mapped, writable and, except by the kernel, only accessed in the way
/// of this module.
pub(crate) unsafe fn store(bounds: Bounds, offset: usize, bytes: &[u8]) {
    // A thread that sees any of these bytes also sees all earlier stores.
    std::sync::atomic::fence(Ordering::Release);
    #[cfg(test)]
    seam::count_store(bytes.len());
    let pieces = Pieces::of(bounds, offset, bytes.len());
    let (head, rest) = bytes.split_at(pieces.head);
    let (words, rest) = rest.split_at(pieces.words);
    let (tail, behind) = rest.split_at(pieces.tail);
    let mut at = offset;
    if !head.is_empty() {
        // SAFETY: the word that holds `at` lies in bounds.
        store_part(unsafe { bounds.word(at / WORD * WORD) }, at % WORD, head);
        at += head.len();
    }
    let (before, by_pairs) = pairs::part(bounds.start as usize + at, words.len());
    let (before, words) = words.split_at(before);
    let (by_pairs, words) = words.split_at(by_pairs);
    // SAFETY: whole words in bounds.
    let store_words = |at: usize, words: &[u8]| unsafe { store_words(bounds, at, words) };
    store_words(at, before);
    at += before.len();
    // SAFETY: in bounds, and the part for which pairs are allowed.
    unsafe { pairs::store(bounds.start.add(at), by_pairs) };
    at += by_pairs.len();
    store_words(at, words);
    at += words.len();
    if !tail.is_empty() {
        // SAFETY: as above.
        store_part(unsafe { bounds.word(at) }, 0, tail);
        at += tail.len();
    }
    for (index, &byte) in behind.iter().enumerate() {
        // SAFETY: after the whole words and in bounds.
        unsafe { bounds.byte(at + index) }.store(byte, Ordering::Relaxed);
    }
}

/// Splits an access by words, in bytes: the end of one, whole words, the start of one, and the rest after all words.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    head: usize,
    words: usize,
    tail: usize,
}

impl Pieces {
    fn of(bounds: Bounds, offset: usize, len: usize) -> Pieces {
        let in_words = len.min(bounds.words().saturating_sub(offset));
        let head = in_words.min((WORD - offset % WORD) % WORD);
        let tail = (in_words - head) % WORD;
        Pieces {
            head,
            words: in_words - head - tail,
            tail,
        }
    }
}

/// # Safety
/// As [`store`]; `at` is aligned to a word, and `words` are whole words.
unsafe fn store_words(bounds: Bounds, mut at: usize, words: &[u8]) {
    for whole in words.as_chunks().0 {
        // SAFETY: a whole word in bounds.
        unsafe { bounds.word(at) }.store(u64::from_ne_bytes(*whole), Ordering::Relaxed);
        at += WORD;
    }
}

/// # Safety
/// As [`load`]; `at` is aligned to a word, and `words` are whole words.
unsafe fn load_words(bounds: Bounds, mut at: usize, words: &mut [MaybeUninit<u8>]) {
    for whole in words.as_chunks_mut().0 {
        // SAFETY: a whole word in bounds.
        let word = unsafe { bounds.word(at) };
        *whole = word
            .load(Ordering::Relaxed)
            .to_ne_bytes()
            .map(MaybeUninit::new);
        at += WORD;
    }
}

fn store_part(word: &AtomicU64, skip: usize, part: &[u8]) {
    let replace = |old: u64| {
        let mut bytes = old.to_ne_bytes();
        bytes[skip..skip + part.len()].copy_from_slice(part);
        Some(u64::from_ne_bytes(bytes))
    };
    // The closure never returns `None`.
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, replace);
}

fn load_part(word: &AtomicU64, skip: usize, into: &mut [MaybeUninit<u8>]) {
    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    into.write_copy_of_slice(&bytes[skip..skip + into.len()]);
}

/// Reads `into.len()` bytes at `offset`.
///
/// # Safety
/// As [`store`], except that the memory need not be writable.
pub(crate) unsafe fn load(bounds: Bounds, offset: usize, into: &mut [u8]) {
    // SAFETY: as promised.
    unsafe { load_uninit(bounds, offset, uninit::to_write(into)) }
}

/// Does the same into uninitialised bytes, and initialises them.
///
/// # Safety
/// As [`load`].
pub(crate) unsafe fn load_uninit(bounds: Bounds, offset: usize, into: &mut [MaybeUninit<u8>]) {
    #[cfg(test)]
    seam::count_load(into.len());
    let pieces = Pieces::of(bounds, offset, into.len());
    let (head, rest) = into.split_at_mut(pieces.head);
    let (words, rest) = rest.split_at_mut(pieces.words);
    let (tail, behind) = rest.split_at_mut(pieces.tail);
    let mut at = offset;
    if !head.is_empty() {
        // SAFETY: the word that holds `at` lies in bounds.
        load_part(unsafe { bounds.word(at / WORD * WORD) }, at % WORD, head);
        at += head.len();
    }
    let (before, by_pairs) = pairs::part(bounds.start as usize + at, words.len());
    let (before, words) = words.split_at_mut(before);
    let (by_pairs, words) = words.split_at_mut(by_pairs);
    // SAFETY: whole words in bounds.
    let load_words =
        |at: usize, words: &mut [MaybeUninit<u8>]| unsafe { load_words(bounds, at, words) };
    load_words(at, before);
    at += before.len();
    // SAFETY: in bounds, and the part for which pairs are allowed.
    unsafe { pairs::load(bounds.start.add(at), by_pairs) };
    at += by_pairs.len();
    load_words(at, words);
    at += words.len();
    if !tail.is_empty() {
        // SAFETY: as above.
        load_part(unsafe { bounds.word(at) }, 0, tail);
        at += tail.len();
    }
    for (index, byte) in behind.iter_mut().enumerate() {
        // SAFETY: after the whole words and in bounds.
        byte.write(unsafe { bounds.byte(at + index) }.load(Ordering::Relaxed));
    }
    // Later reads are no older than these.
    std::sync::atomic::fence(Ordering::Acquire);
}

/// The aligned word at `offset`.
///
/// # Safety
/// As [`store`], as long as the reference lives; `offset` is a multiple of 8 and the whole word is in bounds.
pub(crate) unsafe fn word<'a>(bounds: Bounds, offset: usize) -> &'a AtomicU64 {
    // SAFETY: as promised.
    unsafe { bounds.word(offset) }
}

/// Performs `atomic` on a word, and returns the old word. A word of 32 bits is the half of `word` that begins after
/// `skip` bytes, 0 or 4.
pub(crate) fn fetch_op(word: &AtomicU64, skip: usize, atomic: Atomic) -> u64 {
    match atomic.word {
        Word::U64 => fetch_whole(word, atomic),
        Word::U32 => fetch_half(word, skip, atomic),
    }
}

/// The half is changed by compare-exchange of the whole: all accesses have one size.
fn fetch_half(word: &AtomicU64, skip: usize, atomic: Atomic) -> u64 {
    let half = |whole: [u8; WORD]| {
        let [a, b, c, d, e, f, g, h] = whole;
        u32::from_ne_bytes(match skip {
            0 => [a, b, c, d],
            _ => [e, f, g, h],
        })
    };
    let replace = |old: u64| {
        let mut bytes = old.to_ne_bytes();
        let after = atomic.apply(half(bytes).into()) as u32;
        bytes[skip..skip + size_of::<u32>()].copy_from_slice(&after.to_ne_bytes());
        Some(u64::from_ne_bytes(bytes))
    };
    // The closure never returns `None`.
    match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, replace) {
        Ok(before) | Err(before) => half(before.to_ne_bytes()).into(),
    }
}

fn fetch_whole(word: &AtomicU64, atomic: Atomic) -> u64 {
    let Atomic {
        operand, comparand, ..
    } = atomic;
    let order = Ordering::SeqCst;
    match atomic.kind {
        FetchOpKind::Add => word.fetch_add(operand, order),
        FetchOpKind::Increment => word.fetch_add(1, order),
        FetchOpKind::Decrement => word.fetch_sub(1, order),
        FetchOpKind::Clear => word.swap(0, order),
        FetchOpKind::Swap => word.swap(operand, order),
        FetchOpKind::CompareAndSwap => {
            match word.compare_exchange(comparand, operand, order, order) {
                Ok(before) | Err(before) => before,
            }
        }
        FetchOpKind::And => word.fetch_and(operand, order),
        FetchOpKind::Or => word.fetch_or(operand, order),
        FetchOpKind::Xor => word.fetch_xor(operand, order),
        FetchOpKind::Min => word.fetch_min(operand, order),
        FetchOpKind::Max => word.fetch_max(operand, order),
    }
}

/// Counts the bytes that this thread copied out of and into shared memory by atomics.
#[cfg(test)]
pub(crate) mod seam {
    use std::cell::Cell;

    thread_local! {
        static COPIED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn count_load(len: usize) {
        let (loaded, stored) = COPIED.get();
        COPIED.set((loaded + len, stored));
    }

    pub(super) fn count_store(len: usize) {
        let (loaded, stored) = COPIED.get();
        COPIED.set((loaded, stored + len));
    }

    /// Bytes loaded and stored since the last call.
    pub(crate) fn take() -> (usize, usize) {
        COPIED.take()
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
