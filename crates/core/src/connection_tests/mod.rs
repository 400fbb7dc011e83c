#![allow(non_snake_case)]

mod sim;
mod write;
