//! One battery over the lanes, through real sockets.
//!
//! ```text
//!  cases.rs   what every path must do        x  path.rs  how two ends reach each other
//!  clean.rs   what holds without loss: deterministic counts, strict mode, offloads
//!  death.rs   no listener, peers that vanish
//!  delivery.rs  what wakes a receiver that waits
//!  eager.rs   payload that leaves with its announcement
//!  faults.rs  what happens to interfaces in the middle of a Transfer; strangers' datagrams
//!  finish.rs  one direction that is finished
//!  files.rs   mapped files as memory
//!  incast.rs  several senders, one receiver
//!  link_local.rs  addresses of one link, with their interface
//!  marks.rs   ECN: what leaves capable, and is counted
//!  rates.rs  what is printed by the clock
//!  roam.rs    addresses that change in the middle of a Transfer
//! ```
//!
//! Every payload is verified by content: a word tells the Transfer it belongs to and its offset.
//! Timeouts only bound how long a failure takes to show, except where silence is what is tested: `death.rs`
//! and `faults.rs` sleep. What a busy machine can make fail (`clean.rs`) is ignored unless asked for.
//!
//! Another lane, or another path between two ends, is one more variant of
//! [`path::Path`] and one more line in `cases.rs`.
#![allow(non_snake_case, missing_docs, unreachable_pub)]

mod cases;
mod clean;
mod content;
mod death;
mod delivery;
mod drive;
mod eager;
mod faults;
mod files;
mod finish;
mod immediates;
mod incast;
mod link_local;
mod marks;
mod path;
mod rates;
mod roam;
