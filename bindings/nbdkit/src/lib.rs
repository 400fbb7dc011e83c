//! The plugin `zerolane` of nbdkit: `nbdkit libzerolane_nbdkit.so host=HOST[:PORT] lun=N`.
//!
//! nbdkit calls from many threads at once, and its buffers are where data is read to and written from: they are lent
//! to the queue until a request is over. One queue serves all NBD connections.
//!
//! | module | what it holds |
//! |---|---|
//! | `abi` | what nbdkit and the plugin know of each other: the table of functions |
//! | `config` | the parameters, and connecting as they say |
//! | `disk` | requests |
//! | `failure` | why one failed |
//! | `guard` | panics, which are failures |

mod abi;
mod config;
mod disk;
mod failure;
mod guard;
