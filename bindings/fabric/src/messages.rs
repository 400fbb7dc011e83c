//! Sends and receives of messages (`fi_msg(3)`).
//!
//! The payload of a message of the library is the program's; its control has the data of the peer's completion.

use crate::attributes::{DATA, INJECT, PIECES};
use crate::endpoint::Endpoint;
use crate::engine::State;
use crate::errno::{self, Cause, Errno, Outcome};
use crate::libfabric::*;
use crate::object;
use crate::operations::{Kind, Operation, Place, SILENT};
use crate::shared_receives::SharedReceives;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use zerolane::Region;
use zerolane::failure::TransferError;
use zerolane::memory::Memory;
use zerolane::request::{MAX_INLINE, Message, MessageInline, ReceiveMessage};
use zerolane::worker::ConnectionId;

/// Receives that an endpoint keeps until it is connected.
pub(crate) const MOST_EARLY: usize = 4096;

pub(crate) static OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

/// A piece of the program's memory.
pub(crate) fn piece(start: *const c_void, length: usize) -> iovec {
    iovec {
        iov_base: start.cast_mut(),
        iov_len: length,
    }
}

/// The pieces that a program passes.
///
/// # Safety
/// `iov` is null or has `count` pieces.
pub(crate) unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Outcome<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        _ if iov.is_null() || count > PIECES => Err(Errno::INVALID),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(iov, count) }),
    }
}

/// # Errors
/// A piece has bytes and no address, or they are more than memory has.
pub(crate) fn total(pieces: &[iovec]) -> Outcome<usize> {
    pieces.iter().try_fold(0usize, |sum, it| {
        if it.iov_base.is_null() && it.iov_len > 0 {
            return Err(Errno::INVALID);
        }
        sum.checked_add(it.iov_len).ok_or(Errno::INVALID)
    })
}

/// The program's memory, for one request.
pub(crate) fn region(piece: &iovec) -> Region {
    let start = NonNull::new(piece.iov_base.cast()).unwrap_or(NonNull::dangling());
    // SAFETY: libfabric's rule: the program keeps the memory, and leaves it alone, until the operation completes, is
    // cancelled or its endpoint closed; the library stops using it before it says so. Nothing dereferences the region.
    unsafe { Region::foreign(start, piece.iov_len, false, Box::new(())) }
}

/// A copy of the program's memory.
///
/// # Safety
/// The pieces are readable.
pub(crate) unsafe fn copied(pieces: &[iovec], total: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(total);
    for it in pieces.iter().filter(|it| it.iov_len > 0) {
        // SAFETY: the caller's promise; `total` checked the address.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(it.iov_base.cast::<u8>(), it.iov_len)
        });
    }
    bytes
}

/// The memory of a send.
pub(crate) fn memory(pieces: &[iovec]) -> Memory {
    match pieces {
        [one] => region(one).into(),
        several => {
            let several = several.iter().filter(|it| it.iov_len > 0);
            Memory::Gathered(several.map(|it| region(it).into()).collect())
        }
    }
}

/// Copies what arrived to the pieces of the program.
pub(crate) fn scatter(mut bytes: &[u8], pieces: &[(usize, usize)]) {
    for &(start, length) in pieces {
        let (now, later) = bytes.split_at(length.min(bytes.len()));
        // SAFETY: the program keeps its memory until the completion, which follows.
        unsafe { (start as *mut u8).copy_from_nonoverlapping(now.as_ptr(), now.len()) };
        bytes = later;
    }
}

impl Operation {
    pub(crate) fn new(kind: Kind, context: *mut c_void, reported: bool) -> Operation {
        Operation {
            endpoint: None,
            context: context as usize,
            kind,
            flags: kind.flags(),
            reported,
            buffer: 0,
            place: Place::Nowhere,
            sequence: None,
            left: 1,
            requests: Vec::new(),
            failure: None,
        }
    }

    /// An operation of an endpoint, with the flags of its call.
    pub(crate) fn of(
        endpoint: &Arc<Endpoint>,
        kind: Kind,
        context: *mut c_void,
        flags: u64,
    ) -> Operation {
        Operation {
            endpoint: Some(Arc::clone(endpoint)),
            ..Operation::new(kind, context, endpoint.reports(kind, flags))
        }
    }
}

/// A receive that is not posted yet.
pub(crate) struct Receive {
    operation: Operation,
    memory: Region,
}

