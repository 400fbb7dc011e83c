//! Tests `zerolane run`: over loopback as any user, and between two hosts in namespaces as root.

#![allow(non_snake_case)]

mod calls;
#[path = "../content/mod.rs"]
mod content;
mod faults;
mod hosts;
mod lab;
#[path = "../programs/mod.rs"]
mod programs;
mod refused;
mod servers;
mod trap;
