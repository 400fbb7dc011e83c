//! Active endpoints: connections.

use crate::attributes::SHARED;
use crate::cm::{Answer, Ask};
use crate::completions::{Completed, Entry};
use crate::counter::Counter;
use crate::cq::Cq;
use crate::domain::Domain;
use crate::engine::State;
use crate::eq::{Eq, Occurrence};
use crate::errno::{self, Cause, Errno, Outcome};
use crate::libfabric::*;
use crate::messages::{self, Arrivals, Arrived, Receive};
use crate::object::{self, Head, Object, absent, fid_of, fid_ops, place};
use crate::operations::{Kind, Operation, is_of};
use crate::passive::{self, parameter};
use crate::shared_receives::SharedReceives;
use crate::{address, atomic, rma, tagged};
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerolane::request::Request;
use zerolane::worker::ConnectionId;
use zerolane::{Connection, Error};

#[repr(C)]
pub(crate) struct Endpoint {
    head: Head<fid_ep>,
    pub(crate) domain: Arc<Domain>,
    /// The flags of operations of calls without flags.
    pub(crate) tx_flags: u64,
    pub(crate) rx_flags: u64,
    /// It takes receives of a shared context.
    shares: bool,
    links: Mutex<Links>,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for Endpoint {
    type Fid = fid_ep;
    const CLASS: u32 = FI_CLASS_EP;

    fn head(&self) -> &Head<fid_ep> {
        &self.head
    }
}

/// A queue that an endpoint reports to.
struct Queue {
    cq: Arc<Cq>,
    /// Only operations with FI_COMPLETION are reported.
    selective: bool,
}

/// How far the life of an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Enabled,
    Connecting(ConnectionId),
    Connected(ConnectionId),
    Over,
}

struct Links {
    stage: Stage,
    tx: Option<Queue>,
    rx: Option<Queue>,
    eq: Option<Arc<Eq>>,
    sends: Option<Arc<Counter>>,
    receives: Option<Arc<Counter>>,
    reads: Option<Arc<Counter>>,
    writes: Option<Arc<Counter>>,
    shared: Option<Arc<SharedReceives>>,
    /// The handle of the request that it was made for.
    request: usize,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// Receives posted before there is a connection.
    early: Vec<Receive>,
    arrivals: Arrivals,
}

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

impl Links {
    fn connection(&self) -> Option<ConnectionId> {
        match self.stage {
            Stage::Connecting(id) | Stage::Connected(id) => Some(id),
            Stage::New | Stage::Enabled | Stage::Over => None,
        }
    }

    fn queue(&self, kind: Kind) -> Option<&Queue> {
        match kind {
            Kind::Receive => self.rx.as_ref(),
            Kind::Send | Kind::Read | Kind::Write => self.tx.as_ref(),
        }
    }

    fn counter(&self, kind: Kind) -> Option<&Arc<Counter>> {
        match kind {
            Kind::Send => self.sends.as_ref(),
            Kind::Receive => self.receives.as_ref(),
            Kind::Read => self.reads.as_ref(),
            Kind::Write => self.writes.as_ref(),
        }
    }
}

impl Endpoint {
    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an operation with these flags is reported when it succeeds.
    pub(crate) fn reports(&self, kind: Kind, flags: u64) -> bool {
        let links = self.links();
        let queue = links.queue(kind);
        queue.is_some_and(|it| !it.selective || flags & u64::from(FI_COMPLETION) != 0)
    }

    /// Posts a receive, or keeps it until there is a connection.
    ///
    /// # Errors
    /// The endpoint is not enabled, is over, shares its receives; or there is no room.
    pub(crate) fn receive(&self, state: &mut State, receive: Receive) -> Outcome {
        let mut links = self.links();
        if self.shares {
            return Err(Errno::STATE);
        }
        if links.rx.is_none() {
            return Err(Errno(FI_ENOCQ));
        }
        match links.stage {
            Stage::New => Err(Errno::STATE),
            Stage::Enabled if links.early.len() >= messages::MOST_EARLY => Err(Errno::AGAIN),
            Stage::Enabled => {
                links.early.push(receive);
                Ok(())
            }
            Stage::Connecting(id) | Stage::Connected(id) => {
                receive.post(state, id, &mut links.arrivals)
            }
            Stage::Over => Err(Errno::NOT_CONNECTED),
        }
    }

