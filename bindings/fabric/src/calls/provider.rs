//! Implements the entry point of libfabric, and the functions of fabrics (`fi_fabric(3)`).

use super::domain;
use crate::attributes;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::eq::{self, Eq};
use crate::errno::{self, Errno, Outcome};
use crate::fabric::Fabric;
use crate::info;
use crate::libfabric::*;
use crate::log;
use crate::object::{self, absent, fid_of, fid_ops, place};
use crate::passive;
use crate::settings::Settings;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The provider, as libfabric keeps it.
#[repr(transparent)]
struct Provider(UnsafeCell<fi_provider>);

// SAFETY: libfabric alone reads and writes it (its `context`), under its own lock.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(UnsafeCell::new(fi_provider {
    version: attributes::VERSION,
    fi_version: attributes::API,
    context: fi_context {
        internal: [std::ptr::null_mut(); 4],
    },
    name: attributes::NAME.as_ptr(),
    getinfo: Some(info::getinfo),
    fabric: Some(open),
    cleanup: Some(cleanup),
}));

/// Gives libfabric the provider. It calls this once, when it loads the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider_of_c {
    PROVIDER.0.get().cast()
}

/// `struct fi_provider`, of which only libfabric knows the fields.
#[allow(missing_debug_implementations)]
pub enum fi_provider_of_c {}

/// There is nothing to clean up: a fabric ends when it is closed.
unsafe extern "C" fn cleanup() {}

static FID_OPS: fi_ops = fid_ops(close, object::no_bind, object::no_control);
static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(domain::open),
    passive_ep: Some(passive::open),
    eq_open: Some(eq::open),
    wait_open: Some(no_wait),
    trywait: Some(trywait),
    domain2: Some(domain::open_with_flags),
};

absent! {
    no_wait(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int;
}

unsafe extern "C" fn open(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        let fabric = place(fabric)?;
        // SAFETY: libfabric's promise.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::INVALID)?;
        // SAFETY: libfabric's promise: null or a text.
        let of_ours = |name: *const std::ffi::c_char| unsafe {
            name.is_null() || std::ffi::CStr::from_ptr(name) == attributes::NAME
        };
        if !of_ours(attr.name) {
            return Err(Errno::INVALID);
        }
        let settings = Settings::from_environment().map_err(|why| {
            log::refuse(format_args!("no fabric: {why}"));
            Errno::INVALID
        })?;
        let head = fid_fabric {
            fid: fid_of::<Fabric>(context, &FID_OPS),
            ops: std::ptr::from_ref(&OPS).cast_mut(),
            api_version: attr.api_version,
        };
        let new = Fabric::new(head, settings)?;
        object::hand_out(Arc::new(new), fabric);
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric's promise.
    errno::status(|| unsafe { object::take_back::<Fabric>(fid) }.map(drop))
}

unsafe extern "C" fn trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let fabric = unsafe { object::given::<Fabric>(fabric) }?;
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        place(fids)?;
        // Signals are forgotten before the worker is driven: what it delivers from now on sets them again.
        let look = || -> Outcome<bool> {
            let mut any = false;
            for at in 0..count {
                // SAFETY: libfabric's promise: an array of live fids.
                any |= unsafe { has_something(*fids.add(at)) }?;
            }
            Ok(any)
        };
        if look()? || !fabric.engine().arm()? {
            return Err(Errno::AGAIN);
        }
        match look()? {
            true => Err(Errno::AGAIN),
            false => Ok(()),
        }
    })
}

/// # Safety
/// `fid` is a live fid.
unsafe fn has_something(fid: *mut fid) -> Outcome<bool> {
    place(fid)?;
    // SAFETY: the caller's promise; the class tells the type.
    unsafe {
        match (*fid).fclass as u32 {
            FI_CLASS_CQ => Ok(object::given::<Cq>(fid.cast())?.has_something()),
            FI_CLASS_EQ => Ok(object::given::<Eq>(fid.cast())?.has_something()),
            FI_CLASS_CNTR => {
                object::given::<Counter>(fid.cast())?.forget_signals();
                Ok(false)
            }
            _ => Err(Errno::INVALID),
        }
    }
}
