//! Posts sends and receives of messages (`fi_msg(3)`).
//!
//! The payload of a message of the library is the program's; its control has the data of the peer's completion.

use crate::attributes::{DATA, INJECT};
use crate::endpoint::Endpoint;
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::object;
use crate::operations::{Kind, Operation, SILENT};
use crate::pieces::{copied, memory, piece, pieces, total};
use crate::receives::Receive;
use crate::shared_receives::SharedReceives;
use std::ffi::c_void;
use zerolane::Region;
use zerolane::request::{MAX_INLINE, Message, MessageInline};

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
            let mut state = shared.domain.engine().enter()?;
            let receive = Receive::new(Operation::new(Kind::Receive, context, true), pieces)?;
            return receive.add(&mut state, shared.pool());
        }
    }
    // SAFETY: the caller's promise.
    let endpoint = unsafe { object::shared::<Endpoint>(ep) }?;
    let flags = flags.unwrap_or(endpoint.rx_flags);
    let mut state = endpoint.domain.engine().enter()?;
    let operation = endpoint.operation(Kind::Receive, context, flags);
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
    let mut state = endpoint.domain.engine().enter()?;
    if copies && total <= MAX_INLINE {
        // SAFETY: the caller's promise.
        let bytes = unsafe { copied(send.pieces, total) };
        let message = MessageInline::new(control, bytes).fence(fence);
        if send.silent {
            let message = message.signalled(false).context(SILENT);
            return endpoint.post_silent(&mut state, message);
        }
        let operation = endpoint.operation(Kind::Send, send.context, flags);
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
    let operation = endpoint.operation(Kind::Send, send.context, flags);
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
