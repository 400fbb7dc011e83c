//! `zerolane serve`, `cp` and `ls` as a user starts them: real files over loopback, and what goes
//! wrong.

#![allow(non_snake_case)]

mod code;
mod confined;
mod copy;
mod keys;
mod lab;
mod links;
mod temporary;
