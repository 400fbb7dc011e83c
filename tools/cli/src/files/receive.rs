//! Implements `zerolane receive`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Write, stderr, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use indicatif::HumanBytes;
use zerolane::Options;
use zerolane::options::LaneChoice;
use zerolane_files::limits::PATIENCE_SECONDS;
use zerolane_files::{
    CopyOptions, Error, FoundSender, Host, Offer, SearchScope, Stop, TransferCode, escape,
};

use super::copy::{check_totals, is_broken};
use super::copying::CopyingArgs;
use super::kept::PermissionArgs;
use super::{stop_on_signals, with_exit_code};
use crate::address;
use crate::console;
use crate::exit::Exit;
use crate::input::Input;

/// Arguments of `zerolane receive`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Finds the sender by broadcasts on this host's networks; where they do not reach, --from names it. The code \
authenticates both ends, and all data is verified.

Without -f, names that exist already are refused. On a terminal the command shows the offer, and asks.")]
pub struct Args {
    /// The code that `zerolane send` shows
    #[arg(value_name = "CODE")]
    code: TransferCode,
    /// Where to put the files; made if it does not exist
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// The address of the sender, as it shows
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_host, conflicts_with = "interfaces")]
    from: Option<Host>,
    /// Look on the network of this interface only; may be repeated
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Do not ask before receiving
    #[arg(short, long)]
    yes: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Continue an earlier transfer: keep files that are there already and the same. Existing directories need -f
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    permissions: PermissionArgs,
    #[command(flatten)]
    copying: CopyingArgs,
}

fn parse_host(text: &str) -> Result<Host, String> {
    let (name, port) = address::parse_host(text, 0)?;
    match port {
        0 => Err("the sender shows HOST:PORT".into()),
        port => Ok(Host::new(name, port)),
    }
}

/// Receives. The exit code says whether everything, something or nothing was received.
pub(crate) fn run(args: Args) -> Result<()> {
    let stop = stop_on_signals()?;
    let transport = Options::default().with(|it| {
        it.rate.max = args.copying.limit.max_rate;
        // The sender is on another host.
        it.lane.choice = LaneChoice::Udp;
    });
    let scope = match args.from {
        Some(host) => SearchScope::Host(host),
        None => SearchScope::Interfaces(args.interfaces),
    };
    let found = FoundSender::find(&args.code, &scope, &transport, &stop);
    let sender = found.map_err(advise)?;
    let sender = sender.with_modes(args.permissions.modes());
    let taken = match args.force {
        true => None,
        false => first_taken(&args.directory, sender.offer()),
    };
    if let Some(taken) = taken {
        let _ = sender.decline();
        return Err(anyhow!("{taken} already exists: -f replaces it").context(Exit::Failure));
    }
    if !args.yes && stdin().is_terminal() && stderr().is_terminal() {
        show(sender.offer());
        let agreed = agrees(&args.directory, &stop);
        if !matches!(agreed, Ok(true)) {
            let _ = sender.decline();
            agreed?;
            return Err(anyhow!("nothing was received").context(Exit::Failure));
        }
    }
    let progress = args.copying.progress(false);
    let options = CopyOptions {
        recursive: true,
        resume: args.resume,
        replace_read_only: args.force,
        count_first: progress.wants_total(),
        no_permissions: args.permissions.no_perms,
        ..CopyOptions::default()
    };
    let usual = Duration::from_secs(PATIENCE_SECONDS);
    let patience = args.copying.patience().unwrap_or(usual);
    let received = sender.receive(&args.directory, &options, args.force, patience, &progress);
    progress.clear();
    let broke = received.as_ref().err().is_some_and(is_broken);
    let totals = received
        .map_err(with_exit_code)
        .map_err(|error| match broke {
            true => error.context(
                "the transfer is not complete: have it sent again, and use --resume -f to continue",
            ),
            false => error,
        })?;
    progress.summarize(&totals);
    check_totals(&totals, progress.saw_corruption())
}

/// Adds advice to an error.
fn advise(error: Error) -> anyhow::Error {
    let advice = match &error {
        Error::NoSender(_) => {
            "check that `zerolane send` runs there; where broadcasts do not reach, use --from HOST:PORT, as it shows"
        }
        Error::Connect { source, .. } if Exit::of_connecting(source) == Exit::Refused => {
            "the sender does not know this code: it was mistyped, or is used up"
        }
        _ => return with_exit_code(error),
    };
    with_exit_code(error).context(advice)
}

/// The first offered name that already exists.
fn first_taken(directory: &Path, offer: &Offer) -> Option<String> {
    let mut places = offer
        .entries
        .iter()
        .map(|it| directory.join(OsStr::from_bytes(&it.name)));
    let taken = places.find(|it| it.symlink_metadata().is_ok())?;
    Some(escape(taken.as_os_str().as_bytes()))
}

/// Prints the offer.
fn show(offer: &Offer) {
    for entry in offer.entries.iter().take(SHOWN) {
        let name = escape(&entry.name);
        console::note(format_args!(
            "  {:>11}  {name}",
            HumanBytes(entry.size).to_string()
        ));
    }
    let more = offer.more + offer.entries.len().saturating_sub(SHOWN) as u64;
    if more > 0 {
        console::note(format_args!("  and {more} more"));
    }
    let files = console::counted(offer.files, "file");
    let bytes = HumanBytes(offer.bytes);
    console::note(format_args!("{files}, {bytes}"));
}

/// Most names to print on a terminal, so that the first ones do not scroll away.
const SHOWN: usize = 20;

fn agrees(directory: &Path, stop: &Stop) -> Result<bool> {
    let directory = escape(directory.as_os_str().as_bytes());
    write!(stderr(), "Receive into {directory}? [y/N] ").context("asking")?;
    let mut answer = String::new();
    let input = Input::new(|| stop.requested()).context("no answer")?;
    let read = BufReader::new(input).read_line(&mut answer);
    if stop.requested() {
        return Err(Exit::Interrupted.into());
    }
    read.context("no answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
