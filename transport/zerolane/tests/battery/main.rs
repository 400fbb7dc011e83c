//! Tests that every lane passes one battery of tests, through real sockets.
//!
//! ```text
//!  cases.rs   what every path must do        x  path.rs  paths between two ends
//!  clean.rs   guarantees without loss: deterministic counts, strict mode, offloads
//!  datagrams.rs  datagrams, which may be lost
//!  death.rs   no listener, peers that vanish
//!  delivery.rs  what wakes a receiver that waits
//!  eager.rs   payload sent with its announcement
//!  faults.rs  interface changes in the middle of a Transfer; datagrams of unauthenticated peers
//!  finish.rs  one direction that is finished
//!  files.rs   mapped files as memory
//!  immediates.rs  immediates behind earlier puts
//!  inline.rs      puts and messages of copies
//!  incast.rs  several senders, one receiver
//!  link_local.rs  addresses of one link, with their interface
//!  marks.rs   ECN: capable datagrams, and counts of marks; DSCP
//!  pooled.rs  messages into memory of a pool
//!  private.rs  data of the program in the request and its answer
//!  rates.rs  measured rates, printed
//!  roam.rs    addresses that change in the middle of a Transfer
//! ```
//!
//! Every payload is verified by content: each word identifies its Transfer and offset. Timeouts only bound how long a
//! failure takes to show, except where silence is tested: `death.rs` and `faults.rs` sleep. Tests that a busy machine
//! can make fail (`clean.rs`) are ignored by default, and so are measurements (`rates.rs`).
//!
//! A new lane, or a new path between two ends, is one more variant of [`path::Path`] and one more line in `cases.rs`.
//! `death.rs`, `faults.rs`, `files.rs`, `link_local.rs` and `rates.rs` have lists of their own.
#![allow(non_snake_case, missing_docs, unreachable_pub)]

#[path = "../content/mod.rs"]
mod bytes;
mod cases;
mod clean;
mod content;
mod datagrams;
mod death;
mod delivery;
mod drive;
mod eager;
mod faults;
mod files;
mod finish;
mod immediates;
mod incast;
mod inline;
mod link_local;
mod marks;
mod path;
mod pooled;
mod private;
mod rates;
mod roam;
