//! Asks the runner, `zerolane run`, about the TCP connections of the program that this library is loaded into.
//!
//! The functions of C that make and accept connections are the kernel's first. If the runner carries a connection, the
//! program's descriptor becomes a TCP socket that is connected to the runner over loopback, and the runner gets the
//! original. Everything else, data above all, is between the program and the kernel. The library keeps nothing that a
//! `fork`, a `dup` or a closed descriptor could make wrong: it finds its sockets by their peer, the runner's port.
//!
//! A program may call from a signal handler or after `vfork`: nothing here allocates or waits for a lock. Where
//! anything fails, the program's connection stays the kernel's.

mod calls;
mod handed;
mod real;
mod registered;
mod runner;

pub use calls::{accept, accept4, bind, connect, epoll_ctl, getpeername, getsockname, listen};
