//! Implements the functions of active endpoints (`fi_endpoint(3)`).

use super::{atomic, messages, rma, tagged};
use crate::address;
use crate::attributes::SHARED;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, Made};
use crate::eq::Eq;
use crate::errno::{self, Errno};
use crate::libfabric::*;
use crate::object::{self, Object as _, absent, fid_of, fid_ops, place};
use crate::passive::{self, parameter};
use crate::shared_receives::SharedReceives;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID_OPS: fi_ops = fid_ops(close, bind, control);
static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(no_setopt),
    tx_ctx: Some(no_tx_ctx),
    rx_ctx: Some(no_rx_ctx),
    rx_size_left: Some(no_size_left),
    tx_size_left: Some(no_size_left),
};
static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(no_setname),
    getname: Some(getname),
    getpeer: Some(getpeer),
    connect: Some(connect),
    listen: Some(no_listen),
    accept: Some(accept),
    reject: Some(no_reject),
    shutdown: Some(shutdown),
    join: Some(no_join),
};

absent! {
    no_setopt(fid_t, c_int, c_int, *const c_void, usize) -> c_int;
    no_tx_ctx(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_rx_ctx(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_size_left(*mut fid_ep) -> isize;
    no_setname(fid_t, *mut c_void, usize) -> c_int;
    no_listen(*mut fid_pep) -> c_int;
    no_reject(*mut fid_pep, fid_t, *const c_void, usize) -> c_int;
    no_join(*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int;
}

pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (domain, info) = unsafe { (object::shared::<Domain>(domain)?, info.as_ref()) };
        let ep = place(ep)?;
        let info = info.ok_or(Errno::INVALID)?;
        // SAFETY: libfabric's promise: null or whole.
        let (attr, tx, rx) = unsafe {
            let attr = info.ep_attr.as_ref();
            (attr, info.tx_attr.as_ref(), info.rx_attr.as_ref())
        };
        if attr.is_some_and(|it| ![FI_EP_MSG, FI_EP_UNSPEC].contains(&it.type_)) {
            return Err(Errno::INVALID);
        }
        // SAFETY: libfabric's promise: an address has its length.
        let (local, peer) = unsafe {
            let read = |address: *mut c_void, length| match address.is_null() {
                true => Ok(None),
                false => address::read(address, length).map(Some),
            };
            (
                read(info.src_addr, info.src_addrlen)?,
                read(info.dest_addr, info.dest_addrlen)?,
            )
        };
        let handle = info.handle;
        if !handle.is_null() {
            let state = domain.engine().enter()?;
            let known = state.requests.values().any(|it| it.as_fid() == handle);
            if !known {
                // A passive endpoint as a source is not supported.
                return Err(Errno::INVALID);
            }
        }
        let head = fid_ep {
            fid: fid_of::<Endpoint>(context, &FID_OPS),
            ops: std::ptr::from_ref(&OPS).cast_mut(),
            cm: std::ptr::from_ref(&CM).cast_mut(),
            msg: std::ptr::from_ref(&messages::OPS).cast_mut(),
            rma: std::ptr::from_ref(&rma::OPS).cast_mut(),
            tagged: std::ptr::from_ref(&tagged::OPS).cast_mut(),
            atomic: std::ptr::from_ref(&atomic::OPS).cast_mut(),
            collective: std::ptr::null_mut(),
        };
        let made = Made {
            tx_flags: tx.map_or(0, |it| it.op_flags),
            rx_flags: rx.map_or(0, |it| it.op_flags),
            shares: attr.is_some_and(|it| it.rx_ctx_cnt == SHARED),
            request: handle as usize,
            local,
            peer,
        };
        let new = Endpoint::new(head, domain, made);
        object::hand_out(Arc::new(new), ep);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn open_with_flags(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    match flags {
        // SAFETY: the same promise.
        0 => unsafe { open(domain, info, ep, context) },
        _ => -(FI_EBADFLAGS as c_int),
    }
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    errno::status(|| {
        place(other)?;
        // SAFETY: libfabric's promise; the class tells the type.
        unsafe {
            let endpoint = object::given::<Endpoint>(fid.cast())?;
            match (*other).fclass as u32 {
                FI_CLASS_EQ => endpoint.bind_eq(object::shared::<Eq>(other.cast())?),
                FI_CLASS_CQ => endpoint.bind_queue(object::shared::<Cq>(other.cast())?, flags),
                FI_CLASS_CNTR => {
                    let counter = object::shared::<Counter>(other.cast())?;
                    endpoint.bind_counter(&counter, flags)
                }
                FI_CLASS_SRX_CTX => {
                    endpoint.bind_shared(object::shared::<SharedReceives>(other.cast())?)
                }
                _ => Err(Errno::INVALID),
            }
        }
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(fid.cast()) }?;
        match command as u32 {
            FI_ENABLE => endpoint.enable(),
            FI_GETOPSFLAG => {
                let flags = place(argument.cast::<u64>())?;
                // SAFETY: the argument of this command is a place for flags, which say which are wanted.
                unsafe {
                    let of_sends = flags.read() & u64::from(FI_TRANSMIT) != 0;
                    flags.write(match of_sends {
                        true => endpoint.tx_flags,
                        false => endpoint.rx_flags,
                    });
                }
                Ok(())
            }
            _ => Err(Errno::NO_SYSTEM),
        }
    })
}

unsafe extern "C" fn getopt(
    fid: fid_t,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        unsafe {
            object::given::<Endpoint>(fid.cast())?;
            passive::option_of(level, option, value, length)
        }
    })
}

unsafe extern "C" fn cancel(fid: fid_t, context: *mut c_void) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::shared::<Endpoint>(fid.cast()) }?;
        endpoint.cancel(context as usize)
    })
}

unsafe extern "C" fn getname(fid: fid_t, into: *mut c_void, length: *mut usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(fid.cast()) }?;
        let local = endpoint.local().ok_or(Errno::NO_DATA)?;
        // SAFETY: libfabric's promise.
        unsafe { address::write(local, into, length) }
    })
}

unsafe extern "C" fn getpeer(ep: *mut fid_ep, into: *mut c_void, length: *mut usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(ep) }?;
        let peer = endpoint.peer().ok_or(Errno::NOT_CONNECTED)?;
        // SAFETY: libfabric's promise.
        unsafe { address::write(peer, into, length) }
    })
}

unsafe extern "C" fn connect(
    ep: *mut fid_ep,
    to: *const c_void,
    param: *const c_void,
    length: usize,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise: a whole address, or none.
        let (endpoint, data, to) = unsafe {
            let to = match to.is_null() {
                true => None,
                false => Some(address::read(to, 0)?),
            };
            (
                object::shared::<Endpoint>(ep)?,
                parameter(param, length)?,
                to,
            )
        };
        endpoint.connect(to, data)
    })
}

unsafe extern "C" fn accept(ep: *mut fid_ep, param: *const c_void, length: usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (endpoint, data) =
            unsafe { (object::shared::<Endpoint>(ep)?, parameter(param, length)?) };
        endpoint.accept(data)
    })
}

unsafe extern "C" fn shutdown(ep: *mut fid_ep, flags: u64) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(ep) }?;
        match flags {
            0 => endpoint.shutdown(),
            _ => Err(Errno(FI_EBADFLAGS)),
        }
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::shared::<Endpoint>(fid.cast()) }?;
        endpoint.end()?;
        drop(endpoint);
        // SAFETY: libfabric's promise.
        unsafe { object::take_back::<Endpoint>(fid) }.map(drop)
    })
}
