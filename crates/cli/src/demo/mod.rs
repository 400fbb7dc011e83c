//! `zerolane demo`.

/// Arguments of `zerolane demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `zerolane demo`.
pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    Ok(())
}
