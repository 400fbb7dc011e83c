//! Implements `zerolane cast receive`: waits for a cast, and takes part in it.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use indicatif::HumanBytes;
use serde::Serialize;
use zerolane_castnet::limits::CAST_PORT;
use zerolane_castnet::{Destination, Error, Receiver};

use super::admission::AdmissionArgs;
use super::shown::Talk;
use super::with_exit_code;
use crate::address::Listen;
use crate::console;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::rate;
use zerolane::options::LaneChoice;

/// Arguments of `zerolane cast receive`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
It ends when everything is in place. If it ends earlier, what has arrived stays beside the target in a hidden partial \
file. Start it again, and a cast that still runs sends what is missing.")]
pub(super) struct Args {
    /// Where to put the content: a path that does not exist, a directory for its name there, or - for standard output
    #[arg(
        long,
        value_name = "PATH",
        default_value = ".",
        conflicts_with = "exec"
    )]
    to: PathBuf,
    /// Pipe the content into this shell command as it arrives
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// Replace an existing target, in one step at the end. Needed to write a block device
    #[arg(long)]
    force: bool,
    /// Address or host name to listen on, with or without a port (port 0: any free one)
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0")]
    listen: String,
    /// Give up after this many seconds without progress
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Keep in memory what hosts behind this one still need, instead of reading it back from the target; receive no
    /// faster than they do
    #[arg(long)]
    no_spill: bool,
    /// One JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    /// Print no progress
    #[arg(short, long)]
    quiet: bool,
    /// Stop waiting when standard input closes, so that a host that `cast --ssh` started does not outlive it
    #[arg(long, hide = true)]
    until_eof: bool,
    /// Send at most this much content a second to each host behind this one: 10MiB/s, 100mbit
    #[arg(long = "limit", value_name = "RATE", value_parser = rate::parse)]
    max_rate: Option<u64>,
    #[command(flatten)]
    admission: AdmissionArgs,
}

/// Whether another program listens on the address.
fn in_use(error: &Error) -> bool {
    let Error::Network(zerolane::Error::Io(error)) = error else {
        return false;
    };
    error.kind() == io::ErrorKind::AddrInUse
}

fn shown(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

/// Returns a flag that is set when standard input ends. The input is discarded.
fn at_end_of_input() -> Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    let read = move || {
        // A read error ends the input, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        told.store(true, Ordering::Relaxed);
    };
    let thread = thread::Builder::new().name("input".into());
    thread.spawn(read).context("starting a thread")?;
    Ok(ended)
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    /// Characters that are not Unicode are replaced.
    path: Option<Cow<'a, str>>,
    bytes: u64,
    seconds: f64,
    resumed_bytes: u64,
    received_bytes: u64,
    sent_bytes: u64,
    refused_offers: u64,
}

/// Waits for one cast, and takes part in it.
pub(super) fn run(args: Args) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let out = args.exec.is_none() && args.to == Path::new("-");
    let destination = match (args.exec, out) {
        (Some(command), _) => Destination::Command(command),
        (None, true) => Destination::Stdout,
        (None, false) => Destination::Path {
            path: args.to,
            force: args.force,
        },
    };
    let (security, words) = args.admission.admission()?;
    let listen = Listen::parse(&args.listen, CAST_PORT);
    let listen =
        listen.map_err(|why| anyhow!("--listen {}: {why}", args.listen).context(Exit::Usage))?;
    let addresses = listen.resolve(LaneChoice::Udp)?;
    let receiver = Receiver::bind(&addresses[..], security, destination);
    let receiver = receiver.map_err(|error| match in_use(&error) {
        true => anyhow!(
            "{}: is in use, say by a host that waits for another cast: wait until that has ended, or listen at another port \
             and name it to the source (--listen ADDR:PORT)",
            shown(&addresses)
        )
        .context(Exit::Failure),
        false => with_exit_code(error),
    })?;
    let receiver = receiver
        .with_patience(Duration::from_secs(args.timeout))
        .with_max_rate(args.max_rate)
        .with_spill(!args.no_spill);
    let receiver = match args.until_eof {
        true => receiver.until_gone(at_end_of_input()?),
        false => receiver,
    };
    // Standard output may carry the content.
    let say = |line: String| match out {
        true => {
            console::note(line);
            Ok(())
        }
        false => console::say(line),
    };
    say(format!("Waiting for a cast on {}.", receiver.local_addr()))?;
    if let Some(key) = receiver.public_key() {
        say(format!("Its key: {key}"))?;
    }
    say(words)?;
    let mut talk = Talk::new(args.quiet);
    let received = receiver.run(&|| interrupt.requested(), &mut |progress| {
        progress.notes.iter().for_each(console::note);
        if progress.of > 0 {
            talk.say(|| {
                format!(
                    "{} % received",
                    u64::from(progress.chunks) * 100 / u64::from(progress.of)
                )
            });
        }
    });
    let received = received.map_err(with_exit_code)?;
    let summary = Summary {
        path: received.path.as_deref().map(Path::to_string_lossy),
        bytes: received.bytes,
        seconds: received.took.as_secs_f64(),
        resumed_bytes: received.resumed,
        received_bytes: received.received,
        sent_bytes: received.sent,
        refused_offers: received.refused,
    };
    if args.json {
        return say(serde_json::to_string(&summary)?);
    }
    let place = summary.path.map_or(String::new(), |it| format!(" as {it}"));
    say(format!(
        "Received {}{place} in {:.1} s; {} were there, {} were passed on.",
        HumanBytes(summary.bytes),
        summary.seconds,
        HumanBytes(summary.resumed_bytes),
        HumanBytes(summary.sent_bytes)
    ))
}
