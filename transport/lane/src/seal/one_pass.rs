//! AEGIS-128X2 from one place to another, and in a place that is not ours alone: what libaegis can, and its
//! crate offers for a slice that is.
//!
//! A payload is read once and its ciphertext written where the burst is put together, instead of
//! being copied there first: a fifth of what sealing costs. Exported memory, which others may touch at the
//! same time, is no slice: libaegis gets its address. It loads each block once, and what it stores is what
//! it has authenticated; what others store meanwhile is theirs, as it would be a moment later.
//!
//! It loads and stores blocks as vectors, or copies the last of them into its own memory. That a word of 64 bits is read
//! whole, if source and length are whole words, rests on processors that do not tear an aligned part of a vector.

use aegis::aegis128x2::Aegis128X2;
use std::ffi::c_int;

/// Bytes of a tag.
pub(super) const TAG_LEN: usize = 16;
/// A datagram's tag.
pub(super) type Tag = [u8; TAG_LEN];

unsafe extern "C" {
    // Of libaegis's public interface (aegis128x2.h), which the `aegis` crate carries.
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

/// Makes libaegis choose what this processor does best, once: to be called before the others.
pub(super) fn prepare() {
    let _ = Aegis128X2::<TAG_LEN>::new(&[0; 16], &[0; 16]);
}

/// Encrypts `source` into `place`, which is as long, and authenticates `header` with it. `None` if it is
/// not.
pub(super) fn encrypt(
    key: &[u8; 16],
    nonce: &[u8; 16],
    header: &[u8],
    source: &[u8],
    place: &mut [u8],
) -> Option<Tag> {
    // SAFETY: all of a slice, which nothing writes as long as it is borrowed.
    unsafe { encrypt_at(key, nonce, header, (source.as_ptr(), source.len()), place) }
}

/// As [`encrypt`], of the bytes of `source`, an address and a length.
///
/// # Safety
/// They are mapped and readable as long as the call lasts, and none of them lies in `place`. No reference that writes is
/// to them; other threads may touch them by atomic accesses, and the kernel as it likes.
pub(super) unsafe fn encrypt_at(
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
    // SAFETY: `source` as promised; the other pointers are of slices of the lengths given, and of arrays of the lengths
    // that AEGIS-128X2 is defined with; `place` and `tag` are ours alone to write, as long as the call lasts. What is at
    // `source` is loaded once: the last use of a block comes after a store to `place`, which C has to take for one
    // that may be to the source, so that it cannot be loaded again. Nothing read there is branched on.
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

/// Decrypts the bytes of `source`, an address and a length, to the as many at `place`, which may be the same. False if
/// `tag` is not theirs and `header`'s: unspecified bytes are at `place` then.
///
/// # Safety
/// Those of `source` are mapped and readable, those at `place` writable, as long as the call lasts. No reference that
/// writes is to the former and none at all to the latter; other threads may touch them by atomic accesses, and the
/// kernel as it likes. They are the same bytes, or none of them is.
pub(super) unsafe fn decrypt(
    key: &[u8; 16],
    nonce: &[u8; 16],
    header: &[u8],
    (source, len): (*const u8, usize),
    place: *mut u8,
    tag: &Tag,
) -> bool {
    // SAFETY: `source` and `place` as promised; the other pointers are of slices of the lengths given, and of arrays of
    // the lengths that AEGIS-128X2 is defined with. The function branches on nothing that it reads at either.
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
