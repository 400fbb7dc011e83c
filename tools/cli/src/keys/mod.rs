//! Implements `zerolane keygen` and `zerolane id`.

pub(crate) mod lists;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use zerolane::keys::identity;

use crate::console;
use crate::security::{identity_file, in_file};

/// Arguments of `zerolane keygen` and `zerolane id`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file of the key [default: identity in ZEROLANE_HOME, or in ~/.config/zerolane]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Makes a key and prints its public half.
pub(crate) fn generate(args: Args) -> Result<()> {
    let path = identity_file(args.file)?;
    let made = identity::create(&path)?;
    console::note(format_args!("The secret half is in {}.", path.display()));
    console::say(made.public())
}

/// Prints the public half of this user's key.
pub(crate) fn show(args: Args) -> Result<()> {
    let path = identity_file(args.file)?;
    let found = identity::load(&path).map_err(in_file(&path))?;
    let found = found.ok_or_else(|| anyhow!("no key in {}: zerolane keygen", path.display()))?;
    console::say(found.public())
}
