//! Posts reads and writes of peers' memory (`fi_rma(3)`).

use crate::attributes::INJECT;
use crate::endpoint::Endpoint;
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::object;
use crate::operations::{Kind, SILENT};
use crate::pieces::{copied, memory, piece, pieces, region, total};
use std::ffi::c_void;
use zerolane::request::{Get, GetPieces, MAX_INLINE, Put, PutInline};
use zerolane::{Region, RegionKey};

pub(crate) static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};

/// An operation of any kind.
struct Transfer<'a> {
    pieces: &'a [iovec],
    /// The offset in the peer's region.
    offset: u64,
    key: u64,
    data: Option<u64>,
    context: *mut c_void,
    /// Of the call; none: those of the endpoint.
    flags: Option<u64>,
    silent: bool,
}

const READ_FLAGS: u64 = FI_COMPLETION as u64
    | FI_FENCE as u64
    | FI_MORE as u64
    | FI_TRANSMIT_COMPLETE as u64
    | FI_DELIVERY_COMPLETE as u64;
const WRITE_FLAGS: u64 =
    READ_FLAGS | FI_INJECT as u64 | FI_INJECT_COMPLETE as u64 | FI_REMOTE_CQ_DATA as u64;
/// Flags that an endpoint may have by default, for sends.
const OF_SENDS: u64 = FI_INJECT as u64 | FI_INJECT_COMPLETE as u64 | FI_MATCH_COMPLETE as u64;

/// # Safety
/// `ep` is live.
unsafe fn get(ep: *mut fid_ep, it: &Transfer<'_>) -> Outcome {
    // SAFETY: the caller's promise.
    let endpoint = unsafe { object::shared::<Endpoint>(ep) }?;
    let flags = it.flags.unwrap_or(endpoint.tx_flags & !OF_SENDS);
    if flags & !READ_FLAGS != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    total(it.pieces)?;
    let fence = flags & u64::from(FI_FENCE) != 0;
    let key = RegionKey::from_u64(it.key);
    let operation = endpoint.operation(Kind::Read, it.context, flags);
    let mut state = endpoint.domain.engine().enter()?;
    match it.pieces {
        [one] => endpoint.post(&mut state, operation, |context| {
            let get = Get::new(&key, it.offset, region(one));
            get.fence(fence).context(context)
        }),
        several => {
            let mut offset = it.offset;
            let mut pieces = Vec::with_capacity(several.len());
            for one in several.iter().filter(|it| it.iov_len > 0) {
                pieces.push((offset, region(one)));
                offset = offset
                    .checked_add(one.iov_len as u64)
                    .ok_or(Errno::INVALID)?;
            }
            if pieces.is_empty() {
                pieces.push((offset, Region::empty()));
            }
            endpoint.post(&mut state, operation, |context| {
                GetPieces::new(&key, pieces).fence(fence).context(context)
            })
        }
    }
}

/// # Safety
/// `ep` is live, and the pieces are readable.
unsafe fn put(ep: *mut fid_ep, it: &Transfer<'_>) -> Outcome {
    // SAFETY: the caller's promise.
    let endpoint = unsafe { object::shared::<Endpoint>(ep) }?;
    let default = endpoint.tx_flags & !u64::from(FI_MATCH_COMPLETE);
    let flags = it.flags.unwrap_or(default);
    if flags & !WRITE_FLAGS != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    let total = total(it.pieces)?;
    let copies = it.silent || flags & u64::from(FI_INJECT) != 0;
    if copies && total > INJECT {
        return Err(Errno(FI_EMSGSIZE));
    }
    let fence = flags & u64::from(FI_FENCE) != 0;
    let key = RegionKey::from_u64(it.key);
    let immediate = it.data.map(|it| it as u32);
    let operation = endpoint.operation(Kind::Write, it.context, flags);
    let mut state = endpoint.domain.engine().enter()?;
    if total == 0 || (copies && total <= MAX_INLINE) {
        // SAFETY: the caller's promise.
        let bytes = unsafe { copied(it.pieces, total) };
        let put = PutInline::new(&key, it.offset, bytes);
        let put = put.fence(fence).immediate(immediate);
        return match it.silent {
            true => endpoint.post_silent(&mut state, put.signalled(false).context(SILENT)),
            false => endpoint.post(&mut state, operation, |context| put.context(context)),
        };
    }
    let memory = match copies {
        // SAFETY: the caller's promise.
        true => Region::from_vec(unsafe { copied(it.pieces, total) }).into(),
        false => memory(it.pieces),
    };
    let put = Put::new(&key, it.offset, memory);
    let put = put.fence(fence).immediate(immediate);
    match it.silent {
        true => endpoint.post_silent(&mut state, put.signalled(false).context(SILENT)),
        false => endpoint.post(&mut state, operation, |context| put.context(context)),
    }
}

