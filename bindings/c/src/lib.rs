//! Zerolane's C interface: what `include/zerolane.h` declares.
//!
//! Functions return a [`status::zl_status`]; the text of the last failure is kept for each thread
//! ([`status::zl_last_error`]). Handles are boxes given out as pointers. What a handle holds is behind
//! a lock that is only ever tried ([`owned`]): a second thread, and a child of fork, get an error code, never undefined
//! behaviour. No panic leaves: [`status::guard`] catches it.
//!
//! Contracts that only C can keep, and on which every `unsafe` here rests ([`pointer`]):
//! a handle was returned by this library and is not freed yet; a pointer with a length names that many
//! bytes; an output is writable and aligned; a text ends with a zero.
#![allow(
    non_camel_case_types,
    reason = "the names are those of the C interface"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header's readers are told once, at its top and in docs/guide/c.md"
)]

pub mod address;
pub mod completion;
pub mod connection;
pub mod device;
pub mod endpoint;
pub mod event;
pub mod exported;
pub mod handle;
pub mod message;
pub mod options;
mod owned;
pub mod partial;
pub mod path;
pub mod pending;
mod pointer;
pub mod queue;
pub mod region;
pub mod remote;
pub mod renamed;
pub mod security;
pub mod status;
pub mod thread;
pub mod transfer;
pub mod version;
pub mod work;
pub mod worker;
