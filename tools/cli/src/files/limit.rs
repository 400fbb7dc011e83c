//! `--limit`.

use crate::rate;

/// The option of all commands that move files.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Send, and have the other end send, at most so much content a second, over each connection: 10MiB/s, 100mbit
    #[arg(long = "limit", value_name = "RATE", value_parser = rate::parse)]
    pub(crate) max_rate: Option<u64>,
}
