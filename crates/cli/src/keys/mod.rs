//! `zerolane keygen`, `zerolane id` and `zerolane keys`.

pub(crate) mod lists;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use zerolane::keys::{self, identity};

use crate::console;
use crate::security::identity_file;

/// Arguments of `zerolane keygen` and `zerolane id`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The key's file [default: identity in ZEROLANE_HOME, or in ~/.config/zerolane]
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

/// Makes of an error of a file of keys one that names the file, once: most do so by themselves.
pub(crate) fn in_file(path: &Path) -> impl FnOnce(keys::Error) -> anyhow::Error {
    move |error| match error {
        keys::Error::Syntax { .. } => anyhow::Error::new(error).context(path.display().to_string()),
        error => error.into(),
    }
}