    /// The connection, to post a request to.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn connection<'a>(&self, state: &'a mut State) -> Outcome<&'a mut Connection> {
        let id = self.links().connection().ok_or(Errno::NOT_CONNECTED)?;
        let connection = state.worker.connection(id);
        connection.ok_or(Errno::NOT_CONNECTED)
    }

    /// Posts an operation of one request, which gets the context that it is given.
    ///
    /// # Errors
    /// There is no connection, no room, or the library refuses.
    pub(crate) fn post<R: Request>(
        &self,
        state: &mut State,
        operation: Operation,
        request: impl FnOnce(u64) -> R,
    ) -> Outcome {
        let id = self.links().connection().ok_or(Errno::NOT_CONNECTED)?;
        let number = state.operations.insert(operation);
        let connection = state.worker.connection(id);
        let posted = match connection {
            Some(connection) => {
                let posted = connection.post(request(number.context(0)));
                posted.map_err(|refused| Errno::from(refused.error))
            }
            None => Err(Errno::NOT_CONNECTED),
        };
        match posted {
            Ok(request) => {
                if let Some(operation) = state.operations.get(number) {
                    operation.requests.push(request);
                }
                // It leaves now, not with the program's next call.
                state.advance().map(drop)
            }
            Err(errno) => {
                state.operations.remove(number);
                if errno == Errno::AGAIN {
                    let _ = state.advance();
                }
                Err(errno)
            }
        }
    }

    /// Posts a request that reports nothing.
    ///
    /// # Errors
    /// As for [`Endpoint::post`].
    pub(crate) fn post_silent<R: Request>(&self, state: &mut State, request: R) -> Outcome {
        let posted = self.connection(state)?.post(request);
        let posted = posted.map_err(|refused| Errno::from(refused.error));
        // Also if there is no room: then the program asks again.
        let advanced = state.advance();
        posted.and(advanced).map(drop)
    }

    /// Reports the end of an operation: that of a receive when all earlier ones have ended.
    pub(crate) fn on_finished(&self, operation: Operation, length: usize, data: Option<u32>) {
        let mut links = self.links();
        let Some(sequence) = operation.sequence else {
            return report(&links, &operation, length, data);
        };
        let arrived = Arrived {
            operation,
            length,
            data,
        };
        links.arrivals.end(sequence, arrived);
        while let Some(it) = links.arrivals.take() {
            report(&links, &it.operation, it.length, it.data);
        }
    }

    /// Reports a number that came with a put. False if the queue is full.
    pub(crate) fn on_immediate(&self, number: u32, length: usize) -> bool {
        let links = self.links();
        let entry = Entry {
            context: 0,
            flags: u64::from(FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA),
            length,
            buffer: 0,
            data: number.into(),
        };
        links.rx.as_ref().is_none_or(|it| it.cq.push_of_peer(entry))
    }

    /// The peer answered. False if the connection is to be closed.
    pub(crate) fn on_connected(&self, data: &[u8]) -> bool {
        let mut links = self.links();
        let Stage::Connecting(id) = links.stage else {
            return false;
        };
        let rejected = match Answer::decode(data) {
            Some(Answer::Accepted(data)) => {
                links.stage = Stage::Connected(id);
                self.occur(&links, FI_CONNECTED, data);
                return true;
            }
            Some(Answer::Rejected(data)) => data,
            None => Vec::new(),
        };
        links.stage = Stage::Over;
        let cause = Cause {
            err: Errno(FI_ECONNREFUSED),
            detail: errno::REJECTED,
        };
        self.fail(&links, cause, rejected);
        false
    }

    /// The connection is over.
    pub(crate) fn on_closed(&self, reason: &Error) {
        let mut links = self.links();
        match std::mem::replace(&mut links.stage, Stage::Over) {
            Stage::Connecting(_) => self.fail(&links, errno::of_error(reason), Vec::new()),
            Stage::Connected(_) => self.occur(&links, FI_SHUTDOWN, Vec::new()),
            Stage::New | Stage::Enabled | Stage::Over => {}
        }
    }

    fn occur(&self, links: &Links, event: u32, data: Vec<u8>) {
        if let Some(eq) = &links.eq {
            eq.push(Occurrence::Connection {
                event,
                fid: self.as_fid() as usize,
                info: None,
                data,
            });
        }
    }

    fn fail(&self, links: &Links, cause: Cause, data: Vec<u8>) {
        if let Some(eq) = &links.eq {
            eq.push(Occurrence::Failed {
                fid: self.as_fid() as usize,
                context: self.context() as usize,
                cause,
                data,
            });
        }
    }

    /// Posts what was received before there was a connection, and shares receives.
    fn start(&self, state: &mut State, links: &mut Links, id: ConnectionId) -> Outcome {
        if let Some(shared) = &links.shared
            && let Some(connection) = state.worker.connection(id)
        {
            connection.set_receive_pool(shared.pool())?;
        }
        for receive in links.early.drain(..) {
            receive.post(state, id, &mut links.arrivals)?;
        }
        Ok(())
    }
}

