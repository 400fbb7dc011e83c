//! `--lane`.

use serde::{Deserialize, Serialize};
use zerolane::options::LaneChoice;

/// What is to carry connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneName {
    /// UDP, also on one host
    #[default]
    Udp,
    /// Shared memory where both ends are this user's processes on one host, and were told so; else UDP
    Auto,
    /// Shared memory and nothing else
    Shm,
}

impl LaneName {
    /// As the command line spells it.
    pub const fn name(self) -> &'static str {
        match self {
            LaneName::Udp => "udp",
            LaneName::Auto => "auto",
            LaneName::Shm => "shm",
        }
    }
}

impl From<LaneName> for LaneChoice {
    fn from(name: LaneName) -> LaneChoice {
        match name {
            LaneName::Udp => LaneChoice::Udp,
            LaneName::Auto => LaneChoice::Best,
            LaneName::Shm => LaneChoice::SharedMemory,
        }
    }
}
