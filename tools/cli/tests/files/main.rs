//! Tests the file commands as processes, with real files over loopback.

#![allow(non_snake_case)]

mod activation;
mod code;
mod config;
mod confined;
mod connections;
#[path = "../content/mod.rs"]
mod content;
mod copy;
mod doctor;
mod full;
mod kept;
mod key_lists;
mod keys;
mod lab;
mod lanes;
mod limits;
mod links;
mod list;
mod log;
mod login;
mod meet;
mod metrics;
mod outage;
mod patterns;
mod prompt;
mod remote;
mod stream;
mod sync;
mod temporary;
mod within;
mod words;
