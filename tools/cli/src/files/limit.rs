//! Defines `--limit`, which bounds the rate of a copy.

use crate::rate;

/// The option, shared by all commands that move files.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Send at most this much content a second over all connections together, and make the other end do the same: 10MiB/s,
    /// 100mbit
    #[arg(long = "limit", value_name = "RATE", value_parser = rate::parse)]
    pub(crate) max_rate: Option<u64>,
}
