//! Implements the functions of shared receive contexts (`fi_srx_context`).

use super::messages;
use crate::domain::Domain;
use crate::errno;
use crate::libfabric::*;
use crate::object::{self, absent, fid_of, fid_ops, place};
use crate::operations::Number;
use crate::shared_receives::SharedReceives;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID_OPS: fi_ops = fid_ops(close, object::no_bind, object::no_control);
static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(no_getopt),
    setopt: Some(no_setopt),
    tx_ctx: Some(no_tx_ctx),
    rx_ctx: Some(no_rx_ctx),
    rx_size_left: Some(no_size_left),
    tx_size_left: Some(no_size_left),
};

absent! {
    no_getopt(fid_t, c_int, c_int, *mut c_void, *mut usize) -> c_int;
    no_setopt(fid_t, c_int, c_int, *const c_void, usize) -> c_int;
    no_tx_ctx(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_rx_ctx(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_size_left(*mut fid_ep) -> isize;
}

pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    _: *mut fi_rx_attr,
    srx: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let domain = unsafe { object::shared::<Domain>(domain) }?;
        let srx = place(srx)?;
        let head = fid_ep {
            fid: fid_of::<SharedReceives>(context, &FID_OPS),
            ops: std::ptr::from_ref(&OPS).cast_mut(),
            cm: std::ptr::null_mut(),
            msg: std::ptr::from_ref(&messages::OPS).cast_mut(),
            rma: std::ptr::null_mut(),
            tagged: std::ptr::null_mut(),
            atomic: std::ptr::null_mut(),
            collective: std::ptr::null_mut(),
        };
        object::hand_out(Arc::new(SharedReceives::new(head, domain)), srx);
        Ok(())
    })
}

unsafe extern "C" fn cancel(fid: fid_t, context: *mut c_void) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe {
        object::given::<SharedReceives>(fid.cast())?.cancel(context as usize)
    })
}

/// The program's memory is its own again on return.
unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let shared = unsafe { object::take_back::<SharedReceives>(fid) }?;
        let mut state = shared.domain.engine().enter()?;
        shared.pool().close();
        while let Some((_, own)) = shared.pool().remove() {
            state.operations.remove(Number::of_context(own).0);
        }
        drop(state);
        drop(shared);
        Ok(())
    })
}
