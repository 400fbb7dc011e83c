//! What happened to what a worker owns.

use crate::completion::zl_completion;
use crate::status::{of_error, zl_status};
use zerolane::worker::Event;

/// What happened.
#[repr(u32)]
pub enum zl_event_kind {
    /// `endpoint` accepted `connection`.
    ZL_EVENT_ACCEPTED = 1,
    /// The socket of `endpoint` failed, as `status` says; it is closed.
    ZL_EVENT_ENDPOINT_FAILED = 2,
    /// `connection`, which zl_worker_connect began, stands. Requests posted before begin now.
    ZL_EVENT_CONNECTED = 3,
    /// A request of `connection` is over, or a number of the peer's came: `completion`.
    ZL_EVENT_COMPLETED = 4,
    /// The peer of `connection` announced a Transfer of `length` bytes that no posted receive takes. Told once
    /// until one does.
    ZL_EVENT_ANNOUNCED = 5,
    /// `connection` is over, or could not be made, as `status` says. Its last event: all its requests have
    /// completed.
    ZL_EVENT_CLOSED = 6,
    /// Something that this version does not know.
    ZL_EVENT_OTHER = 255,
}

/// An event of a worker.
#[repr(C)]
pub struct zl_event {
    /// A value of enum zl_event_kind. More may be added.
    pub kind: u32,
    /// Why: ZL_EVENT_ENDPOINT_FAILED, ZL_EVENT_CLOSED. ZL_OK otherwise.
    pub status: zl_status,
    /// Of which endpoint, as zl_worker_listen named it; 0 if of none.
    pub endpoint: u64,
    /// Of which connection; 0 if of none.
    pub connection: u64,
    /// ZL_EVENT_ANNOUNCED: bytes.
    pub length: u64,
    /// 0.
    pub reserved: u64,
    /// ZL_EVENT_COMPLETED: how, with the connection as its tag.
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
