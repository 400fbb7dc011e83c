//! Writes the table of completion times, `services/cast/tests/cast-times.md`, and its plot, `cast-times.svg` beside it.
//!
//! It prints each row on standard error, with the processor time of its simulation.
//!
//! `cargo run --release -p zerolane-cast --example times -- TABLE PLOT [MOST_NODES]`; `ZEROLANE_SEED` is the seed, 1 unless set.

use std::sync::Mutex;
use std::time::Duration;

use zerolane_cast::sim::table::{HEAD, NODES, Row, cases, plot, row};

/// Rows that are simulated at once.
const THREADS: usize = 2;

/// Time that this thread was on a processor; none where the kernel does not count it.
fn cpu() -> Option<Duration> {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = counted.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// What stands above the rows, for one seed.
fn head(seed: u64) -> String {
    format!(
        "# Completion times of casts, in virtual time\n\n\
         100 GB over ports of 10 Gb/s, seed {seed}; [casts](../../../docs/measurements/cast.md#many-nodes-in-virtual-time) has the faults.\n\
         `cargo run --release -p zerolane-cast --example times -- services/cast/tests/cast-times.md services/cast/tests/cast-times.svg`\n\
         makes this table. Its columns:\n\n\
         - chunk: 1,500 chunks for few nodes, 400 for very many; casts over sockets use at most 16 MiB, so their trees fill faster.\n\
         - model: the model's time for the same chunks.\n\
         - simulated: until the last node that neither dies nor is slow is done; - where only the model is asked.\n\
         - of the ideal: that time over the content's size / port rate (80 s).\n\
         - memory: the most chunks in memory at any node, and the limit.\n\
         - an uplink carries: how often the busiest uplink of a rack carried the content in one direction.\n\
         \n{HEAD}\n"
    )
}

fn main() -> std::io::Result<()> {
    let seed = std::env::var("ZEROLANE_SEED").ok();
    let seed = seed.and_then(|it| it.parse().ok()).unwrap_or(1);
    let (Some(table), Some(drawing)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        eprintln!("times TABLE PLOT [MOST_NODES]");
        std::process::exit(2);
    };
    eprintln!("ZEROLANE_SEED={seed}");
    let most = std::env::args().nth(3).and_then(|it| it.parse().ok());
    let nodes = NODES
        .into_iter()
        .filter(|it| most.is_none_or(|most: u32| *it <= most));
    let all: Vec<_> = nodes.flat_map(|it| cases(it, seed)).collect();
    // The largest first: they take the longest.
    let left = Mutex::new((0..all.len()).collect::<Vec<_>>());
    let rows: Mutex<Vec<(usize, Row)>> = Mutex::default();
    let next = || left.lock().expect("no thread panicked").pop();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(index) = next() {
                    let began = cpu();
                    let row = row(all[index]);
                    let took = cpu().zip(began).map(|(now, began)| now - began);
                    eprintln!("{row} {:.1} s", took.unwrap_or_default().as_secs_f64());
                    rows.lock().expect("no thread panicked").push((index, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no thread panicked");
    rows.sort_by_key(|it| it.0);
    let rows: Vec<Row> = rows.into_iter().map(|it| it.1).collect();
    let mut text = head(seed);
    for row in &rows {
        text += &format!("{row}\n");
    }
    std::fs::write(table, text)?;
    std::fs::write(drawing, plot(&rows))
}
