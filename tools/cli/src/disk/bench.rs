//! Implements `zerolane disk bench`: measures the rate and latency of a disk of another host.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytesize::ByteSize;
use serde_json::json;
use zerolane::Region;
use zerolane_disk::initiator::{Done, Options, Queue, Request};

use super::remote::{Place, open};
use crate::console;
use crate::exit::Exit;
use crate::security::ClientArgs;

/// Arguments of `zerolane disk bench`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where `disk serve` runs, and which of its disks: HOST[:PORT]/LUN
    place: Place,
    /// Which requests to send
    #[arg(long, value_enum, default_value_t = Pattern::Read)]
    pattern: Pattern,
    /// Bytes of a request: whole blocks
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    block: ByteSize,
    /// Requests at a time, 1 to 256
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    queue: u16,
    /// Duration, seconds
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Allow patterns that write, and destroy the disk's content
    #[arg(long)]
    overwrite: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    security: ClientArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pattern {
    /// Read in order
    Read,
    /// Write in order
    Write,
    /// Read at random places
    RandomRead,
    /// Write at random places
    RandomWrite,
}

impl Pattern {
    fn writes(self) -> bool {
        matches!(self, Pattern::Write | Pattern::RandomWrite)
    }

    fn is_random(self) -> bool {
        matches!(self, Pattern::RandomRead | Pattern::RandomWrite)
    }
}

/// Measures, and prints the result.
pub(super) fn run(args: &Args) -> Result<()> {
    let usage = |words: &'static str| anyhow::Error::new(Exit::Usage).context(words);
    ensure!(
        args.overwrite || !args.pattern.writes(),
        usage("this pattern writes: use --overwrite if the disk's content may be lost")
    );
    let options = Options {
        depth: args.queue,
        ..Options::default()
    };
    let queue = open(&args.place, &args.security, options)?;
    let block = args.block.as_u64();
    let is_whole = block > 0 && block.is_multiple_of(queue.unit().block_bytes.into());
    ensure!(
        is_whole && block <= queue.unit().bytes(),
        usage("--block is not whole blocks of the disk, or more than it has")
    );
    let seen = measure(&queue, args, block)?;
    console::say(seen.shown(args, block))
}

struct Seen {
    seconds: f64,
    /// Nanoseconds of each request, sorted.
    times: Vec<u64>,
}

fn measure(queue: &Queue, args: &Args, block: u64) -> Result<Seen> {
    let (told, done) = channel();
    let places = queue.unit().bytes() / block;
    let mut number = 0;
    let mut next = |memory: Region| {
        let place = match args.pattern.is_random() {
            true => fastrand::u64(0..places),
            false => number % places,
        };
        number += 1;
        let request = match args.pattern.writes() {
            true => Request::Write {
                at: place * block,
                memory,
                durable: false,
            },
            false => Request::Read {
                at: place * block,
                memory,
            },
        };
        begin(queue, request, args.queue == 1, told.clone());
    };
    let started = Instant::now();
    for _ in 0..args.queue {
        let mut memory = Region::anonymous(usize::try_from(block)?)?;
        fastrand::Rng::new().fill(&mut memory);
        next(memory);
    }
    let (mut busy, mut times) = (args.queue, Vec::new());
    while busy > 0 {
        let (over, took): (Done, Duration) = done.recv().context("the queue ended")?;
        over.result?;
        times.push(u64::try_from(took.as_nanos())?);
        match started.elapsed().as_secs() < args.seconds {
            true => next(over.memory),
            false => busy -= 1,
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(Seen { seconds, times })
}

fn begin(queue: &Queue, request: Request, alone: bool, told: Sender<(Done, Duration)>) {
    let since = Instant::now();
    // A measurement that ended early has no receiver.
    let over = move |done| drop(told.send((done, since.elapsed())));
    match alone {
        // A waiting thread drives the connection itself.
        true => over(queue.call(request)),
        false => queue.submit(request, over),
    }
}

impl Seen {
    fn microseconds(&self, percent: usize) -> f64 {
        let at = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).map_or(0.0, |&it| it as f64 / 1e3)
    }

    fn shown(&self, args: &Args, block: u64) -> String {
        let per_second = self.times.len() as f64 / self.seconds;
        let rate = per_second * block as f64 / 1e9;
        let (median, late) = (self.microseconds(50), self.microseconds(99));
        if args.json {
            let object = json!({
                "pattern": format!("{:?}", args.pattern),
                "block_bytes": block,
                "queue": args.queue,
                "requests": self.times.len(),
                "seconds": self.seconds,
                "requests_per_s": per_second,
                "gigabytes_per_s": rate,
                "latency_us_50": median,
                "latency_us_99": late,
            });
            return object.to_string();
        }
        format!(
            "{rate:.3} GB/s, {per_second:.0} requests of {block} bytes a second, {} at a time; \
             half within {median:.0} us, 99 of 100 within {late:.0} us",
            args.queue
        )
    }
}
