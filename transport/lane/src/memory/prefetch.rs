//! Asks the core to load a value into its cache shortly before it is used.

/// Bytes of a cache line on the machines that have the instruction.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Starts to load `value` itself, without what it points to, into the core's cache, and does not wait. Without such an
/// instruction, does nothing.
///
/// Among thousands of connections each turn finds its own in no cache, and would wait for its lines one by one.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of::<T>()).step_by(LINE) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = core::ptr::from_ref(value).cast::<i8>();
        // SAFETY: the address is inside of `value`; a prefetch accesses no memory as far as the program can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
