//! Implements completion queues (`fi_cq(3)`).

use crate::completions::{self, Completed, Entry, Format};
use crate::domain::Domain;
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::object::{self, Head, Object, fid_of, fid_ops, place};
use crate::wait::{self, Wait};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries of a queue whose program names no size.
const SIZE: usize = 1 << 16;

#[repr(C)]
pub(crate) struct Cq {
    head: Head<fid_cq>,
    pub(crate) domain: Arc<Domain>,
    format: Format,
    /// Numbers of peers wait beyond it. Completions of the program's own operations do not: it posted them.
    size: usize,
    wait: Option<Wait>,
    queue: Mutex<VecDeque<Completed>>,
    /// fi_cq_signal was called.
    interrupted: AtomicBool,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for Cq {
    type Fid = fid_cq;
    const CLASS: u32 = FI_CLASS_CQ;

    fn head(&self) -> &Head<fid_cq> {
        &self.head
    }
}

static FID_OPS: fi_ops = fid_ops(close, object::no_bind, control);
static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

impl Cq {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Completed>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, completed: Completed) {
        self.queue().push_back(completed);
        self.wake();
    }

    /// Adds what a peer caused, if there is room.
    pub(crate) fn push_of_peer(&self, entry: Entry) -> bool {
        {
            let mut queue = self.queue();
            if queue.len() >= self.size {
                return false;
            }
            queue.push_back(Completed::Done(entry));
        }
        self.wake();
        true
    }

    fn wake(&self) {
        if let Some(wait) = &self.wait {
            wait.signal();
        }
    }

    /// Whether a program that wants to sleep has something to read. Forgets earlier signals.
    pub(crate) fn has_something(&self) -> bool {
        if let Some(wait) = &self.wait {
            wait.forget();
        }
        !self.queue().is_empty()
    }

    /// Takes completions up to the first failure. None: the queue is empty.
    ///
    /// # Safety
    /// `into` has room for `count` entries of the queue's format.
    unsafe fn take(&self, into: *mut c_void, count: usize) -> Option<Outcome<usize>> {
        let mut queue = self.queue();
        let mut taken = 0;
        while taken < count {
            match queue.front() {
                Some(Completed::Done(entry)) => {
                    // SAFETY: fewer than `count` so far.
                    unsafe { self.format.write(into, taken, entry) };
                    queue.pop_front();
                    taken += 1;
                }
                Some(Completed::Failed { .. }) if taken == 0 => return Some(Err(Errno::AVAIL)),
                _ => break,
            }
        }
        (taken > 0).then_some(Ok(taken))
    }

    /// # Safety
    /// As for [`Cq::take`].
    unsafe fn read(&self, into: *mut c_void, count: usize) -> Outcome<usize> {
        if count == 0 {
            // Progress alone.
            self.domain.engine().enter()?.advance()?;
            return Ok(0);
        }
        place(into)?;
        // SAFETY: the caller's promise, both times.
        unsafe {
            if let Some(taken) = self.take(into, count) {
                return taken;
            }
            self.domain.engine().enter()?.advance()?;
            self.take(into, count).unwrap_or(Err(Errno::AGAIN))
        }
    }
}

/// # Safety
/// libfabric's calls pass live fids, and places for results.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (domain, attr) = unsafe { (object::shared::<Domain>(domain)?, attr.as_ref()) };
        let cq = place(cq)?;
        let wanted = attr.map_or(FI_CQ_FORMAT_UNSPEC, |it| it.format);
        let format = Format::of(wanted).ok_or(Errno::NO_SYSTEM)?;
        let wait = Wait::of(attr.map_or(FI_WAIT_NONE, |it| it.wait_obj), domain.engine())?;
        let size = attr.map(|it| it.size).filter(|it| *it > 0);
        let new = Cq {
            head: Head::new(fid_cq {
                fid: fid_of::<Cq>(context, &FID_OPS),
                ops: std::ptr::from_ref(&OPS).cast_mut(),
            }),
            domain,
            format,
            size: size.unwrap_or(SIZE),
            wait,
            queue: Mutex::default(),
            interrupted: AtomicBool::new(false),
        };
        object::hand_out(Arc::new(new), cq);
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric's promise.
    errno::status(|| unsafe { object::take_back::<Cq>(fid) }.map(drop))
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let cq = unsafe { object::given::<Cq>(fid.cast()) }?;
        match (command as u32, &cq.wait) {
            // SAFETY: the argument of this command is a place for a descriptor.
            (FI_GETWAIT, Some(wait)) => unsafe { wait.tell(argument) },
            (FI_GETWAITOBJ, wait) => {
                let into = place(argument.cast::<fi_wait_obj>())?;
                let kind = wait.as_ref().map_or(FI_WAIT_NONE, |_| FI_WAIT_FD);
                // SAFETY: the argument of this command is a place for it.
                unsafe { into.write(kind) };
                Ok(())
            }
            _ => Err(Errno::NO_SYSTEM),
        }
    })
}

unsafe extern "C" fn read(cq: *mut fid_cq, into: *mut c_void, count: usize) -> isize {
    // SAFETY: libfabric's promise.
    errno::size(|| unsafe { object::given::<Cq>(cq)?.read(into, count) })
}

/// Messages of a connection have no source address.
unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    into: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
) -> isize {
    errno::size(|| {
        // SAFETY: libfabric's promise.
        let taken = unsafe { object::given::<Cq>(cq)?.read(into, count) }?;
        unknown(from, taken);
        Ok(taken)
    })
}

/// `FI_ADDR_NOTAVAIL` for each.
fn unknown(from: *mut fi_addr_t, count: usize) {
    if !from.is_null() {
        for at in 0..count {
            // SAFETY: the program's array has room for as many addresses as entries.
            unsafe { from.add(at).write(fi_addr_t::MAX) };
        }
    }
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, into: *mut fi_cq_err_entry, _: u64) -> isize {
    errno::size(|| {
        let into = place(into)?;
        // SAFETY: libfabric's promise.
        let cq = unsafe { object::given::<Cq>(cq) }?;
        let mut queue = cq.queue();
        let Some(&Completed::Failed { entry, cause }) = queue.front() else {
            return Err(Errno::AGAIN);
        };
        queue.pop_front();
        // SAFETY: libfabric's promise.
        unsafe { completions::write_failure(into, &entry, cause) };
        Ok(1)
    })
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    into: *mut c_void,
    count: usize,
    _: *const c_void,
    timeout: c_int,
) -> isize {
    errno::size(|| {
        // SAFETY: libfabric's promise.
        let cq = unsafe { object::given::<Cq>(cq) }?;
        let wait = cq.wait.as_ref().ok_or(Errno::NO_SYSTEM)?;
        place(into)?;
        let ready = || match cq.interrupted.swap(false, Ordering::AcqRel) {
            true => Some(Err(Errno::AGAIN)),
            // SAFETY: libfabric's promise.
            false => unsafe { cq.take(into, count.max(1)) },
        };
        let got = wait::until(cq.domain.engine(), wait, wait::limit(timeout), ready)?;
        got.unwrap_or(Err(Errno::AGAIN))
    })
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    into: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the same promise.
    let taken = unsafe { sread(cq, into, count, cond, timeout) };
    unknown(from, usize::try_from(taken).unwrap_or(0));
    taken
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let cq = unsafe { object::given::<Cq>(cq) }?;
        cq.interrupted.store(true, Ordering::Release);
        cq.wake();
        Ok(())
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    detail: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    // SAFETY: libfabric's promise.
    unsafe { errno::explain(detail, buffer, length) }
}
