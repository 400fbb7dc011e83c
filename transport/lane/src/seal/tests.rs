//! Tests that sealed datagrams open once, only unchanged, and across changes of keys.
#![allow(non_snake_case)]
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const HEADER: [u8; HEADER_LEN] = [3; HEADER_LEN];

fn secret() -> Zeroizing<[u8; 32]> {
    Zeroizing::new([9; 32])
}

fn pair(cipher: Cipher) -> (Sealer, Opener) {
    let sealer = Sealer::new(cipher, secret()).unwrap();
    (sealer, Opener::new(cipher, secret()).unwrap())
}

#[test]
fn open__what_was_sealed() {
    for cipher in Cipher::ALL {
        let (mut sealer, mut opener) = pair(cipher);
        for len in [0, 1, 16, 1408, 65_000] {
            let plain: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut bytes = plain.clone();
            let trailer = sealer.seal(&HEADER, &mut bytes).unwrap();
            assert!(len < 16 || (bytes != plain) == cipher.hides(), "{cipher:?}");
            assert_eq!(opener.open(&HEADER, &mut bytes, &trailer), Ok(()));
            assert_eq!(bytes, plain);
        }
    }
}

/// Opens `bytes` by their address.
fn open_at(opener: &mut Opener, bytes: &mut [u8], trailer: &Trailer) -> Result<(), DropReason> {
    let (place, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: all of a slice that is exclusively ours.
    unsafe { opener.open_at(&HEADER, (place.cast_const(), len), place, trailer) }
}

#[test]
fn open_at__what_was_sealed_and_nothing_that_was_changed() {
    for cipher in Cipher::ALL {
        let (mut sealer, mut opener) = pair(cipher);
        assert_eq!(opener.opens_at(), cipher == Cipher::Aegis128X2);
        for len in [0_usize, 1, 16, 1408, 65_000] {
            let plain: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut sealed = plain.clone();
            let trailer = sealer.seal(&HEADER, &mut sealed).unwrap();
            for at in [0, len / 2, len.saturating_sub(1)] {
                let (mut changed, mut tag) = (sealed.clone(), trailer);
                match changed.get_mut(at) {
                    Some(byte) => *byte ^= 1,
                    None => tag[TRAILER_LEN - 1] ^= 1,
                }
                let opened = open_at(&mut opener, &mut changed, &tag);
                assert_eq!(opened, Err(DropReason::Forged), "{cipher:?} {len} {at}");
                let hidden = len < 16 || !cipher.hides() || changed[..16] != plain[..16];
                assert!(hidden, "shown though it is forged");
            }
            let opened = open_at(&mut opener, &mut sealed, &trailer);
            assert_eq!(opened.is_ok(), opener.opens_at());
            if opener.opens_at() {
                assert_eq!(sealed, plain);
                let again = open_at(&mut opener, &mut sealed, &trailer);
                assert_eq!(again, Err(DropReason::Replayed));
            }
        }
    }
}

#[test]
fn seal_from__gives_what_sealing_in_place_gives() {
    for cipher in Cipher::ALL {
        let ((mut here, _), (mut there, _)) = (pair(cipher), pair(cipher));
        for len in [0, 1, 15, 64, 1408, 65_000] {
            let source: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            let (mut in_place, mut apart) = (source.clone(), vec![0xa5; len]);
            let trailer = here.seal(&HEADER, &mut in_place).unwrap();
            let other = there.seal_from(&HEADER, &source, &mut apart).unwrap();
            assert_eq!((trailer, in_place), (other, apart), "{cipher:?}, {len}");
        }
    }
}

#[test]
fn seal_at__gives_what_sealing_in_place_gives_or_nothing() {
    let memory: Vec<u8> = (0..70_000).map(|n| (n * 7) as u8).collect();
    for cipher in Cipher::ALL {
        let ((mut here, _), (mut there, mut opener)) = (pair(cipher), pair(cipher));
        assert_eq!(there.seals_at(), cipher == Cipher::Aegis128X2);
        for (at, len) in [
            (0, 0),
            (1, 1),
            (3, 15),
            (8, 64),
            (5, 1408),
            (7, 1409),
            (13, 64_703),
        ] {
            let source = &memory[at..at + len];
            let (mut in_place, mut apart) = (source.to_vec(), vec![0xa5; len]);
            let trailer = here.seal(&HEADER, &mut in_place).unwrap();
            let address = (source.as_ptr(), source.len());
            // SAFETY: all of a slice that nothing writes, and that does not overlap the other.
            let sealed = unsafe { there.seal_at(&HEADER, address, &mut apart) };
            if !there.seals_at() {
                assert_eq!(sealed, None, "{cipher:?}, {len} at {at}");
                continue;
            }
            // The same number, so the same nonce: each sealer assigns its own.
            assert_eq!(sealed, Some(trailer), "{len} at {at}");
            assert_eq!(apart, in_place, "{len} at {at}");
            assert_eq!(opener.open(&HEADER, &mut apart, &trailer), Ok(()));
            assert_eq!(apart, source);
        }
        // SAFETY: as above; nothing is written, because the lengths differ.
        let other = unsafe { there.seal_at(&HEADER, (memory.as_ptr(), 9), &mut [0; 8]) };
        assert_eq!(other, None, "{cipher:?}");
    }
}

/// The keys, nonces and tags of docs/reference/protocol.md, as bytes: a change here changes the wire format.
#[test]
fn seal__bytes_are_those_of_version_1() {
    let sealed = |cipher: Cipher| {
        let (mut sealer, _) = pair(cipher);
        let mut bytes = *b"sealed";
        sealer.seal(&HEADER, &mut bytes).unwrap();
        let trailer = sealer.seal(&HEADER, &mut bytes).unwrap();
        let all = bytes.iter().chain(&trailer);
        all.map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    for (cipher, bytes) in [
        (
            Cipher::Aegis128X2,
            "9272aea4367c00000000000000010577cda15a3bfa5b2edc314c193101f6",
        ),
        (
            Cipher::Aes128Gcm,
            "ad2a490b8241000000000000000135302b613d13bb3b792efae20f72eb11",
        ),
        (
            Cipher::ChaCha20Poly1305,
            "74293059254000000000000000015d827a65e33cce482e607c61cd29f2aa",
        ),
        (
            Cipher::Aegis128X2Mac,
            "7365616c65640000000000000001ca63476ed55e981af1f95f9f194d1205",
        ),
    ] {
        assert_eq!(sealed(cipher), bytes, "{cipher:?}");
    }
}

#[test]
fn open__any_bit_changed_is_forged_and_the_right_one_still_opens() {
    for cipher in Cipher::ALL {
        let (mut sealer, mut opener) = pair(cipher);
        let mut sealed = [7; 50];
        let trailer = sealer.seal(&HEADER, &mut sealed).unwrap();
        let whole = HEADER_LEN + sealed.len() + TRAILER_LEN;
        for bit in 0..whole * 8 {
            let mut bytes = [&HEADER[..], &sealed, &trailer].concat();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let header = *bytes.first_chunk().unwrap();
            let trailer = *bytes.last_chunk().unwrap();
            let payload = &mut bytes[HEADER_LEN..whole - TRAILER_LEN];
            let opened = opener.open(&header, payload, &trailer);
            assert_eq!(opened, Err(DropReason::Forged), "bit {bit}");
        }
        assert_eq!(opener.open(&HEADER, &mut sealed, &trailer), Ok(()));
        assert_eq!(sealed, [7; 50]);
    }
}

#[test]
fn open__twice_is_a_replay() {
    let (mut sealer, mut opener) = pair(Cipher::Aes128Gcm);
    let mut bytes = [7; 50];
    let trailer = sealer.seal(&HEADER, &mut bytes).unwrap();
    let mut copy = bytes;
    assert_eq!(opener.open(&HEADER, &mut bytes, &trailer), Ok(()));
    let again = opener.open(&HEADER, &mut copy, &trailer);
    assert_eq!(again, Err(DropReason::Replayed));
}

#[test]
fn seal__numbers_and_so_nonces_never_repeat() {
    let (mut sealer, _) = pair(Cipher::Aes128Gcm);
    let numbers: std::collections::HashSet<_> = (0..10_000)
        .map(|_| sealer.seal(&HEADER, &mut []).unwrap()[..NUMBER_LEN].to_vec())
        .collect();
    assert_eq!(numbers.len(), 10_000);
}

/// A sealer whose next number is `next`.
fn at(next: u64) -> Sealer {
    let mut sealer = Sealer::new(Cipher::Aes128Gcm, secret()).unwrap();
    for _ in 0..generation(next.saturating_sub(1)) {
        sealer.secret = sealer.secret.next();
    }
    sealer.key = sealer.secret.key(Cipher::Aes128Gcm).unwrap().into();
    sealer.next = next;
    sealer
}

#[test]
fn open__across_changes_of_keys_with_late_ones() {
    let (_, mut opener) = pair(Cipher::Aes128Gcm);
    for change in 1..4u64 {
        let mut sealer = at((change << GENERATION_LOG2) - 2);
        let mut sealed: Vec<([u8; 20], Trailer)> = (0..4)
            .map(|n| {
                let mut bytes = [n; 20];
                let trailer = sealer.seal(&HEADER, &mut bytes).unwrap();
                (bytes, trailer)
            })
            .collect();
        // The last before the change comes after the first one following it.
        sealed.swap(1, 2);
        for (bytes, trailer) in &mut sealed {
            assert_eq!(opener.open(&HEADER, bytes, trailer), Ok(()), "{change}");
        }
        assert_eq!(opener.generation, change);
    }
}

#[test]
fn open__keys_of_two_changes_ahead_are_not_tried() {
    let (_, mut opener) = pair(Cipher::Aes128Gcm);
    let mut bytes = [1; 20];
    let trailer = at(2 << GENERATION_LOG2).seal(&HEADER, &mut bytes).unwrap();
    let opened = opener.open(&HEADER, &mut bytes, &trailer);
    assert_eq!(opened, Err(DropReason::Forged));
    assert_eq!(opener.generation, 0);
}

#[test]
fn seal__another_generation_is_another_key() {
    let mut texts = std::collections::HashSet::new();
    for change in 0..3u64 {
        let mut sealer = at((change << GENERATION_LOG2) + 1);
        // The same number each time: only the key differs.
        sealer.next = 1;
        let mut bytes = [0; 32];
        sealer.seal(&HEADER, &mut bytes).unwrap();
        texts.insert(bytes);
    }
    assert_eq!(texts.len(), 3);
}

#[test]
fn open__after_too_many_forgeries_nothing() {
    let (mut sealer, mut opener) = pair(Cipher::Aes128Gcm);
    opener.forged = MAX_FORGED;
    let mut bytes = [1; 20];
    let trailer = sealer.seal(&HEADER, &mut bytes).unwrap();
    assert!(opener.open(&HEADER, &mut bytes, &trailer).is_err());
}

#[test]
fn debug__shows_no_secret() {
    let (sealer, opener) = pair(Cipher::Aes128Gcm);
    let shown = format!("{sealer:?} {opener:?}");
    assert!(!shown.contains("09") && !shown.contains("9, 9"), "{shown}");
}

/// Memory that a thread writes while a test works on it: words of eight equal bytes, by atomic stores.
struct Written {
    words: Vec<AtomicU64>,
    done: AtomicBool,
}

impl Written {
    const WORDS: usize = 1024;

    fn new() -> Written {
        Written {
            words: (0..Written::WORDS).map(|_| AtomicU64::new(0)).collect(),
            done: AtomicBool::new(false),
        }
    }

    fn start(&self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }

    /// Calls `work` repeatedly while a thread writes.
    fn during(&self, rounds: usize, mut work: impl FnMut()) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let bytes = (1..=u8::MAX).cycle();
                for byte in bytes.take_while(|_| !self.done.load(Ordering::Relaxed)) {
                    let word = u64::from_ne_bytes([byte; 8]);
                    self.words
                        .iter()
                        .for_each(|it| it.store(word, Ordering::Relaxed));
                }
            });
            // Even if one of the calls panics.
            let _stop = Stop(&self.done);
            (0..rounds).for_each(|_| work());
        });
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether a word is one that [`Written`] contains.
fn is_written(word: &[u8; 8]) -> bool {
    word.iter().all(|it| it == &word[0])
}

