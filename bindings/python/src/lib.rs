//! The extension module behind the Python package `zerolane`.
//!
//! Three rules hold everywhere. The interpreter is released before every wait, for the network or for
//! a lock: a thread that holds the interpreter never waits for one that needs it. Memory of Python
//! is never made a Rust reference: it is pinned by the buffer protocol (`pinned`) and posted by
//! address, so that Python code which writes a buffer in use spoils its content and nothing else. A worker's thread
//! never needs the interpreter: what it lets go of is released by others (`release`).

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
mod endpoint;
mod errors;
mod exported;
mod fetch;
mod messages;
mod options;
mod path;
mod patience;
mod pending;
mod pinned;
mod queue;
mod release;
mod remote;
mod requests;
mod shared;
mod view;
mod worker;

/// The extension module; the package re-exports what is in it.
#[pyo3::pymodule]
mod _zerolane {
    #[pymodule_export]
    use crate::account::Account;
    #[pymodule_export]
    use crate::background::{ConnectionHandle, EndpointHandle, WorkerThread};
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
    use crate::options::Options;
    #[pymodule_export]
    use crate::path::Path;
    #[pymodule_export]
    use crate::pending::{Notices, Pending};
    #[pymodule_export]
    use crate::queue::CompletionQueue;
    #[pymodule_export]
    use crate::requests::Requests;
    #[pymodule_export]
    use crate::worker::{Event, Listener, Worker};
}
