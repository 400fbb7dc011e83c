//! Implements the functions of domains (`fi_domain(3)`).

use super::{atomic, endpoint, shared_receives};
use crate::domain::Domain;
use crate::errno;
use crate::fabric::Fabric;
use crate::libfabric::*;
use crate::object::{self, absent, fid_of, fid_ops, place};
use crate::{counter, cq, memory};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID_OPS: fi_ops = fid_ops(close, object::no_bind, object::no_control);
static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(no_av),
    cq_open: Some(cq::open),
    endpoint: Some(endpoint::open),
    scalable_ep: Some(no_scalable),
    cntr_open: Some(counter::open),
    poll_open: Some(no_poll),
    stx_ctx: Some(no_stx),
    srx_ctx: Some(shared_receives::open),
    query_atomic: Some(atomic::query),
    query_collective: Some(no_collective),
    endpoint2: Some(endpoint::open_with_flags),
};

absent! {
    no_av(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int;
    no_scalable(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_poll(*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll) -> c_int;
    no_stx(*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int;
    no_collective(*mut fid_domain, fi_collective_op, *mut fi_collective_attr, u64) -> c_int;
}

pub(crate) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let fabric = unsafe { object::shared::<Fabric>(fabric) }?;
        let domain = place(domain)?;
        place(info)?;
        let head = fid_domain {
            fid: fid_of::<Domain>(context, &FID_OPS),
            ops: std::ptr::from_ref(&OPS).cast_mut(),
            mr: std::ptr::from_ref(&memory::OPS).cast_mut(),
        };
        object::hand_out(Arc::new(Domain::new(head, fabric)), domain);
        Ok(())
    })
}

/// There are no flags: a domain of a peer's provider is not supported.
pub(crate) unsafe extern "C" fn open_with_flags(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    match flags {
        // SAFETY: the same promise.
        0 => unsafe { open(fabric, info, domain, context) },
        _ => -(FI_EBADFLAGS as c_int),
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric's promise.
    errno::status(|| unsafe { object::take_back::<Domain>(fid) }.map(drop))
}
