//! Implements the extension module of the Python package `zerolane`.
//!
//! Three rules hold everywhere. Every wait for the network or a lock first releases the interpreter: a thread that
//! holds the interpreter never waits for one that needs it. Python's memory never becomes a Rust reference: the buffer
//! protocol pins it (`pinned`) and it is posted by address, so Python code that writes a buffer in use corrupts only its
//! content. A worker's thread never needs the interpreter: other threads release the buffers it drops
//! (`release`).

mod account;
mod address;
mod aside;
mod background;
mod buffer;
mod cast;
mod closing;
mod completion;
mod connection;
mod device;
mod driven;
mod dropped;
mod endpoint;
mod errors;
mod exported;
mod fetch;
mod files;
mod incoming;
mod messages;
mod options;
mod path;
mod patience;
mod pending;
mod pieces;
mod pinned;
mod pool;
mod queue;
mod release;
mod remote;
mod requests;
mod shared;
mod streams;
mod view;
mod worker;

/// The extension module. The package re-exports its content.
#[pyo3::pymodule]
mod _zerolane {
    #[pymodule_export]
    use crate::account::Account;
    #[pymodule_export]
    use crate::background::{ConnectionHandle, EndpointHandle, WorkerThread, background};
    #[pymodule_export]
    use crate::cast::{CastOutcome, CastReceiver, HostOutcome, cast};
    #[pymodule_export]
    use crate::completion::Completion;
    #[pymodule_export]
    use crate::connection::{Connection, connect};
    #[pymodule_export]
    use crate::device::EthernetDevice;
    #[pymodule_export]
    use crate::endpoint::Endpoint;
    #[pymodule_export]
    use crate::exported::{ExportedRegion, Key};
    #[pymodule_export]
    use crate::fetch::FetchOp;
    #[pymodule_export]
    use crate::files::{FileClient, FileStatus, FileUpload};
    #[pymodule_export]
    use crate::incoming::Incoming;
    #[pymodule_export]
    use crate::options::Options;
    #[pymodule_export]
    use crate::path::Path;
    #[pymodule_export]
    use crate::pending::{Pending, PendingSet};
    #[pymodule_export]
    use crate::pieces::Pieces;
    #[pymodule_export]
    use crate::pool::ReceivePool;
    #[pymodule_export]
    use crate::queue::CompletionQueue;
    #[pymodule_export]
    use crate::requests::Requests;
    #[pymodule_export]
    use crate::streams::{Stream, Streams};
    #[pymodule_export]
    use crate::worker::{Event, Listener, Worker};
}
