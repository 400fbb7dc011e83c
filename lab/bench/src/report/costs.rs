//! Prints unit costs.

use serde::Serialize;
use zerolane_model::{Cost, TRAIN, UnitCosts};

use super::stream::in_words;
use super::{Report, table};
use crate::harness::machine::Machine;

/// The method, as text; part of every report.
const METHOD: &str = "Each cost is measured alone, on its own core: the median of repetitions. Memory: pass after \
     pass, one train or one piece at a time; handed over: one core seals into slots, then the other copies from them, \
     repeatedly. TCP and trains: a thread on one core sends while the other is idle, then a thread on the other core \
     receives; the sender's cost includes everything up to the receiver's queue. Library: both ends of a connection \
     alternate in one thread, a single Transfer.";

/// Everything `bench costs` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CostsReport {
    test: &'static str,
    method: &'static str,
    machine: Machine,
    /// The path between the ends, in words.
    path: &'static str,
    units: &'static str,
    costs: UnitCosts,
}

/// Of all costs.
const UNITS: &str =
    "nanoseconds; memory and tcp: nanoseconds per KiB; contention: a ratio; caches: bytes";

impl CostsReport {
    pub(crate) fn new(machine: Machine, path: &'static str, costs: UnitCosts) -> CostsReport {
        CostsReport {
            test: "costs",
            method: METHOD,
            machine,
            path,
            units: UNITS,
            costs,
        }
    }
}

impl Report for CostsReport {
    fn text(&self) -> String {
        let (cpu, path) = (&self.machine.cpu, self.path);
        format!(
            "{}\n{cpu}, {path}; median (min to max).",
            tables(&self.costs)
        )
    }
}

/// All costs, with their units.
pub(crate) fn tables(costs: &UnitCosts) -> String {
    let mut single = table(["", "ns"], 1);
    let wake = &costs.wake;
    let library = [("plain", &costs.plain), ("encrypted", &costs.encrypted)];
    let calls = [
        ("a system call", costs.system_call),
        ("wake-up: latency", wake.latency),
        ("  CPU time of the waker", wake.waker),
        ("  CPU time of the woken thread", wake.woken),
    ];
    for (name, cost) in calls {
        single.add_row([name.to_owned(), words(cost, 0)]);
    }
    for (mode, it) in library {
        let costs = [
            ("a Transfer, sender", it.send_transfer),
            ("a Transfer, receiver", it.receive_transfer),
            ("one more train, sender", it.send_train),
            ("one more train, receiver", it.receive_train),
        ];
        for (name, cost) in costs {
            single.add_row([format!("{name}, {mode}"), words(cost, 0)]);
        }
    }
    let memory = by_size(
        "ns per KiB",
        &costs.memory,
        |it| it.bytes,
        &[
            ("digest", |it| it.digest),
            ("sum of all words", |it| it.sum),
            ("a word of 64 bytes", |it| it.touch),
            ("copy from there", |it| it.copy_from),
            ("copy to there", |it| it.copy_to),
            ("copy", |it| it.copy),
            ("seal from there", |it| it.seal),
            ("open to there", |it| it.open),
            ("read a file", |it| it.read_file),
            ("write a file", |it| it.write_file),
        ],
    );
    let tcp = by_size(
        "TCP, ns per KiB",
        &costs.tcp,
        |it| it.bytes,
        &[
            ("send", |it| it.send.send),
            ("  receive", |it| it.send.receive),
            ("  send into a full queue", |it| it.send.queue),
            ("  receive, with the sends it triggers", |it| {
                it.send.receive_clocked
            }),
            ("splice", |it| it.splice.send),
            ("  receive", |it| it.splice.receive),
            ("  splice into a full queue", |it| it.splice.queue),
            ("  receive, with the sends it triggers", |it| {
                it.splice.receive_clocked
            }),
            ("sendfile", |it| it.sendfile.send),
            ("  receive", |it| it.sendfile.receive),
            ("  sendfile into a full queue", |it| it.sendfile.queue),
            ("  receive, with the sends it triggers", |it| {
                it.sendfile.receive_clocked
            }),
        ],
    );
    let title = format!("a train of {} KiB, ns", TRAIN >> 10);
    let trains = by_size(
        &title,
        &costs.trains,
        |it| it.bytes,
        &[
            ("copied", |it| it.copied),
            ("received", |it| it.received),
            ("given", |it| it.given),
            ("received", |it| it.received_given),
        ],
    );
    let contention = words(costs.contention, 2);
    let [seal, read] = [costs.handed.seal, costs.handed.read].map(|it| words(it, 1));
    format!(
        "{single}\n{memory}\n{tcp}\n{trains}\nslots handed from core to core, ns per KiB: {seal} to seal, {read} to \
         copy\n\
         both cores copy at once: {contention} times the cost of one copy alone"
    )
}

/// A cost, and what it is called.
type Named<T> = (&'static str, fn(&T) -> Cost);

/// One line a cost, one column a size of memory.
fn by_size<T>(
    title: &str,
    measured: &[T],
    bytes: fn(&T) -> usize,
    costs: &[Named<T>],
) -> comfy_table::Table {
    let sizes = measured.iter().map(|it| in_words(bytes(it)));
    let header: Vec<String> = [title.to_owned()].into_iter().chain(sizes).collect();
    let mut table = table(header, 1);
    for (name, cost) in costs {
        let cells = measured.iter().map(|it| words(cost(it), 1));
        let row: Vec<String> = [(*name).to_owned()].into_iter().chain(cells).collect();
        table.add_row(row);
    }
    table
}

fn words(cost: Cost, digits: usize) -> String {
    let Cost { min, median, max } = cost;
    format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
}
