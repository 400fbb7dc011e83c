//! Tests `zerolane up`, `down` and `show` between two hosts in namespaces: with sockets of the kernel inside.

#![allow(non_snake_case)]

#[path = "../content/mod.rs"]
mod content;
mod dscp;
mod flood;
mod hosts;
mod lab;
mod login;
mod programs;
mod quic;
mod rights;
mod routes;
mod segments;
