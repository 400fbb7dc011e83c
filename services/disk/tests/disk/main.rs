//! Tests target and initiator over real sockets: content, restarts, kills, rights, reservations, hostile initiators.

#![allow(non_snake_case)]

mod capsules;
mod crash;
mod device;
mod drivers;
mod extents;
mod full;
mod hostile;
mod killed;
mod leaving;
mod losses;
mod luns;
mod media;
mod memory;
mod patience;
mod queue;
mod remote;
mod reservations;
mod rights;
mod support;
