//! Names the contenders.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::{Deserialize, Serialize};

/// A contender, as the command line and the reports spell it. [`crate::contender`] describes each.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    /// Raw UDP
    Udp,
    /// The kernel's TCP, send and recv
    Tcp,
    /// A UNIX socket, send and recv, where both ends are on one host: --lane shm
    Unix,
    /// The kernel's TCP with the buffer's pages by vmsplice and splice
    #[value(name = "tcp_splice")]
    TcpSplice,
    /// The kernel's TCP with a file's pages by sendfile
    #[value(name = "tcp_sendfile")]
    TcpSendfile,
    /// TLS 1.3 over TCP: rustls, AES-128-GCM
    Tls,
    /// QUIC: quinn, AES-128-GCM
    Quinn,
    /// Zerolane as it is by default
    Zerolane,
    /// Zerolane without protection, as kernel TCP is
    #[value(name = "zerolane_plain")]
    ZerolanePlain,
    /// ucx_perftest over TCP
    Ucx,
    /// fi_pingpong over libfabric's tcp
    Libfabric,
    /// Zerolane as the thesis describes Scheduled Transfer
    Classic,
    /// Zerolane with its own extensions alone
    Extended,
    /// The kernel's TCP with CUBIC
    Cubic,
    /// The kernel's TCP with BBR
    Bbr,
}

impl Name {
    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Name::Udp => "UDP",
            Name::Tcp => "TCP",
            Name::Unix => "UNIX socket",
            Name::TcpSplice => "TCP by splice",
            Name::TcpSendfile => "TCP by sendfile",
            Name::Tls => "TLS",
            Name::Quinn => "quinn",
            Name::Zerolane => "Zerolane",
            Name::ZerolanePlain => "Zerolane plain",
            Name::Ucx => "UCX",
            Name::Libfabric => "libfabric",
            Name::Classic => "classic",
            Name::Extended => "extended",
            Name::Cubic => "TCP cubic",
            Name::Bbr => "TCP bbr",
        }
    }

    /// Whether the kernel reads the sender's memory after a send, so that its content must not change.
    pub(crate) fn lends_memory(self) -> bool {
        matches!(self, Name::TcpSplice | Name::TcpSendfile)
    }

    /// Reads one of `names` from the command line.
    pub(crate) fn among(names: &[Name]) -> impl TypedValueParser<Value = Name> + use<> {
        let values = names.iter().filter_map(Name::to_possible_value);
        PossibleValuesParser::new(values).try_map(|word| Name::from_str(&word, false))
    }
}
