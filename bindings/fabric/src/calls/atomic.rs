//! Posts atomic operations on peers' memory (`fi_atomic(3)`): words of 32 and 64 bits.
//!
//! Each word is one request of the library; an operation of several words is not atomic as a whole, as libfabric says.

use crate::attributes::WORDS;
use crate::endpoint::Endpoint;
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::object::{self, place};
use crate::operations::{Kind, Place, SILENT};
use std::ffi::{c_int, c_void};
use zerolane::request::Fetch;
use zerolane::{FetchOp, RegionKey};

pub(crate) static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};

/// Requests in flight, besides those of one more operation, at which the program must wait.
const MOST_IN_FLIGHT: usize = 4000;

/// What an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Write,
    Fetch,
    Compare,
}

/// Bytes of a word of `datatype`.
fn width(datatype: fi_datatype) -> Option<usize> {
    match datatype {
        FI_INT32 | FI_UINT32 => Some(4),
        FI_INT64 | FI_UINT64 => Some(8),
        _ => None,
    }
}

/// Whether the library does `op` on words of `datatype`.
fn check(form: Form, datatype: fi_datatype, op: fi_op) -> Outcome<usize> {
    let unsigned = matches!(datatype, FI_UINT32 | FI_UINT64);
    let known = match op {
        FI_SUM | FI_BOR | FI_BAND | FI_BXOR | FI_ATOMIC_WRITE => form != Form::Compare,
        FI_MIN | FI_MAX => form != Form::Compare && unsigned,
        FI_ATOMIC_READ => form == Form::Fetch,
        FI_CSWAP => form == Form::Compare,
        _ => false,
    };
    let width = width(datatype).filter(|_| known);
    width.ok_or(Errno::UNSUPPORTED)
}

macro_rules! operation {
    ($word:ty, $op:expr, $operand:expr, $compare:expr) => {{
        let (operand, expected) = ($operand as $word, $compare as $word);
        match $op {
            FI_SUM => Some(FetchOp::<$word>::Add(operand)),
            FI_MIN => Some(FetchOp::Min(operand)),
            FI_MAX => Some(FetchOp::Max(operand)),
            FI_BOR => Some(FetchOp::Or(operand)),
            FI_BAND => Some(FetchOp::And(operand)),
            FI_BXOR => Some(FetchOp::Xor(operand)),
            FI_ATOMIC_READ => Some(FetchOp::Or(0)),
            FI_ATOMIC_WRITE => Some(FetchOp::Swap(operand)),
            FI_CSWAP => Some(FetchOp::CompareAndSwap {
                expected,
                new: operand,
            }),
            _ => None,
        }
    }};
}

/// An operation of any kind.
struct Atomic {
    form: Form,
    datatype: fi_datatype,
    op: fi_op,
    /// Start of each kind of words; 0 if there is none.
    operands: usize,
    compared: usize,
    results: usize,
    count: usize,
    offset: u64,
    key: u64,
    context: *mut c_void,
    flags: Option<u64>,
    silent: bool,
}

const FLAGS: u64 = FI_COMPLETION as u64
    | FI_FENCE as u64
    | FI_MORE as u64
    | FI_INJECT as u64
    | FI_INJECT_COMPLETE as u64
    | FI_TRANSMIT_COMPLETE as u64
    | FI_DELIVERY_COMPLETE as u64;

