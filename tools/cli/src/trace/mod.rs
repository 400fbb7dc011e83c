//! Implements `zerolane trace`: measures how often speculation would have hit, on recorded traffic.

mod shown;

use std::ffi::OsStr;
use std::fs::File;
use std::io::stdin;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use zerolane_trace::{Options, Trace, limits};

use crate::console;

/// Arguments of `zerolane trace`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Rules: pages are those of the paper on speculative defragmentation, in one list of descriptors for all that a host \
receives; pages per stream, in a list for each stream; pairs and trains are Zerolane's. Capture at the receiver, with its offloads off \
(ethtool -K DEVICE gro off lro off): what a host has merged already does not show what came.")]
pub struct Args {
    /// Captures (pcap or pcapng), in order, read as one; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show this many flows and hosts, those with the most bytes
    #[arg(long, default_value_t = 20, value_name = "N")]
    flows: usize,
    /// Follow this many flows at a time; if there are more, count those that were silent longest together
    #[arg(long, default_value_t = NonZeroUsize::new(limits::MAX_FLOWS).expect("some"), value_name = "N")]
    follow: NonZeroUsize,
    /// Silence between two packets of a flow after which the kernel would not merge them, microseconds
    #[arg(long, default_value_t = limits::POLL_PAUSE.as_micros() as u64, value_name = "US")]
    pause: u64,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// Reads all files, then prints the report.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut trace = Trace::new(&Options {
        max_flows: args.follow.get(),
        pause: Duration::from_micros(args.pause),
    });
    for file in &args.files {
        let name = file.display().to_string();
        read(&mut trace, file, &name).context(name)?;
    }
    let mut report = trace.finish();
    for input in &report.inputs {
        if let Some(why) = &input.ended {
            let (name, packets) = (&input.name, console::counted(input.packets, "packet"));
            console::note(format_args!("{name}: {why}; {packets} before it counted"));
        }
    }
    if args.json {
        report.flows.truncate(args.flows);
        report.hosts.truncate(args.flows);
        console::say(serde_json::to_string_pretty(&report)?)
    } else {
        console::say(shown::of(&report, args.flows))
    }
}

fn read(trace: &mut Trace, file: &Path, name: &str) -> Result<()> {
    if file.as_os_str() == OsStr::new("-") {
        trace.read(name, stdin().lock())?;
    } else {
        trace.read(name, File::open(file)?)?;
    }
    Ok(())
}
