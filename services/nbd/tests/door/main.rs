//! Tests the door over a disk of another host, with programs and with hostile clients.

#![allow(non_snake_case)]

mod clients;
mod lab;
mod programs;
mod raw;
