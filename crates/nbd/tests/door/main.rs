//! The door over a disk of another host: by programs, and by clients that speak NBD as none should.

#![allow(non_snake_case)]

mod clients;
mod lab;
mod programs;
mod raw;