impl Receive {
    /// # Errors
    /// The pieces are invalid.
    pub(crate) fn new(mut operation: Operation, pieces: &[iovec]) -> Outcome<Receive> {
        let total = total(pieces)?;
        operation.buffer = pieces.first().map_or(0, |it| it.iov_base as usize);
        let memory = match pieces {
            [] => Region::empty(),
            [one] => region(one),
            // The library receives into one piece, so several cost a copy.
            several => {
                let all = several.iter().map(|it| (it.iov_base as usize, it.iov_len));
                operation.place = Place::Pieces(all.collect());
                Region::from_vec(vec![0; total])
            }
        };
        Ok(Receive { operation, memory })
    }

    pub(crate) fn context(&self) -> usize {
        self.operation.context
    }

    /// Its operation, cancelled.
    pub(crate) fn cancelled(mut self) -> Operation {
        self.operation.failure = Some(cancelled());
        self.operation
    }

    /// # Errors
    /// There is no connection, or no room.
    pub(crate) fn post(
        mut self,
        state: &mut State,
        id: ConnectionId,
        arrivals: &mut Arrivals,
    ) -> Outcome {
        self.operation.sequence = Some(arrivals.next());
        let number = state.operations.insert(self.operation);
        let connection = state.worker.connection(id).ok_or(Errno::NOT_CONNECTED);
        let receive = ReceiveMessage::new().payload(self.memory);
        let posted = connection.and_then(|it| {
            let posted = it.post(receive.context(number.context(0)));
            posted.map_err(|refused| Errno::from(refused.error))
        });
        match posted {
            Ok(request) => {
                if let Some(operation) = state.operations.get(number) {
                    operation.requests.push(request);
                }
                arrivals.expect();
                Ok(())
            }
            Err(errno) => {
                state.operations.remove(number);
                Err(errno)
            }
        }
    }

    /// Adds it to a pool.
    ///
    /// # Errors
    /// The pool is closed.
    pub(crate) fn add(self, state: &mut State, shared: &SharedReceives) -> Outcome {
        let number = state.operations.insert(self.operation);
        let added = shared.pool().add(self.memory, number.context(0));
        added.map_err(|refused| {
            state.operations.remove(number);
            refused.error.into()
        })
    }
}

/// A message that was received, or a receive that failed.
pub(crate) struct Arrived {
    pub(crate) operation: Operation,
    pub(crate) length: usize,
    pub(crate) data: Option<u32>,
}

/// Puts the completions of an endpoint's receives into the order of the receives. The library matches messages in order,
/// but a short one may be complete before a long one that was sent first; programs such as ofi_rxm rely on the order.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// The sequence number of the first of `waiting`.
    first: u64,
    waiting: VecDeque<Option<Arrived>>,
}

