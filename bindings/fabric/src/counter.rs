//! Implements counters of completed operations (`fi_cntr(3)`).

use crate::domain::Domain;
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::object::{self, Head, Object, fid_of, fid_ops, place};
use crate::wait::{self, Wait};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C)]
pub(crate) struct Counter {
    head: Head<fid_cntr>,
    domain: Arc<Domain>,
    done: AtomicU64,
    failed: AtomicU64,
    wait: Option<Wait>,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for Counter {
    type Fid = fid_cntr;
    const CLASS: u32 = FI_CLASS_CNTR;

    fn head(&self) -> &Head<fid_cntr> {
        &self.head
    }
}

static FID_OPS: fi_ops = fid_ops(close, object::no_bind, control);
static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
};

impl Counter {
    fn change(&self, change: impl FnOnce(&Counter)) {
        change(self);
        if let Some(wait) = &self.wait {
            wait.signal();
        }
    }

    /// Counts an operation.
    pub(crate) fn count(&self, succeeded: bool) {
        self.change(|it| {
            let of = if succeeded { &it.done } else { &it.failed };
            of.fetch_add(1, Ordering::AcqRel);
        });
    }

    /// Forgets earlier signals.
    pub(crate) fn forget_signals(&self) {
        if let Some(wait) = &self.wait {
            wait.forget();
        }
    }
}

pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (domain, attr) = unsafe { (object::shared::<Domain>(domain)?, attr.as_ref()) };
        let cntr = place(cntr)?;
        if attr.is_some_and(|it| it.events != FI_CNTR_EVENTS_COMP) {
            return Err(Errno::NO_SYSTEM);
        }
        // fi_cntr_wait works whatever the wait object, as the man page says of FI_WAIT_UNSPEC.
        let wanted = attr.map_or(FI_WAIT_UNSPEC, |it| it.wait_obj);
        let wait = Wait::of(wanted, domain.engine())?;
        let new = Counter {
            head: Head::new(fid_cntr {
                fid: fid_of::<Counter>(context, &FID_OPS),
                ops: std::ptr::from_ref(&OPS).cast_mut(),
            }),
            domain,
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            wait,
        };
        object::hand_out(Arc::new(new), cntr);
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric's promise.
    errno::status(|| unsafe { object::take_back::<Counter>(fid) }.map(drop))
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let counter = unsafe { object::given::<Counter>(fid.cast()) }?;
        match (command as u32, &counter.wait) {
            // SAFETY: the argument of this command is a place for a descriptor.
            (FI_GETWAIT, Some(wait)) => unsafe { wait.tell(argument) },
            _ => Err(Errno::NO_SYSTEM),
        }
    })
}

/// A value, after progress. 0 for a fid that is none.
fn value(cntr: *mut fid_cntr, of: impl FnOnce(&Counter) -> &AtomicU64) -> u64 {
    let mut value = 0;
    let _ = errno::status(|| {
        // SAFETY: libfabric's promise.
        let counter = unsafe { object::given::<Counter>(cntr) }?;
        let _ = counter.domain.engine().enter()?.advance();
        value = of(counter).load(Ordering::Acquire);
        Ok(())
    });
    value
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    value(cntr, |it| &it.done)
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    value(cntr, |it| &it.failed)
}

fn change(cntr: *mut fid_cntr, change: impl FnOnce(&Counter)) -> c_int {
    // SAFETY: libfabric's promise.
    errno::status(|| unsafe { object::given::<Counter>(cntr) }.map(|it| it.change(change)))
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    change(cntr, |it| {
        it.done.fetch_add(value, Ordering::AcqRel);
    })
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    change(cntr, |it| it.done.store(value, Ordering::Release))
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    change(cntr, |it| {
        it.failed.fetch_add(value, Ordering::AcqRel);
    })
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    change(cntr, |it| it.failed.store(value, Ordering::Release))
}

unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let it = unsafe { object::given::<Counter>(cntr) }?;
        let wait = it.wait.as_ref().ok_or(Errno::NO_SYSTEM)?;
        let failed = it.failed.load(Ordering::Acquire);
        let ready = || -> Option<Outcome> {
            if it.done.load(Ordering::Acquire) >= threshold {
                return Some(Ok(()));
            }
            let now = it.failed.load(Ordering::Acquire);
            (now != failed).then_some(Err(Errno::AVAIL))
        };
        let got = wait::until(it.domain.engine(), wait, wait::limit(timeout), ready)?;
        got.unwrap_or(Err(Errno(FI_ETIMEDOUT)))
    })
}