/// Reports the end of an operation to its queue and counter.
fn report(links: &Links, operation: &Operation, length: usize, data: Option<u32>) {
    let kind = operation.kind;
    let with_data = data.map_or(0, |_| u64::from(FI_REMOTE_CQ_DATA));
    let entry = Entry {
        context: operation.context,
        flags: operation.flags | with_data,
        length: match kind {
            Kind::Receive => length,
            Kind::Send | Kind::Read | Kind::Write => 0,
        },
        buffer: match kind {
            Kind::Receive => operation.buffer,
            Kind::Send | Kind::Read | Kind::Write => 0,
        },
        data: data.map_or(0, u64::from),
    };
    let cq = links.queue(kind).map(|it| &it.cq);
    match (operation.failure, cq) {
        (None, Some(cq)) if operation.reported => cq.push(Completed::Done(entry)),
        (Some(cause), Some(cq)) => cq.push(Completed::Failed { entry, cause }),
        _ => {}
    }
    if let Some(counter) = links.counter(kind) {
        counter.count(operation.failure.is_none());
    }
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
            let state = domain.engine().enter();
            let known = state.requests.values().any(|it| it.as_fid() == handle);
            if !known {
                // A passive endpoint as a source is not supported.
                return Err(Errno::INVALID);
            }
        }
        let new = Endpoint {
            head: Head::new(fid_ep {
                fid: fid_of::<Endpoint>(context, &FID_OPS),
                ops: std::ptr::from_ref(&OPS).cast_mut(),
                cm: std::ptr::from_ref(&CM).cast_mut(),
                msg: std::ptr::from_ref(&messages::OPS).cast_mut(),
                rma: std::ptr::from_ref(&rma::OPS).cast_mut(),
                tagged: std::ptr::from_ref(&tagged::OPS).cast_mut(),
                atomic: std::ptr::from_ref(&atomic::OPS).cast_mut(),
                collective: std::ptr::null_mut(),
            }),
            domain,
            tx_flags: tx.map_or(0, |it| it.op_flags),
            rx_flags: rx.map_or(0, |it| it.op_flags),
            shares: attr.is_some_and(|it| it.rx_ctx_cnt == SHARED),
            links: Mutex::new(Links {
                stage: Stage::New,
                tx: None,
                rx: None,
                eq: None,
                sends: None,
                receives: None,
                reads: None,
                writes: None,
                shared: None,
                request: handle as usize,
                local,
                peer,
                early: Vec::new(),
                arrivals: Arrivals::default(),
            }),
        };
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
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(fid.cast()) }?;
        let mut links = endpoint.links();
        if links.stage != Stage::New {
            return Err(Errno::STATE);
        }
        // SAFETY: libfabric's promise; the class tells the type.
        unsafe {
            match (*other).fclass as u32 {
                FI_CLASS_EQ => {
                    let eq = object::shared::<Eq>(other.cast())?;
                    bind_once(&mut links.eq, eq)
                }
                FI_CLASS_CQ => bind_queue(&mut links, object::shared::<Cq>(other.cast())?, flags),
                FI_CLASS_CNTR => {
                    let counter = object::shared::<Counter>(other.cast())?;
                    bind_counter(&mut links, &counter, flags)
                }
                FI_CLASS_SRX_CTX if endpoint.shares => {
                    let shared = object::shared::<SharedReceives>(other.cast())?;
                    bind_once(&mut links.shared, shared)
                }
                _ => Err(Errno::INVALID),
            }
        }
    })
}

