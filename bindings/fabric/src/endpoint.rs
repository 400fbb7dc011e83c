//! Connects active endpoints, binds queues to them, and posts their operations.

use crate::cm::{Answer, Ask};
use crate::completions::{Completed, Entry};
use crate::counter::Counter;
use crate::cq::Cq;
use crate::domain::Domain;
use crate::engine::State;
use crate::eq::{Eq, Occurrence};
use crate::errno::{self, Cause, Errno, Outcome};
use crate::libfabric::*;
use crate::object::{Head, Object};
use crate::operations::{Kind, Operation, Owner, is_of};
use crate::receives::{Arrivals, Arrived, MOST_EARLY, Receive};
use crate::shared_receives::SharedReceives;
use std::ffi::c_void;
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

/// What an endpoint is made from.
pub(crate) struct Made {
    pub(crate) tx_flags: u64,
    pub(crate) rx_flags: u64,
    pub(crate) shares: bool,
    /// The handle of a request, or 0.
    pub(crate) request: usize,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
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
    pub(crate) fn new(head: fid_ep, domain: Arc<Domain>, made: Made) -> Endpoint {
        Endpoint {
            head: Head::new(head),
            domain,
            tx_flags: made.tx_flags,
            rx_flags: made.rx_flags,
            shares: made.shares,
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
                request: made.request,
                local: made.local,
                peer: made.peer,
                early: Vec::new(),
                arrivals: Arrivals::default(),
            }),
        }
    }

    /// Binds something while the endpoint is new.
    ///
    /// # Errors
    /// It is enabled already, or `bind` refuses.
    fn bind(&self, bind: impl FnOnce(&mut Links) -> Outcome) -> Outcome {
        let mut links = self.links();
        match links.stage {
            Stage::New => bind(&mut links),
            _ => Err(Errno::STATE),
        }
    }

    /// # Errors
    /// It has one, or is enabled already.
    pub(crate) fn bind_eq(&self, eq: Arc<Eq>) -> Outcome {
        self.bind(|links| bind_once(&mut links.eq, eq))
    }

    /// # Errors
    /// It has one, takes receives of its own, or is enabled already.
    pub(crate) fn bind_shared(&self, shared: Arc<SharedReceives>) -> Outcome {
        self.bind(|links| match self.shares {
            true => bind_once(&mut links.shared, shared),
            false => Err(Errno::INVALID),
        })
    }

    /// # Errors
    /// It has one for these operations, the flags name none, or it is enabled already.
    pub(crate) fn bind_queue(&self, cq: Arc<Cq>, flags: u64) -> Outcome {
        self.bind(|links| bind_queue(links, cq, flags))
    }

    /// # Errors
    /// As for [`Endpoint::bind_queue`].
    pub(crate) fn bind_counter(&self, counter: &Arc<Counter>, flags: u64) -> Outcome {
        self.bind(|links| bind_counter(links, counter, flags))
    }

    /// # Errors
    /// Something that it needs is not bound, or it is enabled already.
    pub(crate) fn enable(&self) -> Outcome {
        self.bind(|links| {
            if links.eq.is_none() {
                return Err(Errno(FI_ENOEQ));
            }
            if links.tx.is_none() && links.rx.is_none() {
                return Err(Errno(FI_ENOCQ));
            }
            if self.shares && links.shared.is_none() {
                return Err(Errno(FI_ENORX));
            }
            links.stage = Stage::Enabled;
            Ok(())
        })
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.links().local
    }

    /// The peer, while there is a connection.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        let links = self.links();
        links.connection().and(links.peer)
    }

    /// Begins to connect to `to`, or to the destination of the info that the endpoint was made from.
    ///
    /// # Errors
    /// It is not enabled, is connected, or was made for a request; or there is no route.
    pub(crate) fn connect(self: &Arc<Self>, to: Option<SocketAddr>, data: Vec<u8>) -> Outcome {
        let engine = self.domain.engine();
        let mut state = engine.enter()?;
        let mut links = self.links();
        let to = to.or(links.peer).ok_or(Errno::INVALID)?;
        match links.stage {
            Stage::Enabled if links.request == 0 => {}
            Stage::Connecting(_) | Stage::Connected(_) => return Err(Errno(FI_EISCONN)),
            _ => return Err(Errno::STATE),
        }
        let from = links.local.filter(|it| !it.ip().is_unspecified());
        let ask = Ask { from, data }.encode()?;
        let options = engine.settings.options();
        let options = options.with(|it| it.private_data = Some(ask));
        let id = state.worker.connect(to, &options)?;
        links.stage = Stage::Connecting(id);
        links.peer = Some(to);
        let started = self.start(&mut state, &mut links, id);
        drop(links);
        state.endpoints.insert(id, self.owner());
        started?;
        state.advance().map(drop)
    }

    /// Accepts the request that the endpoint was made for.
    ///
    /// # Errors
    /// It is not enabled or was made for none; or the client gave up.
    pub(crate) fn accept(self: &Arc<Self>, data: Vec<u8>) -> Outcome {
        let mut state = self.domain.engine().enter()?;
        let mut links = self.links();
        if links.stage != Stage::Enabled || links.request == 0 {
            return Err(Errno::STATE);
        }
        let answer = Answer::Accepted(data).encode()?;
        let request = state.decide(links.request as *mut fid)?;
        let id = request.connection;
        if !state.worker.accept_request(id, Some(answer)) {
            return Err(Errno(FI_ECONNABORTED));
        }
        links.stage = Stage::Connected(id);
        links.request = 0;
        links.peer = request.from.or(links.peer);
        self.start(&mut state, &mut links, id)?;
        self.occur(&links, FI_CONNECTED, Vec::new());
        drop(links);
        state.endpoints.insert(id, self.owner());
        state.advance().map(drop)
    }

    /// Begins to close the connection: what was sent before is delivered, then the peer is told.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn shutdown(&self) -> Outcome {
        let mut state = self.domain.engine().enter()?;
        let id = self.links().connection();
        state.worker.close(id.ok_or(Errno::NOT_CONNECTED)?);
        state.advance().map(drop)
    }

    /// Cancels the first operation with this context; its completion follows.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn cancel(self: &Arc<Self>, context: usize) -> Outcome {
        let mut state = self.domain.engine().enter()?;
        let early = {
            let mut links = self.links();
            let at = links.early.iter().position(|it| it.context() == context);
            at.map(|at| links.early.remove(at))
        };
        if let Some(receive) = early {
            self.on_finished(receive.cancelled(), 0, None);
            return Ok(());
        }
        let wanted = |it: &Operation| it.context == context && is_of(it, self);
        let found = state.operations.find(wanted);
        let first = found.first().ok_or(Errno(FI_ENOENT))?;
        let operation = state.operations.get(*first).ok_or(Errno(FI_ENOENT))?;
        let requests = operation.requests.clone();
        let connection = self.connection(&mut state)?;
        for request in requests {
            connection.cancel(request);
        }
        state.advance().map(drop)
    }

    /// Gives the program's memory back at once, and ends the connection. What was injected is still delivered.
    ///
    /// # Errors
    /// It belongs to the parent process.
    pub(crate) fn end(self: &Arc<Self>) -> Outcome {
        let mut state = self.domain.engine().enter()?;
        let id = {
            let mut links = self.links();
            links.early.clear();
            links.arrivals.clear();
            let id = links.connection();
            links.stage = Stage::Over;
            if let Some(eq) = links.eq.take() {
                eq.forget(self.as_fid());
            }
            id
        };
        for number in state.operations.find(|it| is_of(it, self)) {
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
        Ok(())
    }

    fn owner(self: &Arc<Self>) -> Arc<dyn Owner> {
        let owner: Arc<Endpoint> = Arc::clone(self);
        owner
    }

    /// An operation of this endpoint, with the flags of its call.
    pub(crate) fn operation(
        self: &Arc<Self>,
        kind: Kind,
        context: *mut c_void,
        flags: u64,
    ) -> Operation {
        Operation {
            owner: Some(self.owner()),
            ..Operation::new(kind, context, self.reports(kind, flags))
        }
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an operation with these flags is reported when it succeeds.
    fn reports(&self, kind: Kind, flags: u64) -> bool {
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
            Stage::Enabled if links.early.len() >= MOST_EARLY => Err(Errno::AGAIN),
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

impl Owner for Endpoint {
    fn on_finished(&self, operation: Operation, length: usize, data: Option<u32>) {
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

    fn on_immediate(&self, number: u32, length: usize) -> bool {
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

    fn on_connected(&self, data: &[u8]) -> bool {
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

    fn on_closed(&self, reason: &Error) {
        let mut links = self.links();
        match std::mem::replace(&mut links.stage, Stage::Over) {
            Stage::Connecting(_) => self.fail(&links, errno::of_error(reason), Vec::new()),
            Stage::Connected(_) => self.occur(&links, FI_SHUTDOWN, Vec::new()),
            Stage::New | Stage::Enabled | Stage::Over => {}
        }
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
