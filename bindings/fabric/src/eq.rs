//! Implements event queues (`fi_eq(3)`): requests for connections, their results and their ends.

use crate::errno::{self, Cause, Errno, Outcome};
use crate::fabric::Fabric;
use crate::info::Info;
use crate::libfabric::*;
use crate::object::{self, Head, Object, fid_of, fid_ops, place};
use crate::wait::{self, Wait};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most events that a program writes and does not read.
const MOST_WRITTEN: usize = 4096;

/// `struct fi_eq_cm_entry`, without the data that follow it.
#[repr(C)]
struct CmEntry {
    fid: *mut fid,
    info: *mut fi_info,
}

/// An event.
pub(crate) enum Occurrence {
    /// Of a connection.
    Connection {
        event: u32,
        fid: usize,
        info: Option<Info>,
        data: Vec<u8>,
    },
    /// A connection was not made.
    Failed {
        fid: usize,
        context: usize,
        cause: Cause,
        data: Vec<u8>,
    },
    /// One that the program wrote.
    Written { event: u32, bytes: Vec<u8> },
}

#[repr(C)]
pub(crate) struct Eq {
    head: Head<fid_eq>,
    pub(crate) fabric: Arc<Fabric>,
    wait: Option<Wait>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Occurrence>,
    /// The data of the failure read last, to which the program has a pointer.
    data: Vec<u8>,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for Eq {
    type Fid = fid_eq;
    const CLASS: u32 = FI_CLASS_EQ;

    fn head(&self) -> &Head<fid_eq> {
        &self.head
    }
}

static FID_OPS: fi_ops = fid_ops(close, object::no_bind, control);
static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};

impl Eq {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: Occurrence) {
        self.queue().events.push_back(event);
        if let Some(wait) = &self.wait {
            wait.signal();
        }
    }

    /// Removes the events of an object that is closed.
    pub(crate) fn forget(&self, of: *mut fid) {
        self.queue().events.retain(|it| match it {
            Occurrence::Connection { fid, .. } | Occurrence::Failed { fid, .. } => {
                *fid != of as usize
            }
            Occurrence::Written { .. } => true,
        });
    }

    pub(crate) fn has_something(&self) -> bool {
        if let Some(wait) = &self.wait {
            wait.forget();
        }
        !self.queue().events.is_empty()
    }

    /// Takes the first event. None: there is none.
    ///
    /// # Safety
    /// `event` has room for a number, `into` for `length` bytes.
    unsafe fn take(
        &self,
        event: *mut u32,
        into: *mut c_void,
        length: usize,
        flags: u64,
    ) -> Option<Outcome<usize>> {
        let mut queue = self.queue();
        let first = queue.events.front_mut()?;
        let needed = match first {
            Occurrence::Failed { .. } => return Some(Err(Errno::AVAIL)),
            Occurrence::Connection { data, .. } => size_of::<CmEntry>() + data.len(),
            Occurrence::Written { bytes, .. } => bytes.len(),
        };
        if needed > length {
            return Some(Err(Errno::TOO_SMALL));
        }
        let stays = flags & u64::from(FI_PEEK) != 0;
        // SAFETY: the caller's promise; `needed` bytes are written.
        unsafe {
            match first {
                Occurrence::Connection {
                    event: kind,
                    fid,
                    info,
                    data,
                } => {
                    let info = match stays {
                        true => None,
                        false => info.take(),
                    };
                    let entry = CmEntry {
                        fid: *fid as *mut fid,
                        info: info.map_or(std::ptr::null_mut(), Info::into_raw),
                    };
                    event.write(*kind);
                    into.cast::<CmEntry>().write_unaligned(entry);
                    into.cast::<u8>()
                        .add(size_of::<CmEntry>())
                        .copy_from_nonoverlapping(data.as_ptr(), data.len());
                }
                Occurrence::Written { event: kind, bytes } => {
                    event.write(*kind);
                    into.cast::<u8>()
                        .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
                Occurrence::Failed { .. } => {}
            }
        }
        if !stays {
            queue.events.pop_front();
        }
        Some(Ok(needed))
    }
}