fn bind_once<T>(link: &mut Option<T>, new: T) -> Outcome {
    match link {
        Some(_) => Err(Errno::INVALID),
        None => {
            *link = Some(new);
            Ok(())
        }
    }
}

fn bind_queue(links: &mut Links, cq: Arc<Cq>, flags: u64) -> Outcome {
    let (sends, receives) = (u64::from(FI_TRANSMIT), u64::from(FI_RECV));
    let selective = flags & FI_SELECTIVE_COMPLETION != 0;
    if flags & !(sends | receives | FI_SELECTIVE_COMPLETION) != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    if flags & (sends | receives) == 0 {
        return Err(Errno::INVALID);
    }
    let queue = || Queue {
        cq: Arc::clone(&cq),
        selective,
    };
    if flags & sends != 0 {
        bind_once(&mut links.tx, queue())?;
    }
    if flags & receives != 0 {
        bind_once(&mut links.rx, queue())?;
    }
    Ok(())
}

/// There is no notice of what peers read and write, so nothing counts it.
fn bind_counter(links: &mut Links, counter: &Arc<Counter>, flags: u64) -> Outcome {
    if flags & u64::from(FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
        return Err(Errno::NO_SYSTEM);
    }
    let mut any = false;
    for (flag, link) in [
        (FI_SEND, &mut links.sends),
        (FI_RECV, &mut links.receives),
        (FI_READ, &mut links.reads),
        (FI_WRITE, &mut links.writes),
    ] {
        if flags & u64::from(flag) != 0 {
            bind_once(link, Arc::clone(counter))?;
            any = true;
        }
    }
    match any {
        true => Ok(()),
        false => Err(Errno::INVALID),
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(fid.cast()) }?;
        match command as u32 {
            FI_ENABLE => {
                let mut links = endpoint.links();
                if links.stage != Stage::New {
                    return Err(Errno::STATE);
                }
                if links.eq.is_none() {
                    return Err(Errno(FI_ENOEQ));
                }
                if links.tx.is_none() && links.rx.is_none() {
                    return Err(Errno(FI_ENOCQ));
                }
                if endpoint.shares && links.shared.is_none() {
                    return Err(Errno(FI_ENORX));
                }
                links.stage = Stage::Enabled;
                Ok(())
            }
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

/// Cancels the first operation with this context; its completion follows.
unsafe extern "C" fn cancel(fid: fid_t, context: *mut c_void) -> isize {
    errno::posted(|| {
        // SAFETY: libfabric's promise; the class tells the type.
        unsafe {
            place(fid)?;
            if (*fid).fclass as u32 == FI_CLASS_SRX_CTX {
                return object::given::<SharedReceives>(fid.cast())?.cancel(context as usize);
            }
        }
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::shared::<Endpoint>(fid.cast()) }?;
        let mut state = endpoint.domain.engine().enter();
        let early = {
            let mut links = endpoint.links();
            let at = links
                .early
                .iter()
                .position(|it| it.context() == context as usize);
            at.map(|at| links.early.remove(at))
        };
        if let Some(receive) = early {
            endpoint.on_finished(receive.cancelled(), 0, None);
            return Ok(());
        }
        let found = state
            .operations
            .find(|it| it.context == context as usize && is_of(it, &endpoint));
        let first = found.first().ok_or(Errno(FI_ENOENT))?;
        let operation = state.operations.get(*first).ok_or(Errno(FI_ENOENT))?;
        let requests = operation.requests.clone();
        let connection = endpoint.connection(&mut state)?;
        for request in requests {
            connection.cancel(request);
        }
        state.advance().map(drop)
    })
}

unsafe extern "C" fn getname(fid: fid_t, into: *mut c_void, length: *mut usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(fid.cast()) }?;
        let local = endpoint.links().local.ok_or(Errno::NO_DATA)?;
        // SAFETY: libfabric's promise.
        unsafe { address::write(local, into, length) }
    })
}

unsafe extern "C" fn getpeer(ep: *mut fid_ep, into: *mut c_void, length: *mut usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(ep) }?;
        let peer = {
            let links = endpoint.links();
            links.connection().and(links.peer)
        };
        // SAFETY: libfabric's promise.
        unsafe { address::write(peer.ok_or(Errno::NOT_CONNECTED)?, into, length) }
    })
}

