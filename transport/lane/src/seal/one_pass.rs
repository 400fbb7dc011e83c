//! Applies AEGIS-128X2 from one place to another, and to memory shared with others: libaegis can do both, but its crate
//! takes only exclusive slices.
//!
//! A payload is read once, and its ciphertext is written where the burst is assembled. A separate copy would add a
//! fifth to the cost of the seal. Exported memory, which others may access at the same time, is no slice: libaegis gets
//! its address. It loads each block once, and stores only what it has authenticated. Concurrent stores of others have
//! the same effect as stores a moment later.
//!
//! It loads and stores blocks as vectors, or copies the last block into its own memory. If source and length are whole
//! words, each 64-bit word is read whole. This relies on processors that do not tear an aligned part of a vector.

use aegis::aegis128x2::Aegis128X2;
use std::ffi::c_int;

/// Bytes of a tag.
pub(super) const TAG_LEN: usize = 16;
/// A datagram's tag.
pub(super) type Tag = [u8; TAG_LEN];

unsafe extern "C" {
    // From libaegis's public interface (aegis128x2.h), which the `aegis` crate contains.
    fn aegis128x2_encrypt_detached(
        c: *mut u8,
        mac: *mut u8,
        maclen: usize,
        m: *const u8,
        mlen: usize,
        ad: *const u8,
        adlen: usize,
        npub: *const u8,
        k: *const u8,
    ) -> c_int;

    fn aegis128x2_decrypt_detached(
        m: *mut u8,
        c: *const u8,
        clen: usize,
        mac: *const u8,
        maclen: usize,
        ad: *const u8,
        adlen: usize,
        npub: *const u8,
        k: *const u8,
    ) -> c_int;
}

/// Makes libaegis select the best implementation for this processor. Call it once before the others.
pub(super) fn prepare() {
    let _ = Aegis128X2::<TAG_LEN>::new(&[0; 16], &[0; 16]);
}

/// Encrypts the bytes of `source`, an address and a length, into `place`, which has the same length, and authenticates
/// `header` with them. `None` if the lengths differ.
///
/// # Safety
/// The bytes are mapped and readable for the length of the call, and none of them lies in `place`. No mutable reference
/// to them exists; other threads may access them atomically, and the kernel in any way.
pub(super) unsafe fn encrypt(
    key: &[u8; 16],
    nonce: &[u8; 16],
    header: &[u8],
    (source, len): (*const u8, usize),
    place: &mut [u8],
) -> Option<Tag> {
    if len != place.len() {
        return None;
    }
    let mut tag = [0; TAG_LEN];
    // SAFETY: `source` as promised. The other pointers are of slices of the given lengths, and of arrays of the lengths
    // that AEGIS-128X2 is defined with. Nothing else writes `place` and `tag` during the call. Each byte of `source` is
    // loaded once: the last use of a block comes after a store to `place`, which C must assume may alias the source, so
    // the block cannot be loaded again. No branch depends on a byte read there.
    let done = unsafe {
        aegis128x2_encrypt_detached(
            place.as_mut_ptr(),
            tag.as_mut_ptr(),
            TAG_LEN,
            source,
            len,
            header.as_ptr(),
            header.len(),
            nonce.as_ptr(),
            key.as_ptr(),
        )
    };
    (done == 0).then_some(tag)
}

/// Decrypts the bytes of `source`, an address and a length, into `place`, which has the same length and may be the same
/// address. False if `tag` does not match the bytes and `header`: `place` has unspecified bytes then.
///
/// # Safety
/// The bytes of `source` are mapped and readable, those at `place` writable, for the length of the call. No mutable
/// reference to the former exists, and no reference at all to the latter; other threads may access them atomically, and
/// the kernel in any way. The two are the same bytes, or do not overlap.
pub(super) unsafe fn decrypt(
    key: &[u8; 16],
    nonce: &[u8; 16],
    header: &[u8],
    (source, len): (*const u8, usize),
    place: *mut u8,
    tag: &Tag,
) -> bool {
    // SAFETY: `source` and `place` as promised. The other pointers are of slices of the given lengths, and of arrays of
    // the lengths that AEGIS-128X2 is defined with. No branch depends on a byte read at either.
    let done = unsafe {
        aegis128x2_decrypt_detached(
            place,
            source,
            len,
            tag.as_ptr(),
            TAG_LEN,
            header.as_ptr(),
            header.len(),
            nonce.as_ptr(),
            key.as_ptr(),
        )
    };
    done == 0
}
