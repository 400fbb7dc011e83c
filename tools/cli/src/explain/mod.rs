//! Implements `zerolane explain`: shows where CPU time, copies and packets go while a program runs.

mod html;
mod report;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{Write as _, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use zerolane_explain::{Explanation, Options, Rate, Stop};

use crate::console;
use crate::exit::Exit;
use crate::program;
use crate::units;

/// The longest time to watch: a day.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The highest sampling rate. At higher rates, sampling itself dominates.
const HIGHEST_HZ: u64 = 20_000;

/// Arguments of `zerolane explain`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("subject").required(true).multiple(true).args(["command", "pid", "duration"]),
    after_long_help = "\
The table goes to standard error while a command runs, so that its own output stays apart. With --json \
the result is on standard output alone, and what the command says there goes to standard error.

Sampling needs root, CAP_PERFMON, or kernel.perf_event_paranoid at 0 or below; without, the counters \
alone are reported, and why.

Examples:
  zerolane explain -- iperf3 -c 10.0.0.2
  zerolane explain --pid 4711 --duration 10s --json
  zerolane explain --duration 5s --folded stacks.txt

The exit code is the command's, 128 and the signal if one killed it, 126 or 127 if it cannot be run."
)]
pub struct Args {
    /// Watch a running process and its children, until it ends
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,
    /// Stop after this time; without --pid, watch the whole machine
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "command")]
    duration: Option<Duration>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Write the stacks for flame graphs, each with its samples on one line
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Write the tables as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Samples a second of each CPU, up to 20000; 0 for none, only counters; tick for the kernel's own timer tick
    /// [default: 49 to 997, as many as take at most 0.3 % of a CPU here]
    #[arg(long, value_name = "HZ", value_parser = rate)]
    frequency: Option<Rate>,
    /// Do not count system calls; counting makes each a little longer
    #[arg(long)]
    no_system_calls: bool,
    /// The command to run and explain
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn rate(text: &str) -> Result<Rate, String> {
    match (text, text.parse()) {
        ("tick", _) => Ok(Rate::Tick),
        (_, Ok(0)) => Ok(Rate::Never),
        (_, Ok(hz)) if hz <= HIGHEST_HZ => Ok(Rate::Hz(hz)),
        _ => Err(format!("a number from 0 to {HIGHEST_HZ}, or the word tick")),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    units::duration_up_to(text, LONGEST)
}

/// Explains the command, process or machine; returns the exit code of a command.
pub(crate) fn run(args: Args) -> Result<Exit> {
    let options = Options {
        rate: args.frequency.unwrap_or_default(),
        system_calls: !args.no_system_calls,
        folded: args.folded.is_some(),
    };
    let stop = Stop::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_usize(signal, stop.flag(), signal as usize)?;
    }
    let (explanation, exit) = match (args.pid, args.duration) {
        (Some(pid), time) => {
            let explained = zerolane_explain::explain_process(pid, time, options, &stop);
            (explained.map_err(refused)?, Exit::Success)
        }
        (None, Some(time)) => {
            let explanation = zerolane_explain::explain_for(time, options, &stop);
            (explanation, Exit::Success)
        }
        (None, None) => {
            let mut command = command(&args)?;
            let explained = zerolane_explain::explain_program(&mut command, options, &stop);
            let (explanation, status) = explained.map_err(refused)?;
            (explanation, Exit::of_command(status))
        }
    };
    show(&args, &explanation)?;
    Ok(exit)
}

fn command(args: &Args) -> Result<Command> {
    let (name, rest) = args.command.split_first().context("no command")?;
    let mut command = Command::new(name);
    command.args(rest);
    if args.json {
        command.stdout(Stdio::from(stderr().as_fd().try_clone_to_owned()?));
    }
    Ok(command)
}

fn refused(error: zerolane_explain::Error) -> anyhow::Error {
    let exit = match &error {
        zerolane_explain::Error::Start { program, .. } => exit_of(program),
        _ => Exit::Failure,
    };
    // anyhow prints the outermost context first, so the exit code goes innermost.
    let words = anyhow::Error::new(error);
    anyhow!(exit).context(format!("{words:#}"))
}

/// The exit code for a program that does not start. The error does not tell: it reports missing permissions if a
/// directory of PATH is closed.
fn exit_of(program: &str) -> Exit {
    let path = Path::new(program);
    let named = path.components().count() > 1 && path.exists();
    if named || program::find(path).is_some() {
        Exit::NotExecutable
    } else {
        Exit::CommandNotFound
    }
}

fn show(args: &Args, explanation: &Explanation) -> Result<()> {
    if let Some(path) = &args.folded {
        write_whole(path, &lines_of(&explanation.folded))?;
    }
    if let Some(path) = &args.html {
        write_whole(path, &html::page(&subject(args), explanation))?;
    }
    if args.json {
        return console::say(serde_json::to_string_pretty(explanation)?);
    }
    let text = report::text(explanation);
    if args.command.is_empty() {
        console::say(text)
    } else {
        console::note(text);
        Ok(())
    }
}

/// The subject of the explanation, in words.
fn subject(args: &Args) -> String {
    let words = args.command.iter().map(|it| it.to_string_lossy());
    match args.pid {
        Some(pid) => format!("process {pid}"),
        None if args.command.is_empty() => "the whole machine".into(),
        None => words.collect::<Vec<_>>().join(" "),
    }
}

fn lines_of(stacks: &HashMap<String, u64>) -> String {
    let mut lines: Vec<_> = stacks.iter().collect();
    lines.sort();
    let mut text = String::new();
    for (stack, samples) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{stack} {samples}");
    }
    text
}

/// Writes the whole file or nothing.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // As for other files: the umask takes its part.
    builder.permissions(Permissions::from_mode(0o666));
    let written = builder.tempfile_in(directory).and_then(|mut part| {
        part.write_all(text.as_bytes())?;
        part.persist(path)?;
        Ok(())
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}
