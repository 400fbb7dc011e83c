//! Tests that general programs can use remote disks through `zerolane disk attach`: fio, which verifies what it wrote,
//! and file systems.

#![allow(non_snake_case)]

#[path = "../content/mod.rs"]
mod content;
mod filesystems;
#[path = "../fuse/mod.rs"]
mod fuse;
mod lab;
mod paths;
#[path = "../programs/mod.rs"]
mod programs;
#[path = "../running/mod.rs"]
#[allow(dead_code)]
mod running;
mod verify;
