//! Tests the replay with captures made in code.

#![allow(non_snake_case)]

mod counts;
mod formats;
mod links;
mod support;
