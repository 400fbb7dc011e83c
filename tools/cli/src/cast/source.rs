//! Implements `zerolane cast SRC HOST...`: finds the hosts, casts, and prints the outcome.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use zerolane::security::Code;
use zerolane_cast::Slow;
use zerolane_castnet::{Cast, Content, Error, Host, Outcome};
use zerolane_files::escape;

use super::shown::{self, Summary, Talk};
use super::{hosts, racks, ssh, with_exit_code};
use crate::console;
use crate::exit::Exit;
use crate::input::{self, Input};
use crate::interrupt::Interrupt;
use crate::rate;
use crate::security::{Caution, ClientArgs};

/// Arguments of a cast.
#[derive(Debug, clap::Args)]
pub(super) struct CastArgs {
    /// What to cast: a file, a directory, a block device, - for standard input, or a FIFO, which is read to its end
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The hosts, each with or without a port; without any, those of the Slurm job (SLURM_JOB_NODELIST)
    #[arg(value_name = "HOST")]
    names: Vec<String>,
    /// A file of more hosts, or - for standard input; a `#` begins a comment
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// The name of the content of standard input or a FIFO where it goes into a directory
    #[arg(long, value_name = "NAME", default_value = "content")]
    name: String,
    /// Pass the content on by trees with this many stripes; 1 is a chain [default: what `plan` chooses for this number
    /// of hosts]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    tree: Option<u32>,
    /// Which hosts share a rack, so that its uplink is crossed once: hosts of one IPv4 subnet of this prefix length
    /// (24, or 24,64 with that of IPv6), or a file of lines `HOST RACK`, where HOST `-` is the source [default: all
    /// share one]
    #[arg(long, value_name = "BITS|FILE", value_parser = racks::parse)]
    racks: Option<racks::RackArg>,
    /// Start after this many seconds with the hosts that have answered; others may join later
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
    /// What to do about hosts whose name is unknown
    #[arg(long, value_enum, default_value_t = Unknown::GoOn)]
    unknown: Unknown,
    /// What to do about hosts that slow others down
    #[arg(long, value_enum, default_value_t = SlowName::Demote)]
    slow: SlowName,
    /// Start the hosts by ssh, each as [USER@]HOST[:PORT of ssh]. Where zerolane is missing, this program is copied
    /// there for this cast. No key is stored anywhere
    #[arg(long, help_heading = "Over ssh", conflicts_with_all = ["code", "identity"])]
    ssh: bool,
    /// Where hosts started by ssh put the content [default: in the login directory, under the name of SRC]
    #[arg(long, value_name = "PATH", help_heading = "Over ssh")]
    to: Option<String>,
    /// Let hosts started by ssh replace existing files
    #[arg(long, help_heading = "Over ssh")]
    force: bool,
    /// The remote shell, and its options [default: $ZEROLANE_RSH, or ssh]
    #[arg(
        short = 'e',
        long,
        value_name = "COMMAND",
        help_heading = "Over ssh",
        requires = "ssh"
    )]
    rsh: Option<String>,
    /// How the remote shell starts zerolane: a path, or a command; this program is then not copied there [default:
    /// zerolane]
    #[arg(
        long,
        value_name = "COMMAND",
        help_heading = "Over ssh",
        requires = "ssh"
    )]
    remote_program: Option<String>,
    /// JSON instead of text: an object every two seconds (none with --quiet), and one at the end
    #[arg(long)]
    json: bool,
    /// Print no progress
    #[arg(short, long)]
    quiet: bool,
    /// File with this end's key [default: identity beside the user's other keys, made if missing]
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Security",
        conflicts_with = "code"
    )]
    identity: Option<PathBuf>,
    /// The one-time code that all hosts wait with, instead of keys
    #[arg(long, value_name = "CODE", help_heading = "Security")]
    code: Option<Code>,
    /// Send at most this much content a second to each host: 10MiB/s, 100mbit
    #[arg(long = "limit", value_name = "RATE", value_parser = rate::parse)]
    max_rate: Option<u64>,
}

/// The words of `--unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Unknown {
    /// Count them as failed, and cast to the others
    GoOn,
    /// Cast nothing
    Stop,
}

/// The words of `--slow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SlowName {
    /// Let the hosts behind them wait
    Wait,
    /// Serve them separately, when no other host waits
    Demote,
    /// Leave them out
    Drop,
}

impl From<SlowName> for Slow {
    fn from(name: SlowName) -> Slow {
        match name {
            SlowName::Wait => Slow::Wait,
            SlowName::Demote => Slow::Demote,
            SlowName::Drop => Slow::Drop,
        }
    }
}

