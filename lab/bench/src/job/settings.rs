//! Describes how a contender does its job: protection, paths, tuning.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use zerolane::Security;
use zerolane::options::PathAddresses;
use zerolane::security::Cipher;

use crate::content::pattern::WORD;
use crate::limits::BUFFER_MAX_BYTES;

/// How Zerolane's connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protection {
    /// Encrypted and authenticated with keys made for the run, by the best cipher of both ends.
    Encrypted,
    /// The same, by the cipher of TLS's and quinn's runs.
    #[value(name = "aes-128-gcm")]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// Authenticated, not hidden, with keys made for the run.
    Authenticated,
    /// Not at all, as kernel TCP is not.
    #[default]
    Plain,
}

impl Protection {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protection::Encrypted => "encrypted",
            Protection::Aes128Gcm => "encrypted by AES-128-GCM",
            Protection::Authenticated => "authenticated",
            Protection::Plain => "plain",
        }
    }

    /// The security of an end: neither end knows the other's key, which is made for the run.
    pub(crate) fn security(self) -> Security {
        match self {
            Protection::Encrypted => Security::default(),
            Protection::Aes128Gcm => Security {
                cipher: Some(Cipher::Aes128Gcm),
                ..Security::default()
            },
            Protection::Authenticated => Security::authenticated(),
            Protection::Plain => Security::plain(),
        }
    }
}

/// The addresses of a path after the first, as in [`PathAddresses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum PathEnds {
    Udp {
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    },
    Ethernet {
        interface: u32,
        peer: [u8; 6],
    },
}

impl PathEnds {
    /// Whether the peer must accept paths over raw Ethernet.
    pub(crate) fn is_ethernet(&self) -> bool {
        matches!(self, PathEnds::Ethernet { .. })
    }
}

impl From<PathAddresses> for PathEnds {
    fn from(path: PathAddresses) -> PathEnds {
        match path {
            PathAddresses::Udp { local, peer } => PathEnds::Udp { local, peer },
            PathAddresses::Ethernet { interface, peer } => PathEnds::Ethernet { interface, peer },
        }
    }
}

impl From<PathEnds> for PathAddresses {
    fn from(path: PathEnds) -> PathAddresses {
        match path {
            PathEnds::Udp { local, peer } => PathAddresses::Udp { local, peer },
            PathEnds::Ethernet { interface, peer } => PathAddresses::Ethernet { interface, peer },
        }
    }
}

/// How the TCP ends use their sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TcpTuning {
    /// Most bytes handed to one send.
    pub(crate) send_bytes: usize,
    /// Most bytes asked of one recv.
    pub(crate) recv_bytes: usize,
    /// SO_SNDBUF, bytes; `None` leaves the kernel's autotuning on.
    pub(crate) send_buffer: Option<usize>,
    /// SO_RCVBUF, bytes; `None` leaves the kernel's autotuning on.
    pub(crate) recv_buffer: Option<usize>,
    /// Whether recv waits until all it asked for is there (MSG_WAITALL).
    pub(crate) wait_all: bool,
    /// TCP_CONGESTION; `None`: the baseline where it may be had, see `contender::congestion`.
    pub(crate) congestion: Option<String>,
}

impl Default for TcpTuning {
    /// The best that was found; see `contender::tcp`.
    fn default() -> TcpTuning {
        TcpTuning {
            send_bytes: 1 << 20,
            recv_bytes: 1 << 20,
            send_buffer: None,
            recv_buffer: None,
            wait_all: false,
            congestion: None,
        }
    }
}

impl TcpTuning {
    /// The best settings found for files and bad links: the bytes stay in the cache.
    pub(crate) fn in_cache() -> TcpTuning {
        TcpTuning {
            send_bytes: 256 << 10,
            recv_bytes: 256 << 10,
            ..TcpTuning::default()
        }
    }

    /// A piece at a time.
    pub(crate) fn in_pieces(bytes: usize) -> TcpTuning {
        TcpTuning {
            send_bytes: bytes,
            recv_bytes: bytes,
            ..TcpTuning::default()
        }
    }

    /// Refuses what a socket or the pattern cannot do.
    pub(crate) fn check(&self) -> Result<()> {
        for bytes in [self.send_bytes, self.recv_bytes] {
            ensure!(
                (1..=BUFFER_MAX_BYTES).contains(&bytes) && bytes.is_multiple_of(WORD),
                "a TCP chunk of {bytes} bytes: it must be a multiple of {WORD} up to {BUFFER_MAX_BYTES}"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn TcpTuning__refuses_chunks_that_split_words() {
        TcpTuning::default().check().unwrap();
        assert!(
            TcpTuning {
                send_bytes: 12,
                ..TcpTuning::default()
            }
            .check()
            .is_err()
        );
        assert!(
            TcpTuning {
                recv_bytes: 0,
                ..TcpTuning::default()
            }
            .check()
            .is_err()
        );
    }
}
