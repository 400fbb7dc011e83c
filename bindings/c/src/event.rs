//! Defines the events of a worker.

use crate::completion::zl_completion;
use crate::status::{of_error, zl_status};
use zerolane::worker::Event;

/// The kind of an event.
#[repr(u32)]
pub enum zl_event_kind {
    /// `endpoint` accepted `connection`.
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
    /// requests have completed.
    ZL_EVENT_CLOSED = 6,
    /// A client asks `endpoint` for `connection`, instead of ZL_EVENT_ACCEPTED, if the endpoint has
    /// ZL_OPTION_ASKS. zl_peer_data, zl_peer_key and zl_peer_addr of its handle
    /// (zl_worker_connection) show who asks; zl_worker_accept_request or
    /// zl_worker_refuse_request answers.
    ZL_EVENT_REQUESTED = 7,
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
    /// The endpoint's number, from zl_worker_listen; 0 if none.
    pub endpoint: u64,
    /// The connection's number; 0 if none.
    pub connection: u64,
    /// ZL_EVENT_ANNOUNCED: bytes.
    pub length: u64,
    /// 0.
    pub reserved: u64,
    /// ZL_EVENT_COMPLETED: the completion, with the connection's number as its tag.
    pub completion: zl_completion,
}

impl From<Event> for zl_event {
    fn from(event: Event) -> zl_event {
        let nothing = zl_event {
            kind: zl_event_kind::ZL_EVENT_OTHER as u32,
            status: zl_status::ZL_OK,
            endpoint: 0,
            connection: 0,
            length: 0,
            reserved: 0,
            completion: zl_completion::NONE,
        };
        match event {
            Event::Accepted {
                endpoint,
                connection,
            } => zl_event {
                kind: zl_event_kind::ZL_EVENT_ACCEPTED as u32,
                endpoint: endpoint.to_u64(),
                connection: connection.to_u64(),
                ..nothing
            },
            Event::Requested {
                endpoint,
                connection,
            } => zl_event {
                kind: zl_event_kind::ZL_EVENT_REQUESTED as u32,
                endpoint: endpoint.to_u64(),
                connection: connection.to_u64(),
                ..nothing
            },
            Event::EndpointFailed { endpoint, error } => zl_event {
                kind: zl_event_kind::ZL_EVENT_ENDPOINT_FAILED as u32,
                status: of_error(&error),
                endpoint: endpoint.to_u64(),
                ..nothing
            },
            Event::Connected { connection } => zl_event {
                kind: zl_event_kind::ZL_EVENT_CONNECTED as u32,
                connection: connection.to_u64(),
                ..nothing
            },
            Event::Completed {
                connection,
                completion,
            } => zl_event {
                kind: zl_event_kind::ZL_EVENT_COMPLETED as u32,
                connection: connection.to_u64(),
                completion: zl_completion::new(connection.to_u64(), completion),
                ..nothing
            },
            Event::Announced { connection, length } => zl_event {
                kind: zl_event_kind::ZL_EVENT_ANNOUNCED as u32,
                connection: connection.to_u64(),
                length,
                ..nothing
            },
            Event::Closed { connection, reason } => zl_event {
                kind: zl_event_kind::ZL_EVENT_CLOSED as u32,
                status: of_error(&reason),
                connection: connection.to_u64(),
                ..nothing
            },
            _ => nothing,
        }
    }
}
