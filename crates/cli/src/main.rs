//! The `zerolane` command. Each subcommand lives in a module of its own; this
//! file picks one and turns its error into words and an exit code.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod console;
mod demo;
mod exit;
mod files;
mod interrupt;
mod keys;

use clap::Parser;

use crate::args::{Args, Command};
use crate::exit::Exit;

fn main() -> Exit {
    let args = Args::parse();
    let done = match args.command {
        Command::Serve(args) => files::serve::run(args),
        Command::Cp(args) => files::copy::run(args),
        Command::Ls(args) => files::list::run(args),
        Command::Keygen(args) => keys::generate(args),
        Command::Id(args) => keys::show(args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
    };
    match done {
        Ok(()) => Exit::Success,
        Err(error) => {
            console::note(format_args!("zerolane: {error:#}"));
            Exit::of(&error)
        }
    }
}
