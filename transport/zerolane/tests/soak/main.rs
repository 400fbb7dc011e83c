//! Tests that random operations of several initiators over bad links give the results of an oracle.
//!
//! The links lose, reorder, duplicate and jitter; connections are encrypted and plain; every process has a limit of
//! memory.
//!
//! ```text
//! ZEROLANE_SOAK_SECONDS=7200 cargo test -p zerolane --test soak -- --nocapture
//! ZEROLANE_SEED=17 cargo test -p zerolane --test soak -- --nocapture
//! ```
//!
//! It runs in rounds, each with the next seed, which decides the link, the mode and the operations. As root, the
//! processes are in network namespaces of an emulated network; otherwise they are on loopback, with a relay as the
//! link.
//!
//! | module | holds |
//! |---|---|
//! | `round` | starts the processes of a round, and sums up their reports |
//! | `initiator` | requests random operations, and verifies their results |
//! | `target` | owns the memory |
//! | `oracle`, `content` | the expected content of the memory; bytes that identify their offset |
//! | `process`, `protocol` | the bounds of a process; the messages between processes |
//! | `link`, `dice` | the links by seed; random numbers |
#![allow(non_snake_case, unreachable_pub)]

mod content;
mod dice;
mod initiator;
mod link;
mod oracle;
mod process;
mod protocol;
mod round;
mod target;

use process::Role;
use std::time::{Duration, Instant};

/// Initiators of one target.
pub const INITIATORS: usize = 3;

/// Longest payload of a message, bytes.
pub const MESSAGE_LEN: u64 = 1 << 20;

/// Working time of a round.
const ROUND: Duration = Duration::from_secs(60);

/// Total time, unless the environment sets another.
const DEFAULT_SECONDS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

#[test]
fn soak__what_was_asked_for_comes_true_and_nothing_else() {
    let seconds = number("ZEROLANE_SOAK_SECONDS").unwrap_or(DEFAULT_SECONDS);
    let total = Duration::from_secs(seconds);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = number("ZEROLANE_SEED").unwrap_or_else(|| now.map_or(0, |it| it.as_secs()));
    println!("soak of {seconds} s, from ZEROLANE_SEED={first}");
    let start = Instant::now();
    let mut all = round::Summary::default();
    for seed in first.. {
        let left = total.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        match round::run(seed, left.min(ROUND)) {
            Ok(summary) => all.add(&summary),
            Err(failure) => panic!("ZEROLANE_SEED={seed} failed: {failure}"),
        }
    }
    println!("soak of {:.0?} done: {all}", start.elapsed());
}

/// Not a test: the code of the soak's processes.
#[test]
fn role__of_a_process_of_the_soak() {
    let Some(role) = Role::of_this_process() else {
        return;
    };
    role.bound();
    match role.name.as_str() {
        "target" => target::run(&role),
        _ => initiator::run(&role),
    }
}