/// The operation of a message: one remote piece, as long as the local ones together.
///
/// # Safety
/// `msg` is null or whole.
unsafe fn of_message<'a>(msg: *const fi_msg_rma, flags: u64) -> Outcome<Transfer<'a>> {
    // SAFETY: the caller's promise.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        let pieces = pieces(msg.msg_iov, msg.iov_count)?;
        if msg.rma_iov.is_null() || msg.rma_iov_count != 1 {
            return Err(Errno::INVALID);
        }
        let remote = msg.rma_iov.read();
        if remote.len != total(pieces)? {
            return Err(Errno::INVALID);
        }
        let with_data = flags & u64::from(FI_REMOTE_CQ_DATA) != 0;
        Ok(Transfer {
            pieces,
            offset: remote.addr,
            key: remote.key,
            data: with_data.then_some(msg.data),
            context: msg.context,
            flags: Some(flags),
            silent: false,
        })
    }
}

fn transfer(pieces: &[iovec], offset: u64, key: u64, context: *mut c_void) -> Transfer<'_> {
    Transfer {
        pieces,
        offset,
        key,
        data: None,
        context,
        flags: None,
        silent: false,
    }
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let pieces = [piece(buffer, length)];
        // SAFETY: libfabric's promise.
        unsafe { get(ep, &transfer(&pieces, offset, key, context)) }
    })
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe { get(ep, &transfer(pieces(iov, count)?, offset, key, context)) })
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe { get(ep, &of_message(msg, flags)?) })
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let pieces = [piece(buffer, length)];
        // SAFETY: libfabric's promise.
        unsafe { put(ep, &transfer(&pieces, offset, key, context)) }
    })
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe { put(ep, &transfer(pieces(iov, count)?, offset, key, context)) })
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe { put(ep, &of_message(msg, flags)?) })
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: fi_addr_t,
    offset: u64,
    key: u64,
) -> isize {
    errno::posted(|| {
        let pieces = [piece(buffer, length)];
        let put_it = Transfer {
            flags: Some(0),
            silent: true,
            ..transfer(&pieces, offset, key, std::ptr::null_mut())
        };
        // SAFETY: libfabric's promise.
        unsafe { put(ep, &put_it) }
    })
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let pieces = [piece(buffer, length)];
        let put_it = Transfer {
            data: Some(data),
            ..transfer(&pieces, offset, key, context)
        };
        // SAFETY: libfabric's promise.
        unsafe { put(ep, &put_it) }
    })
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    _: fi_addr_t,
    offset: u64,
    key: u64,
) -> isize {
    errno::posted(|| {
        let pieces = [piece(buffer, length)];
        let put_it = Transfer {
            data: Some(data),
            flags: Some(0),
            silent: true,
            ..transfer(&pieces, offset, key, std::ptr::null_mut())
        };
        // SAFETY: libfabric's promise.
        unsafe { put(ep, &put_it) }
    })
}