/// Casts. The exit code says whether all hosts, some or none have the content.
pub(super) fn run(args: CastArgs) -> Result<()> {
    let is_stream = args.source == Path::new("-");
    let both = is_stream && args.hosts.as_deref() == Some(Path::new("-"));
    ensure!(
        !both,
        anyhow!("standard input is either the content or the list of hosts").context(Exit::Usage)
    );
    ensure!(
        args.ssh || (args.to.is_none() && !args.force),
        anyhow!(
            "--to and --force are for hosts that --ssh starts: a host that waits already knows where the content goes, by \
             `zerolane cast receive --to PATH` there"
        )
        .context(Exit::Usage)
    );
    let names = hosts::named(&args.names, args.hosts.as_deref())?;
    let racks = racks::racks(args.racks.as_ref(), &names)?;
    let resolve = if args.ssh {
        ssh::resolve
    } else {
        hosts::resolve
    };
    let found: Vec<_> = names.iter().map(|it| resolve(it)).collect();
    for (name, found) in names.iter().zip(&found) {
        if let (Err(why), Unknown::Stop) = (found, args.unknown) {
            return Err(anyhow!("{name}: {why}").context(Exit::Unreachable));
        }
    }
    let mut cautions = Vec::new();
    let mut called = Vec::new();
    if !args.ssh {
        for (name, addresses) in names.iter().zip(&found) {
            let args_of_host = ClientArgs::of_identity(args.identity.clone());
            let (caution, security) = Caution::new(name.clone(), args_of_host, args.code.clone())?;
            cautions.push(caution);
            let (name, addresses) = (name.clone(), addresses.clone());
            called.push(Host {
                name,
                addresses,
                security,
            });
        }
    }
    // Until here nothing has begun, so a signal may end the process at once: lists may come from pipes, names from slow
    // servers.
    let interrupt = Interrupt::install()?;
    let stop = || interrupt.requested();
    let content = if is_stream {
        Content::stream(args.name, Input::new(stop)?)
    } else if input::is_stream(&args.source) {
        let input = Input::open(&args.source, stop);
        let input = input.with_context(|| args.source.display().to_string())?;
        Content::stream(args.name, input)
    } else {
        Content::open(&args.source, &stop)
    };
    // Ctrl-C also ends the program that writes to a pipe, so what arrived is not the whole content.
    let content = match interrupt.requested() {
        true => Err(Error::Stopped),
        false => content,
    };
    let content = match content {
        Err(why @ (Error::Stopped | Error::Changed(_))) => {
            let outcome = Outcome::of_none(names, 0, &why);
            return finish(&outcome, Some(why), 0, args.json);
        }
        content => content.map_err(with_exit_code)?,
    };
    let skipped = content.skipped();
    for path in &skipped.named {
        let name = escape(path.as_os_str().as_bytes());
        console::note(format_args!("{name}: is a device, socket or FIFO: skipped"));
    }
    match skipped.count - skipped.named.len() as u64 {
        0 => {}
        more => console::note(format_args!("and {more} more of these: skipped")),
    }
    // Dropping this ends the hosts. They wait for the source, so none is started before there is content to cast.
    let mut started = ssh::Remotes::default();
    if args.ssh {
        let login = ssh::Login {
            shell: args.rsh.as_deref(),
            program: args.remote_program.as_deref(),
            to: args.to.as_deref(),
            force: args.force,
        };
        for (host, remote) in ssh::start_all(&names, &found, &login)? {
            called.push(host);
            started.extend(remote);
        }
    }
    let cast = Cast {
        hosts: called,
        racks,
        arity: args.tree,
        gather: Duration::from_secs(args.wait),
        slow: args.slow.into(),
        max_rate: args.max_rate,
        ..Cast::default()
    };
    let mut talk = match args.json {
        true => Talk::of_objects(args.quiet),
        false => Talk::new(args.quiet),
    };
    let (outcome, done) = cast.run_told(&content, &|| interrupt.requested(), &mut |progress| {
        if !args.quiet {
            progress.notes.iter().for_each(console::note);
        }
        talk.tell(|| shown::State::from(progress));
    });
    cautions.iter().for_each(Caution::introduce);
    drop(started);
    finish(&outcome, done.err(), skipped.count, args.json)
}

/// Prints the summary; `error` is what ended the cast itself.
fn finish(outcome: &Outcome, error: Option<Error>, skipped: u64, json: bool) -> Result<()> {
    let summary = Summary::new(outcome, error.as_ref(), skipped);
    match json {
        true => console::say(serde_json::to_string(&summary)?)?,
        false => console::say(&summary)?,
    }
    if let Some(error) = error {
        return Err(with_exit_code(error));
    }
    let failed = outcome.hosts.iter().filter(|it| it.result.is_err()).count();
    match failed {
        0 if outcome.changed => {
            Err(anyhow!("the source changed while it was cast").context(Exit::Failure))
        }
        0 => Ok(()),
        _ if failed == outcome.hosts.len() => Err(anyhow!("no host has it").context(Exit::Failure)),
        _ => Err(
            anyhow!("{failed} of {} hosts do not have it", outcome.hosts.len())
                .context(Exit::Partial),
        ),
    }
}
