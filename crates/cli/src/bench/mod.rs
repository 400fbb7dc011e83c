//! `zerolane bench`.

/// Arguments of `zerolane bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `zerolane bench`.
pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    Ok(())
}
