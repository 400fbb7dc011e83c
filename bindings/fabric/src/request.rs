//! Keeps a request for a connection until the program decides.

use crate::libfabric::*;
use crate::object::{self, Head, Object, absent, fid_of, fid_ops};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use zerolane::worker::ConnectionId;

static FID_OPS: fi_ops = fid_ops(no_close, object::no_bind, object::no_control);

absent! {
    no_close(*mut fid) -> c_int;
}

/// A request for a connection: the handle in the info of FI_CONNREQ.
#[repr(C)]
pub(crate) struct Request {
    head: Head<fid>,
    pub(crate) connection: ConnectionId,
    pub(crate) from: Option<SocketAddr>,
    /// The client gave up.
    over: AtomicBool,
}

// SAFETY: repr(C), with the head first, which is a `fid` itself.
unsafe impl Object for Request {
    type Fid = fid;
    const CLASS: u32 = FI_CLASS_CONNREQ;

    fn head(&self) -> &Head<fid> {
        &self.head
    }
}

impl Request {
    pub(crate) fn new(connection: ConnectionId, from: Option<SocketAddr>) -> Request {
        Request {
            head: Head::new(fid_of::<Request>(std::ptr::null_mut(), &FID_OPS)),
            connection,
            from,
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn give_up(&self) {
        self.over.store(true, Ordering::Release);
    }
}
