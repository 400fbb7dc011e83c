//! Implements passive endpoints, and passes requests for connections to the program.

use crate::address;
use crate::attributes::Offer;
use crate::cm::{Answer, Ask, MOST};
use crate::engine::{Listening, State};
use crate::eq::{Eq, Occurrence};
use crate::errno::{self, Errno, Outcome};
use crate::fabric::Fabric;
use crate::info::{Ends, Info};
use crate::libfabric::*;
use crate::log::{self, Level};
use crate::object::{self, Head, Object, absent, fid_of, fid_ops, place};
use crate::request::Request;
use std::ffi::{CString, c_int, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerolane::Error;
use zerolane::worker::{ConnectionId, EndpointId};

/// Requests that the program has not decided. Clients beyond it are refused.
const MOST_REQUESTS: usize = 4096;

#[repr(C)]
pub(crate) struct Passive {
    head: Head<fid_pep>,
    fabric: Arc<Fabric>,
    /// The name of the domain that its requests name.
    interface: Option<CString>,
    links: Mutex<Links>,
}

#[derive(Default)]
struct Links {
    eq: Option<Arc<Eq>>,
    address: Option<SocketAddr>,
    listener: Option<EndpointId>,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for Passive {
    type Fid = fid_pep;
    const CLASS: u32 = FI_CLASS_PEP;

    fn head(&self) -> &Head<fid_pep> {
        &self.head
    }
}

static FID_OPS: fi_ops = fid_ops(close, bind, control);
static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(no_cancel),
    getopt: Some(getopt),
    setopt: Some(no_setopt),
    tx_ctx: Some(no_tx_ctx),
    rx_ctx: Some(no_rx_ctx),
    rx_size_left: Some(no_size_left),
    tx_size_left: Some(no_size_left),
};
static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(no_getpeer),
    connect: Some(no_connect),
    listen: Some(listen),
    accept: Some(no_accept),
    reject: Some(reject),
    shutdown: Some(no_shutdown),
    join: Some(no_join),
};

absent! {
    no_cancel(fid_t, *mut c_void) -> isize;
    no_setopt(fid_t, c_int, c_int, *const c_void, usize) -> c_int;
    no_tx_ctx(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_rx_ctx(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_size_left(*mut fid_ep) -> isize;
    no_getpeer(*mut fid_ep, *mut c_void, *mut usize) -> c_int;
    no_connect(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int;
    no_accept(*mut fid_ep, *const c_void, usize) -> c_int;
    no_shutdown(*mut fid_ep, u64) -> c_int;
    no_join(*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int;
}

impl Passive {
    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listening for Passive {
    fn on_requested(&self, state: &mut State, connection: ConnectionId) -> bool {
        let Some(asking) = state.worker.connection(connection) else {
            return true;
        };
        let (peer, data) = (asking.peer_addr(), asking.peer_data().to_vec());
        let ask = match Ask::decode(&data) {
            Ok(ask) => ask,
            Err(why) => {
                log::say(Level::Warn, format_args!("refused {peer}: {why}"));
                return false;
            }
        };
        if state.requests.len() >= MOST_REQUESTS {
            log::say(
                Level::Warn,
                format_args!("refused {peer}: too many undecided requests"),
            );
            return false;
        }
        let request = Arc::new(Request::new(connection, ask.from.or(Some(peer))));
        let links = self.links();
        let ends = Ends {
            source: links.address,
            destination: request.from,
            interface: self.interface.clone(),
        };
        // SAFETY: a live object begins with a `fid`, behind which the API's version lies.
        let api = unsafe { (*self.fabric.head().get()).api_version };
        let info = Info::new(&Offer::new(None), &ends, api);
        let info = info.and_then(|it| it.of_request(request.as_fid()));
        let (Some(eq), Ok(info)) = (&links.eq, info) else {
            return false;
        };
        eq.push(Occurrence::Connection {
            event: FI_CONNREQ,
            fid: self.as_fid() as usize,
            info: Some(info),
            data: ask.data,
        });
        state.requests.insert(connection, request);
        true
    }

    fn on_failed(&self, error: &Error) {
        let mut links = self.links();
        links.listener = None;
        if let Some(eq) = &links.eq {
            eq.push(Occurrence::Failed {
                fid: self.as_fid() as usize,
                context: self.context() as usize,
                cause: errno::of_error(error),
                data: Vec::new(),
            });
        }
    }
}

pub(crate) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    pep: *mut *mut fid_pep,
    context: *mut c_void,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (fabric, info) = unsafe { (object::shared::<Fabric>(fabric)?, info.as_ref()) };
        let pep = place(pep)?;
        let info = info.ok_or(Errno::INVALID)?;
        let address = match info.src_addr.is_null() {
            true => None,
            // SAFETY: libfabric's promise: an address has its length.
            false => Some(unsafe { address::read(info.src_addr, info.src_addrlen) }?),
        };
        // SAFETY: libfabric's promise: null, or whole with a text.
        let interface = unsafe {
            let domain = info.domain_attr.as_ref();
            let name = domain.map(|it| it.name).filter(|it| !it.is_null());
            name.map(|it| std::ffi::CStr::from_ptr(it).to_owned())
        };
        let new = Passive {
            head: Head::new(fid_pep {
                fid: fid_of::<Passive>(context, &FID_OPS),
                ops: std::ptr::from_ref(&OPS).cast_mut(),
                cm: std::ptr::from_ref(&CM).cast_mut(),
            }),
            fabric,
            interface,
            links: Mutex::new(Links {
                address,
                ..Links::default()
            }),
        };
        object::hand_out(Arc::new(new), pep);
        Ok(())
    })
}

unsafe extern "C" fn bind(fid: *mut fid, queue: *mut fid, _: u64) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (passive, eq) = unsafe {
            let passive = object::given::<Passive>(fid.cast())?;
            (passive, object::shared::<Eq>(queue.cast())?)
        };
        let mut links = passive.links();
        if links.eq.is_some() {
            return Err(Errno::INVALID);
        }
        links.eq = Some(eq);
        Ok(())
    })
}

