//! Refuses tagged messages: `ofi_rxm` implements them above endpoints of this kind.

use crate::libfabric::*;
use crate::object::absent;
use std::ffi::c_void;

pub(crate) static OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(message),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(message),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

type Pointer = *mut c_void;
type Pieces = *const iovec;

absent! {
    recv(*mut fid_ep, Pointer, usize, Pointer, fi_addr_t, u64, u64, Pointer) -> isize;
    recvv(*mut fid_ep, Pieces, *mut Pointer, usize, fi_addr_t, u64, u64, Pointer) -> isize;
    message(*mut fid_ep, *const fi_msg_tagged, u64) -> isize;
    send(*mut fid_ep, *const c_void, usize, Pointer, fi_addr_t, u64, Pointer) -> isize;
    sendv(*mut fid_ep, Pieces, *mut Pointer, usize, fi_addr_t, u64, Pointer) -> isize;
    inject(*mut fid_ep, *const c_void, usize, fi_addr_t, u64) -> isize;
    senddata(*mut fid_ep, *const c_void, usize, Pointer, u64, fi_addr_t, u64, Pointer) -> isize;
    injectdata(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64) -> isize;
}
