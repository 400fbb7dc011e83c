//! Represents objects that C holds by a pointer to their first field, a `fid`.

use crate::errno::{Errno, Outcome};
use crate::libfabric::*;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// The structure of libfabric with which an object begins. The program may read and write its `context`, so Rust never
/// makes a reference to it after the object is made.
#[repr(transparent)]
pub(crate) struct Head<T>(UnsafeCell<T>);

// SAFETY: only C accesses the structure after it was made, by libfabric's rules; Rust reads `fid.fclass` alone, which
// stays as it is.
unsafe impl<T> Send for Head<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Head<T> {}

impl<T> Head<T> {
    pub(crate) fn new(head: T) -> Head<T> {
        Head(UnsafeCell::new(head))
    }

    pub(crate) fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// An object that starts with a [`Head`].
///
/// # Safety
/// The type is `repr(C)`, and its first field is `Head<Self::Fid>`, whose first field is a `fid`.
pub(crate) unsafe trait Object: Sized + Send + Sync {
    /// The structure of libfabric.
    type Fid;
    /// The class in its `fid`.
    const CLASS: u32;

    fn head(&self) -> &Head<Self::Fid>;

    /// The pointer that C has.
    fn as_fid(&self) -> *mut fid {
        self.head().get().cast()
    }

    /// What the program gave as the context of the object.
    fn context(&self) -> *mut c_void {
        // SAFETY: a live object begins with a `fid`; the program changes the context only while it makes no call that
        // reads it (fi_endpoint(3)).
        unsafe { (*self.as_fid()).context }
    }
}

/// The first field of an object's head.
pub(crate) fn fid_of<T: Object>(context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid {
        fclass: T::CLASS as usize,
        context,
        ops: std::ptr::from_ref(ops).cast_mut(),
    }
}

/// Gives an object to C, which gives it back by `fi_close`.
pub(crate) fn hand_out<T: Object>(object: Arc<T>, into: *mut *mut T::Fid) {
    let object = Arc::into_raw(object).cast_mut();
    // SAFETY: the callers checked that `into` is not null; libfabric passes a place for the pointer.
    unsafe { into.write(object.cast()) };
}

/// The object that C names.
///
/// # Safety
/// `fid` is null or a live fid of this provider.
pub(crate) unsafe fn given<'a, T: Object>(fid: *mut T::Fid) -> Outcome<&'a T> {
    // SAFETY: the caller's promise; the class tells the type.
    unsafe {
        let base: *mut crate::libfabric::fid = fid.cast();
        match !base.is_null() && (*base).fclass == T::CLASS as usize {
            true => Ok(&*fid.cast::<T>()),
            false => Err(Errno::INVALID),
        }
    }
}

/// Like [`given`], with a share in it.
///
/// # Safety
/// As for [`given`].
pub(crate) unsafe fn shared<T: Object>(fid: *mut T::Fid) -> Outcome<Arc<T>> {
    // SAFETY: the caller's promise; every object lives in an Arc (`hand_out`).
    unsafe {
        let object: *const T = given::<T>(fid)?;
        Arc::increment_strong_count(object);
        Ok(Arc::from_raw(object))
    }
}

/// Takes an object back from C if nothing else uses it.
///
/// # Safety
/// As for [`given`]; on success C does not use the fid again.
pub(crate) unsafe fn take_back<T: Object>(fid: *mut fid) -> Outcome<Arc<T>> {
    // SAFETY: the caller's promise; the count that `hand_out` left is taken once.
    unsafe {
        let object: *const T = given::<T>(fid.cast())?;
        let object = Arc::from_raw(object);
        if Arc::strong_count(&object) > 1 {
            std::mem::forget(object);
            return Err(Errno::BUSY);
        }
        Ok(object)
    }
}

/// Checks that C gave a place for a result.
pub(crate) fn place<T>(pointer: *mut T) -> Outcome<*mut T> {
    match pointer.is_null() {
        true => Err(Errno::INVALID),
        false => Ok(pointer),
    }
}

pub(crate) type Close = unsafe extern "C" fn(*mut fid) -> c_int;
pub(crate) type Bind = unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int;
pub(crate) type Control = unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int;

/// The functions that every fid has.
pub(crate) const fn fid_ops(close: Close, bind: Bind, control: Control) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: Some(bind),
        control: Some(control),
        ops_open: Some(no_ops_open),
        tostr: None,
        ops_set: Some(no_ops_set),
    }
}

const NO_SYSTEM: c_int = -(FI_ENOSYS as c_int);

pub(crate) unsafe extern "C" fn no_bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    NO_SYSTEM
}

pub(crate) unsafe extern "C" fn no_control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    NO_SYSTEM
}

unsafe extern "C" fn no_ops_open(
    _: *mut fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    NO_SYSTEM
}

unsafe extern "C" fn no_ops_set(
    _: *mut fid,
    _: *const c_char,
    _: u64,
    _: *mut c_void,
    _: *mut c_void,
) -> c_int {
    NO_SYSTEM
}

/// Defines functions that this provider does not have: they return -FI_ENOSYS, as the man pages say.
macro_rules! absent {
    ($($name:ident($($argument:ty),*) -> $result:ty;)+) => {
        $(
            unsafe extern "C" fn $name($(_: $argument),*) -> $result {
                -($crate::libfabric::FI_ENOSYS as $result)
            }
        )+
    };
}
pub(crate) use absent;
