//! Runs the `zerolane` command with the benchmark, the demo and the report.

#![forbid(unsafe_code)]

use clap::Subcommand;
use zerolane_bench::demo;
use zerolane_cli::exit::Exit;
use zerolane_cli::{Args, generate};

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Own(Box<zerolane_cli::Command>),
    /// Copy a real file over TCP and over Zerolane, and compare
    Demo(demo::Args),
    /// Measure Zerolane against the kernel's TCP
    Bench(zerolane_bench::Args),
    /// Run the papers' experiments, and write a page that compares the results with the papers' figures
    Report(zerolane_report::Args),
    /// Make the manual pages and completions
    #[command(hide = true)]
    Generate(generate::Args),
}

fn main() -> Exit {
    Args::main(|command| match command {
        Command::Own(command) => command.run(),
        Command::Demo(args) => demo::run(args).map(|()| Exit::Success),
        Command::Bench(args) => zerolane_bench::run(args).map(|()| Exit::Success),
        Command::Report(args) => zerolane_report::run(&args).map(|()| Exit::Success),
        Command::Generate(args) => generate::run::<Command>(&args).map(|()| Exit::Success),
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn Args__is_a_consistent_command_tree() {
        Args::<Command>::command().debug_assert();
    }
}
