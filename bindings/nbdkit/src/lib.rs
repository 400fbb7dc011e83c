//! Implements the nbdkit plugin `zerolane`: `nbdkit libzerolane_nbdkit.so host=HOST[:PORT] lun=N`.
//!
//! nbdkit calls from many threads at once. Data is read into and written from its buffers, which the plugin lends to
//! the queue until a request is over. One queue serves all NBD connections.
//!
//! | module | content |
//! |---|---|
//! | `abi` | nbdkit's interface: the table of functions |
//! | `config` | the parameters, and connecting with them |
//! | `disk` | requests |
//! | `failure` | reasons of failures |
//! | `guard` | panics, which become failures |
//! | `memory` | the memory that a request returns |

mod abi;
mod config;
mod disk;
mod failure;
mod guard;
mod memory;
