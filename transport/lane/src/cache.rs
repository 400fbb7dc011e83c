//! Loads memory into the processor's cache while it does something else, before that memory is used.

/// Bytes of a cache line, on the processors that this is for.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Begins to load all of `value` into the cache, and does not wait for it. Of a large value that is used soon, this takes
/// a fraction of the time that its first use would wait for each line in turn. Has no effect on other processors.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: the address is within `value`, and a prefetch reads nothing that the program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
