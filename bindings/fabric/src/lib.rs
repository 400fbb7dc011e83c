//! Implements a libfabric provider: connected endpoints (`FI_EP_MSG`) over Zerolane.
//!
//! libfabric finds `libzerolane-fi.so` by `FI_PROVIDER_PATH`, and layers its utility provider `ofi_rxm` on it for
//! programs that want datagram endpoints with tags: MPI. The library needs no symbol of libfabric.
//!
//! A fabric is one [`Worker`](zerolane::worker::Worker) behind a lock (`engine`). The program's calls drive it; a
//! thread does while the program makes none (`progress`). An endpoint is a connection, a send is a message, a
//! registered region is an export under a number.
// The names of libfabric's headers.
#![allow(non_camel_case_types)]

mod address;
mod attributes;
mod calls;
mod cm;
mod completions;
mod counter;
mod cq;
mod domain;
mod endpoint;
mod engine;
mod eq;
mod errno;
mod fabric;
mod info;
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    non_upper_case_globals,
    clippy::all
)]
mod libfabric;
mod log;
mod memory;
mod numbers;
mod object;
mod operations;
mod passive;
mod pieces;
mod progress;
mod receives;
mod request;
mod settings;
mod shared_receives;
mod wait;

pub use calls::fi_prov_ini;