/// # Safety
/// `ep` is live, and the words that the operation needs are there.
unsafe fn start(ep: *mut fid_ep, it: &Atomic) -> Outcome {
    // SAFETY: the caller's promise.
    let endpoint = unsafe { object::shared::<Endpoint>(ep) }?;
    let default = endpoint.tx_flags & !u64::from(FI_MATCH_COMPLETE);
    let flags = it.flags.unwrap_or(default);
    if flags & !FLAGS != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    let width = check(it.form, it.datatype, it.op)?;
    let needs = |start: usize, needed: bool| needed && start == 0;
    if !(1..=WORDS).contains(&it.count)
        || needs(it.operands, it.op != FI_ATOMIC_READ)
        || needs(it.compared, it.form == Form::Compare)
        || needs(it.results, it.form != Form::Write)
    {
        return Err(Errno::INVALID);
    }
    let kind = match it.form {
        Form::Write => Kind::Write,
        Form::Fetch | Form::Compare => Kind::Read,
    };
    let mut operation = endpoint.operation(kind, it.context, flags);
    operation.flags = operation.flags & !u64::from(FI_RMA) | u64::from(FI_ATOMIC);
    operation.left = it.count;
    if it.form != Form::Write {
        let at = (0..it.count)
            .map(|index| it.results + index * width)
            .collect();
        operation.place = Place::Words { at, bytes: width };
    }
    let length = (it.count * width) as u64;
    it.offset.checked_add(length).ok_or(Errno::INVALID)?;
    let key = RegionKey::from_u64(it.key);
    let fence = flags & u64::from(FI_FENCE) != 0;
    let mut state = endpoint.domain.engine().enter()?;
    if endpoint.connection(&mut state)?.in_flight() > MOST_IN_FLIGHT {
        state.advance()?;
        return Err(Errno::AGAIN);
    }
    let number = state.operations.insert(operation);
    let mut posted = Vec::with_capacity(it.count);
    let mut failed = None;
    for index in 0..it.count {
        // SAFETY: the caller's promise.
        let [operand, compare] =
            [it.operands, it.compared].map(|start| unsafe { load(start, index, width) });
        let offset = it.offset + (index * width) as u64;
        // The tables of `check` and `operation!` are the same, so there is an operation.
        let fetch = match width {
            8 => operation!(u64, it.op, operand, compare).map(|op| Fetch::new(&key, offset, op)),
            _ => {
                operation!(u32, it.op, operand, compare).map(|op| Fetch::new_u32(&key, offset, op))
            }
        };
        let fetch = fetch.ok_or(Errno::UNSUPPORTED)?.fence(fence && index == 0);
        let context = match it.silent {
            true => SILENT,
            false => number.context(index),
        };
        let fetch = fetch.context(context).signalled(!it.silent);
        let connection = endpoint.connection(&mut state)?;
        match connection.post(fetch) {
            Ok(request) => posted.push(request),
            Err(refused) => {
                failed = Some(Errno::from(refused.error));
                break;
            }
        }
    }
    match (failed, posted.is_empty()) {
        // Nothing of it was posted: the caller is told.
        (Some(errno), true) => {
            state.operations.remove(number);
            return Err(errno);
        }
        // Some words were posted: their completion says that the others were not.
        (Some(errno), false) => {
            if let Some(operation) = state.operations.get(number) {
                operation.left = posted.len();
                operation.failure = Some(errno::Cause {
                    err: errno,
                    detail: 0,
                });
            }
        }
        (None, _) => {}
    }
    match it.silent {
        true => drop(state.operations.remove(number)),
        false => {
            if let Some(operation) = state.operations.get(number) {
                operation.requests = posted;
            }
        }
    }
    state.advance().map(drop)
}

/// The `index`-th word of an array; 0 without one.
///
/// # Safety
/// `start` is 0, or so many words are there.
unsafe fn load(start: usize, index: usize, width: usize) -> u64 {
    if start == 0 {
        return 0;
    }
    let at = (start + index * width) as *const u8;
    // SAFETY: the caller's promise.
    unsafe {
        match width {
            8 => at.cast::<u64>().read_unaligned(),
            _ => at.cast::<u32>().read_unaligned().into(),
        }
    }
}

/// The words of one array: `fi_atomic` calls with several are not supported (`iov_limit` of atomics).
///
/// # Safety
/// `iov` is null or has `count` arrays.
unsafe fn single(iov: *const fi_ioc, count: usize) -> Outcome<(usize, usize)> {
    if iov.is_null() || count != 1 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let it = unsafe { iov.read() };
    Ok((it.addr as usize, it.count))
}

