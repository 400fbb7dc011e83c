//! Implements `zerolane sockets`: lists the connections of a program that `zerolane run` runs.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Result, anyhow};
use comfy_table::{Table, presets};
use zerolane_streams::sockets::call::{Runner, VARIABLE};
use zerolane_streams::sockets::connections;

use crate::console;
use crate::exit::Exit;

/// Arguments of `zerolane sockets`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A line is a connection: what carries it (`zerolane`; `tcp`, copied, because the other end did not come; `undecided`), its \
addresses, and the bytes that the program has sent and received. Connections that stayed the program's own TCP are \
listed by `ss`.")]
pub struct Args {
    /// The process of the program, or of its `zerolane run`
    #[arg(value_name = "PID")]
    process: u32,
}

/// Prints the list.
pub(crate) fn run(args: Args) -> Result<()> {
    let process = args.process;
    let found = match runner_of(process)? {
        Some(it) => Some(it),
        // `zerolane run` itself: its children know it.
        None => children(process)
            .into_iter()
            .find_map(|it| runner_of(it).ok().flatten()),
    };
    let runner = found.ok_or_else(|| {
        anyhow!("process {process} was not started by `zerolane run`").context(Exit::Usage)
    })?;
    let lines = connections(&runner).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => anyhow!("the `zerolane run` of process {process} is gone"),
        _ => anyhow!(error).context(format!("asking the `zerolane run` of process {process}")),
    })?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["BY", "LOCAL", "PEER", "SENT", "RECEIVED"]);
    for line in lines {
        table.add_row(line.split(' ').collect::<Vec<_>>());
    }
    console::say(table.trim_fmt())
}

/// The runner that a process was started with.
fn runner_of(process: u32) -> Result<Option<Runner>> {
    let environment = fs::read(format!("/proc/{process}/environ")).map_err(|error| {
        let words = match error.kind() {
            ErrorKind::NotFound => format!("there is no process {process}"),
            ErrorKind::PermissionDenied => format!("process {process} belongs to another user"),
            _ => error.to_string(),
        };
        anyhow!(words)
    })?;
    let mut variables = environment.split(|it| *it == 0);
    let value = variables.find_map(|it| it.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="));
    Ok(value.and_then(Runner::parse))
}

fn children(process: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let listed = listed.unwrap_or_default();
    listed
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .collect()
}
