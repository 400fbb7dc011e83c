//! Who is compared.

use serde::{Deserialize, Serialize};
use zerolane::options::Profile;

/// A protocol with its settings.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contender {
    /// Zerolane as the thesis describes Scheduled Transfer
    Classic,
    /// Zerolane as it is by default
    Extended,
    /// The kernel's TCP with CUBIC
    Cubic,
    /// The kernel's TCP with BBR
    Bbr,
}

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Tcp { congestion: &'static str },
    Zerolane { profile: Profile },
}

impl Contender {
    /// All, in the order of the tables.
    pub(crate) const ALL: [Contender; 4] = [
        Contender::Classic,
        Contender::Extended,
        Contender::Cubic,
        Contender::Bbr,
    ];

    pub(crate) fn carrier(self) -> Carrier {
        match self {
            Contender::Classic => Carrier::Zerolane {
                profile: Profile::Classic,
            },
            Contender::Extended => Carrier::Zerolane {
                profile: Profile::Extended,
            },
            Contender::Cubic => Carrier::Tcp {
                congestion: "cubic",
            },
            Contender::Bbr => Carrier::Tcp { congestion: "bbr" },
        }
    }

    /// For tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Classic => "classic",
            Contender::Extended => "extended",
            Contender::Cubic => "TCP cubic",
            Contender::Bbr => "TCP bbr",
        }
    }
}