unsafe extern "C" fn connect(
    ep: *mut fid_ep,
    to: *const c_void,
    param: *const c_void,
    length: usize,
) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (endpoint, data) =
            unsafe { (object::shared::<Endpoint>(ep)?, parameter(param, length)?) };
        let engine = endpoint.domain.engine();
        let mut state = engine.enter();
        let mut links = endpoint.links();
        let to = match to.is_null() {
            // The destination of the info that it was made from.
            true => links.peer.ok_or(Errno::INVALID)?,
            // SAFETY: libfabric's promise: a whole address.
            false => unsafe { address::read(to, 0) }?,
        };
        match links.stage {
            Stage::Enabled if links.request == 0 => {}
            Stage::Connecting(_) | Stage::Connected(_) => return Err(Errno(FI_EISCONN)),
            _ => return Err(Errno::STATE),
        }
        let from = links.local.filter(|it| !it.ip().is_unspecified());
        let ask = Ask { from, data }.encode()?;
        let options = engine
            .settings
            .options()
            .with(|it| it.private_data = Some(ask));
        let id = state.worker.connect(to, &options)?;
        links.stage = Stage::Connecting(id);
        links.peer = Some(to);
        let started = endpoint.start(&mut state, &mut links, id);
        drop(links);
        state.endpoints.insert(id, Arc::clone(&endpoint));
        started?;
        state.advance().map(drop)
    })
}

unsafe extern "C" fn accept(ep: *mut fid_ep, param: *const c_void, length: usize) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let (endpoint, data) =
            unsafe { (object::shared::<Endpoint>(ep)?, parameter(param, length)?) };
        let mut state = endpoint.domain.engine().enter();
        let mut links = endpoint.links();
        if links.stage != Stage::Enabled || links.request == 0 {
            return Err(Errno::STATE);
        }
        let answer = Answer::Accepted(data).encode()?;
        let handle = links.request as *mut fid;
        let request = passive::decide(&mut state, handle)?;
        let id = request.connection;
        if !state.worker.accept_request(id, Some(answer)) {
            return Err(Errno(FI_ECONNABORTED));
        }
        links.stage = Stage::Connected(id);
        links.request = 0;
        links.peer = request.from.or(links.peer);
        endpoint.start(&mut state, &mut links, id)?;
        endpoint.occur(&links, FI_CONNECTED, Vec::new());
        drop(links);
        state.endpoints.insert(id, Arc::clone(&endpoint));
        state.advance().map(drop)
    })
}

/// What was sent before is delivered; then the peer is told.
unsafe extern "C" fn shutdown(ep: *mut fid_ep, flags: u64) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::given::<Endpoint>(ep) }?;
        if flags != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let mut state = endpoint.domain.engine().enter();
        let id = endpoint.links().connection();
        state.worker.close(id.ok_or(Errno::NOT_CONNECTED)?);
        state.advance().map(drop)
    })
}

/// Gives back the program's memory at once. What was injected is still delivered.
unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    errno::status(|| {
        // SAFETY: libfabric's promise.
        let endpoint = unsafe { object::shared::<Endpoint>(fid.cast()) }?;
        let mut state = endpoint.domain.engine().enter();
        let id = {
            let mut links = endpoint.links();
            links.early.clear();
            links.arrivals.clear();
            let id = links.connection();
            links.stage = Stage::Over;
            if let Some(eq) = links.eq.take() {
                eq.forget(fid);
            }
            id
        };
        for number in state.operations.find(|it| is_of(it, &endpoint)) {
            let operation = state.operations.remove(number);
            let requests = operation.map(|it| it.requests).unwrap_or_default();
            let connection = id.and_then(|id| state.worker.connection(id));
            if let Some(connection) = connection {
                for request in requests {
                    connection.cancel(request);
                }
            }
        }
        if let Some(id) = id {
            state.endpoints.remove(&id);
            state.worker.close(id);
            let _ = state.advance();
        }
        drop(state);
        drop(endpoint);
        // SAFETY: libfabric's promise.
        unsafe { object::take_back::<Endpoint>(fid) }.map(drop)
    })
}
