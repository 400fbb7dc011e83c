//! Implements the `zerolane` command: its subcommands, and the output and exit codes that they share.
//!
//! `zerolane-bench` adds the benchmark and the demo to these commands. They need quinn, rustls and tokio, which
//! `zerolane cp` does not.

#![forbid(unsafe_code)]

mod address;
pub mod bypass;
mod cast;
mod commands;
mod config;
pub mod console;
mod descriptors;
mod disk;
mod doctor;
pub mod exit;
mod explain;
mod files;
mod forward;
pub mod generate;
mod host;
mod input;
pub mod interrupt;
mod keys;
pub mod lab;
pub mod lane;
mod lanes;
mod login;
mod mem;
pub mod paths;
mod ports;
pub mod program;
mod rate;
mod run;
mod security;
mod trace;
mod transport;
mod tunnel;
pub mod units;

pub use commands::{Args, Command};
