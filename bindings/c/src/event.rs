//! Defines the events of a worker.

use crate::completion::zl_completion;
use crate::connection::zl_connection;
use crate::endpoint::zl_endpoint;
use crate::shared::Shared;
use crate::status::{of_error, zl_status};
use std::ptr;
use std::sync::Arc;
use zerolane::worker::{Event, Worker};

/// The kind of an event.
#[repr(u32)]
pub enum zl_event_kind {
    /// `endpoint` accepted `connection`, which is the program's from now on.
    ZL_EVENT_ACCEPTED = 1,
    /// The socket of `endpoint` failed, with `status`; the endpoint is closed.
    ZL_EVENT_ENDPOINT_FAILED = 2,
    /// `connection`, from zl_worker_connect, is established. Requests posted before start now.
    ZL_EVENT_CONNECTED = 3,
    /// A request of `connection` is over, or an immediate arrived: `completion`.
    ZL_EVENT_COMPLETED = 4,
    /// The peer of `connection` announced a Transfer of `length` bytes that no posted receive
    /// matches. Reported once for each such Transfer.
    ZL_EVENT_ANNOUNCED = 5,
    /// `connection` is over, or could not be made, with `status`. Its last event: all its
    /// requests have completed. Free it with zl_connection_free.
    ZL_EVENT_CLOSED = 6,
    /// A client asks `endpoint` for `connection`, instead of ZL_EVENT_ACCEPTED, if the endpoint has
    /// ZL_OPTION_ASKS. zl_peer_data, zl_peer_key and zl_peer_addr show who asks;
    /// zl_worker_accept_request or zl_worker_refuse_request answers. It is the program's, too.
    ZL_EVENT_REQUESTED = 7,
    /// Datagrams of the peer of `connection` wait: zl_recv_datagram. Reported again for later ones
    /// once it was called.
    ZL_EVENT_DATAGRAMS = 8,
    /// A kind that this version does not know.
    ZL_EVENT_OTHER = 255,
}

/// An event of a worker.
#[repr(C)]
pub struct zl_event {
    /// A value of enum zl_event_kind. Later versions may add values.
    pub kind: u32,
    /// The reason of ZL_EVENT_ENDPOINT_FAILED and ZL_EVENT_CLOSED; otherwise ZL_OK.
    pub status: zl_status,
    /// The endpoint, from zl_worker_listen; null if none, or if it was freed.
    pub endpoint: *mut zl_endpoint,
    /// The connection; null if none.
    pub connection: *mut zl_connection,
    /// ZL_EVENT_ANNOUNCED: bytes.
    pub length: u64,
    /// 0.
    pub reserved: u64,
    /// ZL_EVENT_COMPLETED: the completion.
    pub completion: zl_completion,
}

impl zl_event {
    /// The next event for the program. Those of freed handles are dropped.
    pub(crate) fn next(shared: &Arc<Shared>, worker: &mut Worker) -> Option<zl_event> {
        loop {
            let event = shared.next_event(worker)?;
            if let Some(event) = zl_event::told(shared, event) {
                return Some(event);
            }
        }
    }

    fn told(shared: &Arc<Shared>, event: Event) -> Option<zl_event> {
        let (mut endpoint, mut connection) = (ptr::null_mut(), ptr::null_mut());
        match &event {
            Event::Accepted {
                endpoint: by,
                connection: accepted,
            } => {
                let by = shared.endpoint(*by);
                endpoint = by.map_or(ptr::null_mut(), |it| it.handle());
                connection = zl_connection::lend(shared, *accepted, true);
            }
            Event::Requested {
                endpoint: by,
                connection: asked,
            } => {
                let by = shared.endpoint(*by);
                endpoint = by.map_or(ptr::null_mut(), |it| it.handle());
                connection = zl_connection::lend(shared, *asked, false);
            }
            Event::EndpointFailed { endpoint: id, .. } => {
                endpoint = shared.end_endpoint(*id)?.handle();
            }
            Event::Connected { connection: id } => {
                let connected = shared.connection(*id)?;
                connected.set_established();
                connection = connected.handle();
            }
            Event::Completed { connection: id, .. }
            | Event::Announced { connection: id, .. }
            | Event::Datagrams { connection: id } => {
                connection = shared.connection(*id)?.handle();
            }
            Event::Closed { connection: id, .. } => {
                connection = shared.end_connection(*id)?.handle();
            }
            _ => {}
        }
        Some(zl_event::new(event, endpoint, connection))
    }

    fn new(event: Event, endpoint: *mut zl_endpoint, connection: *mut zl_connection) -> zl_event {
        let mut flat = zl_event {
            kind: zl_event_kind::ZL_EVENT_OTHER as u32,
            status: zl_status::ZL_OK,
            endpoint,
            connection,
            length: 0,
            reserved: 0,
            completion: zl_completion::NONE,
        };
        let kind = match event {
            Event::Accepted { .. } => zl_event_kind::ZL_EVENT_ACCEPTED,
            Event::Requested { .. } => zl_event_kind::ZL_EVENT_REQUESTED,
            Event::EndpointFailed { error, .. } => {
                flat.status = of_error(&error);
                zl_event_kind::ZL_EVENT_ENDPOINT_FAILED
            }
            Event::Connected { .. } => zl_event_kind::ZL_EVENT_CONNECTED,
            Event::Completed { completion, .. } => {
                flat.completion = zl_completion::new(0, completion);
                zl_event_kind::ZL_EVENT_COMPLETED
            }
            Event::Announced { length, .. } => {
                flat.length = length;
                zl_event_kind::ZL_EVENT_ANNOUNCED
            }
            Event::Datagrams { .. } => zl_event_kind::ZL_EVENT_DATAGRAMS,
            Event::Closed { reason, .. } => {
                flat.status = of_error(&reason);
                zl_event_kind::ZL_EVENT_CLOSED
            }
            _ => zl_event_kind::ZL_EVENT_OTHER,
        };
        flat.kind = kind as u32;
        flat
    }
}
