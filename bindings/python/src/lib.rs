//! The extension module behind the Python package `zerolane`.
//!
//! Two rules hold everywhere. The interpreter is released before every wait, for the network or for
//! a lock: a thread that holds the interpreter never waits for one that needs it. And memory of Python
//! is never made a Rust reference: it is pinned by the buffer protocol (`pinned`) and posted by
//! address, so that Python code which writes a buffer in use spoils its content and nothing else.

mod account;
mod address;
mod completion;
mod connection;
mod endpoint;
mod errors;
mod exported;
mod messages;
mod options;
mod patience;
mod pinned;
mod queue;
mod remote;

/// The extension module; the package re-exports what is in it.
#[pyo3::pymodule]
mod _zerolane {
    #[pymodule_export]
    use crate::account::Account;
    #[pymodule_export]
    use crate::completion::Completion;
    #[pymodule_export]
    use crate::connection::{Connection, connect};
    #[pymodule_export]
    use crate::endpoint::Endpoint;
    #[pymodule_export]
    use crate::exported::{ExportedRegion, Key};
    #[pymodule_export]
    use crate::options::Options;
    #[pymodule_export]
    use crate::queue::CompletionQueue;
}
