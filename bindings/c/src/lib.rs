//! Implements Zerolane's C interface, which `include/zerolane.h` declares.
//!
//! Functions return a [`status::zl_status`]; [`status::zl_last_error`] keeps the text of each thread's last failure.
//! Handles are boxes passed to C as pointers. The content of a handle is behind a lock that is only tried ([`owned`]):
//! a second thread and a child of fork get an error code, never undefined behaviour. [`status::guard`] catches panics.
//!
//! Every `unsafe` here relies on promises that only C can keep ([`pointer`]): this library returned the handle, and it
//! is not freed yet; a pointer with a length names that many bytes; an output is writable and aligned; a text ends with
//! a zero.
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
pub mod datagram;
pub mod delivery;
pub mod device;
pub mod endpoint;
pub mod event;
pub mod exported;
pub mod fetch;
pub mod incoming;
pub mod key;
pub mod message;
pub mod options;
mod owned;
pub mod path;
mod pointer;
pub mod pool;
pub mod queue;
pub mod region;
pub mod remote;
mod requests;
pub mod security;
pub mod set;
mod shared;
pub mod status;
pub mod streams;
pub mod transfer;
pub mod version;
pub mod work;
pub mod worker;
