//! Makes the table of completion times of `docs/cast.md`, and its plot. Beside each row, on standard error: its CPU time.
//!
//! `cargo run --release -p zerolane-cast --example times -- [MOST_NODES] [PLOT.svg]`; `ZEROLANE_SEED` is the seed, 1 unless set,
//! and `ZEROLANE_LEAST_NODES` leaves the rows of fewer nodes out.

use std::time::Duration;

use zerolane_cast::sim::table::{HEAD, NODES, cases, plot, row};

/// Time that this thread was on a processor; none where the kernel does not count it.
fn cpu() -> Option<Duration> {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = counted.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

fn main() -> std::io::Result<()> {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse().ok());
    let seed = number("ZEROLANE_SEED").unwrap_or(1);
    let least = number("ZEROLANE_LEAST_NODES").unwrap_or(0);
    let mut arguments = std::env::args().skip(1);
    let most = arguments.next().and_then(|it| it.parse().ok());
    let most = most.unwrap_or(u64::MAX);
    eprintln!("ZEROLANE_SEED={seed}");
    println!("{HEAD}");
    let mut rows = Vec::new();
    for nodes in NODES {
        if !(least..=most).contains(&u64::from(nodes)) {
            continue;
        }
        for case in cases(nodes, seed) {
            let began = cpu();
            let row = row(case);
            println!("{row}");
            if let (Some(began), Some(now)) = (began, cpu()) {
                eprintln!("{:.1} s of CPU", (now - began).as_secs_f64());
            }
            rows.push(row);
        }
    }
    match arguments.next() {
        Some(path) => std::fs::write(path, plot(&rows)),
        None => Ok(()),
    }
}
