//! Measures how often speculation would have hit, by replaying captures.
//!
//! The rules are those of the paper on speculative defragmentation (rows P2.6 and P2.7), and the predictor of Zerolane's own
//! receiver.
//!
//! ```
//! use zerolane_trace::{Options, Trace};
//! let mut trace = Trace::new(&Options::default());
//! let capture: &[u8] = include_bytes!("../tests/captures/micro-le.pcap");
//! trace.read("micro-le.pcap", capture)?;
//! let report = trace.finish();
//! println!("{:?} of the packets", report.sum.rules.pairs.rate());
//! # assert!(report.sum.rules.pairs.potential > 0);
//! # Ok::<(), zerolane_trace::Error>(())
//! ```
//!
//! A capture is read as a stream, in bounded memory whatever its contents. `docs/guide/trace.md` explains the figures.
#![forbid(unsafe_code)]

mod dissect;
mod error;
mod flow;
mod fragments;
pub mod limits;
mod packet;
mod reader;
mod record;
mod report;
mod rules;
mod stream;
mod table;
mod tally;

pub use error::Error;
pub use flow::Counts;
pub use packet::FlowKey;
pub use reader::Format;
pub use report::{FlowReport, HostReport, Input, Others, Report, Seen};
pub use rules::Tallies;
pub use tally::{Cause, Tally};

use dissect::dissect;
use limits::MAX_FRAME_BYTES;
use packet::Unread;
use record::Record;
use std::cmp::Reverse;
use std::io::Read;
use std::time::Duration;
use table::Table;

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most flows followed at a time, at least 1. They determine the memory used.
    pub max_flows: usize,
    /// Pause between two packets of a flow after which the kernel no longer merges them.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_flows: limits::MAX_FLOWS,
            pause: limits::POLL_PAUSE,
        }
    }
}

/// The replay of one or more captures, each a continuation of the one before.
#[derive(Debug)]
pub struct Trace {
    table: Table,
    inputs: Vec<Input>,
    seen: Seen,
    /// When the first packet came, and the last, nanoseconds.
    times: Option<(u64, u64)>,
}

impl Trace {
    /// Starts a replay with all counts at zero.
    pub fn new(options: &Options) -> Trace {
        let pause = u64::try_from(options.pause.as_nanos()).unwrap_or(u64::MAX);
        Trace {
            table: Table::new(options.max_flows, pause),
            inputs: Vec::new(),
            seen: Seen::default(),
            times: None,
        }
    }

    /// Reads a capture to its end, or to where it is cut off or damaged, which [`Input::ended`] says.
    ///
    /// # Errors
    /// The input is not a capture, or cannot be read. Earlier counts stay.
    pub fn read(&mut self, name: &str, input: impl Read) -> Result<(), Error> {
        let before = self.seen.packets;
        let (format, ended) = reader::read(input, |record| self.take(record))?;
        self.inputs.push(Input {
            name: name.to_owned(),
            format,
            packets: self.seen.packets - before,
            ended,
        });
        Ok(())
    }

    fn take(&mut self, record: &Record<'_>) {
        self.seen.packets += 1;
        self.seen.bytes += u64::from(record.len);
        if record.time > 0 {
            let (first, last) = self.times.unwrap_or((record.time, record.time));
            self.times = Some((first.min(record.time), last.max(record.time)));
        }
        match dissect(record) {
            Ok(packet) => {
                self.seen.merged += u64::from(packet.above_ip > MAX_FRAME_BYTES);
                self.table.take(packet);
            }
            Err(Unread::NotIp) => self.seen.not_ip += 1,
            Err(Unread::Cut) => self.seen.cut += 1,
            Err(Unread::Malformed) => self.seen.malformed += 1,
            Err(Unread::Link(link)) => {
                self.seen.unknown_link += 1;
                self.seen.link = Some(link);
            }
        }
    }

    /// Ends the replay, and returns all counts.
    pub fn finish(mut self) -> Report {
        let flows = self.table.finish_flows();
        let (folded, counts) = self.table.folded;
        let mut sum = counts;
        flows.iter().for_each(|(_, counts)| sum.add(counts));
        let report = |(flow, counts)| FlowReport { flow, counts };
        let mut flows: Vec<FlowReport> = flows.into_iter().map(report).collect();
        flows.sort_by_key(|it| (Reverse(it.counts.bytes), it.flow));
        let mut hosts: Vec<HostReport> = self.table.take_hosts().map(HostReport::of).collect();
        hosts.sort_by_key(|it| (Reverse(it.bytes), it.address));
        let (first, last) = self.times.unwrap_or_default();
        Report {
            inputs: self.inputs,
            seen: Seen {
                seconds: Duration::from_nanos(last - first).as_secs_f64(),
                lone_fragments: self.table.lone_fragments,
                ..self.seen
            },
            sum,
            flows,
            folded: (folded > 0).then_some(Others {
                flows: folded,
                counts,
            }),
            hosts,
            hosts_folded: self.table.hosts_folded,
        }
    }
}
