//! Runs the `zerolane` command. Another program, `zerolane-bench`, implements `bench`, `demo` and `report`.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use anyhow::anyhow;
use clap::Subcommand;
use zerolane_cli::exit::Exit;
use zerolane_cli::{Args, program};

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Own(Box<zerolane_cli::Command>),
    /// Copy a real file over TCP and over Zerolane, and compare
    #[command(disable_help_flag = true)]
    Demo(Words),
    /// Measure Zerolane against the kernel's TCP
    #[command(disable_help_flag = true)]
    Bench(Words),
    /// Run the papers' experiments, and write a page that shows them beside the papers' figures
    #[command(disable_help_flag = true)]
    Report(Words),
}

/// Arguments that are passed on unchanged.
#[derive(Debug, clap::Args)]
struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// The program that implements `demo`, `bench` and `report`.
const BENCH: &str = "zerolane-bench";

fn main() -> Exit {
    Args::main(|command| match command {
        Command::Own(command) => command.run(),
        Command::Demo(Words { words }) => Err(become_bench("demo", &words)),
        Command::Bench(Words { words }) => Err(become_bench("bench", &words)),
        Command::Report(Words { words }) => Err(become_bench("report", &words)),
    })
}

/// Replaces this process by [`BENCH`], so that exit code and signals are those of that program. Returns only on an
/// error.
fn become_bench(command: &str, words: &[OsString]) -> anyhow::Error {
    let Some(program) = find_bench() else {
        return anyhow!(
            "`zerolane {command}` is in a program of its own, {BENCH}, which is neither beside this one nor \
             in PATH: `make install` and the Debian package install both, `cargo build --release -p {BENCH}` \
             builds it"
        );
    };
    let error = process::Command::new(&program)
        // The program's help shows the name that the user typed.
        .arg0("zerolane")
        .arg(command)
        .args(words)
        .exec();
    anyhow::Error::new(error).context(format!("cannot start {}", program.display()))
}

/// The program beside this executable, otherwise the one in `PATH`.
fn find_bench() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|own| own.with_file_name(BENCH));
    beside
        .filter(|path| program::is_executable(path))
        .or_else(|| program::find(BENCH))
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