impl Arrivals {
    fn next(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    fn expect(&mut self) {
        self.waiting.push_back(None);
    }

    /// Notes an end.
    pub(crate) fn end(&mut self, sequence: u64, arrived: Arrived) {
        let at = sequence.checked_sub(self.first);
        let place = at.and_then(|at| self.waiting.get_mut(at as usize));
        if let Some(place) = place {
            *place = Some(arrived);
        }
    }

    /// Takes the first, if it has ended.
    pub(crate) fn take(&mut self) -> Option<Arrived> {
        let arrived = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.first += 1;
        Some(arrived)
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}

pub(crate) fn cancelled() -> Cause {
    errno::failed(TransferError::Cancelled)
}

/// Posts a receive to an endpoint or to a shared context.
///
/// # Safety
/// `ep` is live.
unsafe fn receive(
    ep: *mut fid_ep,
    pieces: &[iovec],
    context: *mut c_void,
    flags: Option<u64>,
) -> Outcome {
    let known = u64::from(FI_COMPLETION | FI_MORE);
    if flags.is_some_and(|it| it & !known != 0) {
        return Err(Errno(FI_EBADFLAGS));
    }
    object::place(ep)?;
    // SAFETY: the caller's promise; the class tells the type.
    unsafe {
        if (*ep).fid.fclass as u32 == FI_CLASS_SRX_CTX {
            let shared = object::given::<SharedReceives>(ep)?;
            let mut state = shared.domain.engine().enter();
            let receive = Receive::new(Operation::new(Kind::Receive, context, true), pieces)?;
            return receive.add(&mut state, shared);
        }
    }
    // SAFETY: the caller's promise.
    let endpoint = unsafe { object::shared::<Endpoint>(ep) }?;
    let flags = flags.unwrap_or(endpoint.rx_flags);
    let mut state = endpoint.domain.engine().enter();
    let operation = Operation::of(&endpoint, Kind::Receive, context, flags);
    endpoint.receive(&mut state, Receive::new(operation, pieces)?)
}

/// A send of any kind.
struct Send<'a> {
    pieces: &'a [iovec],
    data: Option<u64>,
    context: *mut c_void,
    /// Of the call; none: those of the endpoint.
    flags: Option<u64>,
    /// It reports nothing, and its memory is free at once.
    silent: bool,
}

const SEND_FLAGS: u64 = FI_COMPLETION as u64
    | FI_INJECT as u64
    | FI_INJECT_COMPLETE as u64
    | FI_TRANSMIT_COMPLETE as u64
    | FI_DELIVERY_COMPLETE as u64
    | FI_MATCH_COMPLETE as u64
    | FI_REMOTE_CQ_DATA as u64
    | FI_FENCE as u64
    | FI_MORE as u64;

/// # Safety
/// `ep` is live, and the pieces are readable.
unsafe fn start(ep: *mut fid_ep, send: &Send<'_>) -> Outcome {
    // SAFETY: the caller's promise.
    let endpoint = unsafe { object::shared::<Endpoint>(ep) }?;
    let flags = send.flags.unwrap_or(endpoint.tx_flags);
    if flags & !SEND_FLAGS != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    let total = total(send.pieces)?;
    let copies = send.silent || flags & u64::from(FI_INJECT) != 0;
    if copies && total > INJECT {
        return Err(Errno(FI_EMSGSIZE));
    }
    let fence = flags & u64::from(FI_FENCE) != 0;
    let data = send.data.map(|it| (it as u32).to_le_bytes());
    let control: &[u8] = data.as_ref().map_or(&[], |it| &it[..DATA]);
    let mut state = endpoint.domain.engine().enter();
    if copies && total <= MAX_INLINE {
        // SAFETY: the caller's promise.
        let bytes = unsafe { copied(send.pieces, total) };
        let message = MessageInline::new(control, bytes).fence(fence);
        if send.silent {
            let message = message.signalled(false).context(SILENT);
            return endpoint.post_silent(&mut state, message);
        }
        let operation = Operation::of(&endpoint, Kind::Send, send.context, flags);
        return endpoint.post(&mut state, operation, |context| message.context(context));
    }
    let message = Message::new(control).fence(fence);
    let message = match total {
        0 => message,
        // SAFETY: the caller's promise.
        _ if copies => message.payload(Region::from_vec(unsafe { copied(send.pieces, total) })),
        _ => message.payload(memory(send.pieces)),
    };
    if send.silent {
        let message = message.signalled(false).context(SILENT);
        return endpoint.post_silent(&mut state, message);
    }
    let operation = Operation::of(&endpoint, Kind::Send, send.context, flags);
    endpoint.post(&mut state, operation, |context| message.context(context))
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe { receive(ep, &[piece(buffer, length)], context, None) })
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise.
    errno::posted(|| unsafe { receive(ep, pieces(iov, count)?, context, None) })
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno::INVALID)?;
            let pieces = pieces(msg.msg_iov, msg.iov_count)?;
            receive(ep, pieces, msg.context, Some(flags))
        }
    })
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let send = Send {
            pieces: &[piece(buffer, length)],
            data: None,
            context,
            flags: None,
            silent: false,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &send) }
    })
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        unsafe {
            let send = Send {
                pieces: pieces(iov, count)?,
                data: None,
                context,
                flags: None,
                silent: false,
            };
            start(ep, &send)
        }
    })
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno::INVALID)?;
            let with_data = flags & u64::from(FI_REMOTE_CQ_DATA) != 0;
            let send = Send {
                pieces: pieces(msg.msg_iov, msg.iov_count)?,
                data: with_data.then_some(msg.data),
                context: msg.context,
                flags: Some(flags),
                silent: false,
            };
            start(ep, &send)
        }
    })
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: fi_addr_t,
) -> isize {
    errno::posted(|| {
        let send = Send {
            pieces: &[piece(buffer, length)],
            data: None,
            context: std::ptr::null_mut(),
            flags: Some(0),
            silent: true,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &send) }
    })
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    errno::posted(|| {
        let send = Send {
            pieces: &[piece(buffer, length)],
            data: Some(data),
            context,
            flags: None,
            silent: false,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &send) }
    })
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    _: fi_addr_t,
) -> isize {
    errno::posted(|| {
        let send = Send {
            pieces: &[piece(buffer, length)],
            data: Some(data),
            context: std::ptr::null_mut(),
            flags: Some(0),
            silent: true,
        };
        // SAFETY: libfabric's promise.
        unsafe { start(ep, &send) }
    })
}