/// The sealed bytes are those that were authenticated, and whole words: libaegis loads each block once, by vectors.
#[test]
fn seal_at__of_what_a_thread_writes_opens_to_words_that_it_wrote() {
    let (mut sealer, mut opener) = pair(Cipher::Aegis128X2);
    let memory = Written::new();
    let mut place = vec![0; 8 * Written::WORDS];
    memory.during(500, || {
        let source = (memory.start().cast_const(), place.len());
        // SAFETY: the words live as long as the call, and are written by atomic stores alone.
        let trailer = unsafe { sealer.seal_at(&HEADER, source, &mut place) };
        let trailer = trailer.expect("it takes addresses");
        assert_eq!(opener.open(&HEADER, &mut place, &trailer), Ok(()));
        assert!(place.as_chunks().0.iter().all(is_written));
    });
}

/// A thread writes one word before the bytes are opened, meanwhile or afterwards. If they are opened, each word is one that
/// was sealed, or the one that the thread wrote.
#[test]
fn open_at__where_a_thread_writes_is_opened_or_refused() {
    const ROUNDS: usize = 1000;
    const SEALED: u8 = 0xab;
    let (mut sealer, mut opener) = pair(Cipher::Aegis128X2);
    let memory = Written::new();
    let mut sealed = vec![0; 8 * Written::WORDS];
    let (begun, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wait_for = |count: &AtomicUsize, round| {
        while count.load(Ordering::Acquire) < round && !memory.done.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                wait_for(&begun, round);
                // From nothing to longer than an opening takes.
                (0..round % 100).for_each(|_| std::hint::spin_loop());
                let word = &memory.words[round * 13 % Written::WORDS];
                word.store(u64::from_ne_bytes([0x11; 8]), Ordering::Relaxed);
                written.store(round, Ordering::Release);
            }
        });
        // Even if a check fails.
        let _stop = Stop(&memory.done);
        for round in 1..=ROUNDS {
            sealed.fill(SEALED);
            let trailer = sealer.seal(&HEADER, &mut sealed).expect("sealed");
            for (word, bytes) in memory.words.iter().zip(sealed.as_chunks().0) {
                word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
            let (place, len) = (memory.start(), sealed.len());
            let source = (place.cast_const(), len);
            begun.store(round, Ordering::Release);
            // SAFETY: the words live as long as the call, and others access them by atomic stores alone.
            let opened = unsafe { opener.open_at(&HEADER, source, place, &trailer) };
            wait_for(&written, round);
            match opened {
                Ok(()) => {
                    let words = memory.words.iter();
                    let mut words = words.map(|it| it.load(Ordering::Relaxed).to_ne_bytes());
                    let is_known = |it: [u8; 8]| it == [SEALED; 8] || it == [0x11; 8];
                    assert!(words.all(is_known), "round {round}");
                }
                Err(refused) => assert_eq!(refused, DropReason::Forged),
            }
        }
    });
}
