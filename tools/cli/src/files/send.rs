//! Implements `zerolane send`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::HumanBytes;
use zerolane::Options;
use zerolane::counters::{Account, GateCounters, ListenerCounters};
use zerolane::options::LaneChoice;
use zerolane_files::limits::PATIENCE_SECONDS;
use zerolane_files::{
    Error, Failure, Invitation, Observer, Peer, ServerObserver, Stop, Totals, Verb,
};

use super::copy::check_totals;
use super::filters::Filters;
use super::limit::LimitArgs;
use super::progress::{Progress, Talk};
use super::{stop_on_signals, with_exit_code};
use crate::address::Listen;
use crate::console;
use crate::exit::Exit;

/// Arguments of `zerolane send`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Anyone who gives the code to `zerolane receive` on the same network gets the files, once. The two ends find each \
other by broadcasts (UDP port 9182, IPv4), which routers do not forward: from other networks, the receiver names this \
host with --from. It does not work through NAT.

The first four digits of the code are not secret. The other eight are never sent: an attacker can guess three times, \
then the code is void. Guesses cannot be checked offline.")]
pub struct Args {
    /// Files to send, and directories with everything in them
    #[arg(required = true, value_name = "FILE")]
    sources: Vec<PathBuf>,
    /// Address to listen on, with or without a port (port 0: any free one)
    #[arg(long, value_name = "ADDR", value_parser = parse_listen, default_value = "0.0.0.0:0")]
    listen: Listen,
    /// Be found on the network of this interface only; may be repeated
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// When the connection breaks or fails, wait this many seconds for the receiver
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE_SECONDS,
        value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    timeout: u64,
    /// Print no progress, and no summary at the end
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    limit: LimitArgs,
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    Listen::parse(text, 0)
}

/// Sends. The exit code says whether everything, something or nothing was received.
pub(crate) fn run(args: Args) -> Result<()> {
    let stop = stop_on_signals()?;
    let transport = Options::default().with(|it| {
        it.rate.max = args.limit.max_rate;
        // The receiver is on another host.
        it.lane.choice = LaneChoice::Udp;
    });
    // Without Landlock, this process can do no more than other programs of the user.
    Invitation::confine(&args.sources).context("confining this process to what it sends")?;
    let sources = (args.sources, args.filters.0);
    // An address that is written with its interface resolves to one.
    let listen = args.listen.resolve(LaneChoice::Udp)?[0];
    let invitation = Invitation::new(sources, listen, &args.interfaces, transport);
    let invitation = invitation.map_err(with_exit_code)?;
    let (files, bytes) = (invitation.offer().files, invitation.offer().bytes);
    let (code, at) = (invitation.code(), invitation.local_addr());
    let offered = console::counted(files, "file");
    let size = HumanBytes(bytes);
    console::say(format_args!("To be sent: {offered}, {size}."))?;
    console::say(format_args!("There: zerolane receive {code}"))?;
    let host = match at.ip().is_unspecified() {
        true => format!("THIS-HOST:{}", at.port()),
        false => at.to_string(),
    };
    match invitation.hidden() {
        Some(why) => console::note(format_args!(
            "It cannot be found by broadcasts ({why}). There: zerolane receive {code} --from {host}"
        )),
        None => console::say(format_args!("If that finds no sender: add --from {host}"))?,
    }
    let mut server = invitation
        .wait(&stop, |left| {
            console::note(format_args!(
                "Someone tried a wrong code; {left} more make it void."
            ));
        })
        .map_err(with_exit_code)?;
    let talk = if args.quiet {
        Talk::Quiet
    } else {
        Talk::Normal
    };
    let sending = Sending {
        progress: Progress::new(false, talk),
        stop: stop.of_part(),
        patience: Duration::from_secs(args.timeout),
        outcome: Mutex::new(Outcome {
            last: Instant::now(),
            done: None,
        }),
    };
    sending.progress.counted(files, bytes);
    server
        .run(&sending.stop, &sending)
        .map_err(with_exit_code)?;
    sending.progress.clear();
    let outcome = sending.outcome.into_inner();
    match outcome.unwrap_or_else(PoisonError::into_inner).done {
        Some(Ok(totals)) => {
            sending.progress.summarize(&totals);
            check_totals(&totals, sending.progress.saw_corruption())
        }
        Some(Err(error)) => Err(with_exit_code(error)),
        None if stop.requested() => Err(Exit::Interrupted.into()),
        None => Err(with_exit_code(Error::ClientLost)),
    }
}

/// Watches the server until everything is sent.
struct Sending {
    progress: Progress,
    stop: Stop,
    /// How long to wait for a receiver that disconnected.
    patience: Duration,
    outcome: Mutex<Outcome>,
}

struct Outcome {
    /// The time of the last event.
    last: Instant,
    /// `None` while sending.
    done: Option<Result<Totals, Error>>,
}

impl Sending {
    fn note(&self, work: impl FnOnce(&mut Outcome)) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.last = Instant::now();
        work(&mut outcome);
    }
}

impl ServerObserver for Sending {
    fn requested(&self, _: &Peer, _: Verb, _: &[Vec<u8>]) {
        self.note(|_| {});
    }

    fn unauthenticated(&self, _: Option<&GateCounters>, _: &ListenerCounters) {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.last.elapsed() > self.patience {
            self.stop.request();
        }
    }

    fn advanced(&self, _: &Peer, bytes: u64) {
        self.progress.advanced(bytes);
        self.note(|_| {});
    }

    fn skipped(&self, _: &Peer, path: &[u8]) {
        self.progress.skipped(path);
    }

    fn failed(&self, _: &Peer, failure: &Failure) {
        self.progress.failed(failure);
    }

    fn ended(&self, _: &Peer, ended: &Result<Option<Totals>, Error>, _: &Account) {
        let done = match ended {
            Ok(Some(totals)) => Ok(*totals),
            Err(Error::Declined) => Err(Error::Declined),
            // The receiver may connect again.
            _ => return self.note(|_| {}),
        };
        self.note(|outcome| outcome.done = Some(done));
        self.stop.request();
    }
}
