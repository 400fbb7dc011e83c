//! Finds the functions of the C library that this one stands in front of.

use libc::{c_char, c_int, c_void, epoll_event, sockaddr, socklen_t};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One function: found when it is first called. Two threads find the same.
struct Found(AtomicPtr<c_void>, &'static [u8]);

impl Found {
    const fn new(name: &'static [u8]) -> Found {
        Found(AtomicPtr::new(std::ptr::null_mut()), name)
    }

    fn get(&self) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the names below end with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr().cast::<c_char>()) };
        if found.is_null() {
            // A C library without sockets: nothing could go on.
            // SAFETY: ends the process.
            unsafe { libc::abort() }
        }
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! real {
    ($($name:ident($($argument:ident: $kind:ty),*) -> c_int;)*) => {
        /// Finds all, before the program runs.
        pub(crate) fn find_all() {
            $($name::find();)*
        }
        $(
            pub(crate) mod $name {
                use super::*;
                static FOUND: Found = Found::new(concat!(stringify!($name), "\0").as_bytes());

                pub(crate) fn find() {
                    FOUND.get();
                }

                /// The function of the C library.
                ///
                /// # Safety
                /// As for that function.
                pub(crate) unsafe fn call($($argument: $kind),*) -> c_int {
                    type Function = unsafe extern "C" fn($($kind),*) -> c_int;
                    // SAFETY: the C library's function of this name has this type.
                    let function: Function = unsafe { transmute(FOUND.get()) };
                    // SAFETY: the caller's.
                    unsafe { function($($argument),*) }
                }
            }
        )*
    };
}

real! {
    connect(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    bind(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    listen(socket: c_int, backlog: c_int) -> c_int;
    accept(socket: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    accept4(socket: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    getpeername(socket: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockname(socket: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    epoll_ctl(epoll: c_int, what: c_int, socket: c_int, event: *mut epoll_event) -> c_int;
}
