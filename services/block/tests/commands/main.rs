//! Tests that each command follows its standard, in the families of libiscsi's tests.
#![allow(non_snake_case)]

#[path = "../support/mod.rs"]
mod support;

mod attention;
mod compare_and_write;
mod cut;
mod errors;
mod inquiry;
mod luns;
mod mode;
mod opcodes;
mod read_write;
mod readers;
mod reservations;
mod small;
mod tasks;
mod unmap;
mod verify;
mod write_same;