/// # Safety
/// `msg` is null or whole.
unsafe fn of_message(msg: *const fi_msg_atomic, form: Form, flags: u64) -> Outcome<Atomic> {
    // SAFETY: the caller's promise.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        if msg.rma_iov.is_null() || msg.rma_iov_count != 1 {
            return Err(Errno::INVALID);
        }
        let remote = msg.rma_iov.read();
        let (operands, count) = match msg.iov_count {
            0 => (0, remote.count),
            several => single(msg.msg_iov, several)?,
        };
        if count != remote.count {
            return Err(Errno::INVALID);
        }
        Ok(Atomic {
            form,
            datatype: msg.datatype,
            op: msg.op,
            operands,
            compared: 0,
            results: 0,
            count,
            offset: remote.addr,
            key: remote.key,
            context: msg.context,
            flags: Some(flags),
            silent: false,
        })
    }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let atomic = Atomic {
            form: Form::Write,
            datatype,
            op,
            operands: buf as usize,
            compared: 0,
            results: 0,
            count,
            offset,
            key,
            context,
            flags: None,
            silent: false,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &atomic) }
    })
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    desc: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    offset: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    let _ = desc;
    // SAFETY: libfabric's promise, for both calls.
    unsafe {
        match single(iov, count) {
            Ok((words, count)) => write(
                ep,
                words as *const c_void,
                count,
                std::ptr::null_mut(),
                to,
                offset,
                key,
                datatype,
                op,
                context,
            ),
            Err(errno) => errno::posted(|| Err(errno)),
        }
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe { start(ep, &of_message(msg, Form::Write, flags)?) })
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
) -> isize {
    errno::posted(|| {
        let atomic = Atomic {
            form: Form::Write,
            datatype,
            op,
            operands: buf as usize,
            compared: 0,
            results: 0,
            count,
            offset,
            key,
            context: std::ptr::null_mut(),
            flags: Some(0),
            silent: true,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &atomic) }
    })
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let atomic = Atomic {
            form: Form::Fetch,
            datatype,
            op,
            operands: buf as usize,
            compared: 0,
            results: result as usize,
            count,
            offset,
            key,
            context,
            flags: None,
            silent: false,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &atomic) }
    })
}

unsafe extern "C" fn readwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        let ((operands, words), (results, room)) =
            unsafe { (single(iov, count)?, single(resultv, result_count)?) };
        let atomic = Atomic {
            form: Form::Fetch,
            datatype,
            op,
            operands,
            compared: 0,
            results,
            count: same(words, room)?,
            offset,
            key,
            context,
            flags: None,
            silent: false,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &atomic) }
    })
}

fn same(one: usize, other: usize) -> Outcome<usize> {
    match one == other {
        true => Ok(one),
        false => Err(Errno::INVALID),
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        unsafe {
            let mut atomic = of_message(msg, Form::Fetch, flags)?;
            let (results, room) = single(resultv, result_count)?;
            same(atomic.count, room)?;
            atomic.results = results;
            start(ep, &atomic)
        }
    })
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    compare: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let atomic = Atomic {
            form: Form::Compare,
            datatype,
            op,
            operands: buf as usize,
            compared: compare as usize,
            results: result as usize,
            count,
            offset,
            key,
            context,
            flags: None,
            silent: false,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &atomic) }
    })
}

unsafe extern "C" fn compwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    comparev: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    _: fi_addr_t,
    offset: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        unsafe {
            let (operands, words) = single(iov, count)?;
            let (compared, compares) = single(comparev, compare_count)?;
            let (results, room) = single(resultv, result_count)?;
            let atomic = Atomic {
                form: Form::Compare,
                datatype,
                op,
                operands,
                compared,
                results,
                count: same(words, compares).and_then(|it| same(it, room))?,
                offset,
                key,
                context,
                flags: None,
                silent: false,
            };
            start(ep, &atomic)
        }
    })
}

unsafe extern "C" fn compwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    comparev: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        unsafe {
            let mut atomic = of_message(msg, Form::Compare, flags)?;
            let (compared, compares) = single(comparev, compare_count)?;
            let (results, room) = single(resultv, result_count)?;
            same(atomic.count, compares).and_then(|it| same(it, room))?;
            (atomic.compared, atomic.results) = (compared, results);
            start(ep, &atomic)
        }
    })
}

fn valid(form: Form, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    errno::status(|| {
        let count = place(count)?;
        check(form, datatype, op)?;
        // SAFETY: libfabric's promise.
        unsafe { count.write(WORDS) };
        Ok(())
    })
}

unsafe extern "C" fn writevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    valid(Form::Write, datatype, op, count)
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    valid(Form::Fetch, datatype, op, count)
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    valid(Form::Compare, datatype, op, count)
}

/// `fi_query_atomic`, with the forms by its flags.
pub(crate) unsafe extern "C" fn query(
    _: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    errno::status(|| {
        let attr = place(attr)?;
        let form = match flags {
            0 => Form::Write,
            FI_FETCH_ATOMIC => Form::Fetch,
            FI_COMPARE_ATOMIC => Form::Compare,
            _ => return Err(Errno(FI_EBADFLAGS)),
        };
        let size = check(form, datatype, op)?;
        // SAFETY: libfabric's promise.
        unsafe { attr.write(fi_atomic_attr { count: WORDS, size }) };
        Ok(())
    })
}