/// The length of the queue of requests is the worker's affair: it accepts any.
unsafe extern "C" fn control(fid: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        unsafe { object::given::<Passive>(fid.cast()) }?;
        match command as u32 {
            FI_BACKLOG => Ok(()),
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
            object::given::<Passive>(fid.cast())?;
            option_of(level, option, value, length)
        }
    })
}

/// Answers fi_getopt, of passive and active endpoints.
///
/// # Safety
/// `length` is null or valid, `value` null or so long.
pub(crate) unsafe fn option_of(
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> Outcome {
    if (level as u32, option as u32) != (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) {
        return Err(Errno(FI_ENOPROTOOPT));
    }
    let (value, length) = (place(value.cast::<usize>())?, place(length)?);
    // SAFETY: the caller's promise.
    unsafe {
        if length.read() < size_of::<usize>() {
            return Err(Errno::TOO_SMALL);
        }
        value.write_unaligned(MOST);
        length.write(size_of::<usize>());
    }
    Ok(())
}

unsafe extern "C" fn setname(fid: fid_t, from: *mut c_void, length: usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (passive, address) = unsafe {
            let passive = object::given::<Passive>(fid.cast())?;
            (passive, address::read(from, length)?)
        };
        let mut links = passive.links();
        if links.listener.is_some() {
            return Err(Errno::STATE);
        }
        links.address = Some(address);
        Ok(())
    })
}

unsafe extern "C" fn getname(fid: fid_t, into: *mut c_void, length: *mut usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let passive = unsafe { object::given::<Passive>(fid.cast()) }?;
        let address = passive.links().address.ok_or(Errno::STATE)?;
        // SAFETY: libfabric's promise.
        unsafe { address::write(address, into, length) }
    })
}

unsafe extern "C" fn listen(pep: *mut fid_pep) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let passive = unsafe { object::shared::<Passive>(pep) }?;
        let engine = passive.fabric.engine();
        let mut state = engine.enter()?;
        let mut links = passive.links();
        if links.eq.is_none() {
            return Err(Errno(FI_ENOEQ));
        }
        if links.listener.is_some() {
            return Err(Errno::STATE);
        }
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let on = links.address.unwrap_or(any);
        let listener = state.worker.listen(on, engine.settings.options())?;
        let bound = state.worker.endpoint(listener).map(|it| it.local_addr());
        links.address = bound.or(links.address);
        links.listener = Some(listener);
        drop(links);
        let listening: Arc<Passive> = Arc::clone(&passive);
        state.listeners.insert(listener, listening);
        Ok(())
    })
}

unsafe extern "C" fn reject(
    pep: *mut fid_pep,
    handle: fid_t,
    param: *const c_void,
    length: usize,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (passive, data) =
            unsafe { (object::given::<Passive>(pep)?, parameter(param, length)?) };
        let mut state = passive.fabric.engine().enter()?;
        let request = match state.decide(handle) {
            // The client gave up: it is rejected already.
            Err(Errno(FI_ECONNABORTED)) => return Ok(()),
            request => request?,
        };
        match data.is_empty() {
            true => {
                state.worker.refuse_request(request.connection);
            }
            // The library's refusal has no data of the program, its acceptance has.
            false => {
                let answer = Answer::Rejected(data).encode()?;
                state
                    .worker
                    .accept_request(request.connection, Some(answer));
                state.worker.close(request.connection);
            }
        }
        state.advance().map(drop)
    })
}

/// The data that a program sends with a request or an answer.
///
/// # Safety
/// `from` is null or has `length` bytes.
pub(crate) unsafe fn parameter(from: *const c_void, length: usize) -> Outcome<Vec<u8>> {
    if length > MOST || (from.is_null() && length > 0) {
        return Err(Errno::INVALID);
    }
    match length {
        0 => Ok(Vec::new()),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) }.to_vec()),
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let passive = unsafe { object::shared::<Passive>(fid.cast()) }?;
        let mut state = passive.fabric.engine().enter()?;
        let mut links = passive.links();
        if let Some(listener) = links.listener.take() {
            state.worker.close_endpoint(listener);
            state.listeners.remove(&listener);
        }
        if let Some(eq) = links.eq.take() {
            eq.forget(fid);
        }
        drop(links);
        drop(state);
        drop(passive);
        // SAFETY: libfabric's promise.
        unsafe { object::take_back::<Passive>(fid) }.map(drop)
    })
}