pub(crate) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (fabric, attr) = unsafe { (object::shared::<Fabric>(fabric)?, attr.as_ref()) };
        let eq = place(eq)?;
        let wait = Wait::of(attr.map_or(FI_WAIT_NONE, |it| it.wait_obj), fabric.engine())?;
        let new = Eq {
            head: Head::new(fid_eq {
                fid: fid_of::<Eq>(context, &FID_OPS),
                ops: std::ptr::from_ref(&OPS).cast_mut(),
            }),
            fabric,
            wait,
            queue: Mutex::default(),
        };
        object::hand_out(Arc::new(new), eq);
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric's promise.
    errno::status(|| unsafe { object::take_back::<Eq>(fid) }.map(drop))
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let eq = unsafe { object::given::<Eq>(fid.cast()) }?;
        match (command as u32, &eq.wait) {
            // SAFETY: the argument of this command is a place for a descriptor.
            (FI_GETWAIT, Some(wait)) => unsafe { wait.tell(argument) },
            _ => Err(Errno::NO_SYSTEM),
        }
    })
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    into: *mut c_void,
    length: usize,
    flags: u64,
) -> isize {
    errno::size(|| {
        place(event)?;
        place(into)?;
        // SAFETY: libfabric's promise.
        unsafe {
            let eq = object::given::<Eq>(eq)?;
            if let Some(taken) = eq.take(event, into, length, flags) {
                return taken;
            }
            eq.fabric.engine().enter()?.advance()?;
            eq.take(event, into, length, flags)
                .unwrap_or(Err(Errno::AGAIN))
        }
    })
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    into: *mut c_void,
    length: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    errno::size(|| {
        place(event)?;
        place(into)?;
        // SAFETY: libfabric's promise.
        let eq = unsafe { object::given::<Eq>(eq) }?;
        let wait = eq.wait.as_ref().ok_or(Errno::NO_SYSTEM)?;
        // SAFETY: libfabric's promise.
        let ready = || unsafe { eq.take(event, into, length, flags) };
        let got = wait::until(eq.fabric.engine(), wait, wait::limit(timeout), ready)?;
        got.unwrap_or(Err(Errno::AGAIN))
    })
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, into: *mut fi_eq_err_entry, flags: u64) -> isize {
    errno::size(|| {
        let into = place(into)?;
        // SAFETY: libfabric's promise.
        let eq = unsafe { object::given::<Eq>(eq) }?;
        let mut queue = eq.queue();
        let Some(Occurrence::Failed {
            fid,
            context,
            cause,
            data,
        }) = queue.events.front()
        else {
            return Err(Errno::AGAIN);
        };
        let (fid, context, cause, data) = (*fid, *context, *cause, data.clone());
        if flags & u64::from(FI_PEEK) == 0 {
            queue.events.pop_front();
        }
        queue.data = data;
        // SAFETY: libfabric's promise. A program that gives a buffer for the data gets them there; another a pointer
        // that is valid until the next call.
        unsafe {
            (*into).fid = fid as *mut crate::libfabric::fid;
            (*into).context = context as *mut c_void;
            (*into).data = 0;
            (*into).err = cause.err.0 as c_int;
            (*into).prov_errno = cause.detail;
            let data = &queue.data;
            if !(*into).err_data.is_null() && (*into).err_data_size > 0 {
                let count = data.len().min((*into).err_data_size);
                (*into)
                    .err_data
                    .cast::<u8>()
                    .copy_from_nonoverlapping(data.as_ptr(), count);
                (*into).err_data_size = count;
            } else {
                (*into).err_data = data.as_ptr().cast_mut().cast();
                (*into).err_data_size = data.len();
            }
        }
        Ok(size_of::<fi_eq_err_entry>())
    })
}

unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    from: *const c_void,
    length: usize,
    _: u64,
) -> isize {
    errno::size(|| {
        // SAFETY: libfabric's promise.
        let eq = unsafe { object::given::<Eq>(eq) }?;
        if from.is_null() && length > 0 {
            return Err(Errno::INVALID);
        }
        if eq.queue().events.len() >= MOST_WRITTEN {
            return Err(Errno::AGAIN);
        }
        let bytes = match length {
            0 => Vec::new(),
            // SAFETY: libfabric's promise: so many bytes.
            _ => unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) }.to_vec(),
        };
        eq.push(Occurrence::Written { event, bytes });
        Ok(length)
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    detail: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    // SAFETY: libfabric's promise.
    unsafe { errno::explain(detail, buffer, length) }
}
