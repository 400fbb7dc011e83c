//! Registers memory: peers access a region by a key of 8 bytes.
//!
//! A region is exported to all present and later connections of the fabric under a number. The key is the number and the
//! offset of the program's memory in the region: the library exports memory from a multiple of 8 on, so a region begins
//! up to 7 bytes before the program's memory, and ends as many behind it. Registration touches and pins nothing.

use crate::domain::Domain;
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::object::{self, Head, Object, fid_of, fid_ops, place};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use zerolane::{ExportedRegion, Region, RegionKey, RegionNumber, Rights};

#[repr(C)]
pub(crate) struct MemoryRegion {
    head: Head<fid_mr>,
    domain: Arc<Domain>,
    /// None for memory that peers do not access.
    exported: Option<(u32, ExportedRegion)>,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for MemoryRegion {
    type Fid = fid_mr;
    const CLASS: u32 = FI_CLASS_MR;

    fn head(&self) -> &Head<fid_mr> {
        &self.head
    }
}

static FID_OPS: fi_ops = fid_ops(close, object::no_bind, object::no_control);
pub(crate) static OPS: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: Some(reg),
    regv: Some(regv),
    regattr: Some(regattr),
};

/// A registration to be made.
struct Wanted {
    start: usize,
    length: usize,
    access: u64,
    context: *mut c_void,
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let Some((number, exported)) = self.exported.take() else {
            return;
        };
        // The exports of a parent are the parent's.
        let Ok(mut state) = self.domain.engine().enter() else {
            return;
        };
        if let Some(at) = RegionNumber::new(number) {
            // On return no packet writes to the memory any more.
            state.worker.revoke_number(at);
            state.numbers.give_back(number);
        }
        drop(exported.revoke());
    }
}

/// Rights for the accesses that a program permits. Atomic operations need both: each returns what was there.
fn rights(access: u64) -> Rights {
    let permits = |flag: u32| access & u64::from(flag) != 0;
    match (permits(FI_REMOTE_READ), permits(FI_REMOTE_WRITE)) {
        (true, true) => Rights::ALL,
        (true, false) => Rights::READ,
        (false, true) => Rights::WRITE,
        (false, false) => Rights::NONE,
    }
}

/// # Safety
/// `domain` is live; the memory stays mapped until the registration is closed.
unsafe fn register(domain: *mut fid, wanted: &Wanted, mr: *mut *mut fid_mr) -> Outcome {
    // SAFETY: the caller's promise.
    let domain = unsafe { object::shared::<Domain>(domain.cast()) }?;
    let mr = place(mr)?;
    let known = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if wanted.access & !u64::from(known) != 0 {
        return Err(Errno::INVALID);
    }
    let rights = rights(wanted.access);
    let mut key = u64::MAX;
    let mut exported = None;
    if rights != Rights::NONE {
        let skip = wanted.start % 8;
        let end = wanted.start.checked_add(wanted.length);
        let end = end.and_then(|it| it.checked_next_multiple_of(8));
        let end = end.ok_or(Errno::INVALID)?;
        let start = wanted.start - skip;
        let at = NonNull::new(start as *mut u8).ok_or(Errno::INVALID)?;
        // SAFETY: the caller's promise: mapped until the region is revoked, which closing the registration does first;
        // the aligned bytes around it are of the same page. Peers and the program write at any moment, by libfabric's
        // rules, and an exported region is never dereferenced.
        let region = unsafe { Region::foreign(at, end - start, false, Box::new(())) };
        let region = ExportedRegion::new(region).map_err(|_| Errno::INVALID)?;
        let mut state = domain.engine().enter()?;
        let number = state.numbers.take().ok_or(Errno(FI_ENOSPC))?;
        let at = RegionNumber::new(number).ok_or(Errno::OTHER)?;
        if let Err(error) = state.worker.export_numbered(at, &region, rights) {
            state.numbers.give_back(number);
            return Err(error.into());
        }
        key = RegionKey::numbered(at, skip as u64)
            .to_u64()
            .ok_or(Errno::OTHER)?;
        exported = Some((number, region));
    }
    let new = MemoryRegion {
        head: Head::new(fid_mr {
            fid: fid_of::<MemoryRegion>(wanted.context, &FID_OPS),
            // Operations of this end need no description of their memory.
            mem_desc: std::ptr::null_mut(),
            key,
        }),
        domain,
        exported,
    };
    object::hand_out(Arc::new(new), mr);
    Ok(())
}

unsafe extern "C" fn reg(
    domain: *mut fid,
    start: *const c_void,
    length: usize,
    access: u64,
    _offset: u64,
    _requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        check_flags(flags)?;
        let wanted = Wanted {
            start: start as usize,
            length,
            access,
            context,
        };
        // SAFETY: libfabric's promise.
        unsafe { register(domain, &wanted, mr) }
    })
}

unsafe extern "C" fn regv(
    domain: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    _offset: u64,
    _requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        check_flags(flags)?;
        // SAFETY: libfabric's promise.
        unsafe { register(domain, &one(iov, count, access, context)?, mr) }
    })
}

unsafe extern "C" fn regattr(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    errno::status(|| {
        check_flags(flags)?;
        // SAFETY: libfabric's promise.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::INVALID)?;
        if attr.iface != FI_HMEM_SYSTEM || attr.auth_key_size > 0 {
            return Err(Errno::NO_SYSTEM);
        }
        // SAFETY: libfabric's promise.
        unsafe {
            let wanted = one(attr.mr_iov, attr.iov_count, attr.access, attr.context)?;
            register(domain, &wanted, mr)
        }
    })
}

fn check_flags(flags: u64) -> Outcome {
    match flags {
        0 => Ok(()),
        _ => Err(Errno(FI_EBADFLAGS)),
    }
}

/// A registration has one piece (`mr_iov_limit`).
///
/// # Safety
/// `iov` is null or has `count` pieces.
unsafe fn one(
    iov: *const iovec,
    count: usize,
    access: u64,
    context: *mut c_void,
) -> Outcome<Wanted> {
    if iov.is_null() || count != 1 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let iov = unsafe { iov.read() };
    Ok(Wanted {
        start: iov.iov_base as usize,
        length: iov.iov_len,
        access,
        context,
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric's promise.
    errno::status(|| unsafe { object::take_back::<MemoryRegion>(fid) }.map(drop))
}
