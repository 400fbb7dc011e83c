//! The `zerolane` command. Each subcommand lives in a module of its own; this
//! file picks one and turns its error into words and an exit code.

#![forbid(unsafe_code)]

mod address;
mod args;
mod bench;
mod console;
mod demo;
mod exit;
mod files;
mod interrupt;
mod keys;
mod lab;
mod mem;
mod security;

use clap::Parser;

use crate::args::{Args, Command};
use crate::exit::Exit;

fn main() -> Exit {
    let args = Args::parse();
    let done = match args.command {
        Command::Serve(args) => files::serve::run(args).map(succeed),
        Command::Cp(args) => files::copy::run(args).map(succeed),
        Command::Ls(args) => files::list::run(args).map(succeed),
        Command::Mem(args) => mem::run(args).map(succeed),
        Command::Keygen(args) => keys::generate(args).map(succeed),
        Command::Id(args) => keys::show(args).map(succeed),
        Command::Demo(args) => demo::run(args).map(succeed),
        Command::Bench(args) => bench::run(args).map(succeed),
        Command::Lab(args) => lab::run(args),
    };
    match done {
        Ok(exit) => exit,
        Err(error) => {
            console::note(format_args!("zerolane: {}", exit::words(&error)));
            Exit::of(&error)
        }
    }
}

/// The exit of a command that did what it was asked.
fn succeed((): ()) -> Exit {
    Exit::Success
}
