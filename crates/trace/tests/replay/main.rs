//! Captures made in code, and what is found in them.

#![allow(non_snake_case)]

mod counts;
mod formats;
mod links;
mod support;
