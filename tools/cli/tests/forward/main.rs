//! Tests `zerolane forward`: over loopback as any user, and between two hosts in namespaces as root.

#![allow(non_snake_case)]

#[path = "../content/mod.rs"]
mod content;
mod faults;
mod hosts;
mod lab;
mod login;
mod passes;
#[path = "../programs/mod.rs"]
mod programs;
mod refused;
