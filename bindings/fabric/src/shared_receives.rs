//! Receives that several endpoints share (`fi_srx_context`).

use crate::domain::Domain;
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::messages;
use crate::object::{self, Head, Object, absent, fid_of, fid_ops, place};
use crate::operations::Number;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use zerolane::ReceivePool;

#[repr(C)]
pub(crate) struct SharedReceives {
    head: Head<fid_ep>,
    pub(crate) domain: Arc<Domain>,
    pool: ReceivePool,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for SharedReceives {
    type Fid = fid_ep;
    const CLASS: u32 = FI_CLASS_SRX_CTX;

    fn head(&self) -> &Head<fid_ep> {
        &self.head
    }
}

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

impl SharedReceives {
    pub(crate) fn pool(&self) -> &ReceivePool {
        &self.pool
    }

    /// Takes out the first receive with this context. A context has no queue, so nothing reports it: the memory is the
    /// program's again on return.
    ///
    /// # Errors
    /// There is none, or a message has it.
    pub(crate) fn cancel(&self, context: usize) -> Outcome {
        let mut state = self.domain.engine().enter();
        let mut found = None;
        // No message comes while the worker is locked. The pool gives its first piece alone, so all go round once.
        for _ in 0..self.pool.len() {
            let Some((memory, own)) = self.pool.remove() else {
                break;
            };
            let (number, _) = Number::of_context(own);
            let operation = state.operations.get(number);
            if found.is_none() && operation.is_some_and(|it| it.context == context) {
                found = Some(number);
                continue;
            }
            self.pool
                .add(memory, own)
                .map_err(|it| Errno::from(it.error))?;
        }
        let number = found.ok_or(Errno(FI_ENOENT))?;
        state.operations.remove(number);
        Ok(())
    }
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
        let new = SharedReceives {
            head: Head::new(fid_ep {
                fid: fid_of::<SharedReceives>(context, &FID_OPS),
                ops: std::ptr::from_ref(&OPS).cast_mut(),
                cm: std::ptr::null_mut(),
                msg: std::ptr::from_ref(&messages::OPS).cast_mut(),
                rma: std::ptr::null_mut(),
                tagged: std::ptr::null_mut(),
                atomic: std::ptr::null_mut(),
                collective: std::ptr::null_mut(),
            }),
            domain,
            pool: ReceivePool::new(),
        };
        object::hand_out(Arc::new(new), srx);
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
        let mut state = shared.domain.engine().enter();
        shared.pool.close();
        while let Some((_, own)) = shared.pool.remove() {
            state.operations.remove(Number::of_context(own).0);
        }
        drop(state);
        drop(shared);
        Ok(())
    })
}
